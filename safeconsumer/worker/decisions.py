"""Decides after each handler result whether to complete, retry, dead-letter or stop."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from attrs import evolve

from safeconsumer._checks import is_number
from safeconsumer.errors.base import (
    DeadLetterLimitError,
    HandlersCannotRunError,
    RecordFailedError,
)
from safeconsumer.holds.scope import partition_text
from safeconsumer.journal.format import DEAD_LETTER, SKIPPED
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.dead_letters import is_final, is_too_large
from safeconsumer.worker.durations import Durations
from safeconsumer.worker.handlers import Failure, Pause, Reject, RetryLater, StopWorker
from safeconsumer.worker.journal import HandlerJournal
from safeconsumer.worker.outages import (
    OutageFailure,
    Outages,
    PlaceHold,
    scope_of,
)
from safeconsumer.worker.partition import Epoch, Lane, LaneState, Order, Outcome, Task
from safeconsumer.worker.queue import Queue
from safeconsumer.worker.retry import FailureRatio
from safeconsumer.worker.tracebacks import KeptErrors, chain, shown

Blame: TypeAlias = "partial[Any]"
PendingEvent: TypeAlias = tuple[Any, dict[str, object]]


class Decisions:
    """
    Receives the results of tasks and decides about their records, on any thread.

    Attributes:
        queue: hands out the queued records to handlers.
        outages: the holds that handlers or a breaker have requested.
        is_stop_asked: whether a handler requested that the worker stop.
        retries: the number of retries of records.
        skipped: the number of records that failed for good and were skipped.
        durations: the durations of handlers' calls.
        dead_letters: the number of records whose dead letter was acknowledged.
        journal: writes entries for complete records; None if no journal is kept.
    """

    def __init__(
        self,
        queue: Queue,
        emit: Callable[..., None],
        place: PlaceHold,
        breaker: Breaker | None = None,
    ) -> None:
        self.queue = queue
        self.outages = Outages(queue, self._emit_later, place, breaker)
        self._kept, self._policy = queue.kept, queue.policy
        self._clock = queue.clock
        self._emit = emit
        self._events: list[PendingEvent] = []
        self._errors: list[BaseException] = []  # added to _kept_errors later
        self._kept_errors = KeptErrors()
        self.journal: HandlerJournal | None = None
        self.failing = FailureRatio(queue.policy.sample)
        self._fatal: BaseException | Blame | None = None
        self.is_stop_asked = False
        self.retries = 0
        self.skipped = 0
        self.dead_letters = 0
        self.durations = Durations()

    def turn(self) -> float:
        """
        Resume the lanes whose delay is over. Only the polling thread may call this.

        Return the seconds until the next lane is due.
        """
        self._kept_errors.sweep()
        self.queue.obey_if_changed()
        self.outages.close_lifted()
        if self._events:
            with self._kept.lock:
                events = self._take_events()
            self._emit_all(events)
        return self.queue.turn()

    def obey(self) -> None:
        """
        Apply the current holds to the queue.

        Any thread may call this, but not while it holds a lock of the worker.
        """
        self.queue.obey()
        self.outages.close_lifted()

    def end(self) -> None:
        """Stop handing out records. The results of open tasks are still processed."""
        self.queue.end()
        self._kept_errors.close()

    # ------------------------------------------------------------ results

    def complete(self, outcome: Outcome) -> None:
        """Process the result of a task; the result of a task of a closed epoch is ignored."""
        outcome = self.outages.decide(outcome)
        with self._kept.lock:
            self._complete(outcome)
            if not self._kept.running:
                self._kept.idle.set()
            events = self._take_events()
            errors, self._errors = self._errors, []
            epoch = outcome.task.epoch
            is_quiet = epoch.is_held and not epoch.running
        self._emit_all(events)
        for error in errors:
            self._kept_errors.add(error)
        self._kept.call_when_low()
        if is_quiet:
            self.queue.ledger.wake()

    def fail(self, error: BaseException) -> None:
        """Stop the worker with this error, unless another error stops it already."""
        with self._kept.lock:
            self._stop_for(error)

    def _complete(self, outcome: Outcome) -> None:
        task, epoch = outcome.task, outcome.task.epoch
        if epoch.is_closed:
            self.queue.task_returned(task)
            return
        epoch.tasks.remove(task)
        epoch.running -= len(task.records)
        self._kept.running -= len(task.records)
        if task.letter is not None:
            self._letter_tried(outcome)
        else:
            self._count(outcome)
            if not epoch.revoked.is_set():
                self._put_back(outcome)
        waiting_lanes = self.queue.waiting_lanes(epoch, task)
        for lane in waiting_lanes:
            self._next(lane)
        if waiting_lanes or outcome.failed or outcome.left:
            self.queue.wake_one()  # otherwise the calling thread itself claims the next task
        self.queue.resume_main(epoch)

    def _count(self, outcome: Outcome) -> None:
        if outcome.finished:
            self._succeed(outcome)
        if outcome.failing:
            # If a batch is delivered again as a whole, only one of its records counts
            # as failed, but the handler got all of them.
            left = len(outcome.left) if self._policy.is_batch else 0
            self.durations.add(outcome.failing, len(outcome.failed) + left)

    def _succeed(self, outcome: Outcome) -> None:
        task, epoch, count = outcome.task, outcome.task.epoch, len(outcome.finished)
        self._kept.release(epoch, task.ordinals_of(outcome.finished))
        self.failing = self.failing.succeeded(count)
        seconds = outcome.seconds - outcome.failing
        self.durations.add(seconds, count)
        if seconds:
            epoch.keep_pace(seconds / count)
        if task.tried is not None:
            epoch.failed.pop(task.tried, None)

    def _put_back(self, outcome: Outcome) -> None:
        task, lane = outcome.task, outcome.task.lane
        if not outcome.failed:
            if outcome.left:
                self.queue.put_back(task, outcome.left)
            return
        is_apart = self.queue.order is Order.KEY or self.queue.is_shared(lane)
        if is_apart and not outcome.is_suspect:
            self._set_apart(outcome)
            return
        # The first failure is processed now, and the other failures follow one by one.
        self.queue.put_back(task, outcome.left)
        self.queue.put_back(task, [index for index, _ in outcome.failed])
        index, error = outcome.failed[0]
        if outcome.is_suspect:
            for one, _ in outcome.failed:
                lane.epoch.fail(task.record(one).offset)
            assert isinstance(error, Exception)  # noqa: S101 - as for any suspect
            self._report_retry(task, index, error, 0.0, len(outcome.failed))
            return
        for one, later in outcome.failed[1:]:
            self._keep_answer(task, one, later)
        self._fail(lane, task, index, error, records=self._records_again(outcome))

    def _records_again(self, outcome: Outcome) -> int:
        # A batch of which no record has finished is delivered again as a whole.
        return 1 + len(outcome.left) if self._policy.is_batch else 1

    def _set_apart(self, outcome: Outcome) -> None:
        # Each failed record is delivered again alone. The unhandled records of a batch
        # go into the lane of its last failed record. If they went elsewhere and the
        # handler had requested a delay for the batch, they would be tried again without
        # the delay.
        task = outcome.task
        lanes = [self.queue.own_lane(task, index) for index, _ in outcome.failed]
        if self._policy.is_batch:
            lanes[-1].put_back(task.ordinals_of(outcome.left))
        else:
            self.queue.put_back(task, outcome.left)
        for lane, (index, error) in zip(lanes, outcome.failed, strict=True):
            lane.put_back(task.ordinals_of([index]))
            records = self._records_again(outcome) if lane is lanes[-1] else 1
            self._fail(lane, task, index, error, records=records)
            if lane.state is LaneState.RUNNING:
                self._next(lane)

    # ------------------------------------------------------------ queries

    @property
    def retried_at_once(self) -> int:
        """The maximum number of a lane's records that are delivered again together."""
        return self._policy.quantum if self._policy.is_batch else 1

    def is_starving(self, epoch: Epoch | None) -> bool:
        """Return whether the epoch has no record that is running or could start."""
        if epoch is None or not epoch.records:
            return True
        if epoch.running:  # a shared lane may be empty or waiting while tasks run
            return False
        with self._kept.lock:
            return not any(lane.state in _MOVING for lane in epoch.all_lanes())

    # ------------------------------------------------------------ failures

    @property
    def fatal(self) -> BaseException | None:
        """The error that must stop the worker, or None. Do not read this under the lock."""
        made = self._fatal
        # Building the message calls ``repr`` of errors from outside this package, so
        # the message is not built under the lock.
        if isinstance(made, partial):
            made = self._fatal = made()
        return made

    def _stop_for(self, error: "BaseException | Blame") -> None:
        if self._fatal is None:
            self._fatal = error

    def _next(self, lane: Lane) -> None:
        # A batch may already have reported an error for the first record of the lane.
        while lane.epoch.failed and lane:
            known = lane.epoch.failed.get(lane.first_offset())
            if known is None or known.answer is None:
                break
            (task, index, error, since), known.answer = known.answer, None
            self._fail(lane, task, index, error, since)
            if lane.state is not LaneState.RUNNING:
                return
        self.queue.requeue(lane)

    def _keep_answer(self, task: Task, index: int, error: BaseException) -> None:
        # Keeps the error of a record until the failed records before it have been
        # processed. An error that stops the worker stops it immediately.
        if isinstance(error, Pause) and error.scope != "key":
            self._report_pause(task, index, error)
            return  # the hold exists already, and the record waits with the held ones
        if isinstance(error, OutageFailure):
            self._report_retry(task, index, error.error, error.seconds)
            return  # the breaker's hold exists already
        known = task.epoch.fail(task.record(index).offset)
        match error:
            case StopWorker():
                self.is_stop_asked = True
            case Exception() if not isinstance(error, HandlersCannotRunError):
                known.answer = (task, index, error, self._clock())
                self._errors.append(error)
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
        records: int = 1,
    ) -> None:
        """
        Delay a failed record or give up on it; then let its lane wait or continue.

        Args:
            lane: the lane whose first record is the failed one.
            task: the task in which the record failed.
            index: the index of the record in the task.
            error: the exception of the handler.
            since: the time of the failure, on the worker's clock; None for now.
            records: the number of records that are delivered again together; more than
                1 only for a batch.
        """
        late = 0.0 if since is None else self._clock() - since
        match error:
            case RetryLater() if is_number(error.after) and error.after >= 0:
                delay = max(0.0, error.after - late)
                self.queue.delay(lane, delay)
                self._report_retry(task, index, error, delay, records)
            case Pause():
                self._pause(lane, task, index, error, late)
            case OutageFailure():
                self.queue.put_first(lane)
                self._report_retry(task, index, error.error, error.seconds, records)
            case StopWorker():
                self.is_stop_asked = True
                self.queue.block(lane)
            case Reject():
                self._exhaust(lane, task, index, error)
            case Exception() if not isinstance(error, HandlersCannotRunError):
                self._count_failure(lane, task, index, error, late)
            case _:
                self._stop_for(error)
                self.queue.block(lane)

    def _pause(
        self, lane: Lane, task: Task, index: int, pause: Pause, late: float
    ) -> None:
        # The pause's hold exists already, and keeps handlers from starting the record.
        if pause.scope == "key":
            self.queue.delay(lane, max(0.0, pause.for_ - late))
        else:
            self.queue.put_first(lane)
        self._report_pause(task, index, pause)

    def _report_pause(self, task: Task, index: int, pause: Pause) -> None:
        self.outages.pauses += 1
        self._emit_later(
            worker_events.WorkPaused,
            **_record_fields(task, index),
            scope="key" if pause.scope == "key" else str(scope_of(task, pause)),
            seconds=max(pause.for_, pause._held_for),  # noqa: SLF001 - ours
            reason=pause.reason,
            is_for_error=pause._is_for_error,  # noqa: SLF001 - ours
        )

    def _count_failure(
        self, lane: Lane, task: Task, index: int, error: Exception, late: float
    ) -> None:
        known = lane.epoch.fail(task.record(index).offset)
        known.count += 1
        if self._policy.retry.is_final(known.count, error):
            self._exhaust(lane, task, index, error)
            return
        delay = self._policy.retry.delay(known.count, self._policy.draw())
        delay = max(0.0, delay - late)
        self.queue.delay(lane, delay)
        self._report_retry(task, index, error, delay)

    def _report_retry(
        self, task: Task, index: int, error: Exception, delay: float, records: int = 1
    ) -> None:
        self.retries += records
        self._emit_later(
            worker_events.RecordRetried,
            **_record_fields(task, index),
            delay=delay,
            error=partial(shown, error),
            records=records,
        )

    def _exhaust(
        self, lane: Lane, task: Task, index: int, error: BaseException
    ) -> None:
        record, policy = task.record(index), self._policy
        self.failing = self.failing.failed()
        then, too_many = str(policy.on_exhausted), None
        if policy.sink is not None:
            too_many = self.failing.exceeds(policy.max_ratio)
            then = "dead_letter" if too_many is None else "stop"
        self._emit_later(
            worker_events.RecordExhausted,
            **_record_fields(task, index),
            error=partial(shown, error),
            then=then,
            traceback=partial(chain, error),
        )
        known = lane.epoch.fail(record.offset)
        known.blocks_since = self._clock()
        letter = Failure(error=error, attempts=task.attempt)
        if then == "dead_letter":
            known.letter = letter
            self._errors.append(error)
            self.queue.put_first(lane)
        elif too_many is not None:
            self._stop_for(partial(_too_many, too_many, task.place(index), letter))
            self.queue.block(lane)
        else:
            self._dispose(lane, then, partial(_failed, task.place(index), letter))

    def _dispose(self, lane: Lane, then: str, failed: Blame) -> None:
        # Skips the first record of the lane, or keeps the record and possibly stops the
        # worker.
        if then == "skip":
            (ordinal,) = lane.take(1, self._policy.span)
            self.skipped += 1
            self._end(lane.epoch, ordinal, SKIPPED)
            return  # the lane continues
        self.queue.block(lane)
        if then == "stop":
            self._stop_for(failed)

    def _end(self, epoch: Epoch, ordinal: int, why: str) -> None:
        # Completes a failed record that was removed from its lane.
        offset = epoch.progress.record(ordinal).offset
        if self.journal is not None:
            self.journal.completes(epoch.tp, epoch.number, offset, why)
        epoch.failed.pop(offset, None)
        self._kept.release(epoch, [ordinal])

    # ------------------------------------------------------------ dead letters

    def _letter_tried(self, outcome: Outcome) -> None:
        task, lane = outcome.task, outcome.task.lane
        if outcome.finished:
            self.dead_letters += 1
            self._end(lane.epoch, task.ordinals[0], DEAD_LETTER)
        elif not lane.epoch.revoked.is_set():
            lane.put_back(task.ordinals)
            if outcome.failed:
                self._letter_failed(task, outcome.failed[0][1])
            else:  # the partition was held after the claim
                self.queue.put_first(lane)

    def _letter_failed(self, task: Task, error: BaseException) -> None:
        lane, letter, index = task.lane, task.letter, task.indexes[0]
        assert letter is not None  # noqa: S101 - only a letter's task comes here
        known = lane.epoch.fail(task.record(index).offset)
        known.tries += 1
        about = {
            **_where(task, index),
            "attempt": known.tries,
            "error": partial(shown, error),
        }
        if is_too_large(error) and not letter.is_brief:
            known.letter = evolve(letter, is_brief=True)
            self.queue.put_first(lane)
        elif is_final(error):
            then, place = self._policy.on_exhausted, task.place(index)
            self._emit_later(
                worker_events.DeadLetterFailed, **about, delay=None, then=then
            )
            self._dispose(lane, then, partial(_failed, place, letter, error))
        elif isinstance(error, HandlersCannotRunError) or not isinstance(
            error, Exception
        ):
            self._stop_for(error)
            self.queue.block(lane)
        else:
            delay = self._policy.retry.delay(known.tries, self._policy.draw())
            delay = max(_SHORTEST, delay)
            self.queue.delay(lane, delay)
            self._emit_later(
                worker_events.DeadLetterFailed, **about, delay=delay, then="retry"
            )

    # ------------------------------------------------------------ events

    def _take_events(self) -> list[PendingEvent]:
        events, self._events = self._events, []
        return events

    def _emit_all(self, events: Sequence[PendingEvent]) -> None:
        for kind, fields in events:
            # Fields that are expensive to compute are computed only now, when no lock
            # is held.
            self._emit(
                kind,
                **{
                    name: one() if callable(one) else one
                    for name, one in fields.items()
                },
            )

    def _emit_later(self, kind: Any, **fields: object) -> None:  # noqa: ANN401 - a class of event
        self._events.append((kind, fields))


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
        f"{why}; the last is {place}, which stays in its topic: {shown(letter.error)}; "
        f"fix the cause of the failures, or set max_ratio=None"
    )
    error = DeadLetterLimitError(message)
    error.__cause__ = letter.error
    return error


# The minimum delay, in seconds, before a letter is tried again, because a sink may fail
# immediately every time.
_SHORTEST = 0.01
# The states in which a lane's records can start, unless a hold prevents it.
_MOVING = frozenset({LaneState.READY, LaneState.FILLING})


def _record_fields(task: Task, index: int) -> dict[str, object]:
    # Returns the fields that every event about a record has in common.
    return {**_where(task, index), "attempt": task.attempt}


def _where(task: Task, index: int) -> dict[str, object]:
    tp = task.epoch.tp
    offset = task.record(index).offset
    return {"partition": partition_text(*tp), "offset": offset}
