"""Refuses calls that need the network if the consumer is closed or they would hang."""

import functools
import threading
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer

from safeconsumer.errors.kafka_python import (
    BlockingCallInListenerError,
    BlockingCallInSignalHandlerError,
    ConsumerClosedError,
)


def is_on_io_thread(consumer: KafkaConsumer) -> bool:
    """Return whether the current thread is the one on which rebalance listeners run."""
    return threading.current_thread() is consumer._net._io_thread


def refuse_in_listener(consumer: KafkaConsumer, call: str) -> None:
    """Refuse a call that waits for the network if it is made on the listeners' thread."""
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
    # Does not read consumer._closed, because close() sets it before it calls the
    # listener, and the listener may still commit.
    if consumer._net._closed:
        message = (
            f"{call}() needs the network, and this consumer is closed: create another"
        )
        raise ConsumerClosedError(message)


def refuse_in_signal_handler(consumer: KafkaConsumer, call: str) -> None:
    """
    Refuse a call if the IO thread, to answer it, needs a lock that this thread holds.

    1. A call acquires the lock of upstream's subscription or coordinator, or of the
       ledger or the journal.
    2. A signal handler interrupts the call, on the same thread, and calls ``commit``.
    3. The IO thread waits for the lock, and the handler waits for the IO thread.
    """
    subscription, journal = consumer._subscription, consumer._safe_journal
    if (
        subscription._lock._is_owned()
        or consumer._coordinator._lock._is_owned()
        or subscription.ledger.is_locked_here()
        or (journal is not None and journal.writer.is_locked_here())
    ):
        message = (
            f"{call}() was called by a signal handler, and waits for the call that the "
            f"handler has interrupted: record the signal, or call wakeup(), and repeat "
            f"the call after poll() has returned"
        )
        raise BlockingCallInSignalHandlerError(message)


def refuse_blocking(consumer: KafkaConsumer, call: str) -> None:
    """
    Refuse a call that waits for the network if no response can arrive.

    Raises:
        ConsumerClosedError: the consumer is closed.
        BlockingCallInListenerError: the current thread is the one on which listeners
            run.
        BlockingCallInSignalHandlerError: a signal handler on this thread has
            interrupted a call that holds a lock which the IO thread needs.
    """
    refuse_if_closed(consumer, call)
    refuse_in_listener(consumer, call)
    refuse_in_signal_handler(consumer, call)


def blocking(name: str) -> Callable[..., Any]:
    """
    Wrap upstream's method of this name, so that it refuses calls that would hang.

    A refused call has no effect, whereas some of upstream's methods change state before
    they fail.
    """
    upstream = getattr(KafkaConsumer, name)

    @functools.wraps(upstream)
    def call(self: KafkaConsumer, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - upstream's
        refuse_blocking(self, name)
        return upstream(self, *args, **kwargs)

    return call
