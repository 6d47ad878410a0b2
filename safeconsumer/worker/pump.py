"""Runs the worker's poll loop for programs with a loop of their own, in batches."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

from kafka.structs import TopicPartition

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors import (
    JournalError,
    UnansweredBatchError,
    WorkerSettingError,
    WorkerStateError,
)
from safeconsumer.events.dispatch import Hook
from safeconsumer.events.takeover import STANDS_SECONDS, TakenOver
from safeconsumer.worker.assembly import Surroundings, assembled
from safeconsumer.worker.batches import Batch, HandOut, Ticket
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.calls import Slot
from safeconsumer.worker.client import ConsumerClient
from safeconsumer.worker.dead_letters import Sink, call_sink
from safeconsumer.worker.deserializing import Readers
from safeconsumer.worker.executors.base import end_slot
from safeconsumer.worker.handlers import commits_alone
from safeconsumer.worker.health import tell_stalls
from safeconsumer.worker.lanes import Lanes, Order, order_of
from safeconsumer.worker.loop import BUSY_POLL, CALM_POLL
from safeconsumer.worker.options import Options
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.queue import OnExhausted
from safeconsumer.worker.settings import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Retry,
    refuse_circle,
)
from safeconsumer.worker.tasks import Task


def _hand_out(_records: object, _context: object) -> None:
    """Do nothing: a pump's records are handed out, and no handler is called."""


def _without_keys(
    order: Literal["unordered", "partition"],
) -> Literal["unordered", "partition"]:
    if order_of(order) is Order.KEY:
        message = "a Pump's order must be 'unordered' or 'partition', not 'key'"
        raise WorkerSettingError(message)
    return order


