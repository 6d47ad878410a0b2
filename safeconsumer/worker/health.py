"""Reports whether a worker is well, its problems, and its current numbers."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import field, frozen
from kafka.structs import TopicPartition

from safeconsumer.holds.hold import BREAKER, OUTAGE
from safeconsumer.holds.scope import partition_text
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.brakes import OWNERS
from safeconsumer.worker.calls import Slot
from safeconsumer.worker.client import UNREADABLE
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.durations import Histogram
from safeconsumer.worker.loop import Engine
from safeconsumer.worker.partition import Task
from safeconsumer.worker.tracebacks import shown


@frozen(kw_only=True)
class Report:
    """
    The way in which a worker ended.

    Attributes:
        done: records completed: handled, acknowledged as dead letters, or skipped.
        dropped: records that were dropped; they are delivered again.
        dropped_by_reason: how many of these, by reason: ``revoked``, ``lost``, ``moved``
            by a seek, ``reset-offsets`` or an offset out of range, or ``stopped``. With
            ``done`` and ``refetched`` they are all records that polls returned.
        refetched: records that were given back, to make room, and fetched again later.
        given_up: the dropped records on which a handler still worked when it stopped.
        dead_letters: records acknowledged as dead letters.
        skipped: records that failed for good and were passed over.
        gone: offsets whose records were deleted before the worker read them, by
            retention for example.
        committed: whether the last commit succeeded, and every completed record since
            was committed, too.
        seconds: seconds from the request to stop until it was closed.
        hanging: the hook, by its ``repr``, to which an event was given and which did not
            return for a second or more. If the polling thread was in it, another thread
            has ended the worker; if a handler's thread was, that thread is left behind.
            None: all hooks returned.
    """

    done: int
    dropped: int
    dropped_by_reason: Mapping[str, int]
    refetched: int
    given_up: int
    dead_letters: int
    skipped: int
    gone: int
    committed: bool
    seconds: float
    hanging: str | None = None


@frozen(kw_only=True)
class Stats:
    """
    A worker's numbers at one moment.

    Each record that a poll returned is ``done``, ``dropped``, ``refetched``, or here.

    Attributes:
        state: ``new``, ``running``, ``draining`` or ``closed``.
        partitions: partitions with records held.
        queued: records that wait.
        running: records that are handed over: those that handlers work on, also of
            partitions that are gone, and on threads those handed over behind them.
        bytes: the size of waiting and running records, and of finished ones that were
            handed over together with running ones, without partitions that are gone.
        done: records completed so far.
        retries: how often a record was tried again.
        dead_letters: records acknowledged as dead letters.
        skipped: records that failed for good and were passed over.
        dropped: records dropped at a rebalance, a stop or a move of the position. The
            present or next owner gets those again that the position has not passed.
        dropped_by_reason: how many of these, by reason: ``revoked``, ``lost``, ``moved``
            by a seek, ``reset-offsets`` or an offset out of range, or ``stopped``.
        gone: offsets whose records were deleted before the worker read them, by
            retention for example.
        leaked: records that came in spite of a hold of the worker; a value above 0 is a
            defect.
        refetched: records that waited and were given back, mostly to make room for
            partitions that had none; they are delivered again.
        commits: commits that succeeded.
        commits_failed: commits that were refused or not sent.
        commits_failing: seconds for which no commit has succeeded although an offset
            waits for it, be it the first of an ownership; 0 while commits succeed.
        commit_lag: offsets complete and not committed; 0 for an ownership whose first
            offset is not committed yet, since none of its records is handled before
            that.
        lag: records held, and offsets not polled yet by what the last fetches reported;
            None while a partition was never fetched, or is held, as no fetch would show
            new records. The worker's own backpressure is no such hold.
        pauses: the number of pauses that handlers requested.
        breaker_opened: how often a breaker has stopped a topic.
        breaker_open: topics that a breaker has stopped now, also while one of their
            records is tried or is about to be. A topic that has gone to other members
            counts until its hold ends.
        paused: the worker's owners that hold a partition now.
        pause_seconds: for each of the worker's owners except ``worker:outage``,
            ``worker:breaker`` and ``worker:unreadable``, for how many seconds it has
            held a partition.
        handler_seconds: the durations of handlers for a record, also for a failed one;
            records that were handed over together each count with their mean.
        poll_gap: the longest time between two polls, in seconds, without drains.
        last_poll_at: when the loop last turned, in seconds since the epoch; None if the
            loop has not begun, or has ended as requested, without an error.
        alarms: by the name of an event of level warning or error, the number of these
            events, unless another number counts them.
        hook_failures: how often ``on_event`` raised, and the tracer under ``trace``;
            :attr:`Worker.hook_failures` has each.
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
    dropped_by_reason: Mapping[str, int]
    gone: int
    leaked: int
    refetched: int
    commits: int
    commits_failed: int
    commits_failing: float
    commit_lag: int
    lag: int | None
    pauses: int
    breaker_opened: int
    breaker_open: int
    paused: tuple[str, ...]
    pause_seconds: Mapping[str, float]
    handler_seconds: Histogram
    poll_gap: float
    last_poll_at: float | None
    alarms: Mapping[str, int]
    hook_failures: int


