"""
What is worked on next, and what becomes of the results.
"""

import heapq
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from attrs import field, frozen
from kafka.structs import TopicPartition

from safeconsumer._core import worker_events
from safeconsumer._core.progress import Chunk, Record
from safeconsumer._core.retry import Failing, Retry
from safeconsumer.worker.control import (
    DeadLetterLimitError,
    RecordFailedError,
    Reject,
    RetryLater,
    StopWorker,
)
from safeconsumer.worker.held import Dropped, Epoch, Held
from safeconsumer.worker.lanes import Indexes, Lane, Lanes, Order, State, Task

# One hand-over: as many records as take about this long, and no more than these.
QUANTUM = 64
LANE_SECONDS = 0.005
SHARED_SECONDS = 0.001
# Work worth another thread: less is done before that one is awake.
WORTH_WAKING = 0.0005

# A lane whose last task came back and that waits for nothing; a shared one may have
# run empty while tasks of it were still out.
_FREE = frozenset({State.RUNNING, State.IDLE})

OnExhausted = Literal["stop", "skip", "block"]


@frozen(kw_only=True)
class Outcome:
    """
    What became of a task.

    Attributes:
        task: which.
        finished: indexes that are done, and marked so.
        failed: indexes with what is wrong.
        left: indexes that were not begun.
        seconds: how long the others took.
        is_suspect: whether several records failed together and any of them, but not
            all, may be to blame: they are tried one by one, and none has failed yet.
    """

    task: Task
    finished: Indexes = ()
    failed: Sequence[tuple[int, BaseException]] = ()
    left: Indexes = ()
    seconds: float = 0.0
    is_suspect: bool = False


@frozen(kw_only=True)
class Letter:
    """
    A record that failed for good, on its way to the dead letters.
    """

    lane: Lane
    chunk: Chunk
    index: int
    record: Any
    attempt: int
    error: BaseException


