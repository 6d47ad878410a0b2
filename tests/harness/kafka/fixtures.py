"""Consumers that reach no broker, and a hook that keeps their events."""

from contextlib import ExitStack

import pytest

from safeconsumer import SafeConsumer
from tests.harness.holds.lab import EventLog
from tests.harness.kafka.offline import offline


@pytest.fixture
def event_log():
    """Return a hook that keeps events."""
    return EventLog()


@pytest.fixture
def safe(event_log):
    """``safe(*topics, **configs)`` makes a consumer that reaches no broker."""
    with ExitStack() as stack:

        def make(*topics, **configs):
            configs = {"hooks": (event_log,), **configs}
            return stack.enter_context(offline(SafeConsumer, *topics, **configs))

        yield make
