"""Imports the shared fixtures that the group tests use."""

from tests.harness.group.fixtures import secured, story, team, time_to_look
from tests.harness.kafka.fixtures import event_log, safe

__all__ = ["event_log", "safe", "secured", "story", "team", "time_to_look"]
