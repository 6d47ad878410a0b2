"""Defines fixtures for workers that use the chosen broker."""

import pytest

from tests.broker.worker.handlers import Recording
from tests.harness.worker.lab import lab

__all__ = ["lab", "recording"]


@pytest.fixture
def recording(tmp_path):
    """Return a handler that obeys the commands in its records and leaves traces."""
    return Recording(tmp_path)
