"""Clients of the broker of this run."""

from collections.abc import Iterator
from typing import Any

import pytest

from safeconsumer.testing.clients import Clients


@pytest.fixture
def clients(kafka_broker: Any) -> Iterator[Clients]:  # noqa: ANN401 - any kind
    """Make clients, and close them before the next test."""
    made = Clients(kafka_broker)
    yield made
    made.close()