def snapshot(  # noqa: PLR0913 - one for each that knows some of it
    state: str,
    engine: Engine,
    decisions: Decisions,
    *,
    lag: int | None,
    alarms: Mapping[str, int],
    hook_failures: int,
    last_poll_at: float | None,
) -> Stats:
    """
    Return the numbers at this moment; changes nothing. Any thread.

    The call takes the worker's lock while it counts records, and no lock of the
    consumer: it reads the holds that were applied last.

    Args:
        state: the worker's state.
        engine: the worker's loop.
        decisions: the worker's decisions about results.
        lag: the number of offsets that were not polled yet; None: unknown.
        alarms: the number of events of level warning or error, by name.
        hook_failures: how often a hook for events, or the tracer, raised.
        last_poll_at: when the loop last turned.
    """
    kept, brakes = engine.kept, engine.brakes
    with kept.lock:
        partitions = sum(bool(epoch.records) for epoch in kept.epochs.values())
        queued, finished = kept.records - kept.running, kept.finished()
        running = kept.running - finished + kept.left_running()
        done, held = kept.done + finished, kept.records - finished
        handler_seconds = decisions.durations.histogram()
        stopped = decisions.outages.held_topics()
    return Stats(
        state=state,
        partitions=partitions,
        queued=queued,
        running=running,
        bytes=kept.bytes,
        done=done,
        retries=decisions.retries,
        dead_letters=decisions.dead_letters,
        skipped=decisions.skipped,
        dropped=engine.departures.dropped.total(),
        dropped_by_reason=dict(engine.departures.dropped),
        gone=engine.gone,
        leaked=engine.leaked,
        refetched=brakes.refetched,
        commits=engine.commits.succeeded,
        commits_failed=engine.commits.failed,
        commits_failing=engine.commits.failing(),
        commit_lag=engine.commits.lag(),
        lag=None if lag is None else held + lag,
        pauses=decisions.outages.pauses,
        breaker_opened=decisions.outages.opened,
        breaker_open=len(stopped),
        paused=tuple(_paused(engine, decisions)),
        pause_seconds=dict(brakes.pause_seconds),
        handler_seconds=handler_seconds,
        poll_gap=engine.gap,
        last_poll_at=last_poll_at,
        alarms=dict(alarms),
        hook_failures=hook_failures,
    )


def _paused(engine: Engine, decisions: Decisions) -> Iterator[str]:
    yield from (owner for owner in OWNERS if engine.brakes.is_held(owner))
    there = {hold.owner for hold in decisions.queue.ledger.peek().holds}
    yield from (owner for owner in (UNREADABLE, OUTAGE, BREAKER) if owner in there)


# Seconds after which a sink that still has a letter is reported: a producer may wait in
# ``send`` for the metadata of an unknown topic, or for its acknowledgement.
_SLOW_LETTER = 5.0
# A loop that has not polled for two poll times and this many seconds is stuck.
_GRACE = 1.0


@frozen(kw_only=True)
class Health:
    """
    The health of a worker; it is true if the worker is well.

    Attributes:
        is_alive: whether the loop turns, or has not begun. Use it for a liveness probe:
            slow handlers, failing records and a silent topic are no reason for a
            restart.
        reasons: the problems, one text each; empty if there are none.
    """

    is_alive: bool
    reasons: tuple[str, ...] = field(factory=tuple)

    def __bool__(self) -> bool:
        return self.is_alive and not self.reasons


