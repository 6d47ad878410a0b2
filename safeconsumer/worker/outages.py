"""Places the holds that handlers ask for, and those of breakers."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from attrs import define, evolve, field

from safeconsumer.holds.hold import BREAKER, OUTAGE
from safeconsumer.holds.scope import ALL, Partition, Scope, Topic
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.breaker import Breaker, Trip
from safeconsumer.worker.groups import is_all
from safeconsumer.worker.handlers import (
    HandlersFailError,
    Pause,
    WorkerControl,
    is_for_error,
)
from safeconsumer.worker.progress import record_at
from safeconsumer.worker.queue import Queue
from safeconsumer.worker.tasks import Outcome, Task
from safeconsumer.worker.tracebacks import shown

PlaceHold: TypeAlias = Callable[[Scope, str, str, float], None]
"""Holds a scope in an owner's name, for a reason, for so many seconds."""

# The most characters of an error's text in a reason: 1,024 bytes, up to 4 each.
_MOST_TEXT = 200


class Barred(Exception):  # noqa: N818 - in the place of an error, for the schedule
    """A record failed because of an outage that the breaker knows: it is no attempt."""

    def __init__(self, error: Exception, seconds: float) -> None:
        super().__init__()
        self.error = error
        self.seconds = seconds


@define(eq=False, slots=False)
class Outages:
    """
    Places the holds that results ask for, before the results are taken over.

    So a failed record is behind its hold already when it is queued again. Whether a
    hold exists is asked of the ledger, never remembered.

    Attributes:
        pauses: how often a handler asked for a pause.
        opened: how often a breaker has opened and its hold was placed.
    """

    _queue: Queue
    _tell: Callable[..., None]
    _place: PlaceHold
    _breaker: Breaker | None
    pauses: int = 0
    opened: int = 0
    _in_a_row: dict[str, int] = field(factory=dict)

    # ------------------------------------------------------------ results

    def decide(self, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """Return results with the decisions about them; not to be called under a lock."""
        if self._breaker is None:
            for one in outcomes:
                if one.failed:
                    break
            else:
                return outcomes  # nearly always
        # Also for a partition that is being taken away: an outage does not end with it.
        return [
            one
            if one.task.epoch.is_closed or one.task.letter is not None
            else self._decide(one)
            for one in outcomes
        ]

    def _decide(self, outcome: Outcome) -> Outcome:
        task = outcome.task
        failed = [
            (
                index,
                self._pause(task, index, error) if isinstance(error, Pause) else error,
            )
            for index, error in outcome.failed
        ]
        outcome = evolve(outcome, failed=failed)
        return outcome if self._breaker is None else self._count(outcome)

    # ------------------------------------------------------------ pauses

    def _pause(self, task: Task, index: int, error: BaseException) -> BaseException:
        # Returns the error that the record has failed with, if the pause is not
        # allowed.
        pause = checked_pause(error)
        if not isinstance(pause, Pause) or pause.scope == "key":
            return pause
        tp, scope = task.epoch.tp, scope_of(task, pause)
        reason = pause.reason or (
            f"requested by the handler of {tp.topic}:{tp.partition} offset "
            f"{record_at(task.chunk, index).offset}"
        )
        left = self._held_for(scope)
        if left >= pause.for_:
            pause._held_for = left  # noqa: SLF001 - read for its event
            return pause
        try:
            self._place(scope, OUTAGE, reason, pause.for_)
        except Exception as wrong:  # noqa: BLE001 - it is the record's failure
            wrong.__cause__ = pause
            return wrong
        return pause

    def _held_for(self, scope: Scope) -> float:
        now = self._queue.clock()
        return max(
            (
                math.inf if hold.deadline is None else hold.deadline - now
                for hold in self._queue.ledger.view().holds.of(scope)
                if hold.owner == OUTAGE
            ),
            default=0.0,
        )

    # ------------------------------------------------------------ the breaker

    def _count(self, outcome: Outcome) -> Outcome:
        task = outcome.task
        named = next((one for _, one in outcome.failed if self._is_named(one)), None)
        if named is None and not self._in_a_row and not self._queue.tripped:
            return outcome  # nearly always
        error = "" if named is None else _text(named)
        with self._queue.held.lock:
            trip, is_new = self._judge(outcome, error)
        if trip is None or named is None:
            return outcome
        if is_new and not self._hold(task.epoch.tp.topic, trip):
            return outcome
        return self._barred(outcome, max(0.0, trip.until - self._queue.clock()))

    def _is_named(self, error: BaseException) -> bool:
        assert self._breaker is not None  # noqa: S101 - as above
        is_control = isinstance(error, (WorkerControl, HandlersFailError))
        return is_all(error, self._breaker.on) and not is_control

    def _judge(self, outcome: Outcome, error: str) -> tuple[Trip | None, bool]:
        # Returns what stops the topic now, and whether its hold is to be placed.
        assert self._breaker is not None  # noqa: S101 - as above
        task, now = outcome.task, self._queue.clock()
        topic = task.epoch.tp.topic
        trip = self._standing(topic, now)
        if task.epoch.is_closed or (trip is not None and not trip.is_tried_by(task)):
            # Its ownership has ended, or it began before the topic was stopped.
            return trip, False
        if trip is None:
            before = self._in_a_row.pop(topic, 0)
            count = (0 if outcome.finished else before) + bool(error)
            if count >= self._breaker.failures:
                return self._open(topic, Trip(now), error), True
            if count:
                self._in_a_row[topic] = count
            return None, False
        if error:
            trip.tries += 1
            return self._open(topic, trip, error), True
        if outcome.finished:
            self._close(topic, trip, is_lifted=False)
        else:  # no verdict on the outage: another record tries
            trip.task = None
            self._queue.release(topic)
        return None, False

    def _open(self, topic: str, trip: Trip, error: str) -> Trip:
        assert self._breaker is not None  # noqa: S101 - as above
        again = f"; {trip.tries} tries have failed since" if trip.tries else ""
        trip.reason = f"{error}, {self._breaker.failures} times in a row{again}"
        seconds = self._breaker.wait(trip.tries)
        trip.until = self._queue.clock() + seconds
        trip.is_placed, trip.task = False, None
        self._queue.tripped[topic] = trip
        self._tell(
            worker_events.BreakerOpened,
            topic=topic,
            tries=trip.tries,
            seconds=seconds,
            reason=trip.reason,
        )
        return trip

    def _hold(self, topic: str, trip: Trip) -> bool:
        # Nothing of the topic begins meanwhile, nor before it is known to be held.
        refused: BaseException | None = None
        try:
            seconds = max(0.001, trip.until - self._queue.clock())
            self._place(Topic(topic), BREAKER, trip.reason, seconds)
        except BaseException as error:
            refused = error
            if not isinstance(error, Exception):
                raise  # otherwise records fail as without a breaker
        finally:
            with self._queue.held.lock:
                trip.is_placed = True
                if refused is None:
                    self.opened += not trip.tries
                    self._queue.release(topic)
                else:
                    self._close(topic, trip, is_lifted=False, error=shown(refused))
        return refused is None

    def _barred(self, outcome: Outcome, seconds: float) -> Outcome:
        failed = [
            (index, Barred(one, seconds) if self._is_named(one) else one)  # type: ignore[arg-type]  # an Exception then
            for index, one in outcome.failed
        ]
        if not outcome.is_suspect:
            return evolve(outcome, failed=failed)
        # The failure was no single record's, so the batch comes again as one.
        left = [index for index, _ in failed[1:]]
        return evolve(
            outcome, failed=failed[:1], left=[*left, *outcome.left], is_suspect=False
        )

    def _standing(self, topic: str, now: float) -> Trip | None:
        trip = self._queue.tripped.get(topic)
        if trip is None:
            return None
        if trip.is_lifted or (trip.is_placed and now < trip.until):
            there = self._queue.ledger.peek().holds.of(Topic(topic))
            if trip.is_lifted or not any(hold.owner == BREAKER for hold in there):
                self._close(topic, trip, is_lifted=True)
                return None
        return trip

    def _close(
        self, topic: str, trip: Trip, *, is_lifted: bool, error: str | None = None
    ) -> None:
        del self._queue.tripped[topic]
        self._queue.release(topic)
        self._tell(
            worker_events.BreakerClosed,
            topic=topic,
            tries=trip.tries,
            seconds=self._queue.clock() - trip.since,
            is_lifted=is_lifted,
            error=error,
        )

    # ------------------------------------------------------------ as time goes by

    def turn(self) -> None:
        """Notice holds that were lifted, and let another record try. The lock is held."""
        tripped = self._queue.tripped
        for topic in tuple(tripped):
            trip = self._standing(topic, self._queue.clock())
            if trip is not None and trip.task is not None:
                if not trip.task.epoch.is_closed:
                    continue
                trip.task = None
            self._queue.release(topic)

    def stopped(self) -> dict[str, Trip]:
        """
        Return the topics that a breaker has stopped. The lock is held.

        A topic whose hold has ended and of which there is nothing here is left out: its
        present owner reports it, and here one record tries if any comes.
        """
        now = self._queue.clock()
        here = {tp.topic for tp, one in self._queue.held.epochs.items() if one.records}
        return {
            topic: trip
            for topic, trip in self._queue.tripped.items()
            if now < trip.until or topic in here
        }

    def broken(self) -> list[str]:
        """Report which topics a breaker has stopped, and why. Any thread."""
        with self._queue.held.lock:
            return list(self._lines())

    def _lines(self) -> Iterator[str]:
        now = self._queue.clock()
        for topic, trip in self.stopped().items():
            is_tried = trip.task is not None and not trip.task.epoch.is_closed
            then = "a record tries" if is_tried else "the next record tries"
            if now < trip.until:
                then = f"a record tries in {trip.until - now:.1f} s"
            yield f"{topic}: stopped by a breaker: {trip.reason}; {then}"


def checked_pause(error: BaseException) -> BaseException:
    """Return a pause whose fields are valid, or the error in them."""
    if not isinstance(error, Pause):
        return error
    try:
        pause = Pause(error.for_, error.scope, error.reason)
    except Exception as wrong:  # noqa: BLE001 - its fields may be anything
        wrong.__cause__ = error
        return wrong
    pause.__cause__ = error.__cause__
    pause._is_for_error = is_for_error(error)  # noqa: SLF001 - read for its event
    return pause


def scope_of(task: Task, pause: Pause) -> Scope:
    """Return the scope that a pause of a record covers."""
    tp = task.epoch.tp
    match pause.scope:
        case "partition":
            return Partition(tp.topic, tp.partition)
        case "topic":
            return Topic(tp.topic)
    return ALL


def _text(error: BaseException) -> str:
    # A reason is one line that can be printed.
    text = "".join(one if one.isprintable() else " " for one in shown(error))
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."
