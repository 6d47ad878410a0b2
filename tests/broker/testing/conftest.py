"""An embedded broker for the tests of the kit itself, whatever the suite runs on."""

import pytest
from kafka import KafkaAdminClient

from safeconsumer.testing import Clients, EmbeddedBroker


@pytest.fixture
def broker():
    """Start one broker for one test: 0.1 s."""
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def clients(broker):
    """Make clients of that broker, and close them before it stops."""
    made = Clients(broker)
    yield made
    made.close()


@pytest.fixture
def admin(broker):
    """Make an admin client of that broker, and close it before that stops."""
    with KafkaAdminClient(**broker.client_config) as made:
        yield made
