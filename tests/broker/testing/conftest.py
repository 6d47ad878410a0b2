"""Defines fixtures that use an embedded broker, for the tests of the test kit itself."""

import pytest
from kafka import KafkaAdminClient

from safeconsumer.testing import Clients, EmbeddedBroker


@pytest.fixture
def broker():
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def clients(broker):
    made = Clients(broker)
    yield made
    made.close()


@pytest.fixture
def admin(broker):
    with KafkaAdminClient(**broker.client_config) as made:
        yield made
