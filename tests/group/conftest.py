"""
What tests of group control share.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.kafka.conftest import safe, told

__all__ = ["safe", "told"]

# A loaded machine is no fault of a decoder.
settings.register_profile(
    "group", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture(autouse=True, scope="package")
def patient_hypothesis() -> Iterator[None]:
    """
    Do not time what Hypothesis generates.
    """
    before = settings.get_current_profile_name()
    settings.load_profile("group")
    yield
    settings.load_profile(before)


@pytest.fixture
def model_seconds(pytestconfig: pytest.Config) -> float:
    """
    Tell for how long a model may be explored.
    """
    seconds: float = pytestconfig.option.group_model_seconds
    return seconds
