"""Chooses which queued record a free handler gets."""

import enum
import heapq
import itertools
import math
import random
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal, TypeAlias

from attrs import define, field, frozen

from safeconsumer.errors import WorkerSettingError
from safeconsumer.holds.view import View
from safeconsumer.worker.client import Others, covers
from safeconsumer.worker.partition import (
    KEYLESS,
    Epoch,
    Held,
    Indexes,
    Lane,
    State,
    record_at,
)
from safeconsumer.worker.progress import Chunk
from safeconsumer.worker.retry import Retry
from safeconsumer.worker.throttle import PerTopic, Places, Rate
from safeconsumer.worker.turns import Turns

KeyOf: TypeAlias = Callable[[Any], object]

# Indexes of records in one lane and one chunk.
Piece: TypeAlias = tuple[Lane, Chunk, Indexes]


class Order(enum.Enum):
    """Says which records are handled one after the other."""

    PARTITION = "partition"
    """Those of one partition are."""

    KEY = "key"
    """Those of one key within a partition are."""

    UNORDERED = "unordered"
    """None are."""


def order_of(name: str) -> Order:
    """
    Return the order with this name.

    Raises:
        WorkerSettingError: there is no order with this name.
    """
    try:
        return Order(name)
    except ValueError:
        message = f"order must be 'partition', 'key' or 'unordered', not {name!r}"
        raise WorkerSettingError(message) from None


@frozen
class Task:
    """
    Records of one lane that a handler works on, in this order.

    Attributes:
        attempt: the number of this attempt, from 1.
        tried: the offset of its only record, if that has failed before or is suspect.
        bundle: several lanes' records of one chunk that travel together, lane by lane;
            ``indexes`` are all of theirs, and ``lane`` is the first.
        pieces: the parts a batch was gathered from, lane by lane, if there are several:
            ``chunk`` consists of copies then, and ``indexes`` are all of it.
        trace: the attempt that failed, if spans are made; see ``tracing``.
    """

    lane: Lane
    chunk: Chunk
    indexes: Indexes
    attempt: int = 1
    tried: int | None = None
    bundle: Sequence[tuple[Lane, Indexes]] = ()
    pieces: Sequence[Piece] = ()
    trace: Any = None

    @property
    def lanes(self) -> Collection[Lane]:
        """The lanes of its records."""
        parts = self.bundle or self.pieces
        return {part[0]: None for part in parts} if parts else (self.lane,)

    @property
    def epoch(self) -> Epoch:
        """The epoch it belongs to."""
        return self.lane.epoch


@frozen
class Groups:
    """
    Records of a chunk by their lanes' keys.

    Attributes:
        sorted: each key with its records' indexes.
        failed: the index of the record whose key could not be computed, and the error.
    """

    sorted: Collection[tuple[object, Indexes]]
    failed: tuple[int, BaseException] | None = None


_IDLE = State.IDLE  # enum members are slow to look up


class Lanes:
    """
    Sorts records into lanes.

    Args:
        order: which records belong together.
        key: returns a record's key, for order by key; any hashable value.
    """

    def __init__(self, order: Order, key: KeyOf) -> None:
        self.order = order
        self._key = key

    def group(self, chunk: Chunk, first: int = 0) -> Groups:
        """
        Return which records of a chunk, from ``first`` on, go to which lane.

        It ends at a record whose key cannot be computed; those behind may be of its
        lane.
        """
        if self.order is not Order.KEY:
            return Groups(((None, range(first, len(chunk.records))),))
        key_of, is_own = self._key, self._key is record_key
        groups: dict[object, list[int]] = {}
        index = first
        try:
            for index, record in enumerate(chunk.records[first:], first):
                # In line, since nearly every key is the record's own: a call takes a
                # third of this.
                key = record.key if is_own else None  # type: ignore[union-attr]  # queued
                if type(key) is not bytes:
                    key = key_of(record)
                if key in groups:
                    groups[key].append(index)
                else:
                    groups[key] = [index]
        except BaseException as error:  # noqa: BLE001 - any error is this record's
            return Groups(groups.items(), (index, error))
        return Groups(groups.items())

    def queue(
        self, epoch: Epoch, chunk: Chunk, groups: Iterable[tuple[object, Indexes]]
    ) -> list[Lane]:
        """Queue the records; return the lanes to make ready. The lock is held."""
        lanes = epoch.lanes
        is_shared = self.order is Order.UNORDERED
        idle = []
        for key, indexes in groups:
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = Lane(epoch, key, is_shared)
                idle.append(lane)
            elif lane.state is _IDLE or (
                # Its tasks are out, and new records need not wait for them.
                lane.is_shared and lane.state is State.RUNNING
            ):
                idle.append(lane)
            lane.runs.append((chunk, indexes))
        return idle


