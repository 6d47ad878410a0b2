"""Fixtures that tests of several folders share."""

from tests.harness.group.fixtures import secured, story, team, time_to_look
from tests.harness.kafka.fixtures import safe, told

__all__ = ["safe", "secured", "story", "team", "time_to_look", "told"]
