"""
Defines the parts of one ownership of a partition: lanes, their epoch, and tasks.

The records of a lane are handled one after the other. Every ownership has a main lane,
with its records as they come. With ``partition`` it is the only lane, and one task of
it is out at a time. With ``key``, and without an order, the main lane is *shared*: it
continues while tasks of it are out, and a record that must wait moves to a lane of its
own: a failed record, and with ``key`` each record of a key that is busy or has such a
lane. Such a lane is removed when it is empty. Tasks and outcomes travel between a queue
and its handlers.
"""

import enum
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from attrs import Factory, define, field, frozen
from kafka.structs import TopicPartition

from safeconsumer.errors.kafka_python import CorruptBatchError
from safeconsumer.holds.scope import partition_text
from safeconsumer.worker.handlers import Failure
from safeconsumer.worker.progress import Ordinals, Progress, Watermark
from safeconsumer.worker.records import AnyRecord
from safeconsumer.worker.revocation import Revocation

# Seconds. The first estimate is slow: so the first records come one by one, over all
# threads.
FIRST_PACE = 0.02


class Order(enum.Enum):
    """The choice of the records that are handled one after the other."""

    PARTITION = "partition"
    """Records of one partition are handled one after the other."""

    KEY = "key"
    """Records of one key within a partition are handled one after the other."""

    UNORDERED = "unordered"
    """Records are handled in any order."""


class LaneState(enum.Enum):
    """
    The reason for which a lane waits; only ``Queue`` changes it.

    ========= ========================================== ==========================
    state     waits for                                  is moved on by
    ========= ========================================== ==========================
    IDLE      records: it has none                       ``Queue.admit``, and
                                                         ``Queue.put_back``
    READY     its turn; meanwhile a hold or a breaker    ``Queue.claim``
              may set aside its partition, with all      ``Queue.claim_letter``
              lanes that are ready
    FILLING   more records for a batch                   ``Queue.resume_main``
    AHEAD     the watermark: its first record is         ``Queue.resume_main``, and
              ``Limits.span`` beyond it                  ``Queue.put_back``
    RUNNING   a task with records of its key, or of      ``Queue.requeue``, once
              its partition; it may be one of an         that task is back
              ownership that has ended
    FAILED    the next attempt at its first record; for  ``Queue.turn``
              ever, if that record blocks it, or has
              stopped the worker
    ========= ========================================== ==========================

    A shared lane is never RUNNING: it waits for none of its tasks. Only a main lane is
    FILLING or AHEAD.
    """

    IDLE = "idle"
    READY = "ready"
    FILLING = "filling"
    AHEAD = "ahead"
    RUNNING = "running"
    FAILED = "failed"


class Lane:
    """
    Records that are handled one after the other, unless the lane is shared.

    Attributes:
        epoch: the ownership that they belong to.
        key: its key in ``Epoch.lanes``; a main lane has no meaningful key.
        again: the ordinals of records that were taken and put back; they come first.
        fresh: the ordinals of records that were never taken; only a main lane has any.
        state: the reason for which it waits.
    """

    __slots__ = ("again", "epoch", "fresh", "key", "state")

    def __init__(
        self, epoch: "Epoch", key: object = None, state: LaneState = LaneState.IDLE
    ) -> None:
        self.epoch = epoch
        self.key = key
        self.again: list[int] = []
        self.fresh = range(0)
        self.state = state

    def __lt__(self, _other: "Lane") -> bool:
        return False  # if two lanes are due at the same time, either may be first

    def __len__(self) -> int:
        return len(self.again) + len(self.fresh)

    def __iter__(self) -> Iterator[int]:
        yield from self.again
        yield from self.fresh

    @property
    def is_tried(self) -> bool:
        """Whether the first record has failed, or may have, and is handed out alone."""
        failed = self.epoch.failed
        # A revocation may have dropped the records while the lane waited.
        return bool(failed and self.again) and self.first_offset() in failed

    def first_offset(self) -> int:
        """Return the offset of the first record."""
        return self.epoch.progress.record(next(iter(self))).offset

    def put_back(self, ordinals: Ordinals) -> None:
        """Put records back in front."""
        self.again[:0] = ordinals

    def cut(self, end: int) -> None:
        """Forget the records from the ordinal ``end`` on."""
        self.again = [one for one in self.again if one < end]
        # Other records may get these ordinals: a compacted log has fewer records.
        self.fresh = range(min(self.fresh.start, end), min(self.fresh.stop, end))

    def drop(self) -> None:
        """Forget all records."""
        self.again.clear()
        self.fresh = self.fresh[len(self.fresh) :]

    def take(self, most: int, span: int) -> Ordinals:
        """
        Take up to this many records; none if all are beyond the span.

        A record that has failed, or may have, is taken alone.
        """
        epoch = self.epoch
        if self.again:
            if epoch.failed:
                most = self._untried(most)
            again = self.again[:most]
            del self.again[:most]
            most = 0 if self.again else most - len(again)
        else:
            again = []
        if self.fresh.start + most > epoch.allowed:
            most = min(most, epoch.allow(span) - self.fresh.start)
        if most <= 0:
            return again
        fresh, self.fresh = self.fresh[:most], self.fresh[most:]
        return [*again, *fresh] if again else fresh

    def _untried(self, most: int) -> int:
        # Returns the number of records before the first that must run alone; at least
        # one.
        for count, ordinal in enumerate(self.again[:most]):
            if self.epoch.progress.record(ordinal).offset in self.epoch.failed:
                return max(1, count)
        return most


