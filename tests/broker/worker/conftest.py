"""
Workers on the broker of this run, in threads of their own.
"""

from pathlib import Path

import pytest

from tests.broker.worker.handlers import Recording
from tests.harness.worker.fixtures import worker_lab  # noqa: F401 - a fixture
from tests.harness.worker.lab import Lab


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """
    Make a handler that obeys its records and leaves traces.
    """
    return Recording(tmp_path)


@pytest.fixture
def lab(worker_lab: Lab) -> Lab:  # noqa: F811 - the fixture
    """
    Lend a topic, its records, and workers on it.
    """
    return worker_lab
