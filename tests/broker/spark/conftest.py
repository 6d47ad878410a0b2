"""Defines the fixtures for the tests of the Python source."""

import pytest

from safeconsumer.spark.python import reading
from tests.harness.spark.fixtures import operator
from tests.harness.spark.planned import close

__all__ = ["operator"]


@pytest.fixture(autouse=True)
def kept():
    """Yield the readers that the source keeps between tasks; close them after the test."""
    clients = reading.KeptClient._idle
    yield clients
    close(clients)