@frozen(kw_only=True)
class Policy:
    """
    How failures are handled, and how work is cut.

    Attributes:
        post: takes a letter without waiting; None without dead letters.
        quantum: most records of one hand-over.
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
    draw: Callable[[], float] = field(default=random.random)


class Schedule:
    """
    Lanes that are ready, asleep or blocked; every method may be called by any thread.

    Attributes:
        fatal: what must stop the worker, once something must.
        retries: how often a record was tried again.
        skipped: records that failed for good and were passed over.
    """

    def __init__(
        self,
        held: Held,
        lanes: Lanes,
        policy: Policy,
        emit: Callable[..., None],
        clock: Callable[[], float],
    ) -> None:
        self._held = held
        self._lanes = lanes
        self._policy = policy
        self._emit = emit
        self._clock = clock
        self._ready: deque[Lane] = deque()
        self._asleep: list[tuple[float, int, Lane]] = []
        self._numbers = itertools.count()
        self._told: list[tuple[Any, dict[str, object]]] = []
        self._is_halted = False
        self._is_over = False
        self._waiting = 0
        self.claimable = threading.Condition(held.lock)
        self.on_ready: Callable[[], None] | None = None
        self.failing = Failing()
        self.fatal: BaseException | None = None
        self.is_stop_asked = False
        self.retries = 0
        self.skipped = 0
        self.dead_letters = 0

    # ------------------------------------------------------------ work comes and goes

    def admit(self, epoch: Epoch, chunk: Chunk) -> None:
        """
        Queue a chunk.
        """
        groups = self._lanes.group(chunk)
        with self._held.lock:
            for lane in self._lanes.queue(epoch, chunk, groups):
                self._make_ready(lane)
            self._wake_one()

    def drop_queued(self, epochs: Iterable[Epoch]) -> None:
        """
        Forget what is queued of these; what runs goes on.
        """
        with self._held.lock:
            for epoch in epochs:
                epoch.revoked.set()
                for lane in epoch.lanes.values():
                    lane.runs.clear()  # type: ignore[attr-defined]  # lanes are Lanes
                epoch.parked.clear()

    def halt(self) -> None:
        """
        Hand out nothing more until :meth:`go_on`.
        """
        self._is_halted = True

    def go_on(self) -> None:
        """
        Hand out again.
        """
        with self._held.lock:
            self._is_halted = False
            self._wake_one()

    def end(self) -> None:
        """
        Hand out nothing any more; whoever waits in :meth:`wait_claim` gets None.
        """
        with self._held.lock:
            self._is_over = True
            self.claimable.notify_all()

    def turn(self) -> float:
        """
        Wake what has slept long enough; return the seconds until the next is due.
        """
        now = self._clock()
        with self._held.lock:
            while self._asleep and self._asleep[0][0] <= now:
                _, _, lane = heapq.heappop(self._asleep)
                if not lane.epoch.is_closed and lane.state is State.WAITING:
                    self._make_ready(lane)
            if self._ready:
                self._notify()
            return self._asleep[0][0] - now if self._asleep else float("inf")

    # ------------------------------------------------------------ claiming

    def wait_claim(self) -> list[Task] | None:
        """
        Wait for work and take it; None once it is over.
        """
        with self._held.lock:
            while not self._is_over:
                tasks = self._claim()
                if tasks:
                    return tasks
                self._waiting += 1
                self.claimable.wait()
                self._waiting -= 1
        return None

    def claim(self) -> list[Task]:
        """
        Take work if there is some.
        """
        with self._held.lock:
            return [] if self._is_over else self._claim()

    def _claim(self) -> list[Task]:
        tasks: list[Task] = []
        taken, room = 0, self._policy.quantum
        ready = self._ready
        while ready and room > 0 and not self._is_halted:
            lane = ready.popleft()
            if lane.epoch.is_closed or not lane.runs:
                lane.state = State.IDLE
                continue
            task = self._task(lane, min(room, self._size(lane, is_more=bool(tasks))))
            if task is None:
                continue
            tasks.append(task)
            taken += len(task.indexes)
            room = self._shared_size(lane.epoch) - taken
            if self._policy.is_batch or self._lanes.order is not Order.KEY:
                break
        if tasks and ready:
            self._wake_one()
        return tasks

    def _task(self, lane: Lane, most: int) -> Task | None:
        epoch = lane.epoch
        taken = lane.take(most, self._policy.span)
        if taken is None:
            lane.state = State.WAITING
            epoch.parked.append(lane)
            return None
        chunk, indexes = taken
        attempt = 1
        if epoch.failures:
            offset = _record_at(chunk, indexes[0]).offset
            attempt = epoch.failures.get(offset, 0) + 1
        epoch.running += len(indexes)
        self._held.running += len(indexes)
        lane.state = State.RUNNING
        if lane.is_shared and lane.runs:
            self._make_ready(lane)
        return Task(lane, chunk, indexes, attempt)

    def _size(self, lane: Lane, *, is_more: bool) -> int:
        if self._policy.is_batch:
            return self._policy.quantum
        if lane.is_shared or is_more:
            return self._shared_size(lane.epoch)
        pace = max(lane.epoch.pace, 1e-9)
        return min(self._policy.quantum, max(1, int(self._policy.lane_seconds / pace)))

    def _shared_size(self, epoch: Epoch) -> int:
        pace = max(epoch.pace, 1e-9)
        return min(self._policy.quantum, max(1, int(SHARED_SECONDS / pace)))

    def _make_ready(self, lane: Lane) -> None:
        lane.state = State.READY
        self._ready.append(lane)

    def _wake_one(self) -> None:
        # Another thread pays only for work that outlasts its waking.
        ready = self._ready
        if not ready or self._is_halted:
            return
        worth = ready[0].epoch.pace * sum(len(run[1]) for run in ready[0].runs)
        if worth >= WORTH_WAKING or len(ready) > 1 or not self._held.running:
            self._notify()

    def _notify(self) -> None:
        if self._waiting:
            self.claimable.notify()
        if self.on_ready is not None:
            self.on_ready()

    # ------------------------------------------------------------ results

    def complete(self, outcomes: Sequence[Outcome]) -> None:
        """
        Take over results; those of closed epochs change nothing.
        """
        with self._held.lock:
            for outcome in outcomes:
                self._complete(outcome)
            if not self._held.running:
                self._held.idle.notify_all()
            told, self._told = self._told, []
        for kind, fields in told:
            self._emit(kind, **fields)
        self._held.tell_low()

    def _complete(self, outcome: Outcome) -> None:
        task, epoch = outcome.task, outcome.task.epoch
        if epoch.is_closed:
            return
        epoch.running -= len(task.indexes)
        self._held.running -= len(task.indexes)
        if outcome.finished:
            self._succeed(outcome)
        if not epoch.revoked.is_set():
            self._put_back(outcome)
        if task.lane.state in _FREE:
            self._next(task.lane)
        if epoch.parked:
            parked, epoch.parked = epoch.parked, []
            for one in parked:
                self._make_ready(one)  # type: ignore[arg-type]  # lanes are Lanes
            self._notify()

    def _succeed(self, outcome: Outcome) -> None:
        epoch, count = outcome.task.epoch, len(outcome.finished)
        self._held.release(epoch, outcome.task.chunk, outcome.finished)
        self.failing = self.failing.succeeded(count)
        if outcome.seconds:
            epoch.pace += 0.5 * (outcome.seconds / count - epoch.pace)
        if outcome.task.attempt > 1 or epoch.alone:
            self._forget(outcome)

    def _forget(self, outcome: Outcome) -> None:
        # The records are gone already; offsets below the watermark never come again.
        epoch = outcome.task.epoch
        open_ = {
            record.offset
            for chunk, index in epoch.progress.incomplete()
            if (record := chunk.records[index]) is not None
        }
        epoch.alone &= open_
        for offset in epoch.failures.keys() - open_:
            del epoch.failures[offset]

    def _put_back(self, outcome: Outcome) -> None:
        task, lane = outcome.task, outcome.task.lane
        lane.put_back(task.chunk, outcome.left)
        if lane.is_shared and not outcome.is_suspect:
            for index, error in outcome.failed:
                own = Lane(task.epoch, object())
                task.epoch.lanes[own.key] = own
                self._fail(own, task, index, error)
            return
        # In order: the first is dealt with now, the others by themselves, after it.
        first = 0 if outcome.is_suspect else 1
        later = [index for index, _ in outcome.failed[first:]]
        for index in later:
            task.epoch.alone.add(_record_at(task.chunk, index).offset)
        lane.put_back(task.chunk, later)
        for index, error in outcome.failed[:first]:
            self._fail(lane, task, index, error)

    def _next(self, lane: Lane) -> None:
        if lane.runs:
            self._make_ready(lane)
            self._wake_one()
            return
        lane.state = State.IDLE
        if lane.key is not None:
            lane.epoch.lanes.pop(lane.key, None)

    # ------------------------------------------------------------ failures

    def _fail(self, lane: Lane, task: Task, index: int, error: BaseException) -> None:
        lane.put_back(task.chunk, [index])
        lane.state = State.WAITING
        offset = _record_at(task.chunk, index).offset
        match error:
            case RetryLater():
                self._sleep(lane, error.after)
                self._tell_retry(lane.epoch.tp, offset, task.attempt, error)
            case StopWorker():
                self.is_stop_asked = True
            case Reject():
                self._exhaust(lane, task, index, error)
            case Exception():
                self._count_failure(lane, task, index, error)
            case _:
                self.fatal = self.fatal or error

    def _count_failure(
        self, lane: Lane, task: Task, index: int, error: Exception
    ) -> None:
        epoch, record = lane.epoch, _record_at(task.chunk, index)
        failures = epoch.failures.get(record.offset, 0) + 1
        epoch.failures[record.offset] = failures
        if self._policy.retry.is_final(failures, error):
            self._exhaust(lane, task, index, error)
            return
        delay = self._policy.retry.delay(failures, self._policy.draw())
        self._sleep(lane, delay)
        self._tell_retry(epoch.tp, record.offset, failures, error, delay)

    def _tell_retry(
        self,
        tp: TopicPartition,
        offset: int,
        attempt: int,
        error: Exception,
        delay: float | None = None,
    ) -> None:
        self.retries += 1
        self._tell(
            worker_events.RecordRetried,
            partition=f"{tp.topic}:{tp.partition}",
            offset=offset,
            attempt=attempt,
            delay=getattr(error, "after", 0.0) if delay is None else delay,
            error=repr(error),
        )

    def _sleep(self, lane: Lane, delay: float) -> None:
        due = self._clock() + delay
        heapq.heappush(self._asleep, (due, next(self._numbers), lane))

    def _exhaust(
        self, lane: Lane, task: Task, index: int, error: BaseException
    ) -> None:
        record = _record_at(task.chunk, index)
        tp = lane.epoch.tp
        then = "dead_letter" if self._policy.post else self._policy.on_exhausted
        self.failing = self.failing.failed()
        self._tell(
            worker_events.RecordExhausted,
            partition=f"{tp.topic}:{tp.partition}",
            offset=record.offset,
            attempt=task.attempt,
            error=repr(error),
            then=then,
        )
        lane.epoch.stuck[record.offset] = self._clock()
        letter = Letter(
            lane=lane,
            chunk=task.chunk,
            index=index,
            record=record,
            attempt=task.attempt,
            error=error,
        )
        self._dispose(letter, then)

    def _dispose(self, letter: Letter, then: str) -> None:
        if then == "skip":
            self.skipped += 1
            self._pass(letter)
        elif then == "stop":
            self.fatal = self.fatal or _failed(letter)
        elif self._policy.post is not None and then == "dead_letter":
            why = self.failing.exceeds(
                self._policy.max_ratio, self._policy.max_consecutive
            )
            if why is None:
                self._policy.post(letter)
            else:
                self.fatal = self.fatal or _too_many(why, letter)

    def _pass(self, letter: Letter) -> None:
        # The record is complete although it failed; it stands at the lane's front.
        lane = letter.lane
        if not lane.runs or lane.runs[0] != (letter.chunk, [letter.index]):
            return
        lane.runs.popleft()
        letter.chunk.finish(letter.index)
        lane.epoch.stuck.pop(letter.record.offset, None)
        lane.epoch.failures.pop(letter.record.offset, None)
        lane.epoch.alone.discard(letter.record.offset)
        self._held.release(lane.epoch, letter.chunk, [letter.index])
        self._next(lane)

    def letter_acknowledged(self, letter: Letter) -> None:
        """
        Complete a record whose dead letter has arrived.
        """
        with self._held.lock:
            if not letter.lane.epoch.is_closed:
                self.dead_letters += 1
                self._pass(letter)
                self._notify()
        self._held.tell_low()

    def _tell(self, kind: Any, **fields: object) -> None:  # noqa: ANN401 - a class of event
        self._told.append((kind, fields))

    # ------------------------------------------------------------ questions

    def running(self, epochs: Iterable[Epoch] | None = None) -> int:
        """
        Return how many records handlers work on, of all epochs or of these.
        """
        if epochs is None:
            return self._held.running
        return sum(epoch.running for epoch in epochs)

    def has_waiting(self, epoch: Epoch) -> bool:
        """
        Tell whether a failed record keeps a lane of the epoch waiting.
        """
        return bool(epoch.stuck or epoch.failures)

    def close(self, epoch: Epoch) -> Dropped:
        """
        End an epoch.
        """
        return self._held.close(epoch)


def _record_at(chunk: Chunk, index: int) -> Record:
    record = chunk.records[index]
    assert record is not None  # noqa: S101 - it is not finished, so it is there
    return record


def _failed(letter: Letter) -> RecordFailedError:
    tp = letter.lane.epoch.tp
    message = (
        f"{tp.topic}:{tp.partition} offset {letter.record.offset} failed for good at "
        f"attempt {letter.attempt}: {letter.error!r}; mend the handler or the record, "
        f"or give dead_letter or on_exhausted='skip'"
    )
    error = RecordFailedError(message)
    error.__cause__ = letter.error
    return error


def _too_many(why: str, letter: Letter) -> DeadLetterLimitError:
    tp = letter.lane.epoch.tp
    message = (
        f"{why}, more than the dead letters' limits allow; the last is "
        f"{tp.topic}:{tp.partition} offset {letter.record.offset}"
    )
    error = DeadLetterLimitError(message)
    error.__cause__ = letter.error
    return error
