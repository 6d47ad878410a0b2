"""Places the holds that handlers and breakers request."""

from collections.abc import Callable
from typing import TypeAlias

from attrs import define, evolve, field

from safeconsumer.errors.base import HandlersCannotRunError
from safeconsumer.holds.hold import BREAKER, OUTAGE, end_of
from safeconsumer.holds.scope import ALL, Partition, Scope, Topic, partition_text
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.breaker import Breaker, FailureSeries
from safeconsumer.worker.groups import is_all
from safeconsumer.worker.handlers import Pause, WorkerControl, is_for_error
from safeconsumer.worker.partition import Outcome, Task
from safeconsumer.worker.queue import Queue
from safeconsumer.worker.tracebacks import shown

PlaceHold: TypeAlias = Callable[[Scope, str, str, float], None]
"""Places a hold on a scope for an owner, with a reason, for a number of seconds."""

# The maximum number of characters of an error's text in a hold's reason, which may have
# 1,024 bytes, at up to 4 bytes per character.
_MOST_TEXT = 200


class OutageFailure(Exception):  # noqa: N818 - in the place of an error, for Decisions
    """
    A failure in an outage that a breaker has detected; it does not count as an attempt.

    Attributes:
        error: the handler's exception.
        seconds: the seconds for which the topic is still held.
    """

    def __init__(self, error: Exception, seconds: float) -> None:
        super().__init__()
        self.error = error
        self.seconds = seconds


