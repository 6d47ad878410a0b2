"""Runs the worker's poll loop for programs with a loop of their own, in batches."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from attrs import evolve
from kafka.structs import TopicPartition

from safeconsumer.errors import JournalError, UnansweredBatchError, WorkerStateError
from safeconsumer.worker.assembly import Surroundings, assembled
from safeconsumer.worker.client import ConsumerClient
from safeconsumer.worker.deserializing import Readers
from safeconsumer.worker.handlers import BatchFailure, batch_failed, commits_alone
from safeconsumer.worker.loop import BUSY_POLL, CALM_POLL
from safeconsumer.worker.options import PumpOptions, taking
from safeconsumer.worker.partition import Epoch, record_at
from safeconsumer.worker.progress import Chunk
from safeconsumer.worker.queue import Outcome, Task, record_key
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.settings import refuse_circle


class _Ticket:
    """
    A task that is handed out, until each of its records has an answer. Any thread.

    Attributes:
        task: the task.
        threads: the threads that have answered for some of its records.
    """

    def __init__(self, schedule: Schedule, task: Task) -> None:
        self.task = task
        self.threads: set[int] = set()
        self._schedule = schedule
        self._open = dict.fromkeys(task.indexes)
        self._origins = [(chunk, at) for _, chunk, some in task.pieces for at in some]
        self._finished: list[int] = []
        self._failed: dict[int, BaseException] = {}

    @property
    def is_open(self) -> bool:
        """Whether some of its records have no answer yet."""
        return bool(self._open)

    def answer(
        self, indexes: Iterable[int] | None, error: BaseException | None = None
    ) -> None:
        """Take the answer for records: done, or an error; None: for all that have none."""
        self.threads.add(threading.get_ident())
        with self._schedule.queue.held.lock:
            new = self._take(indexes)
            for index in new if error is None else ():
                self._finish(index)
            outcome = self._outcome(new, error, is_all=indexes is None)
        if new and outcome is not None:
            self._schedule.complete([outcome])

    def give_back(self) -> None:
        """Queue its open records again, in front: nobody works on it any more."""
        with self._schedule.queue.held.lock:
            new = self._take(None)
            left = sorted([*new, *self._failed])
            task = evolve(self.task, indexes=sorted([*left, *self._finished]))
        if new:
            self._schedule.complete(
                [Outcome(task=task, finished=self._finished, left=left)]
            )

    def _finish(self, index: int) -> None:
        self.task.chunk.finish(index)
        if self._origins:  # the batch holds copies
            chunk, at = self._origins[index]
            chunk.finish(at)

    def _take(self, indexes: Iterable[int] | None) -> list[int]:
        asked = tuple(self._open) if indexes is None else sorted(set(indexes))
        new = [index for index in asked if index in self._open]
        for index in new:
            del self._open[index]
        return new

    def _outcome(
        self, new: list[int], error: BaseException | None, *, is_all: bool
    ) -> Outcome | None:
        # Records of a shared lane do not wait for each other, so each answer is passed
        # on at once; another lane goes on when all of its records have one.
        part = evolve(self.task, indexes=new)
        if self.task.lane.is_shared:
            return _outcome_of(part, error, is_all=is_all)
        if error is not None and is_all and not self._failed:
            outcome = _outcome_of(part, error, is_all=True)
            return evolve(outcome, task=self.task, finished=sorted(self._finished))
        if error is None:
            self._finished += new
        else:
            self._failed.update(dict.fromkeys(new, error))
        if self._open:
            return None
        failed = sorted(self._failed.items(), key=lambda one: one[0])
        finished = sorted(self._finished)
        return Outcome(task=self.task, finished=finished, failed=failed)


def _outcome_of(task: Task, error: BaseException | None, *, is_all: bool) -> Outcome:
    if error is None:
        return Outcome(task=task, finished=task.indexes)
    if is_all and task.indexes:
        return batch_failed(task, error, 0.0)
    return Outcome(task=task, failed=[(index, error) for index in task.indexes])


def _split(task: Task) -> Iterator[Task]:
    # A batch that was gathered from several lanes, or several chunks of a shared one,
    # is answered lane by lane, and within a lane chunk by chunk: each part is a task.
    if not task.pieces:
        yield task
        return
    for _, grouped in itertools.groupby(task.pieces, lambda piece: id(piece[0])):
        pieces = tuple(grouped)
        if pieces[0][0].is_shared or not pieces[1:]:
            yield from (Task(lane, chunk, some) for lane, chunk, some in pieces)
        elif len(pieces) == len(task.pieces):
            yield task
        else:
            records = [record_at(chunk, at) for _, chunk, some in pieces for at in some]
            indexes = range(len(records))
            yield Task(pieces[0][0], Chunk(records, 0), indexes, pieces=pieces)


class Batch:
    """
    Records of one partition, in order; you answer for each of them.

    Each record needs one answer, :meth:`done` or :meth:`fail`, from any thread and in
    any order; until then nothing behind it is committed. If a batch is
    garbage-collected before all its records have one, the pump ends with
    :class:`~safeconsumer.UnansweredBatchError`.

    Attributes:
        partition: the partition of the records.
        records: kafka-python's ``ConsumerRecord``, deserialized. A record that cannot
            be deserialized is not among them: it has failed already.
        attempt: the number of this attempt, from 1; a record that failed before comes
            by itself.
        assignment_epoch: grows each time this member gains the partition.
    """

    def __init__(
        self,
        ticket: _Ticket,
        read: Sequence[tuple[int, Any]],
        dropped: "deque[_Ticket]",
    ) -> None:
        self._ticket = ticket
        self._dropped = dropped
        self._indexes = [index for index, _ in read]
        self.records: tuple[Any, ...] = tuple(record for _, record in read)
        epoch = ticket.task.epoch
        self.partition: TopicPartition = epoch.tp
        self.attempt = ticket.task.attempt
        self.assignment_epoch = epoch.number

    @property
    def is_revoked(self) -> bool:
        """Tell whether the partition is being taken away; what is done now may come again."""
        return self._ticket.task.epoch.revoked.is_set()

    def done(self, indexes: int | Iterable[int] | None = None) -> None:
        """
        Complete records of the batch, or all that have no answer yet; any thread.

        A second answer, or one for a partition that is gone, changes nothing.

        Args:
            indexes: one or several in ``records``; an empty list changes nothing, and
                None stands for all.

        Raises:
            IndexError: there is no such record; nothing was completed.
            TypeError: the indexes have another type; nothing was completed.
        """
        self._ticket.answer(self._chosen(indexes))

    def fail(
        self, error: Exception, indexes: int | Iterable[int] | None = None
    ) -> None:
        """
        Report an error of records, or of all that have no answer yet. Any thread.

        The error means the same as out of a :class:`Worker`'s handler. After a
        :class:`RetryLater` the records come again after its seconds, which uses up no
        attempt; a :class:`Pause` also holds its scope meanwhile; a :class:`Reject` is
        final; after any other exception they come again as ``retry`` says, and then go
        to ``dead_letter``, or as ``on_exhausted`` says. Several records that fail
        together without indexes come again one by one, also after a :class:`Reject`.
        Nothing is committed past a record before it is done, acknowledged as a dead
        letter, or skipped by that policy. A second answer, or one that is too late,
        changes nothing.

        Args:
            error: the exception of these records.
            indexes: indexes in ``records``, one or several; with an empty list nothing
                has failed, with None all that have no answer have.

        Raises:
            IndexError: there is no such record; nothing has failed.
            TypeError: ``error`` is not an exception, or is a ``BatchFailure``; or the
                indexes have another type.
        """
        if not isinstance(error, BaseException) or isinstance(error, BatchFailure):
            message = f"fail() takes the exception of the records, not {error!r:.200}"
            raise TypeError(message)
        self._ticket.answer(self._chosen(indexes), error)

    def _chosen(self, indexes: int | Iterable[int] | None) -> list[int] | None:
        if indexes is None:
            return None
        chosen = [indexes] if isinstance(indexes, int) else list(indexes)
        for index in chosen:
            if not isinstance(index, int) or isinstance(index, bool):
                message = f"indexes must be whole numbers, as [0, 2], not {index!r:.60}"
                raise TypeError(message)
            if not 0 <= index < len(self.records):
                message = f"the batch has {len(self.records)} records, not {index}"
                raise IndexError(message)
        return [self._indexes[index] for index in chosen]

    def __len__(self) -> int:
        return len(self.records)

    def __del__(self) -> None:
        # It runs on any thread, at any line, under any lock, so only the loop looks at
        # it.
        if self._ticket.is_open:
            self._dropped.append(self._ticket)

    def __repr__(self) -> str:
        tp = self.partition
        return f"Batch({tp.topic}:{tp.partition}, {len(self.records)} records)"


class _HandOut:
    """
    Makes batches of what the schedule hands out. For the iterating thread only.

    Attributes:
        ready: set when there may be something to hand out.
        dropped: tickets of batches that were garbage-collected.
    """

    def __init__(self, schedule: Schedule, readers: Readers) -> None:
        self._schedule = schedule
        self._readers = readers
        self._last: list[_Ticket] = []
        self._is_asked_again = False
        self.ready = threading.Event()
        self.dropped: deque[_Ticket] = deque()

    def take(self, most: float) -> list[Batch]:
        """Return up to so many batches."""
        self._is_asked_again = True
        for ticket in self._last:
            # A caller who asks for more does not work on batches that were taken away,
            # and a later ownership waits for those that it works on.
            if ticket.task.epoch.is_closed:
                ticket.give_back()
        self.ready.clear()
        batches: list[Batch] = []
        while len(batches) < most:
            tasks = self._schedule.queue.claim()
            if not tasks:
                break
            for task in itertools.chain.from_iterable(map(_split, tasks)):
                self._open(task, batches)
        return batches

    def _open(self, task: Task, batches: list[Batch]) -> None:
        ticket = _Ticket(self._schedule, task)
        try:
            read = self._read(ticket)
        except BaseException:  # a Ctrl-C, and no failure of the record
            ticket.give_back()
            raise
        if not read:
            return
        if self._is_asked_again:
            self._is_asked_again = False
            self._last.clear()
        self._last.append(ticket)
        batches.append(Batch(ticket, read, self.dropped))

    def _read(self, ticket: _Ticket) -> list[tuple[int, Any]]:
        chunk, indexes = ticket.task.chunk, ticket.task.indexes
        raw = [(index, record_at(chunk, index)) for index in indexes]
        if not self._readers:
            return raw
        read: list[tuple[int, Any]] = []
        for index, record in raw:
            try:
                read.append((index, self._readers.read(record)))
            except Exception as error:  # noqa: BLE001 - it is this record's failure
                ticket.answer([index], error)
        return read

    def abandon_last(self, error: BaseException) -> None:
        """
        Give back the batch that was handed out last, unless another thread works on it.

        If more was asked for since, it was handed on, unless the error says otherwise.
        """
        if self._is_asked_again and not isinstance(error, UnansweredBatchError):
            return
        ours = {threading.get_ident()}
        for ticket in self._last:
            if ticket.threads <= ours:
                ticket.give_back()

    def take_dropped(self) -> list[_Ticket]:
        """Return the tickets that nobody can answer any more, each once."""
        found = []
        while self.dropped:
            ticket = self.dropped.popleft()
            if ticket.is_open:
                found.append(ticket)
        return found


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
            ``commit()`` without offsets raises :class:`HandlersFailError`.
        order: ``unordered`` hands out batches of one partition side by side;
            ``partition`` hands out the next one when the one before is answered, so
            that failed records come before those behind them.
        limits: how many records and bytes may be out.
        retry: how often, and when, a record that failed comes again.
        dead_letter: where records go that failed for good: a :class:`DeadLetter`, or a
            callable ``(record, failure)`` that returns once they are safe.
        on_exhausted: without ``dead_letter``, and for records that cannot be one:
            ``stop`` the pump, ``skip`` the record, or ``block`` until somebody acts.
        drain: how long to wait for batches that are out.
        commit: when to commit.
        breaker: holds a topic while its records fail with errors that look like an
            outage; then one record tries, in a batch with no other. See
            :class:`Breaker`.
        on_event: takes every event; events become structlog lines too, unless the
            consumer has ``log=False``. Its exceptions are counted in
            :attr:`hook_failures`.

    Raises:
        WorkerSettingError: a setting is impossible; the message says why. For
            ``on_event`` it is a :class:`HookTypeError`.

    Thread rules: one thread iterates; ``stop`` on any, and in a signal handler.
    """

    @taking(PumpOptions)
    def __init__(self, options: PumpOptions) -> None:
        self._client = client = ConsumerClient(options.consumer)
        self._options = options
        refuse_circle(client.membership.consumed.has, options.dead_letter)
        cut = {"is_batch": True, "quantum": client.most}
        parts = assembled(options, client, record_key, Surroundings(), **cut)
        self._engine, self._letters = parts.engine, parts.letters
        self._schedule, self._emit = parts.schedule, parts.emit
        self._readers = Readers(*client.membership.deserializers())
        self._out = _HandOut(self._schedule, self._readers)
        self._is_stop_asked = False
        self._is_open = False
        self._was_open = False
        self._leaving = threading.Event()
        self._leave_by = 0.0
        self._is_in_a_hurry = False
        self._errors: deque[BaseException] = deque()
        self._raised: BaseException | None = None
        self._thread = threading.Thread(
            target=self._work, name="safeconsumer-pump", daemon=True
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
        others, queue = self._client.others, self._schedule.queue
        others.report_busy(self._engine.held.busy)
        queue.listen(self._out.ready.set)
        self._client.membership.read_with(None, None)
        self._client.membership.refuse_commits(commits_alone)
        self._engine.begin(self._schedule)
        self._stop_obeying = others.tell(queue.obey)
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
            self._thread.join()
        except BaseException:  # a second Ctrl-C
            self._is_in_a_hurry = True
            self._thread.join()
            raise
        broken, raised, self._raised = self._what_broke(), self._raised, None
        if error is None and broken is not None and broken is not raised:
            raise broken

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
        while not self._leaving.is_set():
            self._turn()
        self._engine.stop(max(0.0, self._leave_by - time.monotonic()))
        while not self._is_in_a_hurry and not self._engine.is_drained():
            self._turn()
        epochs = tuple(self._engine.held.epochs.values())
        try:
            try:
                self._engine.conclude()
            finally:
                self._go_back(epochs)
        except BaseException as error:  # noqa: BLE001 - raised where the block is left
            self._note(error)
        finally:
            self._end()

    def _go_back(self, epochs: Iterable[Epoch]) -> None:
        # The consumer is used again: records that were polled and are not done come to
        # its owner. The epochs are closed by now: records that another thread finished
        # are done.
        with self._engine.held.lock:
            marks = [(one.tp, one.number, one.progress.watermark()) for one in epochs]
        owned = self._client.epochs()
        for tp, number, mark in marks:
            if owned.get(tp) == number and self._client.position(tp) != mark.offset:
                self._client.go_back(tp, mark.offset)

    def _turn(self) -> None:
        try:
            self._look_for_dropped()
            self._engine.soon = self._schedule.turn()
            self._engine.turn()
            if self._letters is not None:
                self._letters.turn(self._engine.held.closed)
        except BaseException as error:  # noqa: BLE001 - raised where batches are taken
            self._note(error)
            time.sleep(BUSY_POLL)  # every poll may raise it from now on

    def _look_for_dropped(self) -> None:
        dropped = self._out.take_dropped()
        owned = [one for one in dropped if not one.task.epoch.revoked.is_set()]
        if owned and not self._leaving.is_set():
            self._blame(owned[0])
        for ticket in dropped:
            ticket.give_back()

    def _blame(self, ticket: _Ticket) -> None:
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
        self._stop_obeying()
        with suppress(JournalError):
            self._client.lift_outages()
        if self._letters is not None:
            self._letters.stop()
        self._client.membership.refuse_commits(None)
        self._client.membership.read_with(self._readers.key, self._readers.value)
