"""Runs each test that takes a ``lab`` in a simulated world."""

import inspect

import pytest

from tests.sim import playing


def pytest_configure(config):
    """Decide whether nightly tests are collected, before pytest collects any."""
    playing.is_day = config.option.markexpr.strip() == "not nightly"


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Run a test with the first seed, unless ``@simulated`` names other seeds."""
    is_test = name.startswith("test_") and inspect.isfunction(obj)
    if not is_test or "lab" not in inspect.signature(obj).parameters:
        return None
    played = playing.simulated(seeds=1)(obj)
    played.pytestmark.insert(0, played.pytestmark.pop())  # ids begin with the seed
    setattr(collector.obj, name, played)
    collect = collector.ihook.pytest_pycollect_makeitem
    return collect(collector=collector, name=name, obj=played)
