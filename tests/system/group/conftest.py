"""Fixtures that tests of several folders share."""

from tests.harness.group.fixtures import secured, story, time_to_look

__all__ = ["secured", "story", "time_to_look"]
