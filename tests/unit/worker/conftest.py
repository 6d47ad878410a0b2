"""Fixtures of the unit tests of workers."""

import gc

import pytest


@pytest.fixture
def collect():
    """
    Return a function that collects only the test's garbage, because a full scan is slow.

    Older objects, which the collection of tests created, stay frozen.
    """
    gc.freeze()
    return gc.collect
