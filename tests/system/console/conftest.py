"""Imports the shared fixtures that the console's tests use."""

from tests.harness.console.fixtures import browser, served
from tests.harness.group.fixtures import secured, story, team

__all__ = ["browser", "secured", "served", "story", "team"]
