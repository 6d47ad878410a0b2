"""
Says whether a worker is well, why not, and its numbers of this moment.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from attrs import field, frozen
from kafka.structs import TopicPartition

from safeconsumer.events import worker as worker_events
from safeconsumer.holds.hold import BREAKER, OUTAGE
from safeconsumer.worker.client import Emitter
from safeconsumer.worker.handlers import Slot
from safeconsumer.worker.loop import OWNERS, Engine
from safeconsumer.worker.queue import Task
from safeconsumer.worker.results import Histogram, Schedule
from safeconsumer.worker.tracebacks import shown


@frozen(kw_only=True)
class Report:
    """
    How a worker ended.

    Attributes:
        done: records completed in its life: handled, dead letters, and skipped.
        dropped: records given up in its life: revoked, lost, or unfinished when it
            stopped.
        given_up: those of them that a handler still worked on when it stopped.
        dead_letters: records acknowledged as dead letters.
        skipped: records that failed for good and were passed over.
        committed: whether the last commit went through, and nothing complete has gone
            without one since.
        seconds: from the request to stop until it was closed.
    """

    done: int
    dropped: int
    given_up: int
    dead_letters: int
    skipped: int
    committed: bool
    seconds: float


@frozen(kw_only=True)
class Stats:
    """
    A worker's numbers of one moment.

    Attributes:
        state: ``new``, ``running``, ``draining`` or ``closed``.
        partitions: with records held.
        queued: records that wait.
        running: records that are handed over: those that handlers work on, also of
            partitions that are gone, and those that stand behind them.
        bytes: of what waits and runs, without partitions that are gone.
        done: records completed so far.
        retries: how often a record was tried again.
        dead_letters: acknowledged.
        skipped: failed for good and passed over.
        dropped: given up on a rebalance or stop; whoever owns them gets them again.
        leaked: records that came in spite of a hold of ours; 0, or it is a defect.
        commits: that went through.
        commits_failed: refused or not sent.
        commit_lag: offsets complete and not committed.
        lag: records held, and offsets not polled yet as far as fetches have told.
        span: the longest distance from a first incomplete record to the last.
        pauses: how often a handler asked for a pause.
        breaker_opened: how often a breaker has stopped a topic.
        breaker_open: topics that a breaker has stopped now; of some one record tries,
            or is to. One that has gone to other members counts as long as its hold.
        paused: owners of ours that hold something now.
        pause_seconds: by owner of ours, for how long it has held something.
        handler_seconds: how long handlers took for a record, also for one that failed;
            of records that were handed over together, each counts with their mean.
        drain_seconds: spent waiting for running handlers.
        poll_gap: the longest time between two polls, in seconds, drains left out.
        last_poll_at: when its loop last turned, seconds since the epoch; None if it
            has not begun, or has ended as it was asked to and not by an error.
        alarms: how often something happened that a warning or an error tells of and no
            other number; by the name of the event.
        hook_failures: how often ``on_event`` raised.
    """

    state: str
    partitions: int
    queued: int
    running: int
    bytes: int
    done: int
    retries: int
    dead_letters: int
    skipped: int
    dropped: int
    leaked: int
    commits: int
    commits_failed: int
    commit_lag: int
    lag: int
    span: int
    pauses: int
    breaker_opened: int
    breaker_open: int
    paused: tuple[str, ...]
    pause_seconds: Mapping[str, float]
    handler_seconds: Histogram
    drain_seconds: float
    poll_gap: float
    last_poll_at: float | None
    alarms: Mapping[str, int]
    hook_failures: int


def taken(  # noqa: PLR0913 - one for each that knows some of it
    state: str,
    engine: Engine,
    schedule: Schedule,
    *,
    lag: int,
    emit: Emitter,
    last_poll_at: float | None,
) -> Stats:
    """
    Return the numbers of this moment. Any thread.

    Args:
        state: of the worker.
        engine: its loop.
        schedule: its work.
        lag: offsets that are there and not polled yet.
        emit: what its events go through.
        last_poll_at: when its loop last turned.
    """
    held, brakes = engine.held, engine.brakes
    with held.lock:
        spans = [
            epoch.progress.span() for epoch in held.epochs.values() if epoch.records
        ]
        queued, running = held.records - held.running, held.running
        running += held.outlived.total()
        handler_seconds = schedule.durations.taken()
        stopped = schedule.outages.stopped()
    return Stats(
        state=state,
        partitions=len(spans),
        queued=queued,
        running=running,
        bytes=held.bytes,
        done=held.done,
        retries=schedule.retries,
        dead_letters=schedule.dead_letters,
        skipped=schedule.skipped,
        dropped=engine.departures.dropped,
        leaked=engine.leaked,
        commits=engine.commits.succeeded,
        commits_failed=engine.commits.failed,
        commit_lag=engine.commits.lag(),
        lag=held.records + lag,
        span=max(spans, default=0),
        pauses=schedule.outages.pauses,
        breaker_opened=schedule.outages.opened,
        breaker_open=len(stopped),
        paused=tuple(_paused(engine, schedule)),
        pause_seconds={**brakes.pause_seconds, **schedule.outages.seconds},
        handler_seconds=handler_seconds,
        drain_seconds=engine.departures.seconds,
        poll_gap=engine.gap,
        last_poll_at=last_poll_at,
        alarms=dict(emit.counts.alarms),
        hook_failures=sum(emit.failures.values()),
    )


def _paused(engine: Engine, schedule: Schedule) -> Iterator[str]:
    yield from (owner for owner in OWNERS if engine.brakes.is_held(owner))
    others = schedule.queue.others
    if others is not None:
        there = {hold.owner for hold in others.look().state}
        yield from (owner for owner in (OUTAGE, BREAKER) if owner in there)


# A loop that has not polled for two of its polls and this long does not turn.
_GRACE = 1.0


@frozen(kw_only=True)
class Health:
    """
    Whether a worker is well; true if it is.

    Attributes:
        is_alive: its loop turns, or has not begun. A liveness probe asks this: slow
            handlers, failing records and a silent topic are no reason to be restarted.
        reasons: what is wrong; empty if nothing is.
    """

    is_alive: bool
    reasons: tuple[str, ...] = field(factory=tuple)

    def __bool__(self) -> bool:
        return self.is_alive and not self.reasons


def turns(engine: Engine, now: float) -> bool:
    """
    Tell whether the loop turns.
    """
    return now - engine.polled_at <= 2 * engine.poll_timeout + _GRACE


def ended(error: BaseException | None) -> Health:
    """
    Return how a worker is that is closed.
    """
    why = "it has ended" if error is None else f"it has ended: {shown(error)}"
    return Health(is_alive=False, reasons=(why,))


def examine(
    engine: Engine,
    slots: Sequence[Slot],
    age: float,
    *,
    broken: Sequence[str] = (),
) -> Health:
    """
    Look at the loop, at each handler and what runs it, and at what failed for good.

    Args:
        engine: the loop.
        slots: where handlers run.
        age: seconds that one may take, and what failed may block.
        broken: what a breaker has stopped, and what keeps commits from going through.
    """
    now = time.monotonic()
    is_alive = turns(engine, now)
    reasons = [] if is_alive else [f"no poll for {now - engine.polled_at:.1f} s"]
    reasons += [
        f"{slot.name} has ended: {shown(slot.ended)}"
        for slot in slots
        if slot.ended is not None
    ]
    if engine.why_nothing is not None:
        reasons.append(f"nothing to consume: {engine.why_nothing}")
    reasons += broken
    late = list(stalled(slots, age, now))
    ask(late)
    for slot, task, seconds in late:
        reasons.append(
            f"{place(task, slot.index)}: its handler runs for {seconds:.1f} s\n"
            f"{slot.stack() or ''}".rstrip()
        )
    for tp, offset, since in engine.held.stuck():
        if now - since >= age:
            reasons.append(
                f"{tp.topic}:{tp.partition} offset {offset} failed for good "
                f"{now - since:.1f} s ago and blocks"
            )
    return Health(is_alive=is_alive, reasons=tuple(reasons))


Stalled: TypeAlias = tuple[Slot, Task, float]


def stalled(slots: Sequence[Slot], age: float, now: float) -> Iterator[Stalled]:
    """
    Yield the places where a handler works on one record for too long.
    """
    for slot in slots:
        task, began = slot.task, slot.began
        if task is not None and now - began >= min(age, slot.limit):
            yield slot, task, now - began


def ask(late: Sequence[Stalled]) -> None:
    """
    Have all of them say where they stand before the first of them is waited for.
    """
    for slot, _, _ in late:
        slot.ask()


def at_work(
    slots: Sequence[Slot], *, is_batch: bool
) -> dict[TopicPartition, list[int]]:
    """
    Return the offsets that handlers are at; of a batch, all that are not finished.

    And those behind it that begin without asking, in a process.
    """
    found: dict[TopicPartition, list[int]] = {}
    for slot in slots:
        task, index = slot.task, slot.index
        if task is None:
            continue
        indexes: list[int] = list(task.indexes)
        if not is_batch and index >= 0:
            at = indexes.index(index) if index in indexes else len(indexes)
            indexes = indexes[at:] if slot.goes_on else indexes[at : at + 1]
        there = [task.chunk.records[at] for at in indexes]
        offsets = [record.offset for record in there if record is not None]
        found.setdefault(task.epoch.tp, []).extend(offsets)
    return found


def given_up(slots: Sequence[Slot], *, is_batch: bool) -> int:
    """
    Count the records that handlers are at.
    """
    tasks = [task for slot in slots if (task := slot.task) is not None]
    return sum(len(task.indexes) if is_batch else 1 for task in tasks)


def tell_stalls(slots: Sequence[Slot], age: float, emit: Callable[..., None]) -> None:
    """
    Emit an event for each new stall.
    """
    late = [
        one
        for one in stalled(slots, age, time.monotonic())
        if one[0].told != (one[1], one[0].index)
    ]
    ask(late)
    for slot, task, seconds in late:
        slot.told = (task, slot.index)
        tp = task.epoch.tp
        record = None if slot.index < 0 else task.chunk.records[slot.index]
        emit(
            worker_events.HandlerStalled,
            partition=f"{tp.topic}:{tp.partition}",
            offset=-1 if record is None else record.offset,
            seconds=seconds,
            stack=slot.stack(),
        )


def place(task: Task, index: int) -> str:
    """
    Name a record, or those of which it is one.
    """
    tp = task.epoch.tp
    there = task.indexes if index < 0 else (index,)
    offsets = [one.offset for at in there if (one := task.chunk.records[at])]
    where = f"offset {offsets[0]}" if offsets else "a finished record"
    if offsets[1:]:
        where = f"one of offsets {offsets[0]} to {offsets[-1]}"
    return f"{tp.topic}:{tp.partition} {where}"
