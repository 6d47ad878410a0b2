"""Workers on the broker of this run, in their own threads."""

import pytest

from tests.broker.worker.handlers import Recording
from tests.harness.worker.lab import lab

__all__ = ["lab", "recording"]


@pytest.fixture
def recording(tmp_path):
    """Make a handler that obeys its records and leaves traces."""
    return Recording(tmp_path)
