"""The fixture of workers, on whichever broker there is: a conftest imports it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from safeconsumer import SafeConsumer
from tests.harness.worker.lab import Lab


@pytest.fixture
def lab(
    kafka_broker: Any,  # noqa: ANN401 - any kind
    kafka_topic: Callable[..., str],
    make_consumer: Callable[..., Any],
    make_producer: Callable[..., Any],
) -> Iterator[Lab]:
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
