"""Turns each handler's result into a completion, a retry, a dead letter or a stop."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import evolve

from safeconsumer._checks import is_number
from safeconsumer.errors.base import (
    DeadLetterLimitError,
    HandlersCannotRunError,
    RecordFailedError,
)
from safeconsumer.journal.format import DEAD_LETTER, SKIPPED
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.dead_letters import is_final, is_too_large
from safeconsumer.worker.durations import Durations
from safeconsumer.worker.handlers import Failure, Pause, Reject, RetryLater, StopWorker
from safeconsumer.worker.lanes import Indexes, Lane, LaneState
from safeconsumer.worker.outages import (
    OutageFailure,
    Outages,
    PlaceHold,
    scope_of,
)
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import Chunk, record_at
from safeconsumer.worker.queue import Queue
from safeconsumer.worker.retry import Failing
from safeconsumer.worker.tasks import Outcome, Task
from safeconsumer.worker.tracebacks import chain, forget_locals, shown

if TYPE_CHECKING:
    from safeconsumer.worker.journal import HandlerJournal

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
        journal: writes which records are complete; None if no journal is kept.
    """

    def __init__(
        self,
        queue: Queue,
        emit: Callable[..., None],
        place: PlaceHold,
        breaker: Breaker | None = None,
    ) -> None:
        self.queue = queue
        self.outages = Outages(queue, self._tell, place, breaker)
        self._held, self._lanes, self._policy = queue.held, queue.lanes, queue.policy
        self._clock = queue.clock
        self._emit = emit
        self._told: list[Told] = []
        self._kept: list[BaseException] = []  # until their texts are made
        self.journal: HandlerJournal | None = None
        self.failing = Failing(queue.policy.sample)
        self._fatal: BaseException | Blame | None = None
        self.is_stop_asked = False
        self.retries = 0
        self.skipped = 0
        self.dead_letters = 0
        self.durations = Durations()

    # ------------------------------------------------------------ records come

    def admit(self, epoch: Epoch, chunk: Chunk) -> None:
        """Queue a chunk. For the polling thread only."""
        self.queue.obey_for(epoch)
        found = self._lanes.sort(epoch, chunk)
        with self._held.lock:
            self.queue.make_all_ready(self._lanes.queue(chunk, found))
            self.queue.look_again(epoch)
            self.queue.wake_one()

    def turn(self) -> float:
        """
        Let lanes go on whose time has come. For the polling thread only.

        Return the seconds until the next is due.
        """
        self.queue.look()
        self.queue.clear_lanes()
        return self.queue.turn()

    # ------------------------------------------------------------ results

    def complete(self, outcomes: Sequence[Outcome]) -> None:
        """Take over results; those of closed epochs change nothing."""
        outcomes = self.outages.decide(outcomes)
        with self._held.lock:
            for outcome in outcomes:
                self._complete(outcome)
            if not self._held.running:
                self._held.idle.set()
            told = self._taken()
            kept, self._kept = self._kept, []
            is_quiet = any(
                one.task.epoch.is_held and not one.task.epoch.running
                for one in outcomes
            )
        self._tell_all(told)
        for error in kept:
            forget_locals(error)
        self._held.tell_low()
        if is_quiet:
            self.queue.ledger.wake()

    def fail(self, error: BaseException) -> None:
        """Stop the worker for this error, unless another error stops it already."""
        with self._held.lock:
            self._stop_for(error)

    def _complete(self, outcome: Outcome) -> None:
        task, epoch = outcome.task, outcome.task.epoch
        if epoch.is_closed:
            self.queue.came_back(task)
            self._held.outlived[epoch.tp] -= len(task.indexes)
            return
        epoch.running -= len(task.indexes)
        self._held.running -= len(task.indexes)
        if task.letter is not None:
            self._letter_tried(outcome)
            self.queue.look_again(epoch)
            return
        if outcome.finished:
            self._succeed(outcome)
        if outcome.failing:
            # In a batch that is to come later the first has failed, and all were
            # handled.
            left = len(outcome.left) if self._policy.is_batch else 0
            self.durations.add(outcome.failing, len(outcome.failed) + left)
        if not task.bundle:
            self._conclude(outcome)
        elif len(outcome.finished) == len(task.indexes):
            self._next_all(task.bundle)
        else:
            for part in _by_lane(outcome):
                self._conclude(part)
        self.queue.look_again(epoch)

    def _succeed(self, outcome: Outcome) -> None:
        task, epoch, count = outcome.task, outcome.task.epoch, len(outcome.finished)
        self._held.release(epoch, task.chunk, outcome.finished)
        self.failing = self.failing.succeeded(count)
        seconds = outcome.seconds - outcome.failing
        self.durations.add(seconds, count)
        if seconds:
            epoch.keep_pace(seconds / count)
        if task.tried is not None:
            epoch.failed.pop(task.tried, None)

    def _conclude(self, outcome: Outcome) -> None:
        lane = outcome.task.lane
        if not lane.epoch.revoked.is_set():
            self._put_back(outcome)
        if lane.state in _FREE:
            self._next(lane)

    def _put_back(self, outcome: Outcome) -> None:
        task, lane = outcome.task, outcome.task.lane
        if outcome.failed and lane.is_shared and not outcome.is_suspect:
            self._set_apart(outcome)
            return
        # In order: the first is dealt with now, the others after it, each by itself.
        later = outcome.failed if outcome.is_suspect else outcome.failed[1:]
        self._queue_again(lane, task, outcome.left)
        self._queue_again(lane, task, [index for index, _ in later])
        if outcome.is_suspect:
            for index, _ in later:
                lane.epoch.fail(record_at(task.chunk, index).offset)
            index, error = later[0]
            assert isinstance(error, Exception)  # noqa: S101 - only these make suspects
            self._tell_retry(task, index, error, 0.0, len(later))
        elif outcome.failed:
            for index, error in later:
                self._keep_answer(task, index, error)
            index, error = outcome.failed[0]
            self._fail(lane, task, index, error, together=self._together(outcome))

    @staticmethod
    def _queue_again(lane: Lane, task: Task, indexes: Indexes) -> None:
        for chunk, some in reversed([*task.runs(indexes)]):
            lane.put_back(chunk, some)

    def _together(self, outcome: Outcome) -> int:
        # A batch about which nothing is known comes again as one.
        return 1 + len(outcome.left) if self._policy.is_batch else 1

    def _set_apart(self, outcome: Outcome) -> None:
        # Each comes by itself; but records of one batch that were not begun stay
        # together, or the rest of a batch that is to come later would be tried again at
        # once.
        task, epoch = outcome.task, outcome.task.epoch
        for number, (index, error) in enumerate(outcome.failed, 1):
            own, together = Lane(epoch, None), 1
            epoch.apart.add(own)
            if number == len(outcome.failed):
                together = self._together(outcome)
                rest = own if self._policy.is_batch else task.lane
                self._queue_again(rest, task, outcome.left)
            self._fail(own, task, index, error, together=together)
            if own.state is LaneState.IDLE:
                self._next(own)

    def _next_all(self, bundle: Sequence[tuple[Lane, Indexes]]) -> None:
        # As _next() for each, in line: there is one for nearly every record.
        ready, idle = self.queue.ready, LaneState.IDLE
        is_full = len(bundle[0][0].epoch.lanes) > self.queue.room_of_lanes()
        for lane, _ in bundle:
            if lane.runs:
                lane.state = LaneState.READY
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
        return bool(epoch.failed)

    @property
    def together(self) -> int:
        """How many records of one lane may come again as one."""
        return self._policy.quantum if self._policy.is_batch else 1

    def is_starving(self, epoch: Epoch | None) -> bool:
        """Tell whether no record of the epoch is, or could be, worked on now."""
        if epoch is None or not epoch.records:
            return True
        if epoch.running:  # a shared lane may be empty, or wait, while tasks are out
            return False
        with self._held.lock:
            return not any(lane.state in _MOVING for lane in epoch.all_lanes())

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
        while lane.epoch.failed and lane.runs:
            known = lane.epoch.failed.get(lane.first_offset())
            if known is None or known.answer is None:
                break
            (task, index, error, since), known.answer = known.answer, None
            chunk, indexes = lane.runs.pop(0)
            lane.put_back(chunk, indexes[1:])
            self._fail(lane, task, index, error, since)
            if lane.state in _SEEN_TO:
                return
        self.queue.next(lane)

    def _keep_answer(self, task: Task, index: int, error: BaseException) -> None:
        # Keeps the error for a record behind another one that failed, until its turn
        # comes. An error that stops the worker stops it at once.
        if isinstance(error, Pause) and error.scope != "key":
            self._tell_pause(task, index, error)
            return  # its hold exists, and it waits with the others
        if isinstance(error, OutageFailure):
            self._tell_retry(task, index, error.error, error.seconds)
            return  # its hold exists, too
        known = task.epoch.fail(record_at(task.chunk, index).offset)
        match error:
            case StopWorker():
                self.is_stop_asked = True
            case Exception() if not isinstance(error, HandlersCannotRunError):
                known.answer = (task, index, error, self._clock())
                self._kept.append(error)
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
        chunk, at = task.place(index)
        lane.put_back(chunk, [at])
        lane.state = LaneState.FAILED
        match error:
            case RetryLater() if is_number(error.after) and error.after >= 0:
                delay = max(0.0, error.after - late)
                self.queue.sleep(lane, delay)
                self._tell_retry(task, index, error, delay, together)
            case Pause():
                self._pause(lane, task, index, error, late)
            case OutageFailure():
                self.queue.put_first(lane)
                self._tell_retry(task, index, error.error, error.seconds, together)
            case StopWorker():
                self.is_stop_asked = True
            case Reject():
                self._exhaust(lane, task, index, error)
            case HandlersCannotRunError():
                self._stop_for(error)
            case Exception():
                self._count_failure(lane, task, index, error, late)
            case _:
                self._stop_for(error)

    def _pause(
        self, lane: Lane, task: Task, index: int, pause: Pause, late: float
    ) -> None:
        # Its hold exists by now, and keeps the record from beginning.
        if pause.scope == "key":
            self.queue.sleep(lane, max(0.0, pause.for_ - late))
        else:
            self.queue.put_first(lane)
        self._tell_pause(task, index, pause)

    def _tell_pause(self, task: Task, index: int, pause: Pause) -> None:
        self.outages.pauses += 1
        self._tell(
            worker_events.WorkPaused,
            **_of_record(task, index),
            scope="key" if pause.scope == "key" else str(scope_of(task, pause)),
            seconds=max(pause.for_, pause._held_for),  # noqa: SLF001 - ours
            reason=pause.reason,
            is_for_error=pause._is_for_error,  # noqa: SLF001 - ours
        )

    def _count_failure(
        self, lane: Lane, task: Task, index: int, error: Exception, late: float
    ) -> None:
        known = lane.epoch.fail(record_at(task.chunk, index).offset)
        known.count += 1
        if self._policy.retry.is_final(known.count, error):
            self._exhaust(lane, task, index, error)
            return
        delay = self._policy.retry.delay(known.count, self._policy.draw())
        delay = max(0.0, delay - late)
        self.queue.sleep(lane, delay)
        self._tell_retry(task, index, error, delay)

    def _tell_retry(
        self, task: Task, index: int, error: Exception, delay: float, records: int = 1
    ) -> None:
        self.retries += records
        self._tell(
            worker_events.RecordRetried,
            **_of_record(task, index),
            delay=delay,
            error=partial(shown, error),
            records=records,
        )

    def _exhaust(
        self, lane: Lane, task: Task, index: int, error: BaseException
    ) -> None:
        record, policy = record_at(task.chunk, index), self._policy
        self.failing = self.failing.failed()
        then, too_many = str(policy.on_exhausted), None
        if policy.sink is not None:
            too_many = self.failing.exceeds(policy.max_ratio)
            then = "dead_letter" if too_many is None else "stop"
        self._tell(
            worker_events.RecordExhausted,
            **_of_record(task, index),
            error=partial(shown, error),
            then=then,
            traceback=partial(chain, error),
        )
        known = lane.epoch.fail(record.offset)
        known.blocks_since = self._clock()
        letter = Failure(error=error, attempts=task.attempt)
        if then == "dead_letter":
            known.letter = letter
            self._kept.append(error)
            self.queue.put_first(lane)
        elif too_many is not None:
            self._stop_for(partial(_too_many, too_many, _place(task, index), letter))
        else:
            self._dispose(lane, then, partial(_failed, _place(task, index), letter))

    def _dispose(self, lane: Lane, then: str, failed: Blame) -> None:
        # The record at the lane's front is passed over, or stops the worker, or stays.
        if then == "skip":
            chunk, index = lane.first
            lane.runs.pop(0)
            self.skipped += 1
            self._end(lane, chunk, index, SKIPPED)
        elif then == "stop":
            self._stop_for(failed)

    def _end(self, lane: Lane, chunk: Chunk, index: int, why: str) -> None:
        # The record is complete although it failed; it is in no lane any more.
        epoch, offset = lane.epoch, record_at(chunk, index).offset
        if self.journal is not None:
            self.journal.completes(epoch.tp, epoch.number, offset, why)
        chunk.finish(index)
        epoch.failed.pop(offset, None)
        self._held.release(epoch, chunk, [index])
        lane.state = LaneState.IDLE

    # ------------------------------------------------------------ dead letters

    def _letter_tried(self, outcome: Outcome) -> None:
        task, lane = outcome.task, outcome.task.lane
        (index,) = task.indexes
        if outcome.finished:
            self.dead_letters += 1
            self._end(lane, task.chunk, index, DEAD_LETTER)
        elif not lane.epoch.revoked.is_set():
            lane.put_back(task.chunk, task.indexes)
            if outcome.failed:
                self._letter_failed(task, outcome.failed[0][1])
            else:  # held since it was claimed
                self.queue.put_first(lane)
        if lane.state in _FREE:
            self._next(lane)

    def _letter_failed(self, task: Task, error: BaseException) -> None:
        lane, letter, index = task.lane, task.letter, task.indexes[0]
        assert letter is not None  # noqa: S101 - its task was one of a letter
        known = lane.epoch.fail(record_at(task.chunk, index).offset)
        about = {**_where(task, index), "error": partial(shown, error)}
        lane.state = LaneState.FAILED
        if is_too_large(error) and not letter.is_brief:
            known.letter = evolve(letter, is_brief=True)
            self.queue.put_first(lane)
        elif is_final(error):
            then, place = self._policy.on_exhausted, _place(task, index)
            about |= {"attempt": known.tries + 1, "delay": None, "then": then}
            self._tell(worker_events.DeadLetterFailed, **about)
            self._dispose(lane, then, partial(_failed, place, letter, error))
        elif isinstance(error, HandlersCannotRunError) or not isinstance(
            error, Exception
        ):
            self._stop_for(error)
        else:
            known.tries += 1
            delay = self._policy.retry.delay(known.tries, self._policy.draw())
            delay = max(_SHORTEST, delay)
            self.queue.sleep(lane, delay)
            about |= {"attempt": known.tries, "delay": delay, "then": "retry"}
            self._tell(worker_events.DeadLetterFailed, **about)

    # ------------------------------------------------------------ events

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


