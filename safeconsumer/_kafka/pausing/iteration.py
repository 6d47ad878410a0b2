"""Iterates over a consumer, checks holds before each record, and prevents double polls."""

import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, NoReturn, TypeVar, cast

from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.fork import forked_error, run_in_child
from safeconsumer._kafka.pausing.fetcher import Drained
from safeconsumer._kafka.pausing.steps import Steps
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer._kafka.structs import ConsumerRecord
from safeconsumer.errors.kafka_python import ConcurrentPollError

T = TypeVar("T")

_alive: "weakref.WeakSet[Iteration]" = weakref.WeakSet()


class Iteration:
    """
    Implements ``for record in consumer``, and allows one poll at a time.

    Differences from upstream 3.0.12: a pause inside a batch parks the rest of the
    batch, which upstream would fetch again. As long as records are buffered, their
    partition is not fetched. A ``poll`` after a step of an iteration returns the rest
    of the iteration's records, which upstream would fetch again and deliver twice.

    Args:
        consumer: an adopted consumer.
        steps: the class that yields the records of a partition.

    Thread rules: a guard allows only one poll at a time, and refuses other polls
    without waiting. A step that only yields a record does not need the guard, because
    each poll first closes the iteration's generator, and Python refuses to close a
    running generator.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - upstream's attributes
        steps: type[Steps] = Steps,
    ) -> None:
        self._consumer, self._steps = consumer, steps
        # Whether this process is a forked child, in which the consumer's threads do not
        # run.
        self._is_in_child = False
        _alive.add(self)
        # The dict has at most one entry: that of the current poll. ``setdefault`` is
        # atomic with respect to other threads and signal handlers.
        self._guard: dict[str, object] = {}
        # The thread that is currently polling from inside a step of an iteration, after
        # it has passed the guard.
        self._stepping: int | None = None
        self._polls_in_step = False
        # The record that a wrapped step has taken but not returned yet.
        self._taken_record: ConsumerRecord | None = None
        # The state of the partition whose records are being yielded, and its number of
        # moves.
        self._yielding: tuple[OwnedPartitionState, int] | None = None
        # A function that is called when the program has finished the records of a quiet
        # partition, because it polls or takes another step; None if not needed.
        self.when_done: Callable[[], object] | None = None

    def is_stepping(self) -> bool:
        """Return whether this thread is polling from inside a step of an iteration."""
        return self._stepping == threading.get_ident()

    def one_poll(self, poll: Callable[[], T]) -> T:
        """
        Run a poll if no other thread is polling; end the unfinished iteration.

        Raises:
            ConcurrentPollError: another poll or step of an iteration is in progress.
        """
        if not self.is_stepping():
            return self.alone(poll)
        # An application's own poll() may call this method several times in one step.
        if self._polls_in_step:
            refuse_second_poll()
        self._polls_in_step = True
        try:
            return poll()
        finally:
            self._polls_in_step = False

    def begin(self) -> None:
        """Start a poll or a step that polls; the program has finished earlier records."""
        consumer, when_done = self._consumer, self.when_done
        subscription = consumer._subscription
        # If no partition is quiet, the ledger is queried only once.
        quiet = () if when_done is None else subscription.ledger.quiet()
        was_quiet = quiet and not subscription.in_hand().isdisjoint(quiet)
        consumer._fetcher.put_back_unreturned()
        # This comes after put_back_unreturned(), which reads is_step.
        is_stepping = self.is_stepping()
        subscription.undelivered.yielding = () if is_stepping else None
        subscription.undelivered.is_step = is_stepping
        if was_quiet and when_done is not None:
            when_done()

    def _end_steps(self, steps: Steps) -> None:
        # The next step has started, so the program has finished the previous record.
        subscription = self._consumer._subscription
        subscription.undelivered.yielding = ()
        if self.when_done is not None and steps.tp in subscription.ledger.quiet():
            self.when_done()

    def alone(self, call: Callable[[], T], *, goes_on: bool = False) -> T:
        """
        Call a function if no other thread polls; first end an unfinished iteration.

        Args:
            call: the function. After it returns, this method makes no other call, so
                that no signal handler can interrupt it.
            goes_on: whether the call is a step of the iteration; if so, the iteration
                is not ended.

        Raises:
            ConcurrentPollError: another poll or step of an iteration is in progress.
            ForkedConsumerError: the consumer was created in another process.
        """
        # The iteration ends first, because the poll continues after its last record. A
        # step needs no guard, because no thread can close the generator of a running
        # step, and a closed generator yields no records.
        self.refuse_if_in_child()
        mine = object()
        try:
            if self._guard.setdefault("polls", mine) is not mine:
                refuse_second_poll()
            if not goes_on:
                self._end()
            return call()
        finally:
            # This code makes no call and uses no context manager. A signal handler
            # could raise after a call, and then no thread could ever poll again.
            try:
                is_mine = self._guard["polls"] is mine
            except KeyError:
                is_mine = False
            if is_mine:
                del self._guard["polls"]

    def _end(self) -> None:
        iterator = self._consumer._iterator
        if iterator is None:
            return
        try:
            iterator.close()
        except ValueError as error:
            refuse_if_executing(error)
            raise
        self._consumer._iterator = None

    def change_and_end(self, change: Callable[[], None]) -> None:
        """
        Make a change that ends an iteration, and close the iteration's generator.

        Upstream's changes only drop the reference to the generator. When the garbage
        collector then closes the generator, Python swallows an exception that a signal
        handler raises.
        """
        running = self._consumer._iterator
        change()
        if running is not None and self._consumer._iterator is not running:
            try:
                running.close()
            except ValueError as error:
                # Another thread is running the generator, which will end on its own.
                if "already executing" not in str(error):
                    raise

    def note_child(self) -> None:
        """Refuse every poll from now on, and end the iteration; called in a forked child."""
        self._is_in_child, self._consumer._iterator = True, None

    def refuse_if_in_child(self) -> None:
        """
        Refuse a call in a forked child.

        Raises:
            ForkedConsumerError: the consumer was created in another process.
        """
        if self._is_in_child:
            raise forked_error()

    def records(self) -> Generator[ConsumerRecord, None, None]:
        """
        Poll once, and yield the records, as long as no hold covers their partitions.

        A partition's position is the offset after its last yielded record. The next
        poll continues there, although this poll has taken more records.
        """
        undelivered = self._consumer._subscription.undelivered
        for steps, end in self._polled():
            self._yielding = steps.state, steps.moves
            undelivered.yielding = (steps.tp,)  # set before holds are checked
            yield from steps
            self._end_steps(steps)
            self._go_on_from(steps, end)

    def remembering_last(
        self, records: Generator[ConsumerRecord, None, None]
    ) -> Generator[ConsumerRecord, None, None]:
        """Yield the records of :meth:`records`, for :meth:`wrapped_step`."""
        try:
            for record in records:
                self._taken_record = record
                yield record
        finally:
            records.close()

    def wrapped_step(self, step: Callable[[], ConsumerRecord]) -> ConsumerRecord:
        """
        Return a record from upstream's ``__next__``, which a program may have wrapped.

        If a signal handler raises during the step, the position moves back, and the
        record is delivered again.
        """
        self._taken_record = None
        try:
            return step()
        except BaseException:
            if self._taken_record is not None:
                self.put_back(self._taken_record)
            raise

    def put_back(self, record: ConsumerRecord) -> None:
        """Move the position back to the last yielded record, unless a seek has moved it."""
        if self._yielding is None:
            return
        state, moves = self._yielding
        subscription = self._consumer._subscription
        with subscription._lock:
            if state.moves == moves:
                epoch = state.position.leader_epoch
                state.position = OffsetAndMetadata(record.offset, "", epoch)
                if subscription.journal is not None:
                    tp = TopicPartition(record.topic, record.partition)
                    subscription.journal.comes_again(tp, record.offset)

    def _polled(self) -> list[tuple[Steps, OffsetAndMetadata | None]]:
        # This is outside the try block, because the records of the last step were
        # yielded, and must not be delivered again.
        self._consumer._subscription.undelivered.step_starts.clear()
        try:
            return list(self._steps_of(self._poll()))
        except BaseException:
            self._put_back_taken()
            raise

    def _steps_of(
        self, batches: Drained
    ) -> Iterator[tuple[Steps, OffsetAndMetadata | None]]:
        subscription = self._consumer._subscription
        assignment, ledger = subscription.assignment, subscription.ledger
        for tp, found in batches.items():
            state, records = assignment.get(tp), list(found)
            if state is None or not records:
                continue
            with subscription._lock:
                end = state.position
                records = subscription.undelivered.taken_since_seek(tp, state, records)
                start = None
                if records:
                    start = self._begin_at(tp, state, records[0].offset)
            if start is not None:
                steps = self._steps(ledger, assignment, tp, state, start, records)
                yield steps, end

    def _begin_at(
        self, tp: TopicPartition, state: OwnedPartitionState, first: int
    ) -> OffsetAndMetadata | None:
        # Returns the position at which the steps start, or None if a seek followed the
        # drain. A program's own poll() may have polled more than once, and thus moved
        # the position past the returned records, or it may return records of an earlier
        # step. The position then moves back to the first of the returned records, and
        # moves forward again after the last one.
        taken = self._consumer._subscription.undelivered.taken
        position = state.position  # read first, as a signal handler may call seek()
        moves = state.moves
        if taken.get(tp) is state and state.buffer.moves != moves:
            return None
        if position is not None and position.offset > first:
            position = OffsetAndMetadata(first, "", position.leader_epoch)
            state.position = position
            if state.moves != moves:
                state.restore_move()
                return None
        return position

    def _go_on_from(self, steps: Steps, end: OffsetAndMetadata | None) -> None:
        # When all records are yielded, the position moves to the end of all records
        # that the program's own poll() has taken.
        subscription, state = self._consumer._subscription, steps.state
        with subscription._lock:
            is_over = steps.at == len(steps.records)
            is_there = state.position is steps.position and state.moves == steps.moves
            if end is None or not (is_over and is_there):
                return
            if subscription.assignment.get(steps.tp) is state:
                state.position = max(steps.position, end, key=lambda one: one.offset)

    def _poll(self) -> Drained:
        consumer = self._consumer
        left = float(consumer._consumer_timeout) - time.monotonic()
        self._stepping = threading.get_ident()
        try:
            return cast(
                "Drained",
                consumer.poll(timeout_ms=1000 * max(0.0, left), update_offsets=False),
            )
        finally:
            self._stepping = None
            consumer._subscription.undelivered.is_step = False

    def _put_back_taken(self) -> None:
        # A program's own poll() raised or was interrupted after it had polled, so the
        # records that were taken are delivered again.
        subscription = self._consumer._subscription
        with subscription._lock:
            for tp, (
                state,
                moves,
                first,
                _,
            ) in subscription.undelivered.step_starts.items():
                if state.moves == moves:
                    start = self._begin_at(tp, state, first)
                    # If there were two polls, the second one has recorded its own,
                    # later start.
                    if state.before is not None:
                        state.before = start


def refuse_if_executing(error: ValueError) -> None:
    """
    Raise an error if ``error`` shows that another thread is running the generator.

    Raises:
        ConcurrentPollError: another thread is running the generator, so this thread can
            neither close it nor take a step.
    """
    if "already executing" in str(error):
        refuse_second_poll()


def refuse_second_poll() -> NoReturn:
    """
    Refuse a poll during another one.

    Raises:
        ConcurrentPollError: always.
    """
    message = (
        "a poll or a step of an iteration is under way: two threads poll one "
        "consumer at the same time, or a hook or signal handler polls during a "
        "poll; use one thread, and poll after the current call has returned"
    )
    raise ConcurrentPollError(message)


def _note_child() -> None:
    for one in tuple(_alive):
        one.note_child()


run_in_child(_note_child)
