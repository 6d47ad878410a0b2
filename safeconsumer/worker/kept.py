"""
Keeps the records in memory: one epoch per owned partition, and their sums.

The lock rule, for all data that the polling thread and handlers' threads share: it is
changed, and iterated over, under :attr:`KeptRecords.lock` and never otherwise. These data
are the epochs and their parts (progress, lanes, counters, failures), the queue, and the
events that ``Decisions`` is about to emit. Three things are done without it:

- marking a record complete: the thread that runs a task sets one element of its list;
- reading one number or one reference, where a moment's delay changes nothing;
- calling foreign code: a handler, a hook, the consumer. That is never done under the
  lock.

The lock is innermost: nothing that takes another one is called under it, except for
waking threads that wait for work. Only the polling thread opens, fills and closes
epochs, so it may read the mapping of epochs without the lock.
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
    The records that a closed epoch still had.

    Attributes:
        epoch: the closed epoch.
        mark: its watermark at the end.
        records: how many records were not complete.
        running: the number of these that were handed over to handlers.
    """

    epoch: Epoch
    mark: Watermark
    records: int
    running: int

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return self.epoch.tp


class KeptRecords:
    """
    The epochs of a worker, and the sums of their counters.

    Attributes:
        lock: guards every counter and every epoch.
        idle: set when running work ends; a thread that waits for that clears it first.
        epochs: the open ones by partition.
        records: incomplete records of all of them.
        bytes: the bytes of these records.
        running: the records that are handed over to handlers, in tasks that have not
            come back; :meth:`finished` of them are complete.
        left_behind: by partition, the tasks of closed epochs that have not come back.
        done: records completed since the beginning, in tasks that have come back.
        closed: how many epochs have ended.
        low: the load at which :attr:`when_low` is called; None: it is not called.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        # Re-entrant, so that a signal handler can see that it has interrupted the owner.
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
        # The last ownership of each partition, and its number.
        self._numbered: dict[TopicPartition, tuple[object, int]] = {}
        self._clock = clock
        _alive.add(self)

    @property
    def load(self) -> Load:
        """The records and bytes that are kept now."""
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
        Begin an epoch that reads from the offset ``start``.

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
        """Return the number of a partition's ownership; later ones have higher numbers."""
        with self.lock:
            last, number = self._numbered.get(tp, (None, 0))
            if last is not ownership:
                number += 1
                self._numbered[tp] = ownership, number
        return number

    def admit(self, epoch: Epoch, records: Sequence[AnyRecord]) -> Sequence[int]:
        """Add the records that a poll returned; return the bytes of each."""
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
        """Free complete records, and subtract them from the sums. The lock is held."""
        size, count = epoch.progress.release(ordinals), len(ordinals)
        self._count(epoch, -count, -size)
        epoch.moved_at = self._clock()
        self.done += count

    def give_back(self, epoch: Epoch, most: Load, at_once: int) -> int | None:
        """
        Forget an epoch's last records that were not begun, until ``most`` are left.

        They must be fetched again.

        Args:
            epoch: an open epoch.
            most: the records and bytes that it may keep.
            at_once: the number of records of a failed lane that are delivered again
                together.

        Returns:
            The offset of the first one; None if none was forgotten.
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
        """Call ``when_low`` if the low mark was reached. The lock is not held."""
        # the usual case; otherwise the lock is taken for the check
        if self.low is None:
            return
        with self.lock:
            low = self.low
            if low is None or self.records > low.records or self.bytes > low.bytes:
                return
            self.low = None
        self.when_low()

    def close(self, epoch: Epoch) -> DroppedWork:
        """End an epoch; its results change nothing from now on."""
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
        Note that a task of a closed epoch has returned. The lock is held.

        Returns:
            The epoch that its partition has now; None if it has none.
        """
        tp = task.epoch.tp
        left = self.left_behind[tp]
        left.discard(task)
        if not left:
            del self.left_behind[tp]
        return self.epochs.get(tp)

    def finished(self, epochs: Iterable[Epoch] | None = None) -> int:
        """
        Return how many records are complete in tasks that have not come back.

        Handlers mark each complete record, and report once, after the last record of
        their task. Until then :attr:`running` counts these records, and :attr:`done`
        does not.

        Args:
            epochs: the epochs to count in; None: all open ones.
        """
        with self.lock:
            given = self.epochs.values() if epochs is None else epochs
            return sum(task.done() for epoch in given for task in epoch.tasks)

    def left_running(self) -> int:
        """Return how many incomplete records the tasks of closed epochs have."""
        with self.lock:
            left = self.left_behind.values()
            return sum(
                len(task.records) - task.done() for tasks in left for task in tasks
            )

    def busy(self) -> set[TopicPartition]:
        """Return the partitions with running records, also if they were taken away."""
        with self.lock:
            here = {tp for tp, epoch in self.epochs.items() if epoch.tasks}
            return here.union(self.left_behind)

    def blocking(self) -> list[tuple[TopicPartition, int, float]]:
        """
        Return the records that failed for good and block: partition, offset and time.

        Records that a hold keeps from their next step, such as a dead letter, do not
        count.
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
        """Return the watermark of each open epoch, or of each of the given ones."""
        with self.lock:
            return {
                epoch.tp: epoch.watermark()
                for epoch in (self.epochs.values() if epochs is None else epochs)
                if not epoch.is_closed
            }


_alive: "weakref.WeakSet[KeptRecords]" = weakref.WeakSet()


def _renew_locks() -> None:
    # In a forked child the thread that has a lock may not exist.
    for kept in _alive:
        kept.lock = threading.RLock()


run_in_child(_renew_locks)


def _nothing() -> None: ...