@define(eq=False, slots=False)
class Outages:
    """
    Places the holds that failed records call for, before their results are processed.

    Thus a failed record is held already when it is queued again. Whether a hold exists
    is always read from the ledger, never remembered. A breaker counts consecutive
    failures. Its hold works like one that a handler requests: after its expiry the
    record that failed last is tried first. If a user lifts the hold, the breaker closes
    immediately. It does not wait for the next result, which may come after the hold
    would have expired. A breaker that was closed this way opens again at the first
    failure; otherwise a record without attempts left would fail for good in the outage.

    Attributes:
        pauses: the number of pauses that handlers requested.
        opened: how many times a breaker has opened and placed its hold.
    """

    _queue: Queue
    _emit_later: Callable[..., None]
    _place: PlaceHold
    _breaker: Breaker | None
    pauses: int = 0
    opened: int = 0
    _rows: dict[str, FailureSeries] = field(factory=dict)

    # ------------------------------------------------------------ results

    def decide(self, outcome: Outcome) -> Outcome:
        """
        Place an outcome's holds, and return the outcome; the caller must hold no lock.

        In the result, an ``OutageFailure`` replaces each failure of an outage, and an
        error replaces a pause that is invalid or could not be placed. In an outage, the
        result of a suspect batch keeps only the first failure, and is not suspect.
        """
        task = outcome.task
        if self._breaker is None and not outcome.failed:
            return outcome  # the usual case
        # Failures of a partition that is being taken away count, too, because the outage
        # continues.
        if task.epoch.is_closed or task.letter is not None:
            return outcome
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
        # Returns the pause, or an error if the pause is invalid or its hold could not be
        # placed.
        pause = checked_pause(error)
        if not isinstance(pause, Pause) or pause.scope == "key":
            return pause
        tp, scope = task.epoch.tp, scope_of(task, pause)
        reason = pause.reason or (
            f"requested by the handler of {partition_text(*tp)} offset "
            f"{task.record(index).offset}"
        )
        left = self._held_for(scope)
        if left >= pause.for_:
            pause._held_for = left  # noqa: SLF001 - for the event
            return pause
        try:
            self._place(scope, OUTAGE, reason, pause.for_)
        except Exception as wrong:  # noqa: BLE001 - a failure of the record
            wrong.__cause__ = pause
            return wrong
        return pause

    def _held_for(self, scope: Scope) -> float:
        now = self._queue.clock()
        return max(
            (
                end_of(hold) - now
                for hold in self._queue.ledger.view().holds.of(scope)
                if hold.owner == OUTAGE
            ),
            default=0.0,
        )

    # ------------------------------------------------------------ the breaker

    def _count(self, outcome: Outcome) -> Outcome:
        named = next((one for _, one in outcome.failed if self._is_named(one)), None)
        if named is None and not self._rows:
            return outcome  # the usual case
        topic = outcome.task.epoch.tp.topic
        error = "" if named is None else _text(named)
        with self._queue.kept.lock:
            seconds, is_new = self._judge(topic, error, is_well=bool(outcome.finished))
        is_held = self._hold(topic, seconds) if is_new else seconds > 0
        return self._as_outage(outcome, seconds) if is_held and error else outcome

    def _is_named(self, error: BaseException) -> bool:
        assert self._breaker is not None  # noqa: S101 - see decide()
        is_control = isinstance(error, (WorkerControl, HandlersCannotRunError))
        return is_all(error, self._breaker.on) and not is_control

    def _judge(self, topic: str, error: str, *, is_well: bool) -> tuple[float, bool]:
        # Returns for how many seconds to hold the topic, and whether a new hold is
        # needed.
        assert self._breaker is not None  # noqa: S101 - see decide()
        row, left = self._rows.get(topic), self._seconds_left(topic)
        if left:  # the handler's call had started before the topic was held
            return left, False
        now = self._queue.clock()
        if row is not None and now < row.until:
            row = self._lifted(topic)
        if is_well:
            self._close(topic, is_lifted=False)
            row = None
        if not error:
            return 0.0, False
        row = self._rows[topic] = FailureSeries() if row is None else row
        row.count += 1
        if row.count < self._breaker.failures:
            return 0.0, False
        again = f"; tries that have failed since: {row.holds}" if row.holds else ""
        row.reason = f"{error}, {self._breaker.failures} times in a row{again}"
        seconds = self._breaker.wait(row.holds)
        row.until, row.is_placed = now + seconds, False
        if not row.holds:
            row.since = now
        self._emit_later(
            worker_events.BreakerOpened,
            topic=topic,
            tries=row.holds,
            seconds=seconds,
            reason=row.reason,
        )
        row.holds += 1
        return seconds, True

    def _seconds_left(self, topic: str) -> float:
        # Returns for how many more seconds the breaker holds the topic; 0 if it does
        # not.
        row = self._rows.get(topic)
        if row is None:
            return 0.0
        left = max(0.0, row.until - self._queue.clock())
        if not left or not row.is_placed:
            return left
        there = self._queue.ledger.peek().holds.of(Topic(topic))
        return left if any(hold.owner == BREAKER for hold in there) else 0.0

    def close_lifted(self) -> None:
        """
        Close the breaker of each topic whose hold was lifted before its expiry.

        Any thread may call this, but not while it holds a lock of the worker. If a
        signal handler has interrupted the owner of the lock, the next call closes the
        breakers.
        """
        lock = self._queue.kept.lock
        if not self._rows or lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as in Queue.obey
            return
        with lock:
            for topic, row in tuple(self._rows.items()):
                # The hold is looked up before the clock is read. If the hold is gone
                # because it has expired, the clock then shows that.
                if not self._seconds_left(topic) and self._queue.clock() < row.until:
                    self._lifted(topic)

    def _lifted(self, topic: str) -> FailureSeries:
        # Closes the breaker, and sets its count so that the next failure opens it again;
        # a success resets the count.
        assert self._breaker is not None  # noqa: S101 - there is a row
        self._close(topic, is_lifted=True)
        row = self._rows[topic] = FailureSeries(count=self._breaker.failures - 1)
        return row

    def _hold(self, topic: str, seconds: float) -> bool:
        row = self._rows[topic]
        refused: BaseException | None = None
        try:
            self._place(Topic(topic), BREAKER, row.reason, max(0.001, seconds))
        except BaseException as error:
            refused = error
            if not isinstance(error, Exception):
                raise  # after an Exception, records fail as if there were no breaker
        finally:
            with self._queue.kept.lock:
                row.is_placed = True
                if refused is None:
                    self.opened += row.holds == 1
                else:
                    self._close(topic, is_lifted=False, error=shown(refused))
        return refused is None

    def _close(self, topic: str, *, is_lifted: bool, error: str | None = None) -> None:
        row = self._rows.pop(topic, None)
        if row is not None and row.holds:
            self._emit_later(
                worker_events.BreakerClosed,
                topic=topic,
                tries=row.holds - 1,
                seconds=self._queue.clock() - row.since,
                is_lifted=is_lifted,
                error=error,
            )

    def _as_outage(self, outcome: Outcome, seconds: float) -> Outcome:
        failed = [
            (index, OutageFailure(one, seconds) if self._is_named(one) else one)  # type: ignore[arg-type]  # an Exception
            for index, one in outcome.failed
        ]
        if not outcome.is_suspect:
            return evolve(outcome, failed=failed)
        # A single record does not cause an outage, so the batch is delivered again as a
        # whole.
        left = [index for index, _ in failed[1:]]
        return evolve(
            outcome, failed=failed[:1], left=[*left, *outcome.left], is_suspect=False
        )

    def held_topics(self) -> dict[str, FailureSeries]:
        """
        Return the topics that the breaker holds or retries. The caller holds the lock.

        The result excludes a topic whose hold was lifted. It also excludes a topic
        whose hold has expired if this member has no records of it, because its current
        owner reports it.
        """
        now = self._queue.clock()
        here = {tp.topic for tp, one in self._queue.kept.epochs.items() if one.records}
        return {
            topic: row
            for topic, row in self._rows.items()
            if row.holds
            and (self._seconds_left(topic) if now < row.until else topic in here)
        }

    def problems(self) -> list[str]:
        """
        Describe each topic that the breaker holds or is about to retry.

        Any thread may call this.
        """
        with self._queue.kept.lock:
            now, topics = self._queue.clock(), self.held_topics()
        return [
            f"{topic}: stopped by a breaker: {row.reason}; "
            + (
                f"held for {row.until - now:.1f} s"
                if now < row.until
                else "tried again"
            )
            for topic, row in topics.items()
        ]


def checked_pause(error: BaseException) -> BaseException:
    """Return the pause if its fields are valid, otherwise an error that describes them."""
    if not isinstance(error, Pause):
        return error
    try:
        pause = Pause(error.for_, error.scope, error.reason)
    except Exception as wrong:  # noqa: BLE001 - the fields may have any value
        wrong.__cause__ = error
        return wrong
    pause.__cause__ = error.__cause__
    pause._is_for_error = is_for_error(error)  # noqa: SLF001 - for the event
    return pause


def scope_of(task: Task, pause: Pause) -> Scope:
    """Return the scope that a record's pause covers."""
    tp = task.epoch.tp
    match pause.scope:
        case "partition":
            return Partition(tp.topic, tp.partition)
        case "topic":
            return Topic(tp.topic)
    return ALL


def _text(error: BaseException) -> str:
    # Makes the text fit into a reason, which is one printable line.
    text = "".join(one if one.isprintable() else " " for one in shown(error))
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."
