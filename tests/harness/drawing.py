"""Makes Hypothesis draw few examples in ordinary runs and many in nightly runs."""

import pytest
from hypothesis import HealthCheck, given, settings


def examples(by_day, at_night):
    """Parametrize a test by ``most``, the maximum number of its examples."""
    more = pytest.param(at_night, marks=pytest.mark.nightly)
    return pytest.mark.parametrize("most", [by_day, more])


def draw(most, test, **strategies):
    """Call ``test`` with up to ``most`` examples that the strategies draw."""
    slow = (HealthCheck.too_slow, HealthCheck.data_too_large)
    most_of_it = settings(max_examples=most, deadline=None, suppress_health_check=slow)
    most_of_it(given(**strategies)(test))()
