"""
Keeps everything that a pump holds: one epoch per owned partition, and their sums.

The lock rule, for all data that the polling thread and handlers' threads share: it is
changed, and iterated over, under :attr:`Held.lock` and never otherwise. That is the
epochs and all in them (progress, lanes, counters, failures), the schedule's queues, and
the events it is about to emit. Four things are done without it:

- marking a record complete: one byte of its chunk, by the thread that has the record;
- reading one number or one reference, where a moment's delay changes nothing;
- looking lanes up by their keys, and forgetting them, which only the polling thread does;
- calling foreign code: a handler, a hook, the consumer. Never under the lock.

The lock is innermost: nothing that takes another one is called under it, except for
waking threads that wait for work. Only the polling thread opens, fills and closes
epochs, so it may read which ones there are without the lock.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable

from attrs import frozen
from kafka.structs import TopicPartition

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.worker.lanes import Lane, LaneState
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import Chunk, Progress, Watermark
from safeconsumer.worker.records import AnyRecord
from safeconsumer.worker.watermarks import Load


@frozen
class Dropped:
    """
    The records that a closed epoch still held.

    Attributes:
        epoch: the closed epoch.
        mark: up to where it was complete.
        records: how many records were not complete.
        running: how many of these were handed over to handlers.
    """

    epoch: Epoch
    mark: Watermark
    records: int
    running: int

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return self.epoch.tp


class Held:
    """
    The epochs of a pump, and the sums of their counters.

    Attributes:
        lock: guards every counter and every epoch.
        idle: set when running work ends; who waits for that clears it first.
        epochs: the open ones by partition.
        records: incomplete records of all of them.
        bytes: the bytes of these records.
        running: the records that are handed over to handlers.
        outlived: by partition, records of closed epochs whose task has not come back.
        done: records completed since the beginning.
        closed: how many epochs have ended.
        low: call :attr:`when_low` once no more than this is held; None: do not call it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        # Re-entrant, so that a signal handler that interrupts its owner is known.
        self.lock = threading.RLock()
        self.idle = InterruptibleEvent()
        self.epochs: dict[TopicPartition, Epoch] = {}
        self.records = 0
        self.bytes = 0
        self.running = 0
        self.outlived: Counter[TopicPartition] = Counter()
        self.done = 0
        self.closed = 0
        self.low: Load | None = None
        self.when_low: Callable[[], None] = _nothing
        self._left_behind: dict[TopicPartition, set[Lane]] = {}
        # The last ownership of each partition, and how many it has had.
        self._numbered: dict[TopicPartition, tuple[object, int]] = {}
        self._clock = clock

    @property
    def load(self) -> Load:
        """The records and bytes that are held now."""
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

        The partition must have none.
        """
        progress = Progress(start, leader_epoch)
        with self.lock:
            number = self.number_of(tp, ownership)
            epoch = Epoch(tp, ownership, number, losses, progress, self._clock())
            epoch.left_behind = tuple(self._left_behind.get(tp, ()))
            self.epochs[tp] = epoch
        return epoch

    def number_of(self, tp: TopicPartition, ownership: object) -> int:
        """Return the number of the ownership that a partition has now, above all before."""
        with self.lock:
            last, number = self._numbered.get(tp, (None, 0))
            if last is not ownership:
                number += 1
                self._numbered[tp] = ownership, number
        return number

    def admit(self, epoch: Epoch, records: list[AnyRecord]) -> Chunk:
        """Take over the records that a poll returned."""
        # This counts outside of the lock: only this thread admits.
        chunk = Chunk(records, epoch.progress.admitted, self._clock())
        size = sum(chunk.sizes)
        with self.lock:
            epoch.progress.admit(chunk)
            if not epoch.records:
                epoch.moved_at = self._clock()
            epoch.records += len(records)
            epoch.bytes += size
            self.records += len(records)
            self.bytes += size
        return chunk

    def release(self, epoch: Epoch, chunk: Chunk, indexes: Iterable[int]) -> None:
        """Uncount records that were marked complete. The lock is held."""
        count = len(indexes)  # type: ignore[arg-type]  # a list or a range
        if epoch.is_closed or not count:
            return
        size = chunk.bytes_of(indexes)
        self._uncount(epoch, count, size)
        epoch.moved_at = self._clock()
        self.done += count

    def give_back(self, epoch: Epoch, most: Load, together: int) -> int | None:
        """
        Forget an epoch's last records that were not begun, until it holds ``most``.

        They must be fetched again.

        Args:
            epoch: an open epoch.
            most: how many records and bytes it may keep.
            together: how many of a lane that failed come again as one.

        Returns:
            The offset of the first one; None if none was forgotten.
        """
        with self.lock:
            ends, cuts, offset = epoch.unbegun(together), {}, None
            while epoch.records > most.records or epoch.bytes > most.bytes:
                chunk = epoch.progress.last()
                end = 0 if chunk is None else ends.get(chunk, len(chunk.done))
                if chunk is None or end == len(chunk.done):
                    break
                keep = len(chunk.done)
                while keep > end and (
                    epoch.records > most.records or epoch.bytes > most.bytes
                ):
                    keep -= 1
                    self._uncount(epoch, 1, chunk.sizes[keep])
                cuts[chunk] = keep
                offset = epoch.progress.cut(keep)
            epoch.cut(cuts)
        return offset

    def _uncount(self, epoch: Epoch, records: int, size: int) -> None:
        epoch.records -= records
        epoch.bytes -= size
        self.records -= records
        self.bytes -= size

    def tell_low(self) -> None:
        """Call ``when_low`` if the low mark was reached. The lock is not held."""
        if self.low is None:  # nearly always; otherwise checked under the lock
            return
        with self.lock:
            low = self.low
            if low is None or self.records > low.records or self.bytes > low.bytes:
                return
            self.low = None
        self.when_low()

    def close(self, epoch: Epoch) -> Dropped:
        """End an epoch; its results change nothing from now on."""
        with self.lock:
            mark, left = epoch.progress.watermark(), len(epoch.progress.incomplete())
            # Handlers mark each complete record, and report once they are through with
            # all.
            done = epoch.records - left
            dropped = Dropped(epoch, mark, left, max(0, epoch.running - done))
            self.done += done
            self.outlived[epoch.tp] += epoch.running
            epoch.is_closed = epoch.is_held = True
            epoch.revoked.set()
            running = [one for one in epoch.lanes.values() if _is_out(one)]
            if running:
                self._left_behind.setdefault(epoch.tp, set()).update(running)
            self.records -= epoch.records
            self.bytes -= epoch.bytes
            self.running -= epoch.running
            epoch.let_go()
            self.closed += 1
            if self.epochs.get(epoch.tp) is epoch:
                del self.epochs[epoch.tp]
            self.idle.set()
        return dropped

    def came_back(self, lanes: Iterable[Lane]) -> None:
        """Note that a task of a closed epoch is over. The lock is held."""
        for lane in lanes:
            lane.state = LaneState.IDLE
            behind = self._left_behind.get(lane.epoch.tp, set())
            behind.discard(lane)
            if not behind:
                self._left_behind.pop(lane.epoch.tp, None)

    def busy(self) -> set[TopicPartition]:
        """Return the partitions with running records, also if they were taken away."""
        with self.lock:
            gone = {tp for tp, count in self.outlived.items() if count}
            return gone | {tp for tp, epoch in self.epochs.items() if epoch.running}

    def blocking(self) -> list[tuple[TopicPartition, int, float]]:
        """Return blocking records that failed for good: partition, offset, since when."""
        with self.lock:
            return [
                (epoch.tp, offset, one.blocks_since)
                for epoch in self.epochs.values()
                for offset, one in epoch.failed.items()
                if one.blocks_since is not None
            ]

    def watermarks(
        self, epochs: Iterable[Epoch] | None = None
    ) -> dict[TopicPartition, Watermark]:
        """Return up to where each open epoch, or each of the given ones, is complete."""
        with self.lock:
            return {
                epoch.tp: epoch.progress.watermark()
                for epoch in (self.epochs.values() if epochs is None else epochs)
                if not epoch.is_closed
            }


def _is_out(lane: Lane) -> bool:
    return lane.state is LaneState.RUNNING and not lane.is_shared


def _nothing() -> None: ...
