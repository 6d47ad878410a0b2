"""Fixtures for the unit tests of workers."""

import gc

import pytest


@pytest.fixture
def collect():
    """
    Return a function that collects only the test's garbage, because a full scan is slow.

    Objects that existed before the test stay frozen.
    """
    gc.freeze()
    return gc.collect