@define(eq=False)
class FailedRecord:
    """
    The history of a record that has failed, or may have.

    Attributes:
        count: how many of its attempts have failed.
        answer: the error that a batch reported for it, kept until the record before it
            is decided: the task, its index there, the error, and when it was raised.
        blocks_since: the time since which it blocks its lane, as it failed for good;
        None: it does not.
        letter: the failure that makes it a dead letter, its last step; None: call the
            handler.
        tries: the number of failed calls of the sink with it.
    """

    count: int = 0
    answer: "tuple[Task, int, BaseException, float] | None" = None
    blocks_since: float | None = None
    letter: Failure | None = None
    tries: int = 0


@define(eq=False, kw_only=True)
class UnreadableBatch:
    """
    The next batch of a partition, which cannot be read.

    Attributes:
        error: the last one, with the first offset that cannot be read.
        since: the time of the first such error, on the clock.
        failures: the number of fetches that failed.
        then: the final policy for it; None while it is tried again.
    """

    error: CorruptBatchError
    since: float
    failures: int = 0
    then: str | None = None


@define(eq=False, repr=False)
class Epoch:
    """
    All work on a partition in one ownership; after its end it changes nothing.

    Attributes:
        tp: the partition.
        ownership: the object that identifies the ownership.
        number: its number, for people and journals.
        losses: how often the membership was lost before it.
        progress: the state of its records.
        load: incomplete records and their bytes, in ``records`` and ``bytes``.
        running: the number of these that are handed over to handlers.
        tasks: the tasks with these records.
        pace: the seconds that a record has taken lately.
        moved_at: when a record was last completed, or the first record came.
        main: the lane of the records as they come.
        lanes: the other lanes: by key, or without an order by the offset of the first.
        busy: by key, the keys of main's tasks that are out, and of tasks of earlier
            ownerships.
        ready: the lanes that may be handed out, in their order.
        allowed: the first ordinal whose record must not begin yet.
        failed: by offset, records that have failed, or may have.
        unreadable: the next batch, if it cannot be read.
        revoked: set when the ownership ended or is about to.
        is_closed: whether it has ended.
        is_held: whether none of its records may begin: a hold that is not a worker's
            covers the partition, or the ownership has ended.
        committed: the offset that is committed for it; -1: none.
        reset: the number of the position's reset that gave its floor; 0: none.
        has_lost_floor: whether a later reset has made its floor invalid.
    """

    tp: TopicPartition
    ownership: object
    number: int
    losses: int
    progress: Progress
    moved_at: float
    records: int = 0
    bytes: int = 0
    running: int = 0
    tasks: "set[Task]" = field(factory=set)
    pace: float = field(factory=lambda: FIRST_PACE)
    main: Lane = field(default=Factory(Lane, takes_self=True))
    lanes: dict[object, Lane] = field(factory=dict)
    busy: set[object] = field(factory=set)
    ready: deque[Lane] = field(factory=deque)
    allowed: int = 0
    failed: dict[int, FailedRecord] = field(factory=dict)
    unreadable: UnreadableBatch | None = None
    revoked: Revocation = field(factory=Revocation)
    is_closed: bool = False
    is_held: bool = False
    committed: int = -1
    reset: int = 0
    has_lost_floor: bool = False

    def all_lanes(self) -> Iterator[Lane]:
        """Yield every lane, with records or without."""
        yield self.main
        yield from self.lanes.values()

    def allow(self, span: int) -> int:
        """Return the first ordinal whose record must not begin before the watermark moves."""
        self.allowed = self.progress.first_incomplete(self.tasks) + span
        return self.allowed

    def watermark(self) -> Watermark:
        """Return the watermark, which includes complete records of tasks that are out."""
        return self.progress.watermark(self.tasks)

    # ------------------------------------------------------------ failures

    def fail(self, offset: int) -> FailedRecord:
        """Return the history of a record that has failed; from now on it runs alone."""
        return self.failed.setdefault(offset, FailedRecord())

    def holds_back(self, offset: int) -> bool:
        """Return whether holds alone prevent work on a record."""
        ready = (lane.first_offset() for lane in self.ready if lane)
        return self.is_held and offset in ready

    def keep_pace(self, seconds: float) -> None:
        """
        Note how long a record took, on average of a hand-over.

        The pace falls quickly and rises slowly: a thread that waited for the interpreter's
        lock looks slow, and more threads would make it wait longer.
        """
        weight = 0.9 if seconds < self.pace else 0.1
        self.pace += weight * (seconds - self.pace)

    # ------------------------------------------------------------ dropping records

    def drop_queued(self) -> None:
        """Forget the queued records; running ones continue."""
        self.revoked.set()
        for lane in self.all_lanes():
            lane.drop()

    def forget_all(self) -> None:
        """Drop all records: a thread that still has one of the lanes may keep it for long."""
        self.drop_queued()
        self.records = self.bytes = self.running = 0
        self.progress = Progress(self.watermark().offset)
        self.tasks.clear()
        self.lanes.clear()
        self.ready.clear()
        self.failed.clear()

    def first_unbegun(self, at_once: int) -> int:
        """
        Return the ordinal behind the last record that was begun.

        Args:
            at_once: how many of a lane that failed are delivered again as one.
        """
        queued: set[int] = set()
        for lane in self.all_lanes():
            # The first records of a lane that waits after a failure were begun before.
            kept = at_once if lane.state is LaneState.FAILED else 0
            if kept and lane.is_tried:
                kept = 1  # the record is delivered again alone
            queued.update([*lane][kept:])
        end, progress = self.progress.admitted, self.progress
        while end - 1 in queued and progress.record(end - 1).offset not in self.failed:
            end -= 1
        return end

    def cut(self, end: int) -> int:
        """Forget the records from ``end`` on, none of which was begun; return its offset."""
        for lane in self.all_lanes():
            lane.cut(end)
        return self.progress.cut(end)

    def __repr__(self) -> str:
        return f"Epoch({partition_text(*self.tp)}, {self.number})"


