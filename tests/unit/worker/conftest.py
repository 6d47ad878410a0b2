"""Fixtures of the unit tests of workers."""

import gc

import pytest


@pytest.fixture
def collect():
    """Return what collects the garbage of the test: a look at all else takes long."""
    gc.freeze()
    yield gc.collect
    gc.unfreeze()
