"""Fixtures that tests of several folders share."""

from tests.harness.group.fixtures import secured, story

__all__ = ["secured", "story"]
