"""Imports the shared fixtures that the tests of metrics use."""

from tests.broker.worker.conftest import recording
from tests.harness.kafka.fixtures import event_log, safe
from tests.harness.worker.lab import lab

__all__ = ["event_log", "lab", "recording", "safe"]
