"""Turns each handler's result into a completion, a retry, a dead letter or a stop."""

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

from attrs import evolve, frozen
from kafka.structs import TopicPartition

from safeconsumer._checks import is_number
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.handlers import (
    DeadLetterLimitError,
    HandlersFailError,
    Pause,
    RecordFailedError,
    Reject,
    RetryLater,
    StopWorker,
)
from safeconsumer.worker.outages import Barred, Outages, Place, scope_of, sound
from safeconsumer.worker.partition import (
    KEYLESS,
    Epoch,
    Indexes,
    Lane,
    State,
    record_at,
)
from safeconsumer.worker.progress import Chunk
from safeconsumer.worker.queue import Letter, Outcome, Queue, Task
from safeconsumer.worker.retry import Failing
from safeconsumer.worker.tracebacks import chain, shown

# Upper bounds in seconds: from handlers that only compute to those that wait.
BOUNDS = (0.00001, 0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)


@frozen
class Histogram:
    """
    Counts of durations up to one moment, in seconds.

    Attributes:
        counts: how many durations were no longer than each of ``bounds`` and longer
            than the bound before; the last entry counts those longer than all bounds.
        total: the sum of the durations, in seconds.
    """

    counts: tuple[int, ...]
    total: float
    bounds: tuple[float, ...] = BOUNDS

    @property
    def count(self) -> int:
        """How many durations there were."""
        return sum(self.counts)


