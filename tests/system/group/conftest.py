"""Imports the shared fixtures that the group tests use."""

from tests.harness.group.fixtures import secured, story, time_to_look

__all__ = ["secured", "story", "time_to_look"]
