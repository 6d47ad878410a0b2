"""Runs a worker whose records are handed in batches to a program's own loop."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from safeconsumer.errors.base import WorkerStateError
from safeconsumer.events.dispatch import Hook
from safeconsumer.worker.batches import Batch, HandOut
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.calls import Calls
from safeconsumer.worker.client import ConsumerClient
from safeconsumer.worker.dead_letters import Sink
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.deserializing import Readers
from safeconsumer.worker.health import Health, Stats
from safeconsumer.worker.kept import DroppedWork
from safeconsumer.worker.loop import CALM_POLL
from safeconsumer.worker.options import Options, Runtime
from safeconsumer.worker.queue import OnExhausted
from safeconsumer.worker.settings import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Retry,
)
from safeconsumer.worker.worker import Worker


def _hand_out(_records: object, _context: object) -> None:
    """Do nothing, because a pump hands out batches and calls no handler."""


class _LentConsumer(ConsumerClient):
    """
    The consumer of a pump; after the block the program gets it back still open.

    The journal contains the polls and commits of the pump, but no calls of handlers.
    """

    def __init__(self, consumer: Any) -> None:  # noqa: ANN401 - checked
        super().__init__(consumer)
        self.readers = Readers(*self.membership.deserializers())
        self.journal = None

    def lend(self) -> None:
        """Save the program's callback that reports busy partitions, for :meth:`leave`."""
        self._busy_before = self.membership.busy

    def leave(self, _timeout: float, last: Sequence[DroppedWork]) -> None:
        """Move each partition's position back to the first record that is not done."""
        group, owned = self.membership, self.membership.owned()
        # After the block the program may still work on an abandoned batch.
        before, own = self._busy_before, group.busy
        group.busy = (lambda: {*before(), *own()}) if own() else before
        group.set_deserializers(self.readers.key, self.readers.value)
        takeover = group.ledger.dispatcher.takeover
        if takeover is not None and takeover.hook is None:
            self.watch_hooks(None)
        for one in last:
            if owned.get(one.tp) is not one.epoch.ownership:
                continue
            done, position = one.mark.offset, group.position(one.tp)
            if one.records == 0 and not self.reads_on(one.tp, done):
                # the program has called seek(), and all records are done
                continue
            # a lower position is the target of a seek
            if position is None or position > done:
                self.go_back(one.tp, done)


