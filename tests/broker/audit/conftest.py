"""Defines a fixture for clients of the chosen broker."""

import pytest

from safeconsumer.testing.clients import Clients


@pytest.fixture
def clients(kafka_broker):
    made = Clients(kafka_broker)
    yield made
    made.close()
