"""
Keeps the records in memory, in one epoch per owned partition, with their totals.

All data that the polling thread and the handlers' threads share is changed and iterated
over only under :attr:`KeptRecords.lock`. This data consists of the epochs and their
parts (progress, lanes, counters, failures), the queue, and the events that
``Decisions`` is about to emit. Three things are done without the lock:

- marking a record complete: the thread that runs a task sets one element of the task's
  list;
- reading one number or one reference, where a slightly outdated value does no harm;
- calling foreign code: a handler, a hook or the consumer. Foreign code is never called
  under the lock.

The lock is innermost: no code that takes another lock is called under it, except the
code that wakes threads that wait for work. Only the polling thread opens, fills and
closes epochs, so the polling thread may read the mapping of epochs without the lock.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence

from attrs import frozen
from kafka.structs import TopicPartition

from safeconsumer._kafka.fork import run_in_child
from safeconsumer._waits import InterruptibleEvent
from safeconsumer.worker.partition import Epoch, Task
from safeconsumer.worker.progress import Ordinals, Progress, Watermark, sizes_of
from safeconsumer.worker.records import AnyRecord
from safeconsumer.worker.watermarks import Load


@frozen
class DroppedWork:
    """
    The records of a closed epoch that were incomplete when it was closed.

    Attributes:
        epoch: the closed epoch.
        mark: the watermark of the epoch when it was closed.
        records: the number of incomplete records.
        running: the number of incomplete records that were handed over to handlers.
    """

    epoch: Epoch
    mark: Watermark
    records: int
    running: int

    @property
    def tp(self) -> TopicPartition:
        """The partition of the epoch."""
        return self.epoch.tp


class KeptRecords:
    """
    The epochs of a worker, and the totals of their counters.

    Attributes:
        lock: guards every counter and every epoch.
        idle: set when no record is running any more, and when an epoch is closed. A
            thread clears this event before it waits for it.
        epochs: the open epochs by partition.
        records: the number of incomplete records of all open epochs.
        bytes: the size of the incomplete records.
        running: the number of records in tasks that were handed over to handlers and
            have not returned; :meth:`finished` returns how many of these records are
            complete.
        left_behind: the tasks of closed epochs that have not returned, by partition.
        done: the number of records completed since the start, in tasks that have
            returned.
        closed: the number of closed epochs.
        low: the load at or below which :attr:`when_low` is called; None if it must not
            be called.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        # The lock is re-entrant, so that a signal handler can detect that it has
        # interrupted the owner of the lock.
        self.lock = threading.RLock()
        self.idle = InterruptibleEvent()
        self.epochs: dict[TopicPartition, Epoch] = {}
        self.records = 0
        self.bytes = 0
        self.running = 0
        self.left_behind: dict[TopicPartition, set[Task]] = {}
        self.done = 0
        self.closed = 0
        self.low: Load | None = None
        self.when_low: Callable[[], None] = _nothing
        # maps each partition to its latest ownership and the number of that ownership
        self._numbered: dict[TopicPartition, tuple[object, int]] = {}
        self._clock = clock
        _alive.add(self)

    @property
    def load(self) -> Load:
        """The number and the total size of the records that are currently kept."""
        return Load(self.records, self.bytes)

    def open(
        self,
        tp: TopicPartition,
        ownership: object,
        losses: int,
        start: int,
        leader_epoch: int = -1,
    ) -> Epoch:
        """
        Open an epoch that reads from the offset ``start``.

        The partition must have no open epoch.
        """
        progress = Progress(start, leader_epoch)
        with self.lock:
            number = self.number_of(tp, ownership)
            epoch = Epoch(tp, ownership, number, losses, progress, self._clock())
            for task in self.left_behind.get(tp, ()):
                epoch.busy.update(task.keys)
            self.epochs[tp] = epoch
        return epoch

    def number_of(self, tp: TopicPartition, ownership: object) -> int:
        """Return an ownership's number; a partition's next ownership gets a higher one."""
        with self.lock:
            last, number = self._numbered.get(tp, (None, 0))
            if last is not ownership:
                number += 1
                self._numbered[tp] = ownership, number
        return number

    def end_ownership(self, tp: TopicPartition) -> None:
        """Forget the ended ownership of a partition, but not the ownership's number."""
        with self.lock:
            _, number = self._numbered[tp]
            self._numbered[tp] = None, number

    def admit(self, epoch: Epoch, records: Sequence[AnyRecord]) -> Sequence[int]:
        """Add the records that a poll returned; return the size of each in bytes."""
        sizes = sizes_of(records)
        size, now, progress = sum(sizes), self._clock(), epoch.progress
        with self.lock:
            progress.admit(records, sizes, now)
            epoch.main.fresh = range(epoch.main.fresh.start, progress.admitted)
            if not epoch.records:
                epoch.moved_at = now
            self._count(epoch, len(records), size)
        return sizes

    def release(self, epoch: Epoch, ordinals: Ordinals) -> None:
        """Free complete records, and reduce the totals. The caller must hold the lock."""
        size, count = epoch.progress.release(ordinals), len(ordinals)
        self._count(epoch, -count, -size)
        epoch.moved_at = self._clock()
        self.done += count

    def give_back(self, epoch: Epoch, most: Load, at_once: int) -> int | None:
        """
        Drop an epoch's last records, which no handler has begun, until ``most`` remain.

        The caller must make sure that the dropped records are fetched again.

        Args:
            epoch: an open epoch.
            most: the records and bytes that the epoch may keep.
            at_once: how many records of a failed lane are delivered again together.

        Returns:
            The offset of the first dropped record, or None if no record was dropped.
        """
        with self.lock:
            progress, first = epoch.progress, epoch.first_unbegun(at_once)
            end = progress.admitted
            while end > first and (
                epoch.records > most.records or epoch.bytes > most.bytes
            ):
                end -= 1
                self._count(epoch, -1, -progress.size(end))
            return None if end == progress.admitted else epoch.cut(end)

    def _count(self, epoch: Epoch, records: int, size: int) -> None:
        epoch.records += records
        epoch.bytes += size
        self.records += records
        self.bytes += size

    def call_when_low(self) -> None:
        """Call ``when_low`` if the load is low enough. The caller must not hold the lock."""
        # the usual case, which takes no lock
        if self.low is None:
            return
        with self.lock:
            low = self.low
            if low is None or self.records > low.records or self.bytes > low.bytes:
                return
            self.low = None
        self.when_low()

    def close(self, epoch: Epoch) -> DroppedWork:
        """Close an epoch, so that later results of its tasks are ignored."""
        with self.lock:
            mark, running = epoch.watermark(), epoch.running
            done = self.finished([epoch])
            dropped = DroppedWork(epoch, mark, epoch.records - done, running - done)
            self.done += done
            epoch.is_closed = epoch.is_held = True
            if epoch.tasks:
                self.left_behind.setdefault(epoch.tp, set()).update(epoch.tasks)
            self.records -= epoch.records
            self.bytes -= epoch.bytes
            self.running -= running
            epoch.forget_all()
            self.closed += 1
            if self.epochs.get(epoch.tp) is epoch:
                del self.epochs[epoch.tp]
            self.idle.set()
        return dropped

    def task_returned(self, task: Task) -> Epoch | None:
        """
        Remove a returned task of a closed epoch. The caller must hold the lock.

        Returns:
            The open epoch of the task's partition; None if the partition has no open
            epoch.
        """
        tp = task.epoch.tp
        left = self.left_behind[tp]
        left.discard(task)
        if not left:
            del self.left_behind[tp]
        return self.epochs.get(tp)

    def finished(self, epochs: Iterable[Epoch] | None = None) -> int:
        """
        Return how many records are complete in tasks that have not returned.

        Handlers mark each record as they complete it, but report only after the last
        record of their task. Until that report, :attr:`running` counts the complete
        records, and :attr:`done` does not.

        Args:
            epochs: the epochs whose records are counted; None for all open epochs.
        """
        with self.lock:
            given = self.epochs.values() if epochs is None else epochs
            return sum(task.done() for epoch in given for task in epoch.tasks)

    def left_running(self) -> int:
        """Return how many records in tasks of closed epochs are still incomplete."""
        with self.lock:
            left = self.left_behind.values()
            return sum(
                len(task.records) - task.done() for tasks in left for task in tasks
            )

    def busy(self) -> set[TopicPartition]:
        """Return the partitions with running records, even those that were taken away."""
        with self.lock:
            here = {tp for tp, epoch in self.epochs.items() if epoch.tasks}
            return here.union(self.left_behind)

    def blocking(self) -> list[tuple[TopicPartition, int, float]]:
        """
        List partition, offset and time of each record that failed for good and blocks.

        The result excludes records whose next step, such as a dead letter, a hold
        prevents.
        """
        with self.lock:
            return [
                (epoch.tp, offset, one.blocks_since)
                for epoch in self.epochs.values()
                for offset, one in epoch.failed.items()
                if one.blocks_since is not None and not epoch.holds_back(offset)
            ]

    def watermarks(
        self, epochs: Iterable[Epoch] | None = None
    ) -> dict[TopicPartition, Watermark]:
        """Return the watermark of each open epoch, or of each given epoch that is open."""
        with self.lock:
            return {
                epoch.tp: epoch.watermark()
                for epoch in (self.epochs.values() if epochs is None else epochs)
                if not epoch.is_closed
            }


_alive: "weakref.WeakSet[KeptRecords]" = weakref.WeakSet()


def _renew_locks() -> None:
    # In a forked child the thread that owns a lock may not exist.
    for kept in _alive:
        kept.lock = threading.RLock()


run_in_child(_renew_locks)


def _nothing() -> None: ...