class Pump:
    """
    Polls with bounded memory and commits what is done, while you do the work.

    ``with Pump(consumer) as pump: for batch in pump: ...; batch.done()``. A separate
    thread polls from the beginning of the block to its end, so however long you take
    for a batch, the member is not evicted; in the block the consumer belongs to that
    thread, and you may only make the calls that any thread may make. While too many
    records are out it goes on polling, with everything held, and waits.

    Leaving the block waits for the batches that are out, up to ``Drain.shutdown``, and
    commits. After an exception the batch that was handed out last is not waited for,
    unless another thread has answered for some of it. The consumer is yours again, at
    the first record of each partition that is not done: close it afterwards.

    Args:
        consumer: a ``SafeConsumer`` of a group, with ``enable_auto_commit=False``. Its
            deserializers are called where batches are handed out: their exceptions are
            failures of the record, see :class:`DeserializationError`. In the block
            ``commit``, ``commit_async`` and ``group_metadata`` raise
            :class:`HandlersFailError`, and ``poll`` and iteration
            :class:`ConcurrentPollError`.
        order: ``unordered`` hands out batches of one partition side by side;
            ``partition`` hands out the next one when the one before is answered, so
            that failed records come before those behind them.
        limits: how many records and bytes may be out.
        retry: how often, and when, a record that failed comes again.
        dead_letter: where records go that failed for good: a :class:`DeadLetter`, or a
            callable ``(record, failure)`` that returns once they are safe. It is called
            in a thread of the pump, once you ask for more batches.
        on_exhausted: without ``dead_letter``, and for records that cannot be one:
            ``stop`` the pump, ``skip`` the record, or ``block`` until somebody acts.
        drain: how long to wait for batches that are out.
        commit: when to commit.
        breaker: holds a topic while its records fail with errors that look like an
            outage. See :class:`Breaker`.
        on_event: takes every event; events become structlog lines too, unless the
            consumer has ``log=False``. Its exceptions are counted in
            :attr:`hook_failures`. If it does not return, the thread that leaves the
            block commits, and no hook of the consumer is called any more.

    Raises:
        WorkerSettingError: a setting is impossible, such as a dead-letter topic that
            the consumer itself consumes; the message says why. For ``on_event`` it is a
            :class:`HookTypeError`.
        WorkerStateError: entered a second time, or while another Worker or Pump has the
            consumer.

    Thread rules: one thread iterates; ``stop`` on any, and in a signal handler.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each option, all with defaults
        self,
        consumer: Any,  # noqa: ANN401 - checked
        *,
        order: Literal["unordered", "partition"] = "unordered",
        limits: Limits = Limits(),
        retry: Retry = Retry(),
        dead_letter: DeadLetter | Sink | None = None,
        on_exhausted: OnExhausted = "stop",
        drain: Drain = Drain(),
        commit: Commit = Commit(),
        breaker: Breaker | None = None,
        on_event: Hook | None = None,
    ) -> None:
        self._options = options = Options(
            consumer=consumer,
            handle=_hand_out,
            order=_without_keys(order),
            batch=None,
            limits=limits,
            retry=retry,
            dead_letter=dead_letter,
            on_exhausted=on_exhausted,
            drain=drain,
            commit=commit,
            breaker=breaker,
            on_event=on_event,
        )
        self._client = client = ConsumerClient(consumer)
        refuse_circle(client.membership.consumed.has, options.dead_letter)
        cut = {"is_batch": True, "quantum": client.most}
        lanes = Lanes(order_of(options.order))
        parts = assembled(options, client, lanes, Surroundings(), **cut)
        self._engine, self._emit = parts.engine, parts.emit
        self._schedule = parts.schedule
        self._readers = Readers(*client.membership.deserializers())
        self._letters: queue.Queue[Task | None] = queue.Queue()
        self._burying = Slot("safeconsumer-pump-dead-letters")
        self._out = HandOut(self._schedule, self._readers, self._letters.put)
        self._is_stop_asked = False
        # Who had records of the consumer in hand before this pump.
        self._busy_before: Callable[[], Collection[TopicPartition]] = frozenset
        self._is_open = False
        self._was_open = False
        self._leaving = InterruptibleEvent()
        self._leave_by = 0.0
        self._is_in_a_hurry = False
        self._last: tuple[Epoch, ...] | None = None
        self._errors: deque[BaseException] = deque()
        self._raised: BaseException | None = None
        self._thread = threading.Thread(
            target=self._work, name="safeconsumer-pump", daemon=True
        )
        self._burier = threading.Thread(
            target=self._bury, name=self._burying.name, daemon=True
        )

    # ------------------------------------------------------------ its life

    def __enter__(self) -> Self:
        if self._was_open:
            message = "a Pump can be used once: make another one"
            raise WorkerStateError(message)
        if self._client.membership.is_taken:
            message = "another Worker or Pump uses this consumer: give each its own"
            raise WorkerStateError(message)
        refuse_circle(self._client.membership.consumed.has, self._options.dead_letter)
        self._is_open = self._was_open = True
        ledger, work = self._client.membership.ledger, self._schedule.queue
        self._busy_before, ledger.busy = ledger.busy, self._engine.held.busy
        work.listen(self._out.ready.set)
        self._client.membership.read_with(None, None)
        self._client.membership.refuse_others(commits_alone)
        self._engine.begin(self._schedule)
        ledger.lookers.append(work.obey)
        self._client.watch_hooks(self._emit.takeover)
        if self._schedule.queue.policy.sink is not None:
            self._burier.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        if error is not None:
            self._out.abandon_last(error)
        self._leave_by = time.monotonic() + self._options.drain.shutdown
        self._leaving.set()
        try:
            self._join()
        except BaseException:  # a second Ctrl-C
            self._is_in_a_hurry = True
            self._join()
            raise
        broken, raised, self._raised = self._what_broke(), self._raised, None
        if error is None and broken is not None and broken is not raised:
            raise broken

    def _join(self) -> None:
        takeover = self._emit.takeover
        while takeover.hook is None and self._thread.is_alive():
            self._thread.join(STANDS_SECONDS)
            if takeover.takes(self._thread.ident):
                try:
                    self._finish(self._engine.rest)
                finally:
                    takeover.over.set()

    def stop(self) -> None:
        """Hand out nothing any more; any thread, and a signal handler too."""
        self._is_stop_asked = True

    @property
    def is_stopping(self) -> bool:
        """Whether nothing is handed out any more, by :meth:`stop` or a ``StopWorker``."""
        return self._is_stop_asked or self._schedule.is_stop_asked

    # ------------------------------------------------------------ batches

    def __iter__(self) -> Iterator[Batch]:
        """
        Hand out batches, one at a time, until somebody calls :meth:`stop`.

        Raises:
            RecordFailedError: a record failed for good, with ``on_exhausted="stop"``.
            DeadLetterLimitError: too many records failed for good.
            UnansweredBatchError: a batch was dropped without an answer.
            WorkerStateError: outside of the ``with`` block.
            BaseException: what ``poll`` raised.
        """
        while not self.is_stopping:
            yield from self._take(1)

    def turn(self) -> list[Batch]:
        """
        Return all batches that may be worked on now; waits for at most 0.25 s.

        For a loop that has other things to do; it raises what iterating raises. There
        are none, at once, while :attr:`is_stopping`: leave the loop then.
        """
        return self._take(float("inf"))

    def _take(self, most: float) -> list[Batch]:
        if not self._is_open:
            message = "a Pump works only inside its with block"
            raise WorkerStateError(message)
        self._raise_what_broke()
        if self.is_stopping:
            return []
        batches = self._out.take(most)
        if not batches and self._out.ready.wait(CALM_POLL):
            self._raise_what_broke()
            batches = [] if self.is_stopping else self._out.take(most)
        return batches

    def _raise_what_broke(self) -> None:
        self._raised = self._what_broke()
        if self._raised is not None:
            raise self._raised

    def _what_broke(self) -> BaseException | None:
        return self._errors.popleft() if self._errors else self._schedule.fatal

    @property
    def held_records(self) -> int:
        """How many records are out or wait to be handed out."""
        return self._engine.held.records

    @property
    def hook_failures(self) -> Mapping[str, int]:
        """How often ``on_event`` raised, by its ``repr``; its first error is in the log."""
        return self._emit.failures

    def __repr__(self) -> str:
        held = self._engine.held
        return f"Pump({len(held.epochs)} partitions, {held.records} records held)"

    # ------------------------------------------------------------ its thread

    def _work(self) -> None:
        with suppress(TakenOver):  # by the thread that leaves the block
            while not self._leaving.is_set():
                self._turn()
            self._finish(self._turn)

    def _finish(self, turn: Callable[[], None]) -> None:
        self._engine.departures.stop(max(0.0, self._leave_by - time.monotonic()))
        while not self._is_in_a_hurry and not self._engine.departures.is_drained:
            turn()
        if self._last is None:
            self._last = tuple(self._engine.held.epochs.values())
        try:
            try:
                with self._emit.keeping():
                    self._engine.conclude()
            finally:
                self._go_back(self._last)
        except TakenOver:
            raise
        except BaseException as error:  # noqa: BLE001 - raised where the block is left
            self._note(error)
        finally:
            if not self._emit.takeover.over.is_set():
                self._end()

    def _go_back(self, epochs: Iterable[Epoch]) -> None:
        # The consumer is used again: records that were polled and are not done come to
        # its owner. The epochs are closed by now: records that another thread finished
        # are done.
        with self._engine.held.lock:
            marks = [(one.tp, one.number, one.progress.watermark()) for one in epochs]
        owned = self._client.membership.epochs()
        for tp, number, mark in marks:
            if (
                owned.get(tp) == number
                and self._client.membership.position(tp) != mark.offset
            ):
                self._client.go_back(tp, mark.offset)

    def _turn(self) -> None:
        try:
            self._look_for_dropped()
            self._engine.soon = self._schedule.turn()
            self._engine.turn()
            tell_stalls([self._burying], self._options.limits.age, self._emit)
        except TakenOver:
            raise
        except BaseException as error:  # noqa: BLE001 - raised where batches are taken
            self._note(error)
            time.sleep(BUSY_POLL)  # every poll may raise it from now on

    def _bury(self) -> None:
        # As a worker's handler thread does with a letter.
        sink, complete = self._schedule.queue.policy.sink, self._schedule.complete
        try:
            for task in iter(self._letters.get, None):
                complete([call_sink(sink, task, self._burying)])
        except BaseException as error:  # noqa: BLE001 - raised where batches are taken
            end_slot(self._burying, self._schedule, error)

    def _look_for_dropped(self) -> None:
        dropped = self._out.take_dropped()
        owned = [one for one in dropped if not one.task.epoch.revoked.is_set()]
        if owned and not self._leaving.is_set():
            self._blame(owned[0])
        for ticket in dropped:
            ticket.give_back()

    def _blame(self, ticket: Ticket) -> None:
        tp = ticket.task.epoch.tp
        message = (
            f"a batch of {tp.topic}:{tp.partition} was dropped before each of its "
            f"records had an answer: call done() or fail() on it; nothing was "
            f"committed past them"
        )
        self._schedule.fail(UnansweredBatchError(message))
        self._out.ready.set()

    def _note(self, error: BaseException) -> None:
        if not self._errors:  # the first error; others follow from it
            self._errors.append(error)
        self._out.ready.set()

    def _end(self) -> None:
        self._schedule.queue.listen(None)
        self._schedule.queue.end()
        ledger = self._client.membership.ledger
        with suppress(ValueError):  # it was taken over after this
            ledger.lookers.remove(self._schedule.queue.obey)
        ledger.busy = self._busy_after()
        with suppress(JournalError):
            self._client.lift_expiring()
        self._letters.put(None)
        self._client.membership.refuse_others(None)
        self._client.membership.read_with(self._readers.key, self._readers.value)
        if self._emit.takeover.hook is None:
            self._client.watch_hooks(None)

    def _busy_after(self) -> Callable[[], Collection[TopicPartition]]:
        # Its owner polls again. A batch that was not waited for is still worked on.
        before, own = self._busy_before, self._engine.held.busy
        return (lambda: {*before(), *own()}) if own() else before
