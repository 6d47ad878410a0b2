"""
Fixtures that tests of several folders share.
"""

from tests.broker.worker.conftest import lab, recording
from tests.harness.metrics.fixtures import safe

__all__ = ["lab", "recording", "safe"]