Indexes: TypeAlias = Sequence[int]
"""Records of a task, by their places in it."""


@frozen(eq=False)
class Task:
    """
    Records of one ownership that a handler works on, in this order.

    Attributes:
        lane: the lane they come from, or the first of several.
        ordinals: the records, as the ownership knows them.
        records: the records themselves; None where one is complete. The caller that has
            the task marks it so, on any thread and without a lock.
        keys: the keys on which no other task may work meanwhile, as keys of a mapping.
        attempt: the number of this attempt, from 1.
        tried: the offset of its only record, if that has failed before, or may have.
        letter: the failure of its only record, with which the sink is called; None: the
            handler is called.
    """

    lane: Lane
    ordinals: Ordinals
    records: list[AnyRecord | None]
    keys: Mapping[object, None] = field(factory=dict)
    attempt: int = 1
    tried: int | None = None
    letter: Failure | None = None

    @property
    def epoch(self) -> Epoch:
        """The epoch it belongs to."""
        return self.lane.epoch

    @property
    def indexes(self) -> range:
        """The places of its records."""
        return range(len(self.records))

    def record(self, index: int) -> AnyRecord:
        """Return one of its records that is not complete."""
        record = self.records[index]
        assert record is not None  # noqa: S101 - see above
        return record

    def place(self, index: int) -> str:
        """Name one of its records, as text for people."""
        tp, record = self.epoch.tp, self.records[index]
        where = "a finished record" if record is None else f"offset {record.offset}"
        return f"{partition_text(*tp)} {where}"

    def finish(self, index: int) -> None:
        """Mark one of its records complete."""
        self.records[index] = None

    def done(self) -> int:
        """Return how many of its records are complete."""
        return sum([record is None for record in self.records])

    def ordinals_of(self, indexes: Indexes) -> Ordinals:
        """Return some of its records as the ownership knows them."""
        if type(indexes) is range:
            return self.ordinals[indexes.start : indexes.stop]
        return [self.ordinals[index] for index in indexes]


@frozen(kw_only=True)
class Outcome:
    """
    The result of a task.

    Attributes:
        task: the task.
        finished: indexes of the records that are done, and marked as done.
        failed: indexes of failed records, with their errors.
        left: indexes of records that were not begun.
        seconds: the duration of the task.
        failing: the part of these seconds that failed calls took.
        is_suspect: whether several records failed together and any of them, but not
            all, may be the cause: they are tried one by one, and none counts as failed
            yet.
    """

    task: Task
    finished: Indexes = ()
    failed: Sequence[tuple[int, BaseException]] = ()
    left: Indexes = ()
    seconds: float = 0.0
    failing: float = 0.0
    is_suspect: bool = False
