"""Consumers and workers whose figures are read."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from safeconsumer import SafeConsumer
from tests.harness.kafka.offline import offline

Maker = Callable[..., SafeConsumer]


@pytest.fixture
def safe() -> Iterator[Maker]:
    """``safe(*topics, **configs)`` makes a consumer that reaches no broker."""
    with ExitStack() as stack:

        def make(*topics: str, **configs: Any) -> SafeConsumer:  # noqa: ANN401 - upstream's
            consumer: SafeConsumer = stack.enter_context(
                offline(SafeConsumer, *topics, **configs)
            )
            return consumer

        yield make
