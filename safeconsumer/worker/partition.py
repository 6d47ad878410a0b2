"""
Defines the state of one ownership of a partition: its epoch, lanes and tasks.

The records of a lane are handled one after the other. Every ownership has a main lane,
with the records in the order of the partition. With the order ``partition`` the main
lane is the only one, and at most one of its tasks is handed out at a time. With the
order ``key``, and without an order, the main lane is *shared*, which means that it
hands out more tasks while others are still running. A record that must wait moves from
the shared lane to a separate lane, because it has failed, or because its key is busy or
already has a lane. A separate lane is removed when it is empty. A queue hands tasks to
its handlers, which return outcomes.
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

# The first estimate of a record's duration, in seconds. It is high, so that the first
# records are handed out one by one, to all threads.
FIRST_PACE = 0.02


class Order(enum.Enum):
    """The option that determines which records are handled one after the other."""

    PARTITION = "partition"
    """Records of one partition are handled one after the other."""

    KEY = "key"
    """Records of one key within a partition are handled one after the other."""

    UNORDERED = "unordered"
    """Records are handled in any order."""


class LaneState(enum.Enum):
    """
    The condition that a lane waits for; only ``Queue`` changes the state of a lane.

    ========= ========================================== ==========================
    state     waits for                                  is moved on by
    ========= ========================================== ==========================
    IDLE      records: it has none                       ``Queue.admit``, and
                                                         ``Queue.put_back``
    READY     its turn; until then a hold or a breaker   ``Queue.claim``
              may set aside its partition, with all      ``Queue.claim_letter``
              lanes that are ready
    FILLING   more records for a batch                   ``Queue.resume_main``
    AHEAD     the watermark: its first record is         ``Queue.resume_main``, and
              ``Limits.span`` beyond it                  ``Queue.put_back``
    RUNNING   a task with records of its key, or of      ``Queue.requeue``, once
              its partition; the task may belong to an   that task is back
              ownership that has ended
    FAILED    the next attempt at its first record; for  ``Queue.turn``
              ever, if that record blocks it, or has
              stopped the worker
    ========= ========================================== ==========================

    A shared lane is never RUNNING, because it does not wait for its tasks. Only an
    ownership's main lane is ever FILLING or AHEAD.
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
        epoch: the ownership that the lane belongs to.
        key: the key of the lane in ``Epoch.lanes``; not used for a main lane.
        again: the ordinals of records that were taken and put back; these are taken
            first.
        fresh: the ordinals of records that were never taken; only a main lane has such
            records.
        state: the condition that the lane waits for.
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
        return False  # lanes that are due at the same time may come in any order

    def __len__(self) -> int:
        return len(self.again) + len(self.fresh)

    def __iter__(self) -> Iterator[int]:
        yield from self.again
        yield from self.fresh

    @property
    def is_tried(self) -> bool:
        """Whether the first record has, or may have, failed, so that it must run alone."""
        failed = self.epoch.failed
        # A revocation may have dropped the records while the lane waited.
        return bool(failed and self.again) and self.first_offset() in failed

    def first_offset(self) -> int:
        """Return the offset of the lane's first record."""
        return self.epoch.progress.record(next(iter(self))).offset

    def put_back(self, ordinals: Ordinals) -> None:
        """Put records back at the front of the lane."""
        self.again[:0] = ordinals

    def cut(self, end: int) -> None:
        """Drop the records whose ordinal is ``end`` or higher."""
        self.again = [one for one in self.again if one < end]
        # The start is reduced, too, because other records will get the dropped
        # ordinals.
        self.fresh = range(min(self.fresh.start, end), min(self.fresh.stop, end))

    def drop(self) -> None:
        """Drop all records of the lane."""
        self.again.clear()
        self.fresh = self.fresh[len(self.fresh) :]

    def take(self, most: int, span: int) -> Ordinals:
        """
        Take up to ``most`` records, but no records beyond the span.

        A record that has failed, or may have failed, is taken alone.
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
        # Returns how many records come before the first one that must run alone, but at
        # least 1.
        for count, ordinal in enumerate(self.again[:most]):
            if self.epoch.progress.record(ordinal).offset in self.epoch.failed:
                return max(1, count)
        return most


@define(eq=False)
class FailedRecord:
    """
    The history of a record that has failed, or may have failed.

    Attributes:
        count: the number of failed attempts.
        answer: the error that was reported for the record in a batch, kept until the
            failed records before it have been processed. The tuple has the task, the
            index in the task, the error, and the time of the error.
        blocks_since: the time at which the record failed for good and began to block
            its lane; None if it does not block.
        letter: the failure that the record's dead letter describes; None if the record
            still goes to the handler.
        tries: how many times the sink has failed with the record.
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
        error: the last error, with the first offset that cannot be read.
        since: the time of the first such error, on the worker's clock.
        failures: the number of fetches that failed.
        then: the final policy for the batch; None while the batch is still fetched
            again.
    """

    error: CorruptBatchError
    since: float
    failures: int = 0
    then: str | None = None


@define(eq=False, repr=False)
class Epoch:
    """
    All work on a partition during one ownership. A closed epoch ignores results.

    Attributes:
        tp: the partition.
        ownership: the object that identifies the ownership.
        number: the number of the ownership, for people and journals.
        losses: how many times the membership had been lost before the ownership.
        progress: the state of the records.
        records: the number of incomplete records.
        bytes: the size of the incomplete records.
        running: the number of records that are handed over to handlers.
        tasks: the tasks with the records that are handed over.
        pace: the recent average of the seconds that a handler takes per record.
        moved_at: the time when a record was last completed, or when records were added
            to an empty epoch.
        main: the lane of all records in the order of the partition.
        lanes: the other lanes by key; without an order, by the offset of their only
            record.
        busy: the keys of tasks that are still running from earlier ownerships; with the
            order ``key`` also the keys of the main lane's running tasks.
        ready: the lanes that may be handed out, in order.
        allowed: the lowest ordinal that must not be handed out yet.
        failed: the records that have failed, or may have failed, by offset.
        unreadable: the next batch of the partition, if that batch cannot be read.
        revoked: set when the ownership has ended or is about to end.
        is_closed: whether the epoch is closed.
        is_held: whether no record may be started, because a hold other than the
            worker's own covers the partition, or because the ownership has ended.
        committed: the offset that was last committed in this ownership; -1 if none was.
        committed_records: the number of this ownership's records that are committed.
        reset: the number of the position reset that set the floor; 0 if no reset did.
        has_lost_floor: whether a later reset has made the floor invalid.
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
    committed_records: int = 0
    reset: int = 0
    has_lost_floor: bool = False

    def all_lanes(self) -> Iterator[Lane]:
        """Yield every lane, even those without records."""
        yield self.main
        yield from self.lanes.values()

    def allow(self, span: int) -> int:
        """Return the lowest ordinal that must wait until the watermark has moved."""
        self.allowed = self.progress.first_incomplete(self.tasks) + span
        return self.allowed

    def watermark(self) -> Watermark:
        """Return the watermark; records that unfinished tasks have completed count, too."""
        return self.progress.watermark(self.tasks)

    def is_behind(self, mark: Watermark) -> bool:
        """
        Return whether records before a mark are not committed.

        Offsets without records, such as transaction markers, do not count.
        """
        return mark.records > self.committed_records

    # ------------------------------------------------------------ failures

    def fail(self, offset: int) -> FailedRecord:
        """Return a failed record's history; from now on the record is handed out alone."""
        return self.failed.setdefault(offset, FailedRecord())

    def holds_back(self, offset: int) -> bool:
        """Return whether a hold, and nothing else, prevents work on a record."""
        ready = (lane.first_offset() for lane in self.ready if lane)
        return self.is_held and offset in ready

    def keep_pace(self, seconds: float) -> None:
        """
        Update the pace with the mean duration of a hand-over's records.

        The estimate falls quickly and rises slowly. A thread that had to wait for the
        GIL looks slow, and more threads would only make it wait longer.
        """
        weight = 0.9 if seconds < self.pace else 0.1
        self.pace += weight * (seconds - self.pace)

    # ------------------------------------------------------------ dropping records

    def drop_queued(self) -> None:
        """Drop the queued records; running records continue."""
        self.revoked.set()
        for lane in self.all_lanes():
            lane.drop()

    def forget_all(self) -> None:
        """Drop all records, so that a thread that still refers to a lane keeps none alive."""
        self.drop_queued()
        self.records = self.bytes = self.running = 0
        self.progress = Progress(self.watermark().offset)
        self.tasks.clear()
        self.lanes.clear()
        self.ready.clear()
        self.failed.clear()

    def first_unbegun(self, at_once: int) -> int:
        """
        Return the ordinal after the last record that a handler has begun.

        Args:
            at_once: how many records of a failed lane are delivered again together.
        """
        queued: set[int] = set()
        for lane in self.all_lanes():
            # A handler has already begun the first records of a failed lane.
            kept = at_once if lane.state is LaneState.FAILED else 0
            if kept and lane.is_tried:
                kept = 1  # a failed record is delivered again alone
            queued.update([*lane][kept:])
        end, progress = self.progress.admitted, self.progress
        while end - 1 in queued and progress.record(end - 1).offset not in self.failed:
            end -= 1
        return end

    def cut(self, end: int) -> int:
        """
        Drop the records from ordinal ``end`` on, none of which may have been begun.

        Return the offset of the first one.
        """
        for lane in self.all_lanes():
            lane.cut(end)
        return self.progress.cut(end)

    def __repr__(self) -> str:
        return f"Epoch({partition_text(*self.tp)}, {self.number})"


