"""
What becomes of records that failed: tried again, given up, dead letters.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from attrs import evolve
from kafka.structs import TopicPartition

from safeconsumer._checks import is_number
from safeconsumer.events import worker as worker_events
from safeconsumer.worker.claims import Claims, record_at
from safeconsumer.worker.control import (
    DeadLetterLimitError,
    HandlersFailError,
    RecordFailedError,
    Reject,
    RetryLater,
    StopWorker,
)
from safeconsumer.worker.held import Held
from safeconsumer.worker.histogram import Durations
from safeconsumer.worker.lanes import Lane, Lanes, State, Task
from safeconsumer.worker.others import Others
from safeconsumer.worker.outcomes import Letter, Policy
from safeconsumer.worker.retry import Failing
from safeconsumer.worker.shown import chain, shown

# A task, an index, what the handler said of it, and when by the clock.
Answer: TypeAlias = tuple[Task, int, BaseException, float]
Blame: TypeAlias = "partial[Any]"
Told: TypeAlias = tuple[Any, dict[str, object]]


class Failures(Claims):
    """
    Lets what failed wait, and gives up what failed for good.

    Attributes:
        is_stop_asked: whether a handler asked it to stop.
        retries: how often a record was tried again.
        skipped: records that failed for good and were passed over.
        durations: how long handlers took.
        dead_letters: records whose dead letter was acknowledged.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - one part each
        self,
        held: Held,
        lanes: Lanes,
        policy: Policy,
        emit: Callable[..., None],
        clock: Callable[[], float],
        others: Others | None = None,
    ) -> None:
        super().__init__(held, lanes, policy, clock, others)
        self._emit = emit
        self._told: list[Told] = []
        self.failing = Failing()
        self._fatal: BaseException | Blame | None = None
        self.is_stop_asked = False
        self.retries = 0
        self.skipped = 0
        self.dead_letters = 0
        self.durations = Durations()

    @property
    def fatal(self) -> BaseException | None:
        """
        What must stop the worker, once something must. Not to be asked under the lock.
        """
        made = self._fatal
        if isinstance(
            made, partial
        ):  # it names foreign errors, so it is not made under the lock
            made = self._fatal = made()
        return made

    def _stop_for(self, error: "BaseException | Blame") -> None:
        if self._fatal is None:
            self._fatal = error

    def _next(self, lane: Lane) -> None:
        # A record at its front may have been answered for already, in a batch.
        while lane.epoch.answers and lane.runs:
            answer = self._answer_to_front(lane)
            if answer is None:
                break
            self._fail(lane, *answer)
            if lane.state is State.WAITING:
                return
        super()._next(lane)

    def _answer_to_front(self, lane: Lane) -> Answer | None:
        chunk, indexes = lane.runs[0]
        offset = record_at(chunk, indexes[0]).offset
        answer: Answer | None = lane.epoch.answers.pop(offset, None)  # type: ignore[assignment]  # they are
        if answer is not None:
            lane.runs.popleft()
            lane.put_back(chunk, indexes[1:])
        return answer

    def _keep_answer(self, task: Task, index: int, error: BaseException) -> None:
        # What is said of a record behind another one that failed, for when its turn
        # comes. What stops the worker stops it at once.
        offset = record_at(task.chunk, index).offset
        task.epoch.alone.add(offset)
        match error:
            case StopWorker():
                self.is_stop_asked = True
            case Exception() if not isinstance(error, HandlersFailError):
                answer: Answer = (task, index, error, self._clock())
                task.epoch.answers[offset] = answer
            case _:
                self._stop_for(error)

    def _fail(
        self,
        lane: Lane,
        task: Task,
        index: int,
        error: BaseException,
        since: float | None = None,
    ) -> None:
        """
        Let a record wait, or give it up; its lane waits then, or is idle without it.

        Args:
            lane: its lane, at whose front it will stand.
            task: in which it failed.
            index: which one it is.
            error: what the handler said.
            since: when that was, by the clock; None for now.
        """
        late = 0.0 if since is None else self._clock() - since
        lane.put_back(task.chunk, [index])
        lane.state = State.WAITING
        offset = record_at(task.chunk, index).offset
        match error:
            case RetryLater() if is_number(error.after) and error.after >= 0:
                lane.join_front()  # a batch that asks for later comes again as one
                delay = error.after
                self._sleep(lane, max(0.0, delay - late))
                self._tell_retry(lane.epoch.tp, offset, task.attempt, error, delay)
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
        self._sleep(lane, max(0.0, delay - late))
        self._tell_retry(epoch.tp, record.offset, failures, error, delay)

    def _tell_retry(
        self,
        tp: TopicPartition,
        offset: int,
        attempt: int,
        error: Exception,
        delay: float,
    ) -> None:
        self.retries += 1
        self._tell(
            worker_events.RecordRetried,
            partition=f"{tp.topic}:{tp.partition}",
            offset=offset,
            attempt=attempt,
            delay=delay,
            error=partial(shown, error),
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
            then=then,
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
        )
        self._dispose(letter, then)

    def _dispose(self, letter: Letter, then: str) -> None:
        if then == "skip":
            self.skipped += 1
            self._take_out(letter)
        elif then == "stop":
            self._stop_for(partial(_failed, letter))
        elif self._policy.post is not None and then == "dead_letter":
            why = self.failing.exceeds(
                self._policy.max_ratio, self._policy.max_consecutive
            )
            if why is None:
                self._policy.post(letter)
            else:
                self._stop_for(partial(_too_many, why, letter))

    def _take_out(self, letter: Letter) -> None:
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
        lane.state = State.IDLE

    def letter_acknowledged(self, letter: Letter) -> None:
        """
        Complete a record whose dead letter has arrived.
        """
        with self._held.lock:
            if not letter.lane.epoch.is_closed:
                self.dead_letters += 1
                self._take_out(letter)
                if letter.lane.state is State.IDLE:
                    self._next(letter.lane)
                self._unpark(letter.lane.epoch)
                self._notify()
        self._held.tell_low()

    def letter_refused(self, letter: Letter, why: BaseException) -> None:
        """
        Have the policy say what becomes of a record that can never be a dead letter.
        """
        tp, then = letter.lane.epoch.tp, self._policy.on_exhausted
        with self._held.lock:
            if letter.lane.epoch.is_closed:
                return
            self._dispose(evolve(letter, error=why), then)
            if letter.lane.state is State.IDLE:
                self._next(letter.lane)
            self._unpark(letter.lane.epoch)
            self._notify()
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
            # What takes its time is made here, under no lock.
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
    message = (
        f"{tp.topic}:{tp.partition} offset {letter.record.offset} failed for good at "
        f"attempt {letter.attempt}: {shown(letter.error)}; mend the handler or the "
        f"record, or give dead_letter or on_exhausted='skip'"
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
