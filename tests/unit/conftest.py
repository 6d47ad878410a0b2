"""Fixtures that tests of several folders share."""

from tests.harness.kafka.fixtures import event_log, safe

__all__ = ["event_log", "safe"]
