"""Fixtures that tests of several folders share."""

from tests.harness.group.fixtures import model_seconds

__all__ = ["model_seconds"]
