"""Fixtures of this folder."""

import pytest

from safeconsumer.spark.python import reading
from tests.harness.spark.operator import Operator


@pytest.fixture(autouse=True)
def kept():
    """Lend the readers that are kept between tasks; those of a test end with it."""
    clients = reading.KeptClient._idle
    yield clients
    while clients:
        clients.popitem()[1].close()


@pytest.fixture
def operator(kafka_broker):
    made = Operator(kafka_broker)
    with made.team:
        yield made
