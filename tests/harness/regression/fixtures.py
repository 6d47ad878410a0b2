"""A lab on the session's broker, and what all labs share."""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.harness.regression.lab import Lab


@pytest.fixture(scope="session")
def regression_producer(kafka_broker: Any) -> Iterator[KafkaProducer]:  # noqa: ANN401 - the plugin's object
    """One producer for all tests; records are acknowledged before a test goes on."""
    producer = KafkaProducer(
        **kafka_broker.client_config, acks="all", enable_idempotence=False
    )
    yield producer
    producer.close(5)


@pytest.fixture(scope="session")
def regression_topics(kafka_broker: Any) -> Iterator[list[str]]:  # noqa: ANN401 - the plugin's object
    """Collect the topics that tests leave, and delete them where the broker stays."""
    names: list[str] = []
    yield names
    if kafka_broker.is_real and names:
        with kafka_broker.admin() as admin:
            admin.delete_topics(names)


@pytest.fixture
def lab(
    kafka_broker: Any,  # noqa: ANN401 - the plugin's object
    regression_producer: KafkaProducer,
    regression_topics: list[str],
) -> Iterator[Lab]:
    """Give the test its topics, consumers and members, and close them all."""
    made = Lab(kafka_broker, regression_producer, regression_topics)
    try:
        yield made
    finally:
        made.close()