def ended(error: BaseException | None) -> Health:
    """Return the health of a closed worker."""
    why = "it has ended" if error is None else f"it has ended: {shown(error)}"
    return Health(is_alive=False, reasons=(why,))


def examine(
    engine: Engine,
    slots: Sequence[Slot],
    age: float,
    *,
    problems: Sequence[str] = (),
) -> Health:
    """
    Check the loop, each handler and its slot, and the records that failed for good.

    Args:
        engine: the worker's loop.
        slots: the slots in which handlers run, and a pump's batches.
        age: seconds that a handler or an answer may take, that a failed record may
            block, or that may pass without a completed record while all room is taken.
        problems: the topics that a breaker has stopped, and why commits do not succeed.
    """
    now = time.monotonic()
    is_alive = now - engine.polled_at <= 2 * engine.poll_timeout + _GRACE
    reasons = [] if is_alive else [f"no poll for {now - engine.polled_at:.1f} s"]
    reasons += [
        f"{slot.name} has ended: {shown(slot.ended)}"
        for slot in slots
        if slot.ended is not None
    ]
    if engine.idle_reason is not None:
        reasons.append(f"nothing to consume: {engine.idle_reason}")
    reasons += problems
    since = engine.brakes.stalled_since()
    if since is not None and now - since >= age:
        reasons.append(
            f"all room is taken by {engine.kept.records:,} records, and none was "
            f"completed for {now - since:.1f} s"
        )
    for slot, task, index, seconds in stalled(slots, age, now):
        stack = slot.stack() or ""
        # A letter's record has blocked at least as long, and is reported below.
        if task.letter is None and is_at(slot, task, index):
            reasons.append(
                f"{task.place(index)}: {slot.doing} for {seconds:.1f} s\n"
                f"{stack}".rstrip()
            )
    for tp, offset, since in engine.kept.blocking():
        if now - since >= age:
            reasons.append(
                f"{partition_text(*tp)} offset {offset} failed for good "
                f"{now - since:.1f} s ago and blocks"
            )
    return Health(is_alive=is_alive, reasons=tuple(reasons))


def stalled(
    slots: Sequence[Slot], age: float, now: float
) -> Iterator[tuple[Slot, Task, int, float]]:
    """Yield each slot whose handler works on one record for too long, and the record."""
    for slot in slots:
        task, index, began = slot.task, slot.index, slot.began
        limit = age if slot.limit is None else min(age, slot.limit)
        if task is not None and task.letter is not None:
            limit = _SLOW_LETTER
        if task is None or now - began < limit:
            continue
        # and has not continued since
        if index in task.indexes and is_at(slot, task, index):
            yield slot, task, index, now - began


def is_at(slot: Slot, task: Task, index: int) -> bool:
    """Return whether a slot is still at a record: its thread may continue at any moment."""
    return slot.task is task and slot.index == index


def running_offsets(
    slots: Sequence[Slot], *, is_batch: bool
) -> dict[TopicPartition, list[int]]:
    """Return the offsets that handlers work on; of a batch, all that are not finished."""
    found: dict[TopicPartition, list[int]] = {}
    for slot in slots:
        task, index = slot.task, slot.index
        if task is None:
            continue
        indexes: list[int] = list(task.indexes)
        if not is_batch:
            at = indexes.index(index) if index in indexes else len(indexes)
            indexes = indexes[at : at + 1]
        there = [task.records[at] for at in indexes]
        offsets = [record.offset for record in there if record is not None]
        found.setdefault(task.epoch.tp, []).extend(offsets)
    return found


def report_stalls(slots: Sequence[Slot], age: float, emit: Callable[..., None]) -> None:
    """Emit an event for each new stall."""
    for slot, task, index, seconds in stalled(slots, age, time.monotonic()):
        reported, slot.reported = slot.reported, (task, index)
        if reported == (task, index):
            continue
        tp = task.epoch.tp
        record, stack = task.records[index], slot.stack()
        if not is_at(slot, task, index):
            continue  # it continued, for example while a hook handled the last event
        emit(
            worker_events.HandlerStalled,
            partition=partition_text(*tp),
            offset=-1 if record is None else record.offset,
            seconds=seconds,
            stack=stack,
            is_letter=task.letter is not None,
        )
