"""Fixtures that tests of several folders share."""

from tests.harness.group.fixtures import team

__all__ = ["team"]