class Durations:
    """Counts durations as they come."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0

    def add(self, seconds: float, count: int) -> None:
        """Count several that took so many seconds together, each an equal part of them."""
        self._counts[bisect_left(BOUNDS, seconds / count)] += count
        self._total += seconds

    def taken(self) -> Histogram:
        """Return the counts so far."""
        return Histogram(tuple(self._counts), self._total)


# A task, an index, the handler's error for it, and its time on the clock.
Answer: TypeAlias = tuple[Task, int, BaseException, float]
Blame: TypeAlias = "partial[Any]"
Told: TypeAlias = tuple[Any, dict[str, object]]


class Schedule:
    """
    Takes results back and decides about their records; every method on any thread.

    Attributes:
        queue: hands out the queued records.
        outages: the holds that handlers or a breaker have asked for.
        is_stop_asked: whether a handler asked the worker to stop.
        retries: how often a record was tried again.
        skipped: records that failed for good and were passed over.
        durations: how long handlers took.
        dead_letters: records whose dead letter was acknowledged.
    """

    def __init__(
        self,
        queue: Queue,
        emit: Callable[..., None],
        place: Place | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self.queue = queue
        self.outages = Outages(queue, self._tell, place, breaker)
        self._held, self._lanes, self._policy = queue.held, queue.lanes, queue.policy
        self._others, self._clock = queue.others, queue.clock
        self._emit = emit
        self._told: list[Told] = []
        self.failing = Failing()
        self._fatal: BaseException | Blame | None = None
        self.is_stop_asked = False
        self.retries = 0
        self.skipped = 0
        self.dead_letters = 0
        self.durations = Durations()

    # ------------------------------------------------------------ records come

    def admit(self, epoch: Epoch, chunk: Chunk) -> None:
        """Queue a chunk. For the polling thread only."""
        with self._held.lock:
            epoch.unsorted.append((chunk, 0))
        self.queue.obey_for(epoch)
        self._sort(epoch)

    def turn(self) -> float:
        """
        Wake lanes that have slept long enough.

        Return the seconds until the next is due.
        """
        self.queue.look()
        self.outages.count()
        soon = self.queue.turn()
        if self.queue.tripped:
            self._look_at_breakers()
        for epoch in self._held.epochs.values():
            if epoch.unsorted:
                self._sort(epoch)
        return soon

    def _look_at_breakers(self) -> None:
        with self._held.lock:
            self.outages.turn()
            told = self._taken()
        self._tell_all(told)

    def _sort(self, epoch: Epoch) -> None:
        # Records behind one without a key wait for it: they may be of its lane.
        while (taken := self._next_unsorted(epoch)) is not None:
            chunk, first = taken
            groups = self._lanes.group(chunk, first)  # the user's code: under no lock
            failed = groups.failed and (groups.failed[0], sound(groups.failed[1]))
            with self._held.lock:
                self.queue.clear_lanes(epoch)
                self.queue.make_all_ready(
                    self._lanes.queue(epoch, chunk, groups.sorted),
                )
                if failed is not None:
                    self._fail_keyless(epoch, chunk, *failed)
                self.queue.look_again(epoch)
                self.queue.wake_one()
                told = self._taken()
            self._tell_all(told)

    def _next_unsorted(self, epoch: Epoch) -> tuple[Chunk, int] | None:
        with self._held.lock:
            if not epoch.unsorted or KEYLESS in epoch.lanes:
                return None
            return epoch.unsorted.popleft()

    def _fail_keyless(
        self, epoch: Epoch, chunk: Chunk, index: int, error: BaseException
    ) -> None:
        epoch.unsorted.appendleft((chunk, index + 1))
        lane = epoch.lanes[KEYLESS] = Lane(epoch, KEYLESS)
        attempt = epoch.failures.get(record_at(chunk, index).offset, 0) + 1
        self._fail(lane, Task(lane, chunk, [index], attempt), index, error)
        if lane.state is State.IDLE:
            self._next(lane)

    # ------------------------------------------------------------ results

    def complete(self, outcomes: Sequence[Outcome]) -> None:
        """Take over results; those of closed epochs change nothing."""
        outcomes = self.outages.heed(outcomes)
        with self._held.lock:
            for outcome in outcomes:
                self._complete(outcome)
            if not self._held.running:
                self._held.idle.notify_all()
            told = self._taken()
            is_quiet = any(
                one.task.epoch.is_held and not one.task.epoch.running
                for one in outcomes
            )
        self._tell_all(told)
        self._held.tell_low()
        if is_quiet and self._others is not None:
            self._others.became_quiet()

    def fail(self, error: BaseException) -> None:
        """Stop the worker for this error, unless another error stops it already."""
        with self._held.lock:
            self._stop_for(error)

    def _complete(self, outcome: Outcome) -> None:
        task, epoch = outcome.task, outcome.task.epoch
        self.queue.is_over(outcome)
        if epoch.is_closed:
            self._held.outlived[epoch.tp] -= len(task.indexes)
            return
        epoch.running -= len(task.indexes)
        self._held.running -= len(task.indexes)
        parts = list(_gathered(outcome)) if task.pieces else [(outcome,)]
        if outcome.finished:
            self._succeed(outcome, parts)
        if outcome.failing:
            # In a batch that is to come later the first has failed, and all were
            # handled.
            left = len(outcome.left) if self._policy.is_batch else 0
            self.durations.add(outcome.failing, len(outcome.failed) + left)
        if task.bundle and len(outcome.finished) == len(task.indexes):
            self._next_all(task.bundle)
        else:
            for part in _parts(outcome) if task.bundle else parts:
                self._conclude(part)
        self.queue.look_again(epoch)

    def _conclude(self, parts: Sequence[Outcome]) -> None:
        task = parts[0].task
        if not task.epoch.revoked.is_set():
            self._put_back(parts)
        if task.lane.state in _FREE:
            self._next(task.lane)

    def _succeed(self, outcome: Outcome, parts: Sequence[Sequence[Outcome]]) -> None:
        epoch, count = outcome.task.epoch, len(outcome.finished)
        for part in itertools.chain.from_iterable(parts):
            self._held.release(epoch, part.task.chunk, part.finished)
        self.failing = self.failing.succeeded(count)
        seconds = outcome.seconds - outcome.failing
        self.durations.add(seconds, count)
        if seconds:
            epoch.keep_pace(seconds / count)
        tried = outcome.task.tried
        if tried is not None:
            epoch.failures.pop(tried, None)
            epoch.alone.discard(tried)

    def _put_back(self, parts: Sequence[Outcome]) -> None:
        # These are parts of one lane, chunk by chunk.
        lane, is_suspect = parts[0].task.lane, parts[0].is_suspect
        failing = next((one for one in parts if one.failed and not is_suspect), None)
        if failing is not None and lane.is_shared:
            self._set_apart(parts)
            return
        for part in reversed(parts):
            task = part.task
            lane.put_back(task.chunk, part.left)
            # In order: the first is dealt with now, the others after it, each by
            # itself.
            later = part.failed[1:] if part is failing else part.failed
            for index, error in later:
                if is_suspect:
                    task.epoch.alone.add(record_at(task.chunk, index).offset)
                else:
                    self._keep_answer(task, index, error)
            lane.put_back(task.chunk, [index for index, _ in later])
        if failing is not None:
            together = self._together(parts)
            self._fail(lane, failing.task, *failing.failed[0], together=together)
        elif is_suspect:
            self._tell_suspects(parts)

    def _together(self, parts: Sequence[Outcome]) -> int:
        # A batch about which nothing is known comes again as one.
        is_batch = self._policy.is_batch
        return 1 + sum(len(part.left) for part in parts) if is_batch else 1

    def _tell_suspects(self, parts: Sequence[Outcome]) -> None:
        failed = [(part.task, *what) for part in parts for what in part.failed]
        task, index, error = failed[0]
        offset = record_at(task.chunk, index).offset
        assert isinstance(error, Exception)  # noqa: S101 - only these make suspects
        self._tell_retry(task.epoch.tp, offset, task.attempt, error, 0.0, len(failed))

    def _set_apart(self, parts: Sequence[Outcome]) -> None:
        # Each comes by itself; but records of one batch that were not begun stay
        # together, or the rest of a batch that is to come later would be tried again at
        # once.
        failed = [(one.task, *what) for one in parts for what in one.failed]
        for number, (task, index, error) in enumerate(failed, 1):
            own = Lane(task.epoch, object())
            task.epoch.lanes[own.key] = own
            rest = own if self._policy.is_batch else task.lane
            together = 1
            if number == len(failed):
                together = self._together(parts)
                for part in reversed(parts):
                    rest.put_back(part.task.chunk, part.left)
            self._fail(own, task, index, error, together=together)
            if own.state is State.IDLE:
                self._next(own)

    def _next_all(self, bundle: Sequence[tuple[Lane, Indexes]]) -> None:
        # As _next() for each, in line: there is one for nearly every record.
        ready, idle = self.queue.ready, State.IDLE
        is_full = len(bundle[0][0].epoch.lanes) > self.queue.room_of_lanes()
        for lane, _ in bundle:
            if lane.runs:
                lane.state = State.READY
                ready.append(lane)
            elif is_full or not lane.is_light:
                self.queue.let_go(lane)
            else:
                lane.state = idle
        self.queue.wake_one()

    # ------------------------------------------------------------ questions

    def running(self, epochs: Iterable[Epoch] | None = None) -> int:
        """Return how many records handlers work on, of all epochs or of these."""
        if epochs is None:
            return self._held.running
        return sum(epoch.running for epoch in epochs)

    def has_waiting(self, epoch: Epoch) -> bool:
        """Tell whether a failed record keeps a lane of the epoch waiting."""
        return bool(epoch.stuck or epoch.failures or epoch.answers)

    @property
    def together(self) -> int:
        """How many records of one lane may come again as one."""
        return self._policy.quantum if self._policy.is_batch else 1

    def is_starving(self, epoch: Epoch | None) -> bool:
        """Tell whether no record of the epoch is, or could be, worked on now."""
        if epoch is None or not epoch.records:
            return True
        if epoch.running:  # a shared lane may be empty, or parked, while tasks are out
            return False
        with self._held.lock:
            return not any(lane.state in _MOVING for lane in epoch.lanes.values())

    # ------------------------------------------------------------ of the queue

    def drop_queued(self, epochs: Iterable[Epoch]) -> None:
        """Forget the queued records of these epochs; running ones go on."""
        self.queue.drop_queued(epochs)

    def halt(self) -> None:
        """Hand out nothing until :meth:`go_on`."""
        self.queue.halt()

    def go_on(self) -> None:
        """Hand out records again."""
        self.queue.go_on()

    # ------------------------------------------------------------ failures

    @property
    def fatal(self) -> BaseException | None:
        """The error that must stop the worker, or None. Do not read it under the lock."""
        made = self._fatal
        # Its text has errors of other code in it, so it is not made under the lock.
        if isinstance(made, partial):
            made = self._fatal = made()
        return made

    def _stop_for(self, error: "BaseException | Blame") -> None:
        if self._fatal is None:
            self._fatal = error

    def _next(self, lane: Lane) -> None:
        # The record in front may have been answered for already, in a batch.
        while lane.epoch.answers and lane.runs:
            answer = self._answer_to_front(lane)
            if answer is None:
                break
            self._fail(lane, *answer)
            if lane.state in _SEEN_TO:
                return
        self.queue.next(lane)

    def _answer_to_front(self, lane: Lane) -> Answer | None:
        chunk, indexes = lane.runs[0]
        offset = record_at(chunk, indexes[0]).offset
        answer: Answer | None = lane.epoch.answers.pop(offset, None)  # type: ignore[assignment]  # they are
        if answer is not None:
            lane.runs.pop(0)
            lane.put_back(chunk, indexes[1:])
        return answer

    def _keep_answer(self, task: Task, index: int, error: BaseException) -> None:
        # Keeps the error for a record behind another one that failed, until its turn
        # comes. An error that stops the worker stops it at once.
        offset = record_at(task.chunk, index).offset
        if isinstance(error, Pause) and error.scope != "key":
            self._tell_pause(task, offset, error)
            return  # its hold exists, and it waits with the others
        if isinstance(error, Barred):
            tp = task.epoch.tp
            self._tell_retry(tp, offset, task.attempt, error.error, error.seconds)
            return  # its hold exists, too
        task.epoch.alone.add(offset)
        match error:
            case StopWorker():
                self.is_stop_asked = True
            case Exception() if not isinstance(error, HandlersFailError):
                answer: Answer = (task, index, error, self._clock())
                task.epoch.answers[offset] = answer
            case _:
                self._stop_for(error)

    def _fail(  # noqa: PLR0913 - one part each
        self,
        lane: Lane,
        task: Task,
        index: int,
        error: BaseException,
        since: float | None = None,
        *,
        together: int = 1,
    ) -> None:
        """
        Let a record wait, or give it up; its lane then waits, or goes on without it.

        Args:
            lane: its lane, at whose front it will be.
            task: the task in which it failed.
            index: its index in the task.
            error: the handler's exception.
            since: when it failed, on the clock; None for now.
            together: how many come again with it, itself included; more than 1 for a
                batch.
        """
        late = 0.0 if since is None else self._clock() - since
        lane.put_back(task.chunk, [index])
        lane.state = State.WAITING
        offset = record_at(task.chunk, index).offset
        match error:
            case RetryLater() if is_number(error.after) and error.after >= 0:
                lane.join_front()  # a batch that is to come later comes as one
                delay = max(0.0, error.after - late)
                self.queue.sleep(lane, delay)
                self._tell_retry(
                    lane.epoch.tp, offset, task.attempt, error, delay, together
                )
            case Pause():
                self._pause(lane, task, offset, error, late)
            case Barred():
                lane.join_front()
                self.queue.put_first(lane)
                self._tell_retry(
                    lane.epoch.tp,
                    offset,
                    task.attempt,
                    error.error,
                    error.seconds,
                    together,
                )
            case StopWorker():
                self.is_stop_asked = True
            case Reject():
                self._exhaust(lane, task, index, error)
            case HandlersFailError():
                self._stop_for(error)
            case Exception():
                self._count_failure(lane, task, index, error, late)
            case _:
                self._stop_for(error)

    def _pause(
        self, lane: Lane, task: Task, offset: int, pause: Pause, late: float
    ) -> None:
        # Its hold exists by now, and keeps the record from beginning.
        lane.join_front()
        has_hold = self.outages.has_holds and lane.key is not KEYLESS
        if pause.scope == "key" or not has_hold:
            self.queue.sleep(lane, max(0.0, pause.for_ - late))
        else:
            self.queue.put_first(lane)
        self._tell_pause(task, offset, pause)

    def _tell_pause(self, task: Task, offset: int, pause: Pause) -> None:
        self.outages.pauses += 1
        tp = task.epoch.tp
        self._tell(
            worker_events.WorkPaused,
            partition=f"{tp.topic}:{tp.partition}",
            offset=offset,
            attempt=task.attempt,
            scope="key" if pause.scope == "key" else str(scope_of(task, pause)),
            seconds=max(pause.for_, pause._held_for),  # noqa: SLF001 - ours
            reason=pause.reason,
        )

    def _count_failure(
        self, lane: Lane, task: Task, index: int, error: Exception, late: float
    ) -> None:
        epoch, record = lane.epoch, record_at(task.chunk, index)
        failures = epoch.failures.get(record.offset, 0) + 1
        epoch.failures[record.offset] = failures
        if self._policy.retry.is_final(failures, error):
            self._exhaust(lane, task, index, error)
            return
        delay = self._policy.retry.delay(failures, self._policy.draw())
        delay = max(0.0, delay - late)
        self.queue.sleep(lane, delay)
        self._tell_retry(epoch.tp, record.offset, failures, error, delay)

    def _tell_retry(  # noqa: PLR0913, PLR0917 - fields of the event
        self,
        tp: TopicPartition,
        offset: int,
        attempt: int,
        error: Exception,
        delay: float,
        records: int = 1,
    ) -> None:
        self.retries += records
        self._tell(
            worker_events.RecordRetried,
            partition=f"{tp.topic}:{tp.partition}",
            offset=offset,
            attempt=attempt,
            delay=delay,
            error=partial(shown, error),
            records=records,
        )

    def _exhaust(
        self, lane: Lane, task: Task, index: int, error: BaseException
    ) -> None:
        record = record_at(task.chunk, index)
        tp = lane.epoch.tp
        then = "dead_letter" if self._policy.post else self._policy.on_exhausted
        self.failing = self.failing.failed()
        self._tell(
            worker_events.RecordExhausted,
            partition=f"{tp.topic}:{tp.partition}",
            offset=record.offset,
            attempt=task.attempt,
            error=partial(shown, error),
            then="stop" if then == "dead_letter" and self._exceeds() else then,
            traceback=partial(chain, error),
        )
        lane.epoch.stuck[record.offset] = self._clock()
        letter = Letter(
            lane=lane,
            chunk=task.chunk,
            index=index,
            record=record,
            attempt=task.attempt,
            error=error,
            trace=task.trace,
        )
        self._dispose(letter, then)

    def _exceeds(self) -> str | None:
        policy = self._policy
        return self.failing.exceeds(policy.max_ratio, policy.max_consecutive)

    def _dispose(self, letter: Letter, then: str) -> None:
        if then == "skip":
            self.skipped += self._take_out(letter)
        elif then == "stop":
            self._stop_for(partial(_failed, letter))
        elif self._policy.post is not None and then == "dead_letter":
            why = self._exceeds()
            if why is None:
                self._policy.post(letter)
            else:
                self._stop_for(partial(_too_many, why, letter))

    def _take_out(self, letter: Letter) -> bool:
        # The record is complete although it failed; it is at the lane's front, or
        # nowhere if the partition was revoked. Returns False if it is complete already.
        lane = letter.lane
        if lane.runs and lane.runs[0] == (letter.chunk, [letter.index]):
            lane.runs.pop(0)
        elif not lane.epoch.revoked.is_set():
            return False
        if not letter.chunk.finish(letter.index):
            return False
        lane.epoch.stuck.pop(letter.record.offset, None)
        lane.epoch.failures.pop(letter.record.offset, None)
        lane.epoch.alone.discard(letter.record.offset)
        self._held.release(lane.epoch, letter.chunk, [letter.index])
        lane.state = State.IDLE
        return True

    def letter_acknowledged(self, letter: Letter) -> None:
        """Complete a record whose dead letter was acknowledged."""
        with self._held.lock:
            if not letter.lane.epoch.is_closed:
                self.dead_letters += self._take_out(letter)
                if letter.lane.state is State.IDLE:
                    self._next(letter.lane)
                self.queue.look_again(letter.lane.epoch)
                self.queue.notify()
        self._held.tell_low()

    def letter_refused(self, letter: Letter, why: BaseException) -> None:
        """Apply the policy to a record that can never be a dead letter."""
        tp, then = letter.lane.epoch.tp, self._policy.on_exhausted
        with self._held.lock:
            if letter.lane.epoch.is_closed:
                return
            self._dispose(evolve(letter, refused=why), then)
            if letter.lane.state is State.IDLE:
                self._next(letter.lane)
            self.queue.look_again(letter.lane.epoch)
            self.queue.notify()
        self._emit(
            worker_events.DeadLetterRefused,
            partition=f"{tp.topic}:{tp.partition}",
            offset=letter.record.offset,
            error=shown(why),
            then=then,
        )
        self._held.tell_low()

    def _taken(self) -> list[Told]:
        told, self._told = self._told, []
        return told

    def _tell_all(self, told: Sequence[Told]) -> None:
        for kind, fields in told:
            # Texts that take time are made here, under no lock.
            self._emit(
                kind,
                **{
                    name: one() if callable(one) else one
                    for name, one in fields.items()
                },
            )

    def _tell(self, kind: Any, **fields: object) -> None:  # noqa: ANN401 - a class of event
        self._told.append((kind, fields))


def _failed(letter: Letter) -> RecordFailedError:
    tp = letter.lane.epoch.tp
    also, else_ = "", "dead_letter or on_exhausted='skip'"
    if letter.refused is not None:
        also = f"; it cannot be a dead letter: {shown(letter.refused)}"
        else_ = "on_exhausted='skip'"
    message = (
        f"{tp.topic}:{tp.partition} offset {letter.record.offset} failed for good at "
        f"attempt {letter.attempt}: {shown(letter.error)}{also}; fix the handler or "
        f"the record, or set {else_}"
    )
    error = RecordFailedError(message)
    error.__cause__ = letter.error
    return error


def _too_many(why: str, letter: Letter) -> DeadLetterLimitError:
    tp = letter.lane.epoch.tp
    message = (
        f"{why}, more than the limits of DeadLetter allow; the last is "
        f"{tp.topic}:{tp.partition} offset {letter.record.offset}"
    )
    error = DeadLetterLimitError(message)
    error.__cause__ = letter.error
    return error


# A lane whose last task came back and that does not wait; a shared one may have run
# empty while tasks of it were still out.
_FREE = frozenset({State.RUNNING, State.IDLE})
_MOVING = frozenset({State.RUNNING, State.READY})
# A lane whose first record has failed, and that waits, or runs by itself.
_SEEN_TO = frozenset({State.WAITING, State.READY})


def _parts(outcome: Outcome) -> Iterator[tuple[Outcome]]:
    # Yields the results of a bundle, lane by lane; finished records are counted
    # already.
    failed, left = dict(outcome.failed), set(outcome.left)
    task = outcome.task
    for lane, indexes in task.bundle:
        part = Task(lane, task.chunk, indexes, trace=task.trace)
        if not failed and not left:
            yield (Outcome(task=part),)
            continue
        one = Outcome(
            task=part,
            failed=[(index, failed[index]) for index in indexes if index in failed],
            left=[index for index in indexes if index in left],
            is_suspect=outcome.is_suspect,
        )
        yield (one,)


def _gathered(outcome: Outcome) -> Iterator[list[Outcome]]:
    # Yields the results of a batch that was gathered, lane by lane and there chunk by
    # chunk. Marks finished records in the chunks they came from. One error for all
    # becomes one error for each lane.
    failed, left, at = dict(outcome.failed), set(outcome.left), 0
    for _, pieces in itertools.groupby(outcome.task.pieces, lambda piece: id(piece[0])):
        refused = outcome.failed[0][1] if outcome.failed and outcome.left else None
        parts = []
        for lane, chunk, indexes in pieces:
            bad, rest = [], []
            for place, index in enumerate(indexes, at):
                error = failed.get(place, refused if place in left else None)
                if error is not None:
                    bad.append((index, error))
                    refused = None
                elif place in left:
                    rest.append(index)
                else:
                    chunk.finish(index)
            at += len(indexes)
            good = [index for index in indexes if chunk.done[index]]
            task = Task(lane, chunk, indexes, trace=outcome.task.trace)
            part = evolve(outcome, task=task, finished=good, failed=bad, left=rest)
            parts.append(part)
        yield parts
