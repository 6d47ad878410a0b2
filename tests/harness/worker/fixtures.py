"""The fixture of workers on the broker of the run; a conftest imports it."""

import pytest

from safeconsumer import SafeConsumer
from tests.harness.worker.lab import Lab


@pytest.fixture
def lab(kafka_broker, kafka_topic, make_consumer, make_producer):
    made = Lab(
        broker=kafka_broker,
        make_topic=kafka_topic,
        make_consumer=lambda *topics, **config: make_consumer(
            SafeConsumer, *topics, **config
        ),
        make_producer=make_producer,
    )
    try:
        yield made
    finally:
        made.close()
