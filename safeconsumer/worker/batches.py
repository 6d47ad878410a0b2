"""Hands out batches for a pump, and takes the answers for their records."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import evolve
from kafka.structs import TopicPartition

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import UnansweredBatchError
from safeconsumer.worker.calls import batch_failed, blamed
from safeconsumer.worker.deserializing import Readers
from safeconsumer.worker.handlers import BatchFailure
from safeconsumer.worker.progress import record_at
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tasks import Outcome, Task


class Ticket:
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
                self.task.finish(index)
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


class Batch:
    """
    Records of one partition, in order; you answer for each of them.

    Each record needs one answer, :meth:`done` or :meth:`fail`, from any thread and in
    any order; until then nothing behind it is committed. If a batch is
    garbage-collected before all its records have one, the pump ends with
    :class:`~safeconsumer.errors.UnansweredBatchError`.

    Attributes:
        partition: the partition of the records.
        records: kafka-python's ``ConsumerRecord``, deserialized. A record that cannot
            be deserialized is not among them: it has failed already.
        attempt: the number of this attempt, from 1; a record that failed before comes
            by itself.
    """

    def __init__(
        self,
        ticket: Ticket,
        read: Sequence[tuple[int, Any]],
        dropped: "deque[Ticket]",
    ) -> None:
        self._ticket = ticket
        self._dropped = dropped
        self._indexes = [index for index, _ in read]
        self.records: tuple[Any, ...] = tuple(record for _, record in read)
        self.partition: TopicPartition = ticket.task.epoch.tp
        self.attempt = ticket.task.attempt

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
        is_error = isinstance(error, BaseException)
        counts = blamed(error) if is_error else error
        if not is_error or isinstance(counts, BatchFailure):
            message = f"fail() takes the exception of the records, not {error!r:.200}"
            raise TypeError(message)
        self._ticket.answer(self._chosen(indexes), counts)

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


class HandOut:
    """
    Makes batches of what the schedule hands out. For the iterating thread only.

    Args:
        bury: takes what is left to be done for a record that is no batch any more.

    Attributes:
        ready: set when there may be something to hand out.
        dropped: tickets of batches that were garbage-collected.
    """

    def __init__(
        self, schedule: Schedule, readers: Readers, bury: Callable[[Task], None]
    ) -> None:
        self._schedule = schedule
        self._bury = bury
        self._readers = readers
        self._last: list[Ticket] = []
        self._is_asked_again = False
        self.ready = InterruptibleEvent()
        self.dropped: deque[Ticket] = deque()

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
            for task in tasks:
                if task.letter is None:
                    self._open(task, batches)
                else:
                    self._bury(task)
        return batches

    def _open(self, task: Task, batches: list[Batch]) -> None:
        ticket = Ticket(self._schedule, task)
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

    def _read(self, ticket: Ticket) -> list[tuple[int, Any]]:
        chunk, indexes = ticket.task.chunk, ticket.task.indexes
        raw = [(index, record_at(chunk, index)) for index in indexes]
        if not self._readers:
            return raw
        read: list[tuple[int, Any]] = []
        for index, record in raw:
            try:
                read.append((index, self._readers.read(record)))
            except Exception as error:  # noqa: BLE001 - it is this record's failure
                ticket.answer([index], blamed(error))
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

    def take_dropped(self) -> list[Ticket]:
        """Return the tickets that nobody can answer any more, each once."""
        found = []
        while self.dropped:
            ticket = self.dropped.popleft()
            if ticket.is_open:
                found.append(ticket)
        return found
