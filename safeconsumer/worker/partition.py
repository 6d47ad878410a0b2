"""Keeps what a worker holds of one partition within one ownership: an epoch."""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import Factory, define, field
from kafka.structs import TopicPartition

from safeconsumer.errors.kafka_python import CorruptBatchError
from safeconsumer.worker.handlers import Failure
from safeconsumer.worker.lanes import Lane, LaneState
from safeconsumer.worker.progress import Progress, Watermark
from safeconsumer.worker.revocation import Revocation

if TYPE_CHECKING:
    from safeconsumer.worker.tasks import Task


# Seconds. It starts slow: the first records come one by one, over all threads.
FIRST_PACE = 0.02


@define(eq=False)
class Failed:
    """
    What is known of a record that has failed, or may have.

    Attributes:
        count: how many of its attempts have failed.
        answer: what a batch reported of it, until the record before it is through: the
            task, its index there, the error, and when that was.
        blocks_since: since when it blocks its lane, as it failed for good; None: not.
        letter: why it is a dead letter, which is its last step; None: call the handler.
        tries: how often the taker of dead letters has failed with it.
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
        since: when that was so first, on the clock.
        failures: how often it was fetched in vain.
        then: the policy that applies to it for good; None while it is tried again.
    """

    error: CorruptBatchError
    since: float
    failures: int = 0
    then: str | None = None


@define(eq=False, repr=False)
class Epoch:
    """
    All work on one partition within one ownership; once closed it changes nothing more.

    Attributes:
        tp: the partition.
        ownership: what the ownership is known by.
        number: its number, for people and journals.
        losses: how often the membership was lost before it.
        progress: what is complete.
        load: incomplete records and their bytes, in ``records`` and ``bytes``.
        running: how many of them are handed over to handlers.
        tasks: the tasks that have these.
        pace: seconds that a record has taken lately.
        moved_at: when a record was last completed, or the first record came.
        main: the lane of the records as they come.
        lanes: the other lanes: by key, or without an order by the offset of the first.
        busy: by key, the keys of main's tasks that are out, and of tasks of earlier
            ownerships.
        ready: the lanes that may be handed out, in their order.
        allowed: the first ordinal that must not be started yet.
        failed: by offset, records that have failed, or may have.
        unreadable: what comes next, if that cannot be read.
        revoked: set when the ownership ended or is about to.
        is_closed: whether it has ended.
        is_held: whether none of its records may begin: a hold that is not a worker's
            covers the partition, or the ownership has ended.
        committed: the offset that is committed for it; -1: none.
        reset: the number of the position's reset from which its floor is; 0: none.
        has_lost_floor: whether there was another reset since, so that it has no floor.
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
    failed: dict[int, Failed] = field(factory=dict)
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
        """Return the first ordinal that must not be started before the watermark moves."""
        self.allowed = self.progress.first_incomplete(self.tasks) + span
        return self.allowed

    def watermark(self) -> Watermark:
        """Return up to where everything is complete, by tasks that are out, too."""
        return self.progress.watermark(self.tasks)

    # ------------------------------------------------------------ failures

    def fail(self, offset: int) -> Failed:
        """Return what is known of a record that has failed; from now on it runs alone."""
        return self.failed.setdefault(offset, Failed())

    def holds_back(self, offset: int) -> bool:
        """Tell whether a record could be worked on now, were there no hold."""
        ready = (lane.first_offset() for lane in self.ready if lane)
        return self.is_held and offset in ready

    def keep_pace(self, seconds: float) -> None:
        """
        Note how long a record took, on average of a hand-over.

        It falls quickly and rises slowly: a thread that waited for the interpreter's
        lock looks slow, and more threads would make it wait longer.
        """
        weight = 0.9 if seconds < self.pace else 0.1
        self.pace += weight * (seconds - self.pace)

    # ------------------------------------------------------------ dropping records

    def drop_queued(self) -> None:
        """Forget the queued records; running ones go on."""
        self.revoked.set()
        for lane in self.all_lanes():
            lane.drop()

    def let_go(self) -> None:
        """Drop all records: threads that still have a lane of it may keep it for long."""
        self.drop_queued()
        self.records = self.bytes = self.running = 0
        self.progress = Progress(self.watermark().offset)
        self.tasks.clear()
        self.lanes.clear()
        self.ready.clear()
        self.failed.clear()

    def unbegun(self, at_once: int) -> int:
        """
        Return the ordinal from which on no record was begun.

        Args:
            at_once: how many of a lane that failed come again as one.
        """
        queued: set[int] = set()
        for lane in self.all_lanes():
            # What waits for its time, or forever, was begun before.
            kept = at_once if lane.state is LaneState.FAILED else 0
            if kept and lane.is_tried:
                kept = 1  # it comes again by itself
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
        return f"Epoch({self.tp.topic}:{self.tp.partition}, {self.number})"
