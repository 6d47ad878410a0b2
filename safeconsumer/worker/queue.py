"""Chooses which queued records a free handler gets next."""

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

# The maximum number of records in a hand-over, and the approximate time in seconds that
# a hand-over should take.
QUANTUM = 256
LANE_SECONDS = 0.005

OnExhausted = Literal["stop", "skip", "block"]


@frozen(kw_only=True)
class Policy:
    """
    The rules for failures and for the size of hand-overs.

    Attributes:
        sink: sends a dead letter; None if there are no dead letters.
        quantum: the maximum number of records in a hand-over.
        within: seconds for which a batch with fewer records waits for more.
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


# Seconds that a hand-over should take if several threads could share its records.
SHARED_SECONDS = 0.001
# If a record takes fewer seconds than this, its handler hardly waits for anything. No
# additional thread is woken then, because two computing threads slow each other down.
WORTH_WAKING = 0.00002
# The keys of a task if all records of a partition are handled one after the other.
_WHOLE: Mapping[object, None] = {None: None}


class Queue:
    """
    Moves lanes from state to state, and hands out the records in ready lanes.

    Only a queue changes the state of a lane; see the table of :class:`LaneState`.

    The caller must hold the lock for all methods that do not take it; see ``kept.py``.

    Attributes:
        ready: the lanes that may be handed out.
        ledger: the consumer's holds.
        may_come: returns whether more records of a partition may be fetched now.
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
        # lanes whose first record is a dead letter, if letters are claimed separately
        self._letters: deque[Lane] = deque()
        self._on_letter: Callable[[], None] | None = None

    # ------------------------------------------------------------ other owners' holds

    def obey_if_changed(self) -> None:
        """
        Apply the current holds if they have changed.

        Any thread may call this, but not while it holds a lock of the worker.
        """
        if self.ledger.view() is not self._obeyed:
            self.obey()

    def obey(self) -> None:
        """
        Apply the current holds: set held partitions aside, and let the others continue.

        If a signal handler has interrupted the owner of the lock, the next claim
        applies the holds.
        """
        if self.kept.lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as in threading.Condition
            self._obeyed = None
            return
        with self.kept.lock:
            self._obeyed = view = self.ledger.view()
            for epoch in self.kept.epochs.values():
                epoch.is_held = covers(view, epoch.tp)
                self._bring_back(epoch)
            self._announce_letters()

    def obey_for(self, epoch: Epoch) -> None:
        """Apply the current holds to an epoch, which may be new, before it gets records."""
        self.obey_if_changed()
        with self.kept.lock:
            if self._obeyed is not None and not epoch.is_closed:
                epoch.is_held = covers(self._obeyed, epoch.tp)

    def _bring_back(self, epoch: Epoch) -> None:
        if not epoch.is_held and self.ready.bring_back(epoch):
            self.notify()

    # ------------------------------------------------------------ adding and removing

    def admit(self, epoch: Epoch) -> None:
        """Queue an epoch's new records. Only the polling thread may call this."""
        self.obey_for(epoch)
        with self.kept.lock:
            if epoch.main and epoch.main.state is LaneState.IDLE:
                self._make_ready(epoch.main)
            self.resume_main(epoch)
            self.wake_one()

    def drop_queued(self, epochs: Iterable[Epoch]) -> None:
        """Drop the queued records of these epochs; running records continue."""
        with self.kept.lock:
            for epoch in epochs:
                epoch.drop_queued()

    def halt(self) -> None:
        """Stop handing out records until :meth:`go_on`."""
        with self.kept.lock:  # no claim is under way when the flag is set
            self._is_halted = True

    def go_on(self) -> None:
        """Hand out records again."""
        with self.kept.lock:
            self._is_halted = False
            self.wake_one()
            self._announce_letters()

    def end(self) -> None:
        """Stop handing out records for good; from now on :meth:`wait_claim` returns None."""
        with self.kept.lock:
            self._has_ended = True
            while self._idle_threads:
                self._wake_last()

    def listen(self, on_ready: Callable[[], None] | None) -> None:
        """Call ``on_ready`` whenever a task may be claimed; None removes the callback."""
        with self.kept.lock:
            self._on_ready = on_ready

    def claim_letters_apart(self, on_letter: Callable[[], None]) -> None:
        """
        Make :meth:`claim_letter`, instead of :meth:`claim`, return dead letters.

        Args:
            on_letter: called, with the lock held, when a letter may be claimed.
        """
        with self.kept.lock:
            self._on_letter = on_letter

    def _announce_letters(self) -> None:
        if self._letters and self._on_letter is not None:
            self._on_letter()

    def turn(self) -> float:
        """
        Resume the lanes whose delay is over.

        Return the seconds until the next lane is due.
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
        # Otherwise a lane that waits for an hour, or for a stuck handler, would stay in
        # memory.
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
        """Wait for a task and return it, or None once the queue has ended."""
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
        """Return the next task, or None if no record may be started now."""
        self.obey_if_changed()
        with self.kept.lock:
            return None if self._has_ended else self._claim()

    def claim_letter(self) -> Task | None:
        """
        Return a task for a dead letter, or None; see :meth:`claim_letters_apart`.

        Only letters that :meth:`claim` has skipped are returned. Letters of held
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
                else:  # the records were dropped
                    self.requeue(lane)
            return None

    def _claim(self) -> Task | None:
        ready = self.ready
        while ready and not self._is_halted:
            epoch = ready.first
            if epoch.is_held or not epoch.ready:  # without a ready lane it is closed
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
            # the lane waits until a task of an earlier ownership returns
            lane.state = LaneState.RUNNING
        elif lane.is_tried:
            if self._on_letter is None or not self._is_letter(lane):
                return self._take_tried(lane)
            self._letters.append(lane)  # it stays READY
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
        # A record that has failed, or may have failed, is handed out alone.
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
        """Return whether a lane continues while some of its tasks are running."""
        return self.order is not Order.PARTITION and lane is lane.epoch.main

    # ------------------------------------------------------------ by key

    def _by_key(self, lane: Lane) -> Task | None:
        # If many keys have few records each, several keys share the cost of a
        # hand-over. Their records come from the main lane, or from the keys' own lanes.
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
        # Takes records from the main lane, and marks their keys as busy. If a record's
        # key is busy already or has a lane, the record waits in the lane of that key.
        main, ours = epoch.main, dict[object, None]()
        found: Ordinals = ()
        while main and len(found) < most:
            some = main.take(most - len(found), self.policy.span)
            if not some:
                break
            theirs = [
                key if type(key := one.key) is bytes else _hashable(key)  # type: ignore[union-attr]  # unreleased
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
        # Only called for records that have not failed; a failed one is handed out
        # alone, and does not wait for a batch.
        left = self._fills_for(lane)
        if left > 0:
            lane.state = LaneState.FILLING
            self._filling[lane] = self.clock() + left
            return None
        return self._take_some(lane, self.policy.quantum)

    def _fills_for(self, lane: Lane) -> float:
        # Returns for how many more seconds a batch that is not full may wait.
        epoch = lane.epoch
        if not self.policy.within or not lane or lane is not epoch.main:
            return 0.0
        if len(lane) >= self.policy.quantum or not self._can_grow(lane):
            return 0.0
        came = epoch.progress.came_at(next(iter(lane)))
        return came + self.policy.within - self.clock()

    def _can_grow(self, lane: Lane) -> bool:
        # Returns whether waiting can bring more records. It cannot if the limits allow
        # no more records, or if the next records are beyond the span or cannot be read.
        epoch = lane.epoch
        is_next = lane.fresh.stop <= epoch.allow(self.policy.span)
        is_next = is_next and epoch.unreadable is None
        return is_next and self.may_come(epoch.tp)

    def _check_batch(self, lane: Lane) -> None:
        if self._fills_for(lane) <= 0:
            del self._filling[lane]
            self._make_ready(lane)
            self.notify()

    # ------------------------------------------------------------ size of a hand-over

    def _size(self, lane: Lane) -> int:
        is_shared = self.is_shared(lane)
        seconds = SHARED_SECONDS if is_shared else self.policy.lane_seconds
        pace = max(lane.epoch.pace, 1e-9)
        return min(self.policy.quantum, max(1, int(seconds / pace)))

    # ------------------------------------------------------------ returned tasks

    def task_returned(self, task: Task) -> None:
        """Resume the lanes that waited for a returned task of a closed epoch."""
        epoch = self.kept.task_returned(task)
        if epoch is None or not task.keys:
            return
        for lane in self.waiting_lanes(epoch, task):
            self.requeue(lane)
            self.notify()

    def waiting_lanes(self, epoch: Epoch, task: Task) -> list[Lane]:
        """
        Return the lanes of an epoch that waited for the returned task.

        The caller moves each lane to its next state. The task may belong to an earlier
        ownership, if its records have the lanes' keys or are from the same partition.
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
        """Put records of a task back at the front of their lanes."""
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
        """Return the separate lane in which a shared lane's failed record waits."""
        epoch, record = task.epoch, task.record(index)
        key = _hashable(record.key) if self.order is Order.KEY else record.offset
        lane = epoch.lanes.get(key)
        if lane is None:
            lane = epoch.lanes[key] = Lane(epoch, key, LaneState.RUNNING)
        return lane

    def put_first(self, lane: Lane) -> None:
        """Make a lane the next to be handed out, as soon as no hold covers it."""
        epoch = lane.epoch
        lane.state = LaneState.READY
        epoch.ready.appendleft(lane)
        if not epoch.is_held:
            self.ready.go_first(epoch)
            self.notify()

    def delay(self, lane: Lane, delay: float) -> None:
        """Make a lane wait for ``delay`` seconds, because its first record has failed."""
        self.block(lane)
        due = self.clock() + delay
        heapq.heappush(self._delayed, (due, next(self._numbers), lane))

    @staticmethod
    def block(lane: Lane) -> None:
        """Make a lane wait for ever, because its first record has failed for good."""
        lane.state = LaneState.FAILED

    def resume_main(self, epoch: Epoch) -> None:
        """Let the main lane continue if ``Limits.span`` allows it, or if its batch is due."""
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
        """Make a lane ready again after a task, or remove the lane if it is empty."""
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
        """Wake a thread that waits for work, if there is enough work for another thread."""
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
        # Works like Condition.wait(), except that the thread that started to wait last
        # is woken first, because its CPU cache is still warm.
        alarm = threading.Lock()
        alarm.acquire()
        self._idle_threads.append(alarm)
        self.kept.lock.release()
        try:
            alarm.acquire()
        finally:
            self.kept.lock.acquire()
            if alarm in self._idle_threads:  # an exception interrupted the wait
                self._idle_threads.remove(alarm)
            else:
                self._woken -= 1

    def _wake_last(self) -> None:
        # The steps are in this order so that, if an exception interrupts them, no
        # thread waits for ever.
        self._woken += 1
        alarm = self._idle_threads[-1]
        if alarm.locked():
            alarm.release()
        self._idle_threads.pop()


# If records are put back into a shared lane in one of these states, it becomes READY.
_WAITS_FOR_RECORDS = frozenset({LaneState.IDLE, LaneState.AHEAD})


def _hashable(key: object) -> object:
    # Keys from a broker are bytes or None; only tests use other keys.
    is_plain = type(key) is bytes or key is None
    return key if is_plain else repr(key).encode("utf-8", "replace")
