"""Consumers that reach no broker, and what their hooks were told."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from safeconsumer import SafeConsumer
from tests.harness.holds.lab import Told
from tests.harness.kafka.offline import offline

Maker = Callable[..., SafeConsumer]


@pytest.fixture
def told() -> Told:
    """Make a hook that remembers."""
    return Told()


@pytest.fixture
def safe(told: Told) -> Iterator[Maker]:
    """``safe(*topics, **configs)`` makes a consumer that reaches no broker."""
    with ExitStack() as stack:

        def make(*topics: str, **configs: Any) -> SafeConsumer:  # noqa: ANN401 - upstream's
            configs = {"hooks": (told,), **configs}
            consumer: SafeConsumer = stack.enter_context(
                offline(SafeConsumer, *topics, **configs)
            )
            return consumer

        yield make
