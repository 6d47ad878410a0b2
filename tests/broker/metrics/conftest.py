"""Fixtures that tests of several folders share."""

from tests.broker.worker.conftest import recording
from tests.harness.kafka.fixtures import safe, told
from tests.harness.worker.lab import lab

__all__ = ["lab", "recording", "safe", "told"]