def record_key(record: Any) -> object:  # noqa: ANN401 - upstream's record
    """Return a record's own key; a key that cannot be hashed, as text."""
    key = record.key
    if type(key) is bytes or getattr(key, "__hash__", None):
        return key
    return repr(key)


# Seconds and records of one hand-over: about this long, and no more than these.
QUANTUM = 256
LANE_SECONDS = 0.005

OnExhausted = Literal["stop", "skip", "block"]


@frozen(kw_only=True)
class Outcome:
    """
    The result of a task.

    Attributes:
        task: the task.
        finished: indexes of the records that are done, and marked so.
        failed: indexes of failed records, with their errors.
        left: indexes of records that were not begun.
        seconds: how long all of it took.
        failing: how many of these seconds failed calls took.
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


@frozen(kw_only=True)
class Letter:
    """
    A record that failed for good, on its way to the dead letters.

    Attributes:
        error: the handler's exception.
        refused: why it cannot be a dead letter, if that is known by now.
        trace: its last attempt, if spans are made; see ``tracing``.
    """

    lane: Lane
    chunk: Chunk
    index: int
    record: Any
    attempt: int
    error: BaseException
    refused: BaseException | None = None
    trace: Any = None


@frozen(kw_only=True)
class Policy:
    """
    Says how failures are handled, and how many records a hand-over has.

    Attributes:
        post: takes a letter without waiting; None without dead letters.
        quantum: the most records of one hand-over.
        within: seconds that a batch with fewer records waits for more.
        rate: the most records that may begin per second; None for no limit.
        per_topic: how many handlers a topic may have at a time.
    """

    retry: Retry
    on_exhausted: OnExhausted = "stop"
    post: Callable[[Letter], None] | None = None
    max_ratio: float | None = None
    max_consecutive: int | None = None
    span: int = 50_000
    quantum: int = QUANTUM
    lane_seconds: float = LANE_SECONDS
    is_batch: bool = False
    within: float = 0.0
    rate: float | None = None
    per_topic: PerTopic | None = None
    draw: Callable[[], float] = field(default=random.random)


# Seconds between two wake-ups for a rate: not one for each record of thousands.
_TICK = 0.01


@define(eq=False)
class Trip:
    """
    A topic that a breaker has stopped; once its hold has expired, one record may try.

    Attributes:
        until: when the hold expires, in seconds on the clock.
        reason: why, as text for people.
        is_placed: whether the consumer has the hold; no record begins before that.
        is_lifted: whether the hold was lifted since: then all records go on.
        task: the task that tries.
        is_first: whether the topic flowed before; otherwise a try has failed.
    """

    until: float
    reason: str
    is_placed: bool = False
    is_lifted: bool = False
    task: Task | None = None
    is_first: bool = False

    def is_tried_by(self, task: Task) -> bool:
        """Tell whether this task tries for the topic, or is a part of the one that does."""
        tries = self.task
        return tries is task or (
            tries is not None
            and tries.chunk is task.chunk
            and tries.indexes[0] in task.indexes
        )


# As LANE_SECONDS, for records that several threads could share.
SHARED_SECONDS = 0.001
# Seconds. Records that take less are not worth another thread: they compute, and two
# computing threads only get in each other's way.
WORTH_WAKING = 0.00002
# Lanes of all partitions together that are kept while they are empty: 2 MB. A key that
# comes again finds its lane; making one is half the cost of a record by key.
KEPT_LANES = 2048


class Queue:
    """
    Lanes that are ready or asleep, and handing out their records.

    Methods that do not take the lock are called with it held: see :class:`Held`.
    """

    def __init__(
        self,
        held: Held,
        lanes: Lanes,
        policy: Policy,
        clock: Callable[[], float],
        others: Others | None,
    ) -> None:
        self.held = held
        self.lanes = lanes
        self.policy = policy
        self.clock = clock
        self.ready = Turns()
        self._asleep: list[tuple[float, int, Lane]] = []
        self._numbers = itertools.count()
        self._closed = 0
        self._is_halted = False
        self._is_over = False
        self._resting: list[threading.Lock] = []
        self._coming = 0
        self.others = others
        self.tripped: dict[str, Trip] = {}
        self._seen: View | None = None
        self._on_ready: Callable[[], None] | None = None
        self._most = policy.quantum
        self._rate = None if policy.rate is None else Rate(policy.rate, clock())

    # ------------------------------------------------------------ what others hold

    def look(self) -> None:
        """Obey the holds of this moment. Any thread, under no lock of ours."""
        if self.others is not None and self.others.look() is not self._seen:
            self.obey()

    def obey(self) -> None:
        """
        Obey the holds: lanes that they cover are shelved, the rest goes on.

        In a signal handler that has interrupted the owner of the lock, it is done with
        the next claim.
        """
        if self.others is None:
            return
        if self.held.lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as threading.Condition asks it
            self._seen = None
            return
        with self.held.lock:
            self._seen = view = self.others.look()
            for epoch in self.held.epochs.values():
                epoch.is_held = covers(view, epoch.tp)
                if epoch.shelf:
                    self._unshelve(epoch)

    def obey_for(self, epoch: Epoch) -> None:
        """Obey the applied holds for an epoch that gets records; it may be a new one."""
        if self.others is None:
            return
        with self.held.lock:
            view = self.others.look()
            is_seen = view is self._seen
            if is_seen and not epoch.is_closed:
                epoch.is_held = covers(view, epoch.tp)
        if not is_seen:
            self.obey()

    def release(self, topic: str) -> None:
        """Let the waiting records of a topic go on, if no hold covers them."""
        for epoch in self.held.epochs.values():
            if epoch.tp.topic == topic and epoch.shelf:
                self._unshelve(epoch)

    def _unshelve(self, epoch: Epoch) -> None:
        if not epoch.is_held:
            for lane in reversed(epoch.shelf):
                self.ready.put_first(lane)
            epoch.shelf.clear()
            self.notify()

    def put_first(self, lane: Lane) -> None:
        """Hand a lane out before all others, once nothing stops it."""
        lane.state = State.READY
        if self.policy.is_batch and not self._is_apart(lane):
            self._line_up(lane, is_first=True)
            self.notify()
        elif lane.epoch.is_held or lane.epoch.tp.topic in self.tripped:
            lane.epoch.shelf.appendleft(lane)
        else:
            self.ready.put_first(lane)
            self.notify()

    def _is_tripped(self, epoch: Epoch) -> bool:
        # For a partition that no hold covers any more.
        trip = self.tripped.get(epoch.tp.topic)
        if trip is None or trip.is_lifted:
            return False
        if not trip.is_placed:
            return True
        if self.clock() < trip.until:  # its hold has not expired
            trip.is_lifted = True
            return False
        return trip.task is not None and not trip.task.epoch.is_closed

    # ------------------------------------------------------------ work comes and goes

    def drop_queued(self, epochs: Iterable[Epoch]) -> None:
        """Forget the queued records of these epochs; running ones go on."""
        with self.held.lock:
            for epoch in epochs:
                epoch.revoked.set()
                for lane in epoch.lanes.values():
                    lane.runs.clear()
                epoch.unsorted.clear()
                epoch.parked.clear()

    def halt(self) -> None:
        """Hand out nothing until :meth:`go_on`."""
        with self.held.lock:  # a claim is either counted before, or fails after
            self._is_halted = True

    def go_on(self) -> None:
        """Hand out records again."""
        with self.held.lock:
            self._is_halted = False
            self.wake_one()

    def end(self) -> None:
        """Hand out nothing any more; callers that wait in :meth:`wait_claim` get None."""
        with self.held.lock:
            self._is_over = True
            while self._resting:
                self._rouse()

    def listen(self, on_ready: Callable[[], None] | None) -> None:
        """Call ``on_ready`` when there is something to claim; None: not any more."""
        with self.held.lock:
            self._on_ready = on_ready

    def turn(self) -> float:
        """
        Wake lanes that have slept long enough.

        Return the seconds until the next is due.
        """
        now = self.clock()
        with self.held.lock:
            if self._closed != self.held.closed:
                self._forget_closed()
            while self._asleep and self._asleep[0][0] <= now:
                _, _, lane = heapq.heappop(self._asleep)
                if lane is lane.epoch.front:
                    lane.epoch.due = math.inf
                if not lane.epoch.is_closed and lane.state is State.WAITING:
                    self._wake(lane)
            soon = self._asleep[0][0] - now if self._asleep else math.inf
            if self.ready:
                wait = self.seconds_to_room()
                if wait > 0:
                    return min(soon, max(wait, _TICK))
                self.notify()
            return soon

    def seconds_to_room(self) -> float:
        """Return the seconds until the rate lets a record begin; 0 if it does now."""
        return 0.0 if self._rate is None else self._rate.wait(self.clock())

    def _forget_closed(self) -> None:
        # Otherwise a lane that sleeps for an hour, or waits for a stuck handler, would
        # stay.
        self._closed = self.held.closed
        self._asleep = [one for one in self._asleep if not one[2].epoch.is_closed]
        heapq.heapify(self._asleep)
        topics = self.policy.per_topic
        places = () if topics is None else topics.all()
        for lanes in (self.ready, *(one.waiting for one in places)):
            lanes.drop_closed()

    def _wake(self, lane: Lane) -> None:
        if lane.key is not KEYLESS:
            self.make_ready(lane)
            return
        # Its key is computed again, by the sorting that follows.
        del lane.epoch.lanes[KEYLESS]
        for chunk, (index,) in lane.runs:
            lane.epoch.unsorted[0] = (chunk, index)

    # ------------------------------------------------------------ claiming

    def wait_claim(self) -> list[Task] | None:
        """Wait for work and take it; None once the queue has ended."""
        while True:
            self.look()
            with self.held.lock:
                if self._is_over:
                    return None
                tasks = self._claim()
                if tasks:
                    return tasks
                self._rest()

    def _rest(self) -> None:
        # As a condition's wait(), but the last to lie down is woken first: its cache is
        # warm.
        alarm = threading.Lock()
        alarm.acquire()
        self._resting.append(alarm)
        self.held.lock.release()
        try:
            alarm.acquire()
        finally:
            self.held.lock.acquire()
            if alarm in self._resting:  # it was interrupted
                self._resting.remove(alarm)
            else:
                self._coming -= 1

    def _rouse(self) -> None:
        # In this order an interrupt in between leaves no thread asleep forever.
        self._coming += 1
        alarm = self._resting[-1]
        if alarm.locked():
            alarm.release()
        self._resting.pop()

    def claim(self) -> list[Task]:
        """Take work if there is some."""
        self.look()
        with self.held.lock:
            return [] if self._is_over else self._claim()

    def _claim(self) -> list[Task]:
        tasks: list[Task] = []
        ready = self.ready
        if self._is_halted or (self._rate is not None and not self._has_room()):
            return tasks
        while ready and not tasks:
            lane = ready.take()
            task = self._first_of(lane)
            if task is not None:
                tasks.append(task)
                self._begins(task)
            elif self.policy.per_topic is not None:
                self._call_next(lane.epoch)
        if tasks and ready:
            self.wake_one()
        return tasks

    def _first_of(self, lane: Lane) -> Task | None:
        epoch = lane.epoch
        is_front = lane is epoch.front
        if epoch.is_closed or not (epoch.gathering if is_front else lane.runs):
            lane.state = State.IDLE
            return None
        if epoch.is_held or (self.tripped and self._is_tripped(epoch)):
            epoch.shelf.append(lane)
            return None
        if self.policy.per_topic is not None and not self._has_place(lane):
            return None
        if not is_front and self._waits_for_earlier(lane):
            return None
        return self._begun(lane)

    def _begun(self, lane: Lane) -> Task | None:
        is_front = lane is lane.epoch.front
        trip = self.tripped.get(lane.epoch.tp.topic) if self.tripped else None
        if trip is not None and not trip.is_lifted:
            trip.task = self._batch(lane, 1) if is_front else self._task(lane, 1)
            return trip.task
        if is_front:
            return self._batch(lane, self.policy.quantum)
        task = self._task(lane, self._size(lane))
        return None if task is None else self._bundled(task)

    def _bundled(self, task: Task) -> Task:
        # If there are many keys with few records each, several lanes of one chunk share
        # the costs of a hand-over.
        epoch, chunk = task.epoch, task.chunk
        room = self._shared_size(epoch) - len(task.indexes)
        by_key = self.lanes.order is Order.KEY and not self.policy.is_batch
        if room <= 0 or not by_key or task.attempt > 1 or epoch.failures or epoch.alone:
            return task
        indexes, bundle = list(task.indexes), [(task.lane, task.indexes)]
        lanes, before, base = self.ready.of(epoch), len(indexes), chunk.base
        running, earlier = State.RUNNING, epoch.earlier
        while lanes and room > 0:
            lane = lanes[0]
            if not lane.runs or lane.runs[0][0] is not chunk or lane.key in earlier:
                break
            run = lane.runs[0]
            more = run[1]
            if len(more) > room or base + more[-1] >= epoch.allowed:
                break  # it is handed out alone, next time
            lane.runs.pop(0)
            lanes.popleft()
            lane.state = running
            bundle.append((lane, more))
            indexes += more
            room -= len(more)
        self.ready.taken(epoch)
        epoch.running += len(indexes) - before
        self.held.running += len(indexes) - before
        return Task(task.lane, chunk, indexes, bundle=bundle)

    # ------------------------------------------------------------ how many at a time

    def _has_room(self) -> bool:
        assert self._rate is not None  # noqa: S101 - asked by whoever calls this
        self._most = min(self.policy.quantum, self._rate.room(self.clock()))
        return self._most > 0

    def _has_place(self, lane: Lane) -> bool:
        places = self._places(lane.epoch)
        if places is None or places.has_room():
            return True
        places.waiting.append(lane)
        return False

    def _places(self, epoch: Epoch) -> Places | None:
        topics = self.policy.per_topic
        return None if topics is None else topics.of(epoch.tp.topic)

    def _call_next(self, epoch: Epoch) -> None:
        # Each lane that was called and needs no place calls the next one.
        places = self._places(epoch)
        if places is not None and places.waiting and places.has_room():
            self.ready.put_first(places.waiting.take())

    def _begins(self, task: Task) -> None:
        if self._rate is not None:
            self._rate.take(len(task.indexes), self.clock())
        places = self._places(task.epoch)
        if places is not None:
            places.taken += 1

    def is_over(self, outcome: Outcome) -> None:
        """Note that a task has come back, also of an ownership that has ended."""
        epoch = outcome.task.epoch
        if self._rate is not None:
            # A batch has begun whole, whatever comes again of it.
            has_begun = outcome.failed or outcome.finished
            if not (self.policy.is_batch and has_begun):
                self._rate.give_back(len(outcome.left))
        places = self._places(epoch)
        if places is not None:
            places.taken -= 1
            self._call_next(epoch)
            self.wake_one()
        if epoch.is_closed:
            self._came_back(outcome.task)

    def _waits_for_earlier(self, lane: Lane) -> bool:
        # A handler of an earlier ownership may still work on its key, or partition.
        earlier = lane.epoch.earlier
        if not earlier or lane.key not in earlier:
            return False
        lane.state = State.WAITING
        earlier[lane.key] = lane
        return True

    def _came_back(self, task: Task) -> None:
        # Lanes go on that have waited for a task of an ownership that has ended.
        for lane in filter(None, map(self.held.came_back, task.lanes)):
            if not lane.epoch.is_closed and lane.state is State.WAITING:
                self.make_ready(lane)
                self.notify()

    def _task(self, lane: Lane, most: int) -> Task | None:
        epoch = lane.epoch
        taken = lane.take(most, self.policy.span)
        if taken is None:
            lane.state = State.WAITING
            self._park(lane)
            return None
        chunk, indexes = taken
        attempt, tried = 1, None
        if epoch.failures or epoch.alone:
            offset = record_at(chunk, indexes[0]).offset
            attempt = epoch.failures.get(offset, 0) + 1
            if attempt > 1 or offset in epoch.alone:
                tried = offset
        epoch.running += len(indexes)
        self.held.running += len(indexes)
        lane.state = State.RUNNING
        if lane.is_shared and lane.runs:
            self.make_ready(lane)
        return Task(lane, chunk, indexes, attempt, tried)

    def _park(self, lane: Lane) -> None:
        # Records may yet be put back in front of those in a shared lane.
        lane.state = State.WAITING
        first = -1 if lane.is_shared else lane.first()
        heapq.heappush(lane.epoch.parked, (first, lane))

    # ------------------------------------------------------------ batches

    def _line_up(self, lane: Lane, *, is_first: bool = False) -> None:
        # A batch is gathered from all ready lanes of a partition: one lane represents
        # them among those that are handed out. Failed records come alone.
        epoch = lane.epoch
        if lane is epoch.front or self._is_apart(lane):
            self.ready.append(lane)
            return
        if is_first:
            epoch.gathering.appendleft(lane)
        else:
            epoch.gathering.append(lane)
        if epoch.front.state is State.IDLE:
            epoch.front.state = State.READY
            self.ready.append(epoch.front)

    def _is_apart(self, lane: Lane) -> bool:
        epoch = lane.epoch
        # Its records may have been dropped while it slept, because they were revoked.
        if not lane.runs or (not epoch.failures and not epoch.alone):
            return False
        chunk, indexes = lane.runs[0]
        offset = record_at(chunk, indexes[0]).offset
        return offset in epoch.failures or offset in epoch.alone

    def _batch(self, front: Lane, most: int) -> Task | None:
        epoch = front.epoch
        left = 0.0 if most == 1 else self._more_within(epoch)
        if left > 0:
            self._await_more(epoch, left)
            return None
        pieces = self._gathered(epoch, most)
        if epoch.gathering:
            self.ready.append(front)
        else:
            front.state = State.IDLE
        if not pieces:
            return None
        count = sum(len(indexes) for _, _, indexes in pieces)
        epoch.running += count
        self.held.running += count
        lane, chunk, indexes = pieces[0]
        if len(pieces) == 1:
            return Task(lane, chunk, indexes)
        records = [record_at(chunk, at) for _, chunk, some in pieces for at in some]
        return Task(lane, Chunk(records, 0), range(count), pieces=pieces)

    def _more_within(self, epoch: Epoch) -> float:
        # How long a batch that is not full may still wait.
        if not self.policy.within:
            return 0.0
        count, since = 0, math.inf
        for lane in epoch.gathering:
            if lane.runs:
                count += sum(len(indexes) for _, indexes in lane.runs)
                since = min(since, lane.runs[0][0].came)
            if count >= self.policy.quantum:
                return 0.0
        return since + self.policy.within - self.clock() if count else 0.0

    def _await_more(self, epoch: Epoch, seconds: float) -> None:
        epoch.front.state = State.WAITING
        due = self.clock() + seconds
        if due < epoch.due:
            epoch.due = due
            self.sleep(epoch.front, seconds)

    def _gathered(self, epoch: Epoch, room: int) -> list[Piece]:
        pieces: list[Piece] = []
        lanes = epoch.gathering
        while lanes and room > 0:
            lane = lanes.popleft()
            if not lane.runs:
                lane.state = State.IDLE
            elif self._is_apart(lane):
                self.ready.append(lane)
            elif not self._waits_for_earlier(lane):
                room -= self._take_from(lane, room, pieces)
        return pieces

    def _take_from(self, lane: Lane, room: int, pieces: list[Piece]) -> int:
        count = 0
        while lane.runs and count < room and not self._is_apart(lane):
            taken = lane.take(room - count, self.policy.span)
            if taken is None:
                break
            pieces.append((lane, *taken))
            count += len(taken[1])
        if not count:
            self._park(lane)
        elif lane.is_shared and lane.runs:
            lane.epoch.gathering.appendleft(lane)
        else:
            lane.state = State.RUNNING
        return count

    # ------------------------------------------------------------ how much at once

    def _size(self, lane: Lane) -> int:
        if self.policy.is_batch:
            return self._most
        if lane.is_shared:
            return self._shared_size(lane.epoch)
        pace = max(lane.epoch.pace, 1e-9)
        return min(self._most, max(1, int(self.policy.lane_seconds / pace)))

    def _shared_size(self, epoch: Epoch) -> int:
        pace = max(epoch.pace, 1e-9)
        return min(self._most, max(1, int(SHARED_SECONDS / pace)))

    def next(self, lane: Lane) -> None:
        """Hand out a lane again after its last task, or release it if it is empty."""
        if lane.runs:
            self.make_ready(lane)
            self.wake_one()
            return
        self.let_go(lane)

    def let_go(self, lane: Lane) -> None:
        """Note that a lane has run empty."""
        lane.state = State.IDLE
        if lane.is_shared:  # some of its tasks may still be out
            return
        lanes = lane.epoch.lanes
        if not lane.is_light or len(lanes) > self.room_of_lanes():
            lanes.pop(lane.key, None)

    def room_of_lanes(self) -> int:
        """Return how many lanes of one epoch are kept while they are empty."""
        return KEPT_LANES // max(1, len(self.held.epochs))

    def clear_lanes(self, epoch: Epoch) -> None:
        """Forget empty lanes of an epoch that has too many."""
        # Otherwise lanes of keys that come no more would keep out those of keys that
        # do.
        if len(epoch.lanes) <= self.room_of_lanes():
            return
        lanes = epoch.lanes
        empty = [
            key
            for key, lane in lanes.items()
            if lane.state is State.IDLE and not lane.is_shared
        ]
        for key in empty:
            del lanes[key]

    def look_again(self, epoch: Epoch) -> None:
        """Let lanes go on that may by now: within the span, or for a full batch."""
        parked, front = epoch.parked, epoch.front
        if parked and parked[0][0] < epoch.allow(self.policy.span):
            while parked and parked[0][0] < epoch.allowed:
                self.make_ready(heapq.heappop(parked)[1])
            self.notify()
        if front.state is State.WAITING and self._more_within(epoch) <= 0:
            front.state = State.READY
            self.ready.append(front)
            self.notify()

    def make_ready(self, lane: Lane) -> None:
        """Queue a lane behind the others that are ready."""
        lane.state = State.READY
        if self.policy.is_batch:
            self._line_up(lane)
        else:
            self.ready.append(lane)

    def make_all_ready(self, lanes: Sequence[Lane]) -> None:
        """Queue lanes behind the others that are ready."""
        if self.policy.is_batch:
            for lane in lanes:
                self.make_ready(lane)
            return
        # As make_ready() for each, in line.
        state = State.READY
        for lane in lanes:
            lane.state = state
        if lanes:
            self.ready.extend(lanes[0].epoch, lanes)

    def wake_one(self) -> None:
        """Wake a thread that waits for work, if it is worth it."""
        ready = self.ready
        if not ready or self._is_halted:
            return
        is_busy = self.held.running or self._coming
        if ready.first.epoch.pace >= WORTH_WAKING or not is_busy:
            self.notify()

    def notify(self) -> None:
        """Wake a thread that waits for work."""
        if self._resting:
            self._rouse()
        if self._on_ready is not None:
            self._on_ready()

    def sleep(self, lane: Lane, delay: float) -> None:
        """Make a lane ready again after so many seconds."""
        due = self.clock() + delay
        heapq.heappush(self._asleep, (due, next(self._numbers), lane))
