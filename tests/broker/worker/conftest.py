"""
Workers on the broker of this run, in threads of their own.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safeconsumer import SafeConsumer
from tests.broker.worker.handlers import Recording
from tests.harness.worker.lab import Lab


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """
    Make a handler that obeys its records and leaves traces.
    """
    return Recording(tmp_path)


@pytest.fixture
def lab(
    kafka_broker: Any,  # noqa: ANN401 - any kind
    kafka_topic: Callable[..., str],
    make_consumer: Callable[..., Any],
    make_producer: Callable[..., Any],
) -> Iterator[Lab]:
    """
    Lend a topic, its records, and workers on it.
    """
    lab = Lab(
        broker=kafka_broker,
        make_topic=kafka_topic,
        make_consumer=lambda *topics, **config: make_consumer(
            SafeConsumer, *topics, **config
        ),
        make_producer=make_producer,
    )
    try:
        yield lab
    finally:
        lab.close()
