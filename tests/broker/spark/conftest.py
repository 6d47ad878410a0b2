"""Fixtures of this folder."""

import pytest

from safeconsumer.spark.python import reading
from tests.harness.spark.fixtures import operator
from tests.harness.spark.planned import close

__all__ = ["operator"]


@pytest.fixture(autouse=True)
def kept():
    """Lend the readers that are kept between tasks; those of a test end with it."""
    clients = reading.KeptClient._idle
    yield clients
    close(clients)
