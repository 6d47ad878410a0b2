"""
Keeps everything that a pump holds: one epoch per owned partition, and their sums.

The lock rule, for all data that the polling thread and handlers' threads share: it is
changed, and iterated over, under :attr:`Held.lock` and never otherwise. That is the
epochs and all in them (progress, lanes, counters, failures), the schedule's queues, and
the events it is about to emit. Three things are done without it:

- marking a record complete: one byte of its chunk, by the thread that has the record;
- reading one number or one reference, where a moment's delay changes nothing;
- calling foreign code: a key, a handler, a hook, the consumer. Never under the lock.

The lock is innermost: nothing that takes another one is called under it, except for
waking threads that wait for work. Only the polling thread opens, fills and closes
epochs, so it may read which ones there are without the lock.
"""

import enum
import heapq
import math
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import getsizeof
from typing import TypeAlias

from attrs import frozen
from kafka.structs import TopicPartition

from safeconsumer.worker.progress import Chunk, Progress, Record, Watermark
from safeconsumer.worker.watermarks import Load

# Types of keys whose empty lanes may be kept, and the most bytes of such a key.
_PLAIN = frozenset({bytes, str, int, type(None)})
_LIGHT = 128
Indexes: TypeAlias = Sequence[int]

# The key of the lane for a record whose key could not be computed.
KEYLESS = object()


class State(enum.Enum):
    """Says where a lane is."""

    IDLE = "idle"
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    """It waits for a time, an acknowledgement or the watermark, or forever."""


class Lane:
    """
    Records that are handled one after the other, unless the lane is shared.

    Attributes:
        is_light: whether it may be kept while it is empty: its key takes little memory.
    """

    __slots__ = ("epoch", "is_light", "is_shared", "key", "runs", "state")

    def __init__(self, epoch: "Epoch", key: object, is_shared: bool = False) -> None:  # noqa: FBT001, FBT002 - by position it is quicker
        self.epoch = epoch
        self.key = key
        self.is_light = type(key) in _PLAIN and getsizeof(key) <= _LIGHT
        self.is_shared = is_shared
        # Few records, and a lane for each key: an empty deque would take 624 bytes.
        self.runs: list[tuple[Chunk, Indexes]] = []
        self.state = State.IDLE

    def __lt__(self, _other: "Lane") -> bool:
        return False  # if two are due at once, either may be first

    def first(self) -> int:
        """Return the ordinal of the first record."""
        chunk, indexes = self.runs[0]
        return chunk.base + indexes[0]

    def put_back(self, chunk: Chunk, indexes: Indexes) -> None:
        """Put records back in front."""
        if indexes:
            self.runs.insert(0, (chunk, indexes))

    def join_front(self) -> None:
        """Join the first two runs if they are of one chunk."""
        if len(self.runs) > 1 and self.runs[0][0] is self.runs[1][0]:
            chunk, first = self.runs.pop(0)
            _, more = self.runs.pop(0)
            self.runs.insert(0, (chunk, [*first, *more]))

    def cut(self, ends: Mapping[Chunk, int]) -> None:
        """Forget what is at or behind these ends of its chunks."""
        runs = []
        for chunk, indexes in self.runs:
            end = ends.get(chunk, len(chunk.done))
            left = indexes if indexes[-1] < end else [at for at in indexes if at < end]
            if left:
                runs.append((chunk, left))
        self.runs = runs

    def take(self, most: int, span: int) -> tuple[Chunk, Indexes] | None:
        """
        Take up to so many records of one chunk; None if all are beyond the span.

        A record that has failed, or is suspect, is taken by itself.
        """
        chunk, indexes = self.runs[0]
        most = min(most, _allowed(self.epoch, chunk, indexes, span))
        if most <= 0:
            return None
        if self.epoch.failures or self.epoch.alone:
            most = min(most, self._untried(chunk, indexes))
        if most >= len(indexes):
            self.runs.pop(0)
            return chunk, indexes
        self.runs[0] = (chunk, indexes[most:])
        return chunk, indexes[:most]

    def _untried(self, chunk: Chunk, indexes: Indexes) -> int:
        # How many come before the first that must run by itself; at least one.
        for count, index in enumerate(indexes):
            offset = record_at(chunk, index).offset
            if offset in self.epoch.failures or offset in self.epoch.alone:
                return max(1, count)
        return len(indexes)