class Pump:
    """
    Polls with bounded memory and commits finished records while you process batches.

    ``with Pump(consumer) as pump: for batch in pump: ...; batch.done()``. A separate
    thread polls from the start of the block to its end, so the member is not evicted,
    however long you take to process a batch. Inside the block the consumer belongs to
    that thread, and you may only make the calls that are allowed on any thread. While
    the program has too many records, the thread holds all partitions, and continues to
    poll.

    A pump is a :class:`Worker` that hands its records to your own code. If the loop
    raises an error, the pump has stopped, and hands out no more batches.

    On exit, the block waits for unanswered batches, up to ``Drain.shutdown``, and
    commits. After an exception the pump does not wait for the batch that was handed out
    last, unless another thread has answered for some of its records. After the block
    you have full use of the consumer again, and must close it. Each position is at the
    first record that is not done, or at the target of your own seek if that is lower.

    Args:
        consumer: a ``SafeConsumer`` of a group, with ``enable_auto_commit=False``. Its
            deserializers run when batches are handed out, so their exceptions are
            failures of the record, see :class:`DeserializationError`. Inside the block
            ``commit``, ``commit_async`` and ``group_metadata`` raise
            :class:`CommitRefusedError`; ``poll`` and iteration raise
            :class:`ConcurrentPollError`; and ``close``, ``unsubscribe`` and ``assign``
            raise :class:`ConsumerInUseError`.
        order: ``unordered`` hands out several batches of a partition at a time.
            ``partition`` hands out a batch only once the previous one is answered, so
            that failed records are retried before later ones are delivered.
        limits: how many records and bytes may be kept at a time.
        retry: how often, and when, a failed record is delivered again.
        dead_letter: the target for records that failed for good: a :class:`DeadLetter`,
            or a callable ``(record, failure)`` that returns once the record is stored
            safely. The callable runs in a thread of the pump, after you have requested
            more batches.
        on_exhausted: the policy if there is no ``dead_letter``, and for records that
            cannot become dead letters: ``stop`` the pump, ``skip`` the record, or
            ``block`` until somebody intervenes.
        drain: how long to wait for unanswered batches.
        commit: when to commit.
        breaker: holds a topic while its records fail with errors that look like an
            outage. See :class:`Breaker`.
        on_event: called with every event. Events also become structlog lines, unless
            the consumer has ``log=False``. Exceptions of ``on_event`` are counted in
            :attr:`hook_failures`. If a call of ``on_event`` does not return, the block
            still ends with a commit, and no hook of the consumer is called any more.

    Raises:
        WorkerSettingError: a setting is invalid, such as a dead-letter topic that the
            consumer itself consumes; the message gives the reason. For ``on_event`` the
            error is a :class:`HookTypeError`.
        WorkerStateError: the pump is entered a second time, or while another Worker or
            Pump uses the consumer.

    Thread rules: one thread iterates; ``stop``, ``healthy`` and ``stats`` may be called
    on any thread, and ``stop`` also in a signal handler.
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
        options = Options(
            consumer=consumer,
            handle=_hand_out,
            order=order,
            # the policy sets how many records one poll returns
            batch=1,
            limits=limits,
            retry=retry,
            dead_letter=dead_letter,
            on_exhausted=on_exhausted,
            drain=drain,
            commit=commit,
            breaker=breaker,
            on_event=on_event,
        )
        self._client = client = _LentConsumer(consumer)
        runtime = Runtime(choose=self._choose, policy={"quantum": client.most})
        self._worker = Worker._of(options, client, runtime)  # noqa: SLF001 - ours
        self._is_stop_asked = False
        self._is_open = False
        self._error: BaseException | None = None
        self._raised: BaseException | None = None
        self._thread = threading.Thread(
            target=self._work, name="safeconsumer-pump", daemon=True
        )

    def _choose(
        self, _name: object, decisions: Decisions, _calls: Calls, _count: int
    ) -> HandOut:
        self._decisions = decisions
        self._out = HandOut(decisions, self._client.readers)
        return self._out

    # ------------------------------------------------------------ lifecycle

    def __enter__(self) -> Self:
        if self._thread.ident is not None:
            message = "a Pump can be used once: make another one"
            raise WorkerStateError(message)
        self._worker._check_new()  # noqa: SLF001 - ours
        self._client.lend()
        self._is_open = True
        self._thread.start()
        try:
            self._out.begun.wait()
        except BaseException:  # if Ctrl-C interrupts this wait, __exit__ is not called
            self._worker.stop(drain=False)
            raise
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
        self._worker.stop()
        try:
            self._wait()
        except BaseException:  # a second Ctrl-C
            self._worker.stop(drain=False)
            self._wait()
            raise
        broken, raised, self._raised = self._error_to_raise(), self._raised, None
        if error is None and broken is not None and broken is not raised:
            raise broken

    def _wait(self) -> None:
        hangs = self._worker._hanging  # noqa: SLF001 - ours
        while self._thread.is_alive() and hangs() is None:
            self._thread.join(CALM_POLL)
            self._out.check_dropped(is_wrong=False)
        if hangs() is not None:
            self._worker._closed.wait()  # noqa: SLF001 - ours

    def _work(self) -> None:
        try:
            self._worker.run()
        except BaseException as error:  # noqa: BLE001 - raised when batches are taken
            self._error = error
        finally:
            self._out.begun.set()

    def stop(self) -> None:
        """Stop handing out batches. Any thread or signal handler may call this."""
        self._is_stop_asked = True

    @property
    def is_stopping(self) -> bool:
        """Whether :meth:`stop` or ``StopWorker`` has ended the handing out of batches."""
        return self._is_stop_asked or self._decisions.is_stop_asked

    # ------------------------------------------------------------ batches

    def __iter__(self) -> Iterator[Batch]:
        """
        Yield batches, one at a time, until :meth:`stop` is called.

        Raises:
            RecordFailedError: a record failed for good, with ``on_exhausted="stop"``.
            DeadLetterLimitError: the share of records that failed for good is too high.
            UnansweredBatchError: a batch was garbage-collected before all its records
                had a result.
            WorkerStateError: the pump is used outside of its ``with`` block.
            BaseException: any exception that ``poll`` raises.
        """
        while not self.is_stopping:
            yield from self._take(1)

    def turn(self) -> list[Batch]:
        """
        Return all batches that are ready; wait for at most 0.25 s if there is none.

        Use this method in a loop that also has other tasks. It raises the same errors
        as iterating over the pump. While :attr:`is_stopping` is true, the call returns
        no batch and does not wait; leave the loop then.
        """
        return self._take(float("inf"))

    def _take(self, most: float) -> list[Batch]:
        if not self._is_open:
            message = "a Pump works only inside its with block"
            raise WorkerStateError(message)
        self._out.check_dropped(is_wrong=True)
        self._raise_if_broken()
        if self.is_stopping:
            return []
        batches = self._out.take(most)
        if not batches and self._out.ready.wait(CALM_POLL):
            self._raise_if_broken()
            batches = [] if self.is_stopping else self._out.take(most)
        return batches

    def _raise_if_broken(self) -> None:
        self._raised = self._error_to_raise()
        if self._raised is not None:
            raise self._raised

    def _error_to_raise(self) -> BaseException | None:
        broken = self._worker._failure  # noqa: SLF001 - ours
        return self._error if broken is None else broken

    # ------------------------------------------------------------ queries

    def healthy(self) -> Health:
        """
        Return whether the pump is healthy, and list its problems; on any thread.

        The result is the same as for :meth:`Worker.healthy`. The reasons also name a
        batch for which the program has reported no result for ``Limits.age``, for
        example because the program forgot to call ``done()``. A ``HandlerStalled``
        event names that batch once.
        """
        return self._worker.healthy()

    def stats(self) -> Stats:
        """
        Return the pump's current numbers. Any thread may call this.

        The numbers are the same as for :meth:`Worker.stats`. Records in unanswered
        batches count as ``running``. ``handler_seconds`` is empty, because a pump calls
        no handler.
        """
        return self._worker.stats()

    @property
    def consumer(self) -> Any:  # noqa: ANN401 - as it was given
        """The consumer that was passed to the pump."""
        return self._worker.consumer

    @property
    def held_records(self) -> int:
        """The number of records in unanswered batches, or waiting to be handed out."""
        return self._decisions.queue.kept.records

    @property
    def hook_failures(self) -> Mapping[str, int]:
        """How many exceptions ``on_event`` raised, by its ``repr``; the first is logged."""
        return self._worker.hook_failures

    def __repr__(self) -> str:
        kept = self._decisions.queue.kept
        return f"Pump({len(kept.epochs)} partitions, {kept.records} records held)"
