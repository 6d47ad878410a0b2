"""Refuses, in a rebalance listener, calls that would wait for the thread it runs on."""

import functools
import threading
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer

from safeconsumer._kafka.errors import BlockingCallInListenerError


def is_on_io_thread(consumer: KafkaConsumer) -> bool:
    """Tell whether this is the thread on which rebalance listeners run."""
    return threading.current_thread() is consumer._net._io_thread


def refuse_in_listener(consumer: KafkaConsumer, call: str) -> None:
    """
    Refuse a call on the thread that must not wait for the network.

    Raises:
        BlockingCallInListenerError: the message has the call, and what works instead.
    """
    if is_on_io_thread(consumer):
        message = (
            f"{call}() waits for the thread that rebalance listeners run on. To "
            "commit in a ConsumerRebalanceListener use commit_async(); in an "
            "AsyncConsumerRebalanceListener await commit_async(...), which "
            "finishes before the member rejoins. Do the rest after poll() returns"
        )
        raise BlockingCallInListenerError(message)


def not_in_listener(name: str) -> Callable[..., Any]:
    """
    Make upstream's method of that name refuse to be called in a listener.

    Some of them change something before they notice; when refused, they change nothing.
    """
    upstream = getattr(KafkaConsumer, name)

    @functools.wraps(upstream)
    def call(self: KafkaConsumer, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - upstream's
        refuse_in_listener(self, name)
        return upstream(self, *args, **kwargs)

    return call
