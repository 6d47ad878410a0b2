"""Fixtures that tests of several folders share."""

from tests.harness.kafka.fixtures import safe, told

__all__ = ["safe", "told"]
