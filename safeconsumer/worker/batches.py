"""Hands out a pump's batches, and processes the program's answers for their records."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from kafka.structs import TopicPartition

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import UnansweredBatchError
from safeconsumer.holds.scope import partition_text
from safeconsumer.worker.calls import Errors, Slot, batch_failed, end_slot, failure_of
from safeconsumer.worker.dead_letters import call_sink
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.deserializing import Readers
from safeconsumer.worker.handlers import BatchFailure
from safeconsumer.worker.partition import Indexes, Outcome, Task


class Ticket:
    """
    Tracks a task that was handed out, until each of its records has an answer.

    Any thread may use it.

    A record that is done may be committed immediately. The failed records are processed
    once all records have an answer.

    Args:
        decisions: receives the outcome of the task.
        task: the task.
        out: all tickets with unanswered records; this ticket adds itself.

    Attributes:
        task: the task.
        slot: refers to the first unanswered record, and has the time of the last
            answer.
        threads: the threads that have answered for some of the records.
    """

    def __init__(self, decisions: Decisions, task: Task, out: "set[Ticket]") -> None:
        self.task = task
        self.threads: set[int] = set()
        self._decisions = decisions
        self._open = dict.fromkeys(task.indexes)
        self._failed: dict[int, BaseException] = {}
        self._out = out
        self.slot = Slot("a batch", doing="it is in a batch without an answer")
        self.slot.task = task
        with decisions.queue.kept.lock:
            self._update_slot()
            out.add(self)

    @property
    def is_open(self) -> bool:
        """Whether some records of the ticket have no answer yet."""
        return bool(self._open)

    def answer(
        self, indexes: Iterable[int] | None, error: BaseException | None = None
    ) -> None:
        """Record an answer for the given records; None stands for all unanswered ones."""
        self.threads.add(threading.get_ident())
        with self._decisions.queue.kept.lock:
            new = self._take(indexes)
            for index in new if error is None else ():
                self.task.finish(index)
            before = bool(self._failed)
            if error is not None:
                self._failed.update(dict.fromkeys(new, error))
            is_over = bool(new) and not self._open
        if not is_over:
            return
        if error is None or before or indexes is not None:
            self._end(failed=sorted(self._failed.items(), key=itemgetter(0)))
        else:  # any of the unanswered records may have caused the error
            outcome = batch_failed(self.task, error, 0.0, new)
            self._end(outcome.failed, outcome.left, is_suspect=outcome.is_suspect)

    def give_back(self) -> None:
        """Put the unanswered records of an abandoned batch back at the front of the queue."""
        with self._decisions.queue.kept.lock:
            new = self._take(None)
            left = sorted([*new, *self._failed])
        if new:
            self._end(left=left)

    def _take(self, indexes: Iterable[int] | None) -> list[int]:
        asked = tuple(self._open) if indexes is None else sorted(set(indexes))
        new = [index for index in asked if index in self._open]
        for index in new:
            del self._open[index]
        if new:
            self._update_slot()
        return new

    def _update_slot(self) -> None:
        # Other threads may read the slot at any time, so the time is set before the record.
        first = next(iter(self._open), None)
        if first is None:
            self.slot.task = None
            self._out.discard(self)
        else:
            self.slot.began, self.slot.index = time.monotonic(), first

    def _end(
        self,
        failed: Errors = (),
        left: Indexes = (),
        *,
        is_suspect: bool = False,
    ) -> None:
        # A HandOut still refers to this ticket, so the ticket must drop its errors.
        self._failed.clear()
        task = self.task
        finished = [index for index in task.indexes if task.records[index] is None]
        self._decisions.complete(
            Outcome(
                task=task,
                finished=finished,
                failed=failed,
                left=left,
                is_suspect=is_suspect,
            )
        )


class Batch:
    """
    Records of one partition, in order; the program must report a result for each one.

    The program must report one result for each record, by :meth:`done` or :meth:`fail`,
    from any thread and in any order. Until the result of a record is reported, no later
    offset is committed. If a batch is garbage-collected before every record has a
    result, the pump stops with :class:`~safeconsumer.errors.UnansweredBatchError`.

    Attributes:
        partition: the partition of the records.
        records: deserialized ``ConsumerRecord`` objects of kafka-python. Records that
            cannot be deserialized are left out, because they have failed already.
        attempt: the number of this attempt, from 1. A record that has failed before is
            delivered alone, in a separate batch.
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
        """Return whether the partition is leaving; the next owner may repeat its records."""
        return self._ticket.task.epoch.revoked.is_set()

    def done(self, indexes: int | Iterable[int] | None = None) -> None:
        """
        Complete the given records, or all unanswered ones. Any thread may call this.

        A second result for the same record has no effect, nor does a result for a
        partition that was taken away.

        Args:
            indexes: one or several indexes into ``records``; an empty list has no
                effect, and None stands for all unanswered records.

        Raises:
            IndexError: an index is out of range; no record was completed.
            TypeError: an index is not a whole number; no record was completed.
        """
        self._ticket.answer(self._chosen(indexes))

    def fail(
        self, error: Exception, indexes: int | Iterable[int] | None = None
    ) -> None:
        """
        Report an error for the given records, or for all unanswered ones.

        Any thread may call this.

        The error has the same meaning as one that the handler of a :class:`Worker`
        raises. With a :class:`RetryLater` the records are delivered again after its
        delay, which does not count as an attempt. A :class:`Pause` also holds its scope
        during that time. A :class:`Reject` is final. With any other exception the
        records are delivered again according to ``retry``; records that have used up
        their attempts go to ``dead_letter``, or ``on_exhausted`` applies. If several
        records fail together and ``indexes`` is None, they are delivered again one by
        one, even after a :class:`Reject`. No offset past a record is committed before
        the record is done, acknowledged as a dead letter, or skipped by that policy. A
        second result, or a late one, has no effect.

        Args:
            error: the exception of these records.
            indexes: one or several indexes into ``records``; an empty list means that
                no record has failed, and None stands for all unanswered records.

        Raises:
            IndexError: an index is out of range; no failure was recorded.
            TypeError: ``error`` is not an exception, or it is a ``BatchFailure``; or an
                index is not a whole number.
        """
        is_error = isinstance(error, BaseException)
        counts = failure_of(error) if is_error else error
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
                message = f"{index} is not an index of a batch of {len(self.records)}"
                raise IndexError(message)
        return [self._indexes[index] for index in chosen]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)

    def __del__(self) -> None:
        # Python may call __del__ on any thread, at any line and under any lock, so this
        # method only queues the ticket, and the loop gives it back.
        if self._ticket.is_open:
            self._dropped.append(self._ticket)

    def __repr__(self) -> str:
        tp = self.partition
        return f"Batch({partition_text(*tp)}, {len(self.records)} records)"


