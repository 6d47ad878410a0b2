"""Refuses calls that need the network where there is none, or where they would hang."""

import functools
import threading
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer

from safeconsumer.errors.kafka_python import (
    BlockingCallInListenerError,
    ConsumerClosedError,
)


def is_on_io_thread(consumer: KafkaConsumer) -> bool:
    """Tell whether this is the thread on which rebalance listeners run."""
    return threading.current_thread() is consumer._net._io_thread


def refuse_in_listener(consumer: KafkaConsumer, call: str) -> None:
    """Refuse a call that waits for the network on the thread that listeners run on."""
    if is_on_io_thread(consumer):
        instead = "do it after poll() has returned"
        if call == "commit":
            instead = (
                "in a ConsumerRebalanceListener use commit_async(); in an "
                "AsyncConsumerRebalanceListener await commit_async(...), which "
                "finishes before the member rejoins"
            )
        message = (
            f"{call}() waits for the thread that rebalance listeners run on: {instead}"
        )
        raise BlockingCallInListenerError(message)


def refuse_if_closed(consumer: KafkaConsumer, call: str) -> None:
    """Refuse a call that needs the network, of a closed consumer."""
    # The consumer itself is marked when it begins to close, and its listener commits.
    if consumer._net._closed:
        message = (
            f"{call}() needs the network, and this consumer is closed: make another"
        )
        raise ConsumerClosedError(message)


def refuse_blocking(consumer: KafkaConsumer, call: str) -> None:
    """
    Refuse a call that waits for the network, where nothing would come of it.

    Raises:
        ConsumerClosedError: the consumer is closed.
        BlockingCallInListenerError: this is the thread that listeners run on.
    """
    refuse_if_closed(consumer, call)
    refuse_in_listener(consumer, call)


def blocking(name: str) -> Callable[..., Any]:
    """
    Make upstream's method of that name refuse where it cannot wait for an answer.

    Some of them change something before they notice; when refused, they change nothing.
    """
    upstream = getattr(KafkaConsumer, name)

    @functools.wraps(upstream)
    def call(self: KafkaConsumer, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - upstream's
        refuse_blocking(self, name)
        return upstream(self, *args, **kwargs)

    return call
