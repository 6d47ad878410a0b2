"""Fixtures of the unit tests of workers."""

import gc

import pytest


@pytest.fixture
def collect():
    """
    Return a function that collects the test's garbage; to scan all objects takes long.

    The older objects, which the collection of tests has made, stay frozen.
    """
    gc.freeze()
    return gc.collect
