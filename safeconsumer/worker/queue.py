"""Chooses the queued record that a free handler gets."""

import heapq
import itertools
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from attrs import field, frozen
from kafka.structs import TopicPartition

from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.view import View, covers
from safeconsumer.worker.dead_letters import Sink
from safeconsumer.worker.kept import KeptRecords
from safeconsumer.worker.partition import Epoch, Indexes, Lane, LaneState, Order, Task
from safeconsumer.worker.progress import Ordinals
from safeconsumer.worker.retry import SAMPLE, Retry
from safeconsumer.worker.turns import Turns

# The most records of one hand-over, and the approximate seconds that it takes.
QUANTUM = 256
LANE_SECONDS = 0.005

OnExhausted = Literal["stop", "skip", "block"]


@frozen(kw_only=True)
class Policy:
    """
    The treatment of failures, and the number of records of a hand-over.

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


# Seconds of one hand-over of records that several threads could share.
SHARED_SECONDS = 0.001
# Seconds. Records that take less are not worth another thread: their handlers compute,
# and two computing threads slow each other down.
WORTH_WAKING = 0.00002
# The keys of a task if the records of a partition wait for each other.
_WHOLE: Mapping[object, None] = {None: None}


class Queue:
    """
    Moves lanes from state to state, and hands out their records.

    Only a queue changes the state of a lane; :class:`LaneState` has the table.

    Methods that do not take the lock are called with it held: see ``kept.py``.

    Attributes:
        ready: the lanes that may be handed out.
        ledger: the consumer's holds.
        may_come: returns whether more records of a partition may come now.
    """

    def __init__(
        self,
        kept: KeptRecords,
        order: Order,
        policy: Policy,
        clock: Callable[[], float],
        ledger: PauseLedger,
    ) -> None:
        self.kept = kept
        self.order = order
        self.policy = policy
        self.clock = clock
        self.ledger = ledger
        self.ready = Turns()
        self.may_come: Callable[[TopicPartition], bool] = lambda _tp: True
        self._delayed: list[tuple[float, int, Lane]] = []
        self._numbers = itertools.count()
        self._filling: dict[Lane, float] = {}
        self._closed = 0
        self._is_halted = False
        self._has_ended = False
        self._idle_threads: list[threading.Lock] = []
        self._woken = 0
        self._obeyed: View | None = None
        self._on_ready: Callable[[], None] | None = None
        # lanes in turn, if dead letters are claimed separately
        self._letters: deque[Lane] = deque()
        self._on_letter: Callable[[], None] | None = None

    # ------------------------------------------------------------ holds of others

    def obey_if_changed(self) -> None:
        """Obey the holds of this moment. Any thread, under no lock of ours."""
        if self.ledger.view() is not self._obeyed:
            self.obey()

    def obey(self) -> None:
        """
        Obey the holds: covered partitions are set aside, the others continue.

        If a signal handler has interrupted the owner of the lock, the next claim does
        this.
        """
        if self.kept.lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as threading.Condition asks it
            self._obeyed = None
            return
        with self.kept.lock:
            self._obeyed = view = self.ledger.view()
            for epoch in self.kept.epochs.values():
                epoch.is_held = covers(view, epoch.tp)
                self._bring_back(epoch)
            self._announce_letters()

    def obey_for(self, epoch: Epoch) -> None:
        """Obey the applied holds for an epoch that gets records, which may be new."""
        self.obey_if_changed()
        with self.kept.lock:
            if self._obeyed is not None and not epoch.is_closed:
                epoch.is_held = covers(self._obeyed, epoch.tp)

    def _bring_back(self, epoch: Epoch) -> None:
        if not epoch.is_held and self.ready.bring_back(epoch):
            self.notify()

    # ------------------------------------------------------------ adding and removing

    def admit(self, epoch: Epoch) -> None:
        """Queue the records that an epoch has got. For the polling thread only."""
        self.obey_for(epoch)
        with self.kept.lock:
            if epoch.main and epoch.main.state is LaneState.IDLE:
                self._make_ready(epoch.main)
            self.resume_main(epoch)
            self.wake_one()

    def drop_queued(self, epochs: Iterable[Epoch]) -> None:
        """Forget the queued records of these epochs; running ones continue."""
        with self.kept.lock:
            for epoch in epochs:
                epoch.drop_queued()

    def halt(self) -> None:
        """Hand out no record until :meth:`go_on`."""
        with self.kept.lock:  # a claim is either counted before this, or fails after it
            self._is_halted = True

    def go_on(self) -> None:
        """Hand out records again."""
        with self.kept.lock:
            self._is_halted = False
            self.wake_one()
            self._announce_letters()

    def end(self) -> None:
        """Stop handing out records; callers that wait in :meth:`wait_claim` get None."""
        with self.kept.lock:
            self._has_ended = True
            while self._idle_threads:
                self._wake_last()

    def listen(self, on_ready: Callable[[], None] | None) -> None:
        """Call ``on_ready`` when a task may be claimed; None: call no function any more."""
        with self.kept.lock:
            self._on_ready = on_ready

    def claim_letters_apart(self, on_letter: Callable[[], None]) -> None:
        """
        Let :meth:`claim_letter` claim dead letters, and no longer :meth:`claim`.

        Args:
            on_letter: is called when a letter may be claimed, with the lock held.
        """
        with self.kept.lock:
            self._on_letter = on_letter

    def _announce_letters(self) -> None:
        if self._letters and self._on_letter is not None:
            self._on_letter()

    def turn(self) -> float:
        """
        Let lanes continue whose time has come.

        Return the seconds until the next is due.
        """
        now = self.clock()
        with self.kept.lock:
            if self._closed != self.kept.closed:
                self._forget_closed()
            while self._delayed and self._delayed[0][0] <= now:
                _, _, lane = heapq.heappop(self._delayed)
                if not lane.epoch.is_closed and lane.state is LaneState.FAILED:
                    self._make_ready(lane)
            for lane in tuple(self._filling):
                self._check_batch(lane)
            due = [one[0] for one in self._delayed[:1]] + [*self._filling.values()]
            soon = min(due, default=math.inf) - now
            if self.ready:
                self.notify()
            return soon

    def _forget_closed(self) -> None:
        # Otherwise a lane that waits for an hour, or for a stuck handler, would stay.
        self._closed = self.kept.closed
        self._delayed = [one for one in self._delayed if not one[2].epoch.is_closed]
        heapq.heapify(self._delayed)
        self._filling = {
            lane: due for lane, due in self._filling.items() if not lane.epoch.is_closed
        }
        self.ready.drop_closed()
        self._letters = deque(one for one in self._letters if not one.epoch.is_closed)

    # ------------------------------------------------------------ claiming

    def wait_claim(self) -> Task | None:
        """Wait for a task and return it; None once the queue has ended."""
        while True:
            self.obey_if_changed()
            with self.kept.lock:
                if self._has_ended:
                    return None
                task = self._claim()
                if task is not None:
                    return task
                self._wait_for_work()

    def claim(self) -> Task | None:
        """Return the next task; None if no record may begin."""
        self.obey_if_changed()
        with self.kept.lock:
            return None if self._has_ended else self._claim()

    def claim_letter(self) -> Task | None:
        """
        Return the task of a dead letter if there is one, see :meth:`claim_letters_apart`.

        The method takes only letters that :meth:`claim` has met; letters of held
        partitions wait.
        """
        self.obey_if_changed()
        with self.kept.lock:
            if self._has_ended or self._is_halted:
                return None
            for _ in range(len(self._letters)):
                lane = self._letters.popleft()
                if lane.epoch.is_closed:
                    continue
                if lane.epoch.is_held:
                    self._letters.append(lane)
                elif lane.is_tried:
                    return self._take_tried(lane)
                else:  # the lane's records were dropped
                    self.requeue(lane)
            return None

    def _claim(self) -> Task | None:
        ready = self.ready
        while ready and not self._is_halted:
            epoch = ready.first
            if epoch.is_held or not epoch.ready:  # an epoch without a lane has ended
                ready.set_aside(epoch)
                continue
            task = self._first_task(ready.take())
            if task is not None:
                self.wake_one()
                return task
        return None

    def _first_task(self, lane: Lane) -> Task | None:
        epoch = lane.epoch
        if not lane:
            self._retire(lane)
        elif self.order is Order.PARTITION and epoch.busy:
            # the lane waits for a task of an earlier ownership
            lane.state = LaneState.RUNNING
        elif lane.is_tried:
            if self._on_letter is None or not self._is_letter(lane):
                return self._take_tried(lane)
            self._letters.append(lane)  # the lane is still ready
            self._announce_letters()
        elif self.policy.is_batch:
            return self._batch(lane)
        elif self.order is Order.KEY:
            return self._by_key(lane)
        else:
            return self._take_some(lane, self._size(lane))
        return None

    @staticmethod
    def _is_letter(lane: Lane) -> bool:
        return lane.epoch.failed[lane.first_offset()].letter is not None

    def _take_tried(self, lane: Lane) -> Task:
        # A record that has failed, or may have, is handed out alone.
        epoch, offset = lane.epoch, lane.first_offset()
        known = epoch.failed[offset]
        ordinals = lane.take(1, self.policy.span)
        records = epoch.progress.records(ordinals)
        return self._hand_out(
            Task(
                lane,
                ordinals,
                records,
                self._keys_of(lane),
                attempt=known.count + 1,
                tried=offset,
                letter=known.letter,
            )
        )

    def _take_some(self, lane: Lane, most: int) -> Task | None:
        ordinals = lane.take(most, self.policy.span)
        if not ordinals:
            lane.state = LaneState.AHEAD
            return None
        records = lane.epoch.progress.records(ordinals)
        return self._hand_out(Task(lane, ordinals, records, self._keys_of(lane)))

    def _keys_of(self, lane: Lane) -> Mapping[object, None]:
        match self.order:
            case Order.PARTITION:
                return _WHOLE
            case Order.KEY:
                return {lane.key: None}
        return {}

    def _hand_out(self, task: Task) -> Task:
        lane = task.lane
        if self.is_shared(lane):
            self.requeue(lane)
        else:
            lane.state = LaneState.RUNNING
        return self._note(task)

    def _note(self, task: Task) -> Task:
        task.epoch.tasks.add(task)
        task.epoch.running += len(task.records)
        self.kept.running += len(task.records)
        return task

    def is_shared(self, lane: Lane) -> bool:
        """Return whether a lane continues while tasks of it are out."""
        return self.order is not Order.PARTITION and lane is lane.epoch.main

    # ------------------------------------------------------------ by key

    def _by_key(self, lane: Lane) -> Task | None:
        # If many keys have few records each, they share the costs of a hand-over: keys
        # of the main lane, or keys with their own lanes.
        first, epoch = lane, lane.epoch
        most, keys = self._size(lane), dict[object, None]()
        ordinals: Ordinals = ()
        while True:
            if lane is epoch.main:
                more = self._take_free(epoch, most - len(ordinals), keys)
                self.requeue(lane, is_ahead=not more)
            else:
                more = lane.take(most - len(ordinals), self.policy.span)
                keys[lane.key] = None
                lane.state = LaneState.RUNNING
            ordinals = [*ordinals, *more] if ordinals else more
            most = self._size(epoch.main)
            if lane is epoch.main or not epoch.ready or len(ordinals) >= most:
                break
            lane = epoch.ready[0]
            if not lane or lane.is_tried:
                break
            epoch.ready.popleft()
        if not epoch.ready:
            self.ready.set_aside(epoch)
        if not ordinals:
            return None
        records = epoch.progress.records(ordinals)
        return self._note(Task(first, ordinals, records, keys))

    def _take_free(self, epoch: Epoch, most: int, keys: dict[object, None]) -> Ordinals:
        # Takes records of the main lane, and notes their keys. A record of a key that is
        # busy, or has a lane, waits in the lane of its key.
        main, ours = epoch.main, dict[object, None]()
        found: Ordinals = ()
        while main and len(found) < most:
            some = main.take(most - len(found), self.policy.span)
            if not some:
                break
            theirs = [
                key if type(key := one.key) is bytes else _hashable(key)  # type: ignore[union-attr]  # not released
                for one in epoch.progress.records(some)
            ]
            new = dict.fromkeys(theirs)
            if not (epoch.busy.isdisjoint(new) and epoch.lanes.keys().isdisjoint(new)):
                some = self._unless_busy(epoch, some, theirs)
                new = dict.fromkeys(one for one in theirs if one not in epoch.lanes)
            found = [*found, *some] if found else some
            ours.update(new)
        epoch.busy.update(ours)
        keys.update(ours)
        return found

    @staticmethod
    def _unless_busy(epoch: Epoch, ordinals: Ordinals, keys: list[object]) -> list[int]:
        free = []
        for ordinal, key in zip(ordinals, keys, strict=True):
            lane = epoch.lanes.get(key)
            if lane is None and key in epoch.busy:
                lane = epoch.lanes[key] = Lane(epoch, key, LaneState.RUNNING)
            if lane is None:
                free.append(ordinal)
            else:
                lane.again.append(ordinal)
        return free

    # ------------------------------------------------------------ batches

    def _batch(self, lane: Lane) -> Task | None:
        # A failed record is handed out alone, without waiting for a batch.
        left = self._fills_for(lane)
        if left > 0:
            lane.state = LaneState.FILLING
            self._filling[lane] = self.clock() + left
            return None
        return self._take_some(lane, self.policy.quantum)

    def _fills_for(self, lane: Lane) -> float:
        # Returns the seconds for which an incomplete batch may still wait.
        epoch = lane.epoch
        if not self.policy.within or not lane or lane is not epoch.main:
            return 0.0
        if len(lane) >= self.policy.quantum or not self._can_grow(lane):
            return 0.0
        came = epoch.progress.came_at(next(iter(lane)))
        return came + self.policy.within - self.clock()

    def _can_grow(self, lane: Lane) -> bool:
        # A wait would leave handlers idle without gain if the limits keep more records
        # out, or if the next records are beyond the span or cannot be read.
        epoch = lane.epoch
        is_next = lane.fresh.stop <= epoch.allow(self.policy.span)
        is_next = is_next and epoch.unreadable is None
        return is_next and self.may_come(epoch.tp)

    def _check_batch(self, lane: Lane) -> None:
        if self._fills_for(lane) <= 0:
            del self._filling[lane]
            self._make_ready(lane)
            self.notify()

    # ------------------------------------------------------------ how many at a time

    def _size(self, lane: Lane) -> int:
        is_shared = self.is_shared(lane)
        seconds = SHARED_SECONDS if is_shared else self.policy.lane_seconds
        pace = max(lane.epoch.pace, 1e-9)
        return min(self.policy.quantum, max(1, int(seconds / pace)))

    # ------------------------------------------------------------ tasks come back

    def task_returned(self, task: Task) -> None:
        """Note that a task of an ownership that has ended has returned."""
        epoch = self.kept.task_returned(task)
        if epoch is None or not task.keys:
            return
        for lane in self.waiting_lanes(epoch, task):
            self.requeue(lane)
            self.notify()

    def waiting_lanes(self, epoch: Epoch, task: Task) -> list[Lane]:
        """
        Return the lanes of an epoch that waited for a task that has returned.

        The caller moves each lane on. The task may be of an earlier ownership, with
        records of the lanes' keys, or of the partition.
        """
        epoch.busy.difference_update(task.keys)
        lanes = [task.lane]
        if self.order is Order.PARTITION:
            lanes = [epoch.main]
        elif self.order is Order.KEY:
            others = epoch.lanes
            lanes = [others[one] for one in task.keys if one in others]
        return [lane for lane in lanes if lane.state is LaneState.RUNNING]

    def put_back(self, task: Task, indexes: Indexes) -> None:
        """Queue records of a task again, in front of their lanes."""
        epoch, ordinals = task.epoch, task.ordinals_of(indexes)
        if self.order is not Order.KEY:
            task.lane.again[:0] = ordinals
        elif not epoch.lanes:
            epoch.main.again[:0] = ordinals
        else:
            by_lane: dict[Lane, list[int]] = {}
            for index, ordinal in zip(indexes, ordinals, strict=True):
                lane = epoch.lanes.get(_hashable(task.record(index).key), epoch.main)
                by_lane.setdefault(lane, []).append(ordinal)
            for lane, several in by_lane.items():
                lane.again[:0] = several
        main = epoch.main
        if main and main.state in _WAITS_FOR_RECORDS and self.is_shared(main):
            self._make_ready(main)

    def own_lane(self, task: Task, index: int) -> Lane:
        """Return the lane in which a failed record of a shared lane waits."""
        epoch, record = task.epoch, task.record(index)
        key = _hashable(record.key) if self.order is Order.KEY else record.offset
        lane = epoch.lanes.get(key)
        if lane is None:
            lane = epoch.lanes[key] = Lane(epoch, key, LaneState.RUNNING)
        return lane

    def put_first(self, lane: Lane) -> None:
        """Hand a lane out before all others, as soon as no hold stops it."""
        epoch = lane.epoch
        lane.state = LaneState.READY
        epoch.ready.appendleft(lane)
        if not epoch.is_held:
            self.ready.go_first(epoch)
            self.notify()

    def delay(self, lane: Lane, delay: float) -> None:
        """Let a lane wait for this many seconds, as its first record has failed."""
        self.block(lane)
        due = self.clock() + delay
        heapq.heappush(self._delayed, (due, next(self._numbers), lane))

    @staticmethod
    def block(lane: Lane) -> None:
        """Let a lane wait without end, as its first record has failed for good."""
        lane.state = LaneState.FAILED

    def resume_main(self, epoch: Epoch) -> None:
        """Let the main lane continue if it is within the span, or its batch need not wait."""
        main = epoch.main
        if main.state is LaneState.AHEAD and main.fresh.start < epoch.allow(
            self.policy.span
        ):
            self._make_ready(main)
            self.notify()
        if main in self._filling:
            self._check_batch(main)

    def _make_ready(self, lane: Lane) -> None:
        lane.state = LaneState.READY
        self.ready.append(lane)

    def requeue(self, lane: Lane, *, is_ahead: bool = False) -> None:
        """Line a lane up again after its last task, or forget it if it is empty."""
        if not lane:
            self._retire(lane)
        elif is_ahead:
            lane.state = LaneState.AHEAD
        else:
            self._make_ready(lane)

    @staticmethod
    def _retire(lane: Lane) -> None:
        lane.state = LaneState.IDLE
        if lane is not lane.epoch.main:
            lane.epoch.lanes.pop(lane.key, None)

    # ------------------------------------------------------------ waking threads

    def wake_one(self) -> None:
        """Wake a thread that waits for work, if the work is worth another thread."""
        ready = self.ready
        if not ready or self._is_halted:
            return
        is_busy = self.kept.running or self._woken
        if ready.first.pace >= WORTH_WAKING or not is_busy:
            self.notify()

    def notify(self) -> None:
        """Wake a thread that waits for work."""
        if self._idle_threads:
            self._wake_last()
        if self._on_ready is not None:
            self._on_ready()

    def _wait_for_work(self) -> None:
        # Like Condition.wait(), but the thread that began to wait last wakes first: its
        # cache is warm.
        alarm = threading.Lock()
        alarm.acquire()
        self._idle_threads.append(alarm)
        self.kept.lock.release()
        try:
            alarm.acquire()
        finally:
            self.kept.lock.acquire()
            if alarm in self._idle_threads:  # the wait was interrupted
                self._idle_threads.remove(alarm)
            else:
                self._woken -= 1

    def _wake_last(self) -> None:
        # In this order an interrupt between two steps leaves no thread waiting forever.
        self._woken += 1
        alarm = self._idle_threads[-1]
        if alarm.locked():
            alarm.release()
        self._idle_threads.pop()


# The states of a shared lane to which records may have been put back.
_WAITS_FOR_RECORDS = frozenset({LaneState.IDLE, LaneState.AHEAD})


def _hashable(key: object) -> object:
    # A broker's keys are bytes or None; a test may use other keys.
    is_plain = type(key) is bytes or key is None
    return key if is_plain else repr(key).encode("utf-8", "replace")
