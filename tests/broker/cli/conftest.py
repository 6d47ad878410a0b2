"""What tests of the commands share."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.cli.letters import Post


@pytest.fixture
def post(
    kafka_broker: Any,  # noqa: ANN401 - any kind
    kafka_topic: Callable[..., str],
    make_producer: Callable[..., Any],
    make_consumer: Callable[..., Any],
) -> Post:
    """Prepare the topics."""
    topics = kafka_topic(partitions=3), kafka_topic(partitions=1)
    return Post(kafka_broker, *topics, make_producer(), make_consumer)
