"""
What tests of group control share.
"""

import pytest

from tests.kafka.conftest import safe, told

__all__ = ["safe", "told"]


@pytest.fixture
def model_seconds(pytestconfig: pytest.Config) -> float:
    """
    Tell for how long a model may be explored.
    """
    seconds: float = pytestconfig.option.group_model_seconds
    return seconds
