"""What tests of the commands share."""

import pytest

from tests.broker.cli.letters import Post


@pytest.fixture
def post(kafka_broker, kafka_topic, make_producer, make_consumer):
    """Prepare the topics."""
    topics = kafka_topic(partitions=3), kafka_topic(partitions=1)
    return Post(kafka_broker, *topics, make_producer(), make_consumer)
