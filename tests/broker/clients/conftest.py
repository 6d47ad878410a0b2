"""Fixtures that tests of several folders share."""

from tests.harness.group.fixtures import secured, story, team

__all__ = ["secured", "story", "team"]
