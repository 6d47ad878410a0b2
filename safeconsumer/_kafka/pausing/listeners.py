"""Refuses calls that need the network on a closed consumer, or where they would hang."""

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
    """Refuse a call that waits for the network on the thread of listeners."""
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
    """Refuse a call that needs the network on a closed consumer."""
    # Not the consumer's own mark: it is set when a close begins, and a listener may commit.
    if consumer._net._closed:
        message = (
            f"{call}() needs the network, and this consumer is closed: make another"
        )
        raise ConsumerClosedError(message)


def refuse_blocking(consumer: KafkaConsumer, call: str) -> None:
    """
    Refuse a call that waits for the network where it cannot be answered.

    Raises:
        ConsumerClosedError: the consumer is closed.
        BlockingCallInListenerError: this is the thread that listeners run on.
    """
    refuse_if_closed(consumer, call)
    refuse_in_listener(consumer, call)


def blocking(name: str) -> Callable[..., Any]:
    """
    Make upstream's method of that name refuse where it cannot wait for an answer.

    A refused call changes nothing; some of upstream's would before they fail.
    """
    upstream = getattr(KafkaConsumer, name)

    @functools.wraps(upstream)
    def call(self: KafkaConsumer, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - upstream's
        refuse_blocking(self, name)
        return upstream(self, *args, **kwargs)

    return call
