"""Wraps kafka-python's polls and iteration steps."""

import math
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from kafka import KafkaConsumer

from safeconsumer._kafka.consumed import RepeatedChange
from safeconsumer._kafka.fixes.timers import ExactTimer
from safeconsumer._kafka.hold_calls import HoldCalls
from safeconsumer._kafka.pausing.iteration import Iteration, refuse_second_poll
from safeconsumer._kafka.pausing.listeners import (
    refuse_in_listener,
    refuse_in_signal_handler,
)
from safeconsumer._kafka.structs import ConsumerRecord, TopicPartition

# The method that upstream calls for each record. If the class later has a different
# method, a program has wrapped it. None means that it was wrapped before this import.
UPSTREAM_NEXT: Any = KafkaConsumer.__next__
if getattr(UPSTREAM_NEXT, "__globals__", {}).get("__name__") != (
    KafkaConsumer.__module__
):
    UPSTREAM_NEXT = None

# Milliseconds after which an iteration's poll ends if partitions are gated, so that the
# gates open. Before the poll ends, the program has no opportunity to pause these
# partitions.
_GATING_STEP_MS = 500

Polled = dict[TopicPartition, list[ConsumerRecord]]


class WokenUpError(Exception):
    """Raised inside upstream's loop to end a poll without records."""