class Epoch:
    """
    All work on one partition within one ownership; once closed it changes nothing more.

    Attributes:
        tp: the partition.
        number: the number of the ownership.
        losses: how often the membership was lost before it.
        progress: what is complete.
        load: incomplete records and their bytes, in ``records`` and ``bytes``.
        running: how many of them a handler is working on.
        lanes: the lanes of queued records, by key.
        unsorted: chunks, each with its first record, that are in no lane yet.
        failures: by offset, how often a record has failed.
        answers: by offset, what a batch reported of a record behind another one that
            failed.
        alone: offsets of records that must run by themselves.
        pace: seconds that a record has taken lately.
        moved_at: when a record was last completed, or the first record came.
        parked: a heap of the lanes whose first record is beyond the span, by its
            ordinal.
        allowed: the first ordinal that must not be started yet.
        revoked: set when the ownership ended or is about to.
        is_closed: whether it has ended.
        reset: the number of the position's reset from which its floor is; 0: none.
        is_adrift: whether there was another reset since, so that it has no floor.
        is_held: whether none of its records may begin: a hold that is not a worker's
            covers the partition, or the ownership has ended.
        shelf: lanes that were ready while it was held, in their order.
        front: represents the next batch among the lanes that are handed out.
        gathering: ready lanes whose records may go into that batch.
        due: when that batch is looked at again at the latest; infinite: when more
            records come.
        earlier: keys of which a task of an earlier ownership has not come back, each
            with the lane that waits for it. Shared with those ownerships.
    """

    __slots__ = (
        "allowed",
        "alone",
        "answers",
        "bytes",
        "due",
        "earlier",
        "failures",
        "front",
        "gathering",
        "is_adrift",
        "is_closed",
        "is_held",
        "lanes",
        "losses",
        "moved_at",
        "number",
        "pace",
        "parked",
        "progress",
        "records",
        "reset",
        "revoked",
        "running",
        "shelf",
        "stuck",
        "tp",
        "unsorted",
    )

    # It starts slow: the first records come one by one, over all threads.
    _FIRST_PACE = 0.02

    def __init__(
        self, tp: TopicPartition, number: int, losses: int, start: int, now: float
    ) -> None:
        self.tp = tp
        self.number = number
        self.losses = losses
        self.progress = Progress(start)
        self.records = 0
        self.bytes = 0
        self.running = 0
        self.lanes: dict[object, Lane] = {}
        self.unsorted: deque[tuple[Chunk, int]] = deque()
        self.parked: list[tuple[int, Lane]] = []
        self.stuck: dict[int, float] = {}
        self.failures: dict[int, int] = {}
        self.alone: set[int] = set()
        self.answers: dict[int, object] = {}
        self.pace = self._FIRST_PACE
        self.moved_at = now
        self.allowed = 0
        self.revoked = threading.Event()
        self.is_closed = False
        self.is_adrift = False
        self.reset = 0
        self.is_held = False
        self.shelf: deque[Lane] = deque()
        self.earlier: dict[object, Lane | None] = {}
        self.front = Lane(self, None)
        self.gathering: deque[Lane] = deque()
        self.due = math.inf

    def allow(self, span: int) -> int:
        """Return the first ordinal that must not be started before the watermark moves."""
        self.allowed = self.progress.floor() + span
        return self.allowed

    def let_go(self) -> None:
        """Drop all records: threads that still have a lane of it may keep it for long."""
        self.records = self.bytes = self.running = 0
        for lane in self.lanes.values():
            lane.runs.clear()
        self.progress = Progress(self.progress.watermark().offset)
        self.lanes.clear()
        self.unsorted.clear()
        self.parked.clear()
        self.shelf.clear()
        self.gathering.clear()
        self.answers.clear()
        self.stuck.clear()

    def cut(self, ends: Mapping[Chunk, int]) -> None:
        """Take records from the lanes that are not in their chunks any more."""
        for lane in self.lanes.values():
            lane.cut(ends)
        # Others may come at the ordinals of those: a log that was compacted has fewer.
        for _, lane in self.parked:
            if not lane.runs:
                lane.state = State.IDLE
        self.parked = [one for one in self.parked if one[1].runs]
        heapq.heapify(self.parked)
        left = [one for one in self.unsorted if one[1] < ends.get(one[0], math.inf)]
        self.unsorted.clear()
        self.unsorted.extend(left)

    def keep_pace(self, seconds: float) -> None:
        """
        Note how long a record took, on average of a hand-over.

        It falls quickly and rises slowly: a thread that waited for the interpreter's
        lock looks slow, and more threads would make it wait longer.
        """
        weight = 0.9 if seconds < self.pace else 0.1
        self.pace += weight * (seconds - self.pace)

    def __repr__(self) -> str:
        return f"Epoch({self.tp.topic}:{self.tp.partition}, {self.number})"


