"""Defines fixtures for consumers that need no broker, and for a hook that logs events."""

from contextlib import ExitStack

import pytest

from safeconsumer import SafeConsumer
from tests.harness.holds.lab import EventLog
from tests.harness.kafka.offline import offline


@pytest.fixture
def event_log():
    """Return a hook that stores all events it receives."""
    return EventLog()


@pytest.fixture
def safe(event_log):
    """Return ``safe(*topics, **configs)``, which makes a consumer that needs no broker."""
    with ExitStack() as stack:

        def make(*topics, **configs):
            configs = {"hooks": (event_log,), **configs}
            return stack.enter_context(offline(SafeConsumer, *topics, **configs))

        yield make