Indexes: TypeAlias = Sequence[int]
"""Indexes of records in a task."""


@frozen(eq=False)
class Task:
    """
    Records of one ownership that a handler works on, in this order.

    Attributes:
        lane: the lane from which the records come, or the first of several lanes.
        ordinals: the ordinals of the records in their ownership.
        records: the records themselves, with None in place of each complete record. The
            code that runs the task replaces complete records by None, on any thread and
            without a lock.
        keys: the record keys on which no other task may work at the same time, as the
            keys of a mapping.
        attempt: the number of this attempt, from 1.
        tried: the offset of the task's only record, if that has failed before, or may
            have failed; None otherwise.
        letter: the failure of the task's only record, with which the sink is called;
            None if the handler is called.
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
        """The epoch that the task belongs to."""
        return self.lane.epoch

    @property
    def indexes(self) -> range:
        """The indexes of the task's records."""
        return range(len(self.records))

    def record(self, index: int) -> AnyRecord:
        """Return an incomplete record of the task."""
        record = self.records[index]
        assert record is not None  # noqa: S101 - incomplete
        return record

    def place(self, index: int) -> str:
        """Return the partition and offset of a record of the task, as text for people."""
        tp, record = self.epoch.tp, self.records[index]
        where = "a finished record" if record is None else f"offset {record.offset}"
        return f"{partition_text(*tp)} {where}"

    def finish(self, index: int) -> None:
        """Mark a record of the task complete."""
        self.records[index] = None

    def done(self) -> int:
        """Return how many records of the task are complete."""
        return sum([record is None for record in self.records])

    def ordinals_of(self, indexes: Indexes) -> Ordinals:
        """Return the ordinals of some records of the task."""
        if type(indexes) is range:
            return self.ordinals[indexes.start : indexes.stop]
        return [self.ordinals[index] for index in indexes]


@frozen(kw_only=True)
class Outcome:
    """
    The result of a task.

    Attributes:
        task: the task.
        finished: indexes of the records that are done, and marked complete in the task.
        failed: indexes of failed records, with their errors.
        left: indexes of records whose handling has not begun.
        seconds: the duration of the whole task.
        failing: the part of that duration that was spent in failed calls.
        is_suspect: whether several records failed together, so that any of them may be
            the cause. These records are tried again one by one, and none of them counts
            as failed yet.
    """

    task: Task
    finished: Indexes = ()
    failed: Sequence[tuple[int, BaseException]] = ()
    left: Indexes = ()
    seconds: float = 0.0
    failing: float = 0.0
    is_suspect: bool = False