class HandOut:
    """
    Hands out records to the program as batches; takes the place of a worker's executor.

    A batch is claimed when the program requests it, so queued records can be held,
    revoked or given back until then. Only one thread requests batches. A claim skips
    records that must become dead letters; a separate thread claims these one by one, as
    soon as the sink is free.

    Args:
        decisions: receives the answers for the records that are handed out.
        readers: the consumer's deserializers, called when a batch is taken.

    Attributes:
        ready: set when a batch may be ready.
        begun: set once batches may be requested, or the worker has stopped.
    """

    def __init__(self, decisions: Decisions, readers: Readers) -> None:
        self._decisions = decisions
        self._readers = readers
        self._last: list[Ticket] = []
        self._is_new_request = False
        self._dropped: deque[Ticket] = deque()
        self._is_over = False
        self._has_letter = InterruptibleEvent()
        self._letter_slot = Slot("safeconsumer-pump-dead-letters")
        self._out: set[Ticket] = set()
        self.ready, self.begun = InterruptibleEvent(), InterruptibleEvent()

    # ------------------------------------------------------------ called by the worker

    @property
    def slots(self) -> Sequence[Slot]:
        """The slot of the dead-letter sink, and a slot per batch with unanswered records."""
        with self._decisions.queue.kept.lock:
            return [self._letter_slot, *(ticket.slot for ticket in self._out)]

    def start(self) -> None:
        """Allow the program to request batches."""
        self._decisions.queue.listen(self.ready.set)
        if self._decisions.queue.policy.sink is not None:
            self._decisions.queue.claim_letters_apart(self._has_letter.set)
            name = self._letter_slot.name
            threading.Thread(target=self._write_letters, name=name, daemon=True).start()
        self.begun.set()

    def wait_ready(self, _seconds: float) -> bool:
        """Return True, because a pump has no lifespan to wait for."""
        return True

    def recall(self) -> None:
        """Do nothing, because the program already has all claimed batches."""

    def stop(self, _seconds: float = 0.0) -> None:
        """Stop handing out batches."""
        self._decisions.queue.listen(None)
        self._decisions.queue.end()
        self._is_over = True
        self._has_letter.set()
        self.ready.set()
        self.begun.set()

    def _write_letters(self) -> None:
        # Like a handler's thread, this thread claims a letter only after the previous
        # one was sent, so a rebalance or a hold waits for one letter at most.
        sink, slot = self._decisions.queue.policy.sink, self._letter_slot
        try:
            while not self._is_over:
                self._has_letter.clear()
                task = self._decisions.queue.claim_letter()
                if task is not None:
                    self._decisions.complete(call_sink(sink, task, slot))
                elif not self._is_over:
                    self._has_letter.wait()
        except BaseException as error:  # noqa: BLE001 - raised when batches are taken
            end_slot(slot, self._decisions.fail, error)

    # ------------------------------------------------------------ called by the program

    def take(self, most: float) -> list[Batch]:
        """Return up to ``most`` batches."""
        self._is_new_request = True
        for ticket in self._last:
            # A program that requests more batches has finished with its previous ones.
            # If their partition was taken away, they are given back, because a later
            # ownership of the partition waits for batches that the program still has.
            if ticket.task.epoch.is_closed:
                ticket.give_back()
        self.ready.clear()
        batches: list[Batch] = []
        while len(batches) < most:
            task = self._decisions.queue.claim()
            if task is None:
                break
            self._open(task, batches)
        return batches

    def _open(self, task: Task, batches: list[Batch]) -> None:
        ticket = Ticket(self._decisions, task, self._out)
        try:
            read = self._read(ticket)
        except BaseException:  # a Ctrl-C does not count as a failure of the record
            ticket.give_back()
            raise
        if not read:
            return
        if self._is_new_request:
            self._is_new_request = False
            self._last.clear()
        self._last.append(ticket)
        batches.append(Batch(ticket, read, self._dropped))

    def _read(self, ticket: Ticket) -> list[tuple[int, Any]]:
        task = ticket.task
        raw = [(index, task.record(index)) for index in task.indexes]
        if not self._readers:
            return raw
        read: list[tuple[int, Any]] = []
        for index, record in raw:
            try:
                read.append((index, self._readers.read(record)))
            except Exception as error:  # noqa: BLE001 - the error is the record's failure
                ticket.answer([index], failure_of(error))
        return read

    def abandon_last(self, error: BaseException) -> None:
        """
        Give back the latest batches, but not those that another thread has answered.

        If the program has requested more batches since, it is assumed to have passed
        the latest ones on to other code, and nothing is given back, except after an
        UnansweredBatchError.
        """
        if self._is_new_request and not isinstance(error, UnansweredBatchError):
            return
        ours = {threading.get_ident()}
        for ticket in self._last:
            if ticket.threads <= ours:
                ticket.give_back()

    def check_dropped(self, *, is_wrong: bool) -> None:
        """
        Give back the batches that were garbage-collected without an answer.

        Args:
            is_wrong: whether a dropped batch stops the worker.
        """
        while self._dropped:
            ticket = self._dropped.popleft()
            epoch = ticket.task.epoch
            if is_wrong and ticket.is_open and not epoch.revoked.is_set():
                self._decisions.fail(_unanswered(epoch.tp))
            ticket.give_back()


def _unanswered(tp: TopicPartition) -> UnansweredBatchError:
    return UnansweredBatchError(
        f"a batch of {partition_text(*tp)} was dropped before each of its records "
        f"had an answer: call done() or fail() on it; nothing was committed past them"
    )