def _failed(
    place: str, letter: Failure, refused: BaseException | None = None
) -> RecordFailedError:
    also, else_ = "", "dead_letter or on_exhausted='skip'"
    if refused is not None:
        also = f"; it cannot be a dead letter: {shown(refused)}"
        else_ = "on_exhausted='skip'"
    message = (
        f"{place} failed for good at attempt {letter.attempts}: {shown(letter.error)}"
        f"{also}; fix the handler or the record, or set {else_}"
    )
    error = RecordFailedError(message)
    error.__cause__ = letter.error
    return error


def _too_many(why: str, place: str, letter: Failure) -> DeadLetterLimitError:
    message = (
        f"{why}; the last is {place}, which stays where it is: {shown(letter.error)}; "
        f"mend what makes records fail, or set max_ratio=None"
    )
    error = DeadLetterLimitError(message)
    error.__cause__ = letter.error
    return error


def _place(task: Task, index: int) -> str:
    return "{partition} offset {offset}".format(**_where(task, index))


# Seconds until the next try of a letter, at least: a sink may fail at once, for ever.
_SHORTEST = 0.01
# A lane whose last task came back and that does not wait; a shared one may have run
# empty while tasks of it were still out.
_FREE = frozenset({LaneState.RUNNING, LaneState.IDLE})
_MOVING = frozenset({LaneState.RUNNING, LaneState.READY, LaneState.FILLING})
# A lane whose first record has failed, and that waits, or runs by itself.
_SEEN_TO = frozenset({LaneState.FAILED, LaneState.READY})


def _of_record(task: Task, index: int) -> dict[str, object]:
    # What each event of a record begins with.
    return {**_where(task, index), "attempt": task.attempt}


def _where(task: Task, index: int) -> dict[str, object]:
    tp = task.epoch.tp
    offset = record_at(task.chunk, index).offset
    return {"partition": f"{tp.topic}:{tp.partition}", "offset": offset}


def _by_lane(outcome: Outcome) -> Iterator[Outcome]:
    # Yields the results of a bundle, lane by lane; finished records are counted
    # already.
    failed, left = dict(outcome.failed), set(outcome.left)
    task = outcome.task
    for lane, indexes in task.bundle:
        yield Outcome(
            task=Task(lane, task.chunk, indexes),
            failed=[(index, failed[index]) for index in indexes if index in failed],
            left=[index for index in indexes if index in left],
        )
