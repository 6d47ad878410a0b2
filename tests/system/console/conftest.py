"""Fixtures that tests of several folders share."""

from tests.harness.console.fixtures import browser, served, team
from tests.harness.group.fixtures import secured, story

__all__ = ["browser", "secured", "served", "story", "team"]