class Polling:
    """
    Does what is needed before and after each poll and each step of an iteration.

    Thread rules: the polling thread calls the methods; :class:`Iteration` allows one
    poll at a time.

    Args:
        consumer: an adopted consumer.
        iteration: the iteration of the consumer.
        change: repeats interrupted changes of the subscription or assignment.
        hold_calls: lifts the holds of interrupted blocks.
        journal: the recorder that writes the returned records to the journal; None
            without a journal.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - a SafeConsumer
        iteration: Iteration,
        change: RepeatedChange,
        hold_calls: HoldCalls,
        journal: Any,  # noqa: ANN401 - a Recorder, which stands above
    ) -> None:
        self._consumer, self._iteration = consumer, iteration
        self._change, self._hold_calls = change, hold_calls
        self._journal = journal
        self._fetcher, self._subscription = consumer._fetcher, consumer._subscription
        self._ledger = self._subscription.ledger
        self._polled_at: float | None = None

    def polled_at(self) -> float | None:
        """
        Return when a ``poll`` last started, or continued to wait; None before any poll.

        The time is in seconds since 1970. ``max.poll.interval.ms`` counts from this
        time. Any thread may call this.
        """
        at = self._polled_at
        now, wall = self._ledger.now()  # read after ``at``, so never lower
        return None if at is None else wall - (now - at)

    def poll(
        self,
        upstream: Callable[..., Polled],
        timeout_ms: float,
        max_records: int | None,
        update_offsets: bool,  # noqa: FBT001 - upstream's signature
    ) -> Polled:
        """Return kafka-python's records, except those of partitions that are held by then."""
        if not self._iteration.is_stepping():
            refuse_in_listener(self._consumer, "poll")
            self._subscription.refuse_other_poll()
            if self._ledger.outbox.is_at_work_here():
                refuse_second_poll()
        refuse_in_signal_handler(self._consumer, "poll")
        return self._iteration.one_poll(
            lambda: self._poll(upstream, timeout_ms, max_records, update_offsets)
        )

    def _poll(
        self,
        upstream: Callable[..., Polled],
        timeout_ms: float,
        max_records: int | None,
        update_offsets: bool,  # noqa: FBT001 - upstream's signature
    ) -> Polled:
        self._iteration.begin()
        self._change.finish()
        self._hold_calls.lift_interrupted()
        self._ledger.deliver()
        is_step = self._iteration.is_stepping()
        # During an iteration, each record is written to the journal when it is yielded.
        journal = None if is_step else self._journal
        began = {} if journal is None else journal.began()
        timeout_ms = min(timeout_ms, self._begin_call(is_step=is_step))
        records, is_late = self._poll_upstream(
            upstream, timeout_ms, max_records, update_offsets
        )
        if is_late:  # a pause() may have come while hooks ran: check P1 again
            records = self._fetcher.put_back_quiet(records)
        if not is_step:  # a wake-up stops an iteration at its next poll
            self._fetcher.wakeup.is_asked = False
        if journal is not None:
            journal.polled(records, began, is_peek=not update_offsets)
        # This must be the last call. If a signal handler raises before the call, the
        # records are delivered again. If it raises later, the caller has the records.
        self._fetcher.delivered()
        return records

    def _begin_call(self, *, is_step: bool) -> float:
        # Tells the ledger that a poll starts, and returns the poll's time limit.
        self._polled_at, _ = self._ledger.now()
        is_gating = self._ledger.begin_call()
        if self._fetcher.wakeup.is_asked:
            return 0
        return _GATING_STEP_MS if is_gating and is_step else math.inf

    def _poll_upstream(
        self, upstream: Callable[..., Polled], *given: object
    ) -> tuple[Polled, bool]:
        # Also returns whether hooks have run after the poll.
        wakeup = self._fetcher.wakeup
        wakeup.poller = threading.get_ident()
        try:
            records = upstream(*given)
        except WokenUpError:
            records = {}
        finally:
            wakeup.poller = None
            self._ledger.end_call()
            is_late = self._ledger.deliver()
            if self._consumer._closed:  # closed by another thread or a handler
                self._fetcher.close(is_in_poll=True)
                self._ledger.deliver()
        return records, is_late

    def poll_once(
        self, upstream: Callable[..., Polled], timer: object, *given: object
    ) -> Polled:
        """Fetch once, as kafka-python's loop does; put back records of held partitions."""
        # Upstream has just polled the coordinator.
        self._polled_at, _ = self._ledger.now()
        records = self._fetcher.put_back_quiet(upstream(ExactTimer(timer), *given))
        if not records and self._fetcher.wakeup.is_asked:
            raise WokenUpError
        kept: Polled = records
        return kept

    # ------------------------------------------------------------ steps

    def step(
        self, upstream: Callable[[], ConsumerRecord], *, is_wrapped: bool
    ) -> ConsumerRecord:
        """Return the next record, through ``upstream`` if a program has wrapped it."""
        refuse_in_listener(self._consumer, "next")
        self._subscription.refuse_other_poll()
        step: Callable[[], ConsumerRecord] = self._step
        if is_wrapped:
            # A lambda, with ``self`` in a cell, would make each step 10 % slower.
            step = partial(self._iteration.wrapped_step, upstream)
        try:
            return self._iteration.alone(step, goes_on=is_wrapped)
        except StopIteration:
            self._fetcher.wakeup.is_asked = False  # the iteration has stopped
            raise

    def _step(self) -> ConsumerRecord:
        # Upstream calls next(). If a signal handler raised right after that call, the
        # record would be lost. A ``for`` loop makes no such call.
        consumer = self._consumer
        if consumer._closed:
            raise StopIteration
        consumer._set_consumer_timeout()
        while time.monotonic() < consumer._consumer_timeout:
            records = self.records()
            consumer._iterator = records
            for record in records:
                return record
            consumer._iterator = None
        raise StopIteration

    def records(self) -> Generator[ConsumerRecord, None, None]:
        """Return a generator of the next poll's records; it is empty after a wake-up."""
        if self._fetcher.wakeup.is_asked:
            self._iteration.begin()
            # Only this step uses the timeout.
            self._consumer._consumer_timeout = -math.inf
            nothing: tuple[ConsumerRecord, ...] = ()
            return (record for record in nothing)
        records: Generator[ConsumerRecord, None, None] = self._iteration.records()
        if self._journal is not None:
            records = self._journal.steps(records, self._iteration.put_back)
        return records
