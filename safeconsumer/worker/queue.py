"""Chooses which queued record a free handler gets."""

import heapq
import itertools
import math
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from attrs import field, frozen
from kafka.structs import TopicPartition

from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.view import View, covers
from safeconsumer.worker.dead_letters import Sink
from safeconsumer.worker.held import Held
from safeconsumer.worker.lanes import Indexes, Lane, Lanes, LaneState, Order
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import Chunk, record_at
from safeconsumer.worker.retry import SAMPLE, Retry
from safeconsumer.worker.tasks import Task
from safeconsumer.worker.turns import Turns

# Seconds and records of one hand-over: about this long, and no more than these.
QUANTUM = 256
LANE_SECONDS = 0.005

OnExhausted = Literal["stop", "skip", "block"]


@frozen(kw_only=True)
class Policy:
    """
    Says how failures are handled, and how many records a hand-over has.

    Attributes:
        sink: takes a dead letter; None without dead letters.
        quantum: the most records of one hand-over.
        within: seconds that a batch with fewer records waits for more.
    """

    retry: Retry
    on_exhausted: OnExhausted = "stop"
    sink: Sink | None = None
    max_ratio: float | None = None
    sample: int = SAMPLE
    span: int = 50_000
    quantum: int = QUANTUM
    lane_seconds: float = LANE_SECONDS
    is_batch: bool = False
    within: float = 0.0
    draw: Callable[[], float] = field(default=random.random)


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
    The lanes of :class:`LaneState`, and handing out their records.

    Methods that do not take the lock are called with it held: see ``held.py``.

    Attributes:
        ready: the lanes that may be handed out.
        ledger: the consumer's holds.
        may_come: tells whether more records of a partition may come now.
    """

    def __init__(
        self,
        held: Held,
        lanes: Lanes,
        policy: Policy,
        clock: Callable[[], float],
        ledger: PauseLedger,
    ) -> None:
        self.held = held
        self.lanes = lanes
        self.policy = policy
        self.clock = clock
        self.ledger = ledger
        self.ready = Turns()
        self.may_come: Callable[[TopicPartition], bool] = lambda _tp: True
        self._asleep: list[tuple[float, int, Lane]] = []
        self._numbers = itertools.count()
        self._filling: dict[Lane, float] = {}
        self._followers: dict[Lane, Lane] = {}
        self._empty: list[Lane] = []
        self._closed = 0
        self._is_halted = False
        self._is_over = False
        self._resting: list[threading.Lock] = []
        self._coming = 0
        self._seen: View | None = None
        self._on_ready: Callable[[], None] | None = None

    # ------------------------------------------------------------ what others hold

    def look(self) -> None:
        """Obey the holds of this moment. Any thread, under no lock of ours."""
        if self.ledger.view() is not self._seen:
            self.obey()

    def obey(self) -> None:
        """
        Obey the holds: partitions that they cover are set aside, the rest goes on.

        In a signal handler that has interrupted the owner of the lock, it is done with
        the next claim.
        """
        if self.held.lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as threading.Condition asks it
            self._seen = None
            return
        with self.held.lock:
            self._seen = view = self.ledger.view()
            for epoch in self.held.epochs.values():
                epoch.is_held = covers(view, epoch.tp)
                self._bring_back(epoch)

    def obey_for(self, epoch: Epoch) -> None:
        """Obey the applied holds for an epoch that gets records; it may be a new one."""
        self.look()
        with self.held.lock:
            if self._seen is not None and not epoch.is_closed:
                epoch.is_held = covers(self._seen, epoch.tp)

    def _bring_back(self, epoch: Epoch) -> None:
        if not epoch.is_held and self.ready.bring_back(epoch):
            self.notify()

    def put_first(self, lane: Lane) -> None:
        """Hand a lane out before all others, once nothing stops it."""
        epoch = lane.epoch
        lane.state = LaneState.READY
        epoch.ready.appendleft(lane)
        if not epoch.is_held:
            self.ready.go_first(epoch)
            self.notify()

    # ------------------------------------------------------------ work comes and goes

    def drop_queued(self, epochs: Iterable[Epoch]) -> None:
        """Forget the queued records of these epochs; running ones go on."""
        with self.held.lock:
            for epoch in epochs:
                epoch.drop_queued()

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
        Let lanes go on whose time has come.

        Return the seconds until the next is due.
        """
        now = self.clock()
        with self.held.lock:
            if self._closed != self.held.closed:
                self._forget_closed()
            while self._asleep and self._asleep[0][0] <= now:
                _, _, lane = heapq.heappop(self._asleep)
                if not lane.epoch.is_closed and lane.state is LaneState.FAILED:
                    self.make_ready(lane)
            for lane in tuple(self._filling):
                self._look_at_batch(lane)
            due = [one[0] for one in self._asleep[:1]] + [*self._filling.values()]
            soon = min(due, default=math.inf) - now
            if self.ready:
                self.notify()
            return soon

    def _forget_closed(self) -> None:
        # Otherwise a lane that sleeps for an hour, or waits for a stuck handler, would
        # stay.
        self._closed = self.held.closed
        self._asleep = [one for one in self._asleep if not one[2].epoch.is_closed]
        heapq.heapify(self._asleep)
        self._filling = {
            lane: due for lane, due in self._filling.items() if not lane.epoch.is_closed
        }
        self._followers = {
            old: lane
            for old, lane in self._followers.items()
            if not lane.epoch.is_closed
        }
        self.ready.drop_closed()

    def sleep(self, lane: Lane, delay: float) -> None:
        """Make a lane ready again after so many seconds."""
        due = self.clock() + delay
        heapq.heappush(self._asleep, (due, next(self._numbers), lane))

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

    def claim(self) -> list[Task]:
        """Take work if there is some."""
        self.look()
        with self.held.lock:
            return [] if self._is_over else self._claim()

    def _claim(self) -> list[Task]:
        ready = self.ready
        if self._is_halted:
            return []
        while ready:
            epoch = ready.first
            task = None
            if self._may_begin(epoch):
                task = self._first_of(ready.take())
            else:
                ready.set_aside(epoch)
            if task is not None:
                self.wake_one()
                return [task]
        return []

    def _may_begin(self, epoch: Epoch) -> bool:
        return bool(epoch.ready) and not epoch.is_held  # without a lane it has ended

    def _first_of(self, lane: Lane) -> Task | None:
        if not lane.runs:
            self.let_go(lane)
            return None
        if lane.follows is not None and self._is_following(lane):
            return None
        if self.policy.is_batch and not lane.is_tried:
            return self._batch(lane)
        task = self._task(lane, self._size(lane))
        return None if task is None else self._bundled(task)

    def _task(self, lane: Lane, most: int) -> Task | None:
        epoch = lane.epoch
        taken = lane.take(most, self.policy.span)
        if taken is None:
            self._wait_for_span(lane)
            return None
        chunk, indexes = taken
        attempt, tried, letter = 1, None, None
        if epoch.failed:
            offset = record_at(chunk, indexes[0]).offset
            known = epoch.failed.get(offset)
            if known is not None:
                attempt, tried, letter = known.count + 1, offset, known.letter
        self._note_running(lane, len(indexes))
        return Task(lane, chunk, indexes, attempt, tried, letter=letter)

    def _note_running(self, lane: Lane, count: int) -> None:
        lane.epoch.running += count
        self.held.running += count
        lane.state = LaneState.RUNNING
        if lane.is_shared and lane.runs:
            self.make_ready(lane)

    def _wait_for_span(self, lane: Lane) -> None:
        # Records may yet be put back in front of those in a shared lane.
        lane.state = LaneState.AHEAD
        chunk, index = lane.first
        first = -1 if lane.is_shared else chunk.base + index
        heapq.heappush(lane.epoch.ahead, (first, lane))

    def _bundled(self, task: Task) -> Task:
        # If there are many keys with few records each, several lanes of one chunk share
        # the costs of a hand-over.
        epoch, chunk = task.epoch, task.chunk
        room = self._shared_size(epoch) - len(task.indexes)
        if room <= 0 or self.lanes.order is not Order.KEY or epoch.failed:
            return task
        indexes, bundle = list(task.indexes), [(task.lane, task.indexes)]
        ready, before, base = epoch.ready, len(indexes), chunk.base
        running = LaneState.RUNNING
        while ready and room > 0:
            lane = ready[0]
            if not lane.runs or lane.runs[0][0] is not chunk or lane.follows:
                break
            more = lane.runs[0][1]
            if len(more) > room or base + more[-1] >= epoch.allowed:
                break  # it is handed out alone, next time
            lane.runs.pop(0)
            ready.popleft()
            lane.state = running
            bundle.append((lane, more))
            indexes += more
            room -= len(more)
        if not ready:
            self.ready.set_aside(epoch)
        epoch.running += len(indexes) - before
        self.held.running += len(indexes) - before
        return Task(task.lane, chunk, indexes, bundle=bundle)

    # ------------------------------------------------------------ batches

    def _batch(self, lane: Lane) -> Task | None:
        # What has failed comes by itself, and waits for no others.
        left = self._fills_for(lane)
        if left > 0:
            lane.state = LaneState.FILLING
            self._filling[lane] = self.clock() + left
            return None
        runs: list[tuple[Chunk, Indexes]] = []
        room = self.policy.quantum
        while lane.runs and room > 0 and not lane.is_tried:
            run = lane.take(room, self.policy.span)
            if run is None:
                break
            room -= len(run[1])
            if runs and runs[-1][0] is run[0]:
                run = run[0], [*runs.pop()[1], *run[1]]
            runs.append(run)
        if not runs:
            self._wait_for_span(lane)
            return None
        self._note_running(lane, self.policy.quantum - room)
        if len(runs) == 1:
            return Task(lane, *runs[0])
        places = [(chunk, index) for chunk, some in runs for index in some]
        copies = Chunk([record_at(*place) for place in places], 0)
        return Task(lane, copies, range(len(places)), places=places)

    def _fills_for(self, lane: Lane) -> float:
        # How long a batch that is not full may still wait.
        if not self.policy.within or not lane.runs or lane in lane.epoch.apart:
            return 0.0
        if lane.count() >= self.policy.quantum or not self._can_grow(lane):
            return 0.0
        return lane.runs[0][0].came + self.policy.within - self.clock()

    def _can_grow(self, lane: Lane) -> bool:
        # Handlers would be idle in vain where the limits let no more come, or what comes
        # is beyond the span, or cannot be read.
        last = lane.runs[-1]
        within = lane.epoch.within_span(*last, self.policy.span)
        is_next = within == len(last[1]) and lane.epoch.unreadable is None
        return is_next and self.may_come(lane.epoch.tp)

    def _look_at_batch(self, lane: Lane) -> None:
        if self._fills_for(lane) <= 0:
            del self._filling[lane]
            self.make_ready(lane)
            self.notify()

    # ------------------------------------------------------------ how many at a time

    def _size(self, lane: Lane) -> int:
        if lane.is_shared:
            return self._shared_size(lane.epoch)
        pace = max(lane.epoch.pace, 1e-9)
        return min(self.policy.quantum, max(1, int(self.policy.lane_seconds / pace)))

    def _shared_size(self, epoch: Epoch) -> int:
        pace = max(epoch.pace, 1e-9)
        return min(self.policy.quantum, max(1, int(SHARED_SECONDS / pace)))

    # ------------------------------------------------------------ tasks come back

    def _is_following(self, lane: Lane) -> bool:
        # A handler of an earlier ownership may still work on its key, or partition.
        old = lane.follows
        if old is None or old.state is not LaneState.RUNNING:
            lane.follows = None
            return False
        lane.state = LaneState.FOLLOWING
        self._followers[old] = lane
        return True

    def came_back(self, task: Task) -> None:
        """Note that a task of an ownership that has ended is over."""
        self.held.came_back(task.lanes)
        for old in task.lanes:
            lane = self._followers.pop(old, None)
            if lane is not None and not lane.epoch.is_closed:
                self.make_ready(lane)
                self.notify()

    def next(self, lane: Lane) -> None:
        """Hand out a lane again after its last task, or release it if it is empty."""
        if lane.runs:
            self.make_ready(lane)
            self.wake_one()
            return
        self.let_go(lane)

    def make_ready(self, lane: Lane) -> None:
        """Queue a lane behind the others of its partition that are ready."""
        lane.state = LaneState.READY
        self.ready.append(lane)

    def make_all_ready(self, lanes: Sequence[Lane]) -> None:
        """Queue lanes of one partition behind the others of it that are ready."""
        # As make_ready() for each, in line.
        state = LaneState.READY
        for lane in lanes:
            lane.state = state
        if lanes:
            self.ready.extend(lanes[0].epoch, lanes)

    def look_again(self, epoch: Epoch) -> None:
        """Let lanes go on that may by now: within the span, or for a full batch."""
        ahead = epoch.ahead
        if ahead and ahead[0][0] < epoch.allow(self.policy.span):
            while ahead and ahead[0][0] < epoch.allowed:
                self.make_ready(heapq.heappop(ahead)[1])
            self.notify()
        lane = epoch.lanes.get(None)
        if lane in self._filling:
            self._look_at_batch(lane)

    # ------------------------------------------------------------ lanes run empty

    def let_go(self, lane: Lane) -> None:
        """Note that a lane has run empty."""
        lane.state, epoch = LaneState.IDLE, lane.epoch
        if lane.is_shared:  # some of its tasks may still be out
            return
        if lane in epoch.apart:
            epoch.apart.discard(lane)
        elif not lane.is_light or len(epoch.lanes) > self.room_of_lanes():
            self._empty.append(lane)

    def room_of_lanes(self) -> int:
        """Return how many lanes of one epoch are kept while they are empty."""
        return KEPT_LANES // max(1, len(self.held.epochs))

    def clear_lanes(self) -> None:
        """
        Forget empty lanes that take memory, and all of a partition that has too many.

        For the polling thread.
        """
        # Otherwise lanes of keys that come no more would keep out those of keys that
        # do.
        with self.held.lock:
            lanes, self._empty = self._empty, []
            room = self.room_of_lanes()
            for epoch in self.held.epochs.values():
                if len(epoch.lanes) > room:
                    lanes += epoch.lanes.values()
            gone = [one for one in lanes if one.state is LaneState.IDLE]
        for lane in gone:
            if not lane.is_shared:
                lane.epoch.lanes.pop(lane.key, None)

    # ------------------------------------------------------------ waking threads

    def wake_one(self) -> None:
        """Wake a thread that waits for work, if it is worth it."""
        ready = self.ready
        if not ready or self._is_halted:
            return
        is_busy = self.held.running or self._coming
        if ready.first.pace >= WORTH_WAKING or not is_busy:
            self.notify()

    def notify(self) -> None:
        """Wake a thread that waits for work."""
        if self._resting:
            self._rouse()
        if self._on_ready is not None:
            self._on_ready()

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