def _begun(epoch: Epoch, together: int) -> dict[Chunk, int]:
    # For each chunk with queued records, the index behind which none was begun.
    queued: defaultdict[Chunk, set[int]] = defaultdict(set)
    parked = {id(lane) for _, lane in epoch.parked}
    tried = {*epoch.failures, *epoch.alone, *epoch.answers, *epoch.stuck}
    for lane in epoch.lanes.values():
        # What waits for its time, or forever, was begun before.
        is_waiting = lane.state is State.WAITING and id(lane) not in parked
        is_begun = is_waiting and not lane.is_shared and lane.key not in epoch.earlier
        kept = together if is_begun else 0
        if kept and lane.runs and record_at(*_front(lane)).offset in tried:
            kept = 1  # it comes again by itself
        for chunk, indexes in lane.runs:
            queued[chunk].update(indexes[kept:])
            kept = max(0, kept - len(indexes))
    if KEYLESS not in epoch.lanes:  # otherwise the rest of the first waits for it
        for chunk, first in epoch.unsorted:
            queued[chunk].update(range(first, len(chunk.done)))
    ends = {}
    for chunk, unbegun in queued.items():
        end = len(chunk.done)
        while end - 1 in unbegun and record_at(chunk, end - 1).offset not in tried:
            end -= 1
        ends[chunk] = end
    return ends


def _front(lane: Lane) -> tuple[Chunk, int]:
    chunk, indexes = lane.runs[0]
    return chunk, indexes[0]


def record_at(chunk: Chunk, index: int) -> Record:
    """Return a record that is not finished, and so is not freed."""
    record = chunk.records[index]
    assert record is not None  # noqa: S101 - see above
    return record


def _allowed(epoch: Epoch, chunk: Chunk, indexes: Indexes, span: int) -> int:
    # How many of these may be started before the watermark moves.
    last = chunk.base + indexes[-1]
    if last < epoch.allowed or last < epoch.allow(span):
        return len(indexes)
    limit = epoch.allowed - chunk.base
    return sum(index < limit for index in indexes)


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
        idle: notified when running work ends; its lock is ``lock``.
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
        self.idle = threading.Condition(self.lock)
        self.epochs: dict[TopicPartition, Epoch] = {}
        self.records = 0
        self.bytes = 0
        self.running = 0
        self.outlived: Counter[TopicPartition] = Counter()
        self.done = 0
        self.closed = 0
        self.low: Load | None = None
        self.when_low: Callable[[], None] = _nothing
        self._outlived: dict[TopicPartition, dict[object, Lane | None]] = {}
        self._clock = clock

    @property
    def load(self) -> Load:
        """The records and bytes that are held now."""
        return Load(self.records, self.bytes)

    def open(self, tp: TopicPartition, number: int, losses: int, start: int) -> Epoch:
        """
        Begin an epoch that reads from the offset ``start``.

        The partition must have none.
        """
        with self.lock:
            epoch = Epoch(tp, number, losses, start, self._clock())
            epoch.earlier = self._outlived.get(tp, epoch.earlier)
            self.epochs[tp] = epoch
        return epoch

    def admit(self, epoch: Epoch, records: list[Record]) -> Chunk:
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
            together: how many of a lane that waits come again as one.

        Returns:
            The offset of the first one; None if none was forgotten.
        """
        with self.lock:
            begun, cuts, offset = _begun(epoch, together), {}, None
            while epoch.records > most.records or epoch.bytes > most.bytes:
                chunk = epoch.progress.last()
                end = 0 if chunk is None else begun.get(chunk, len(chunk.done))
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
            self._keep_running(epoch)
            self.records -= epoch.records
            self.bytes -= epoch.bytes
            self.running -= epoch.running
            epoch.let_go()
            self.closed += 1
            if self.epochs.get(epoch.tp) is epoch:
                del self.epochs[epoch.tp]
            self.idle.notify_all()
        return dropped

    def _keep_running(self, epoch: Epoch) -> None:
        # Its running records go on, and a later ownership of the partition waits for
        # them.
        running = [
            lane.key
            for lane in epoch.lanes.values()
            if lane.state is State.RUNNING and not lane.is_shared
        ]
        if running:
            epoch.earlier = self._outlived.setdefault(epoch.tp, epoch.earlier)
            epoch.earlier.update(dict.fromkeys(running))

    def came_back(self, lane: Lane) -> Lane | None:
        """
        Note that a task of a closed epoch is over. The lock is held.

        Returns:
            The lane of a later ownership that has waited for it, if there is one.
        """
        epoch = lane.epoch
        waiting = epoch.earlier.pop(lane.key, None)
        if not epoch.earlier:
            self._outlived.pop(epoch.tp, None)
        return waiting

    def busy(self) -> set[TopicPartition]:
        """Return the partitions with running records, also if they were taken away."""
        with self.lock:
            gone = {tp for tp, count in self.outlived.items() if count}
            return gone | {tp for tp, epoch in self.epochs.items() if epoch.running}

    def stuck(self) -> list[tuple[TopicPartition, int, float]]:
        """Return blocking records that failed for good: partition, offset, since when."""
        with self.lock:
            return [
                (epoch.tp, offset, since)
                for epoch in self.epochs.values()
                for offset, since in epoch.stuck.items()
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


def _nothing() -> None:
    """Do nothing."""
