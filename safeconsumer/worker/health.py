"""Reports a worker's health, its problems and its current numbers."""

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
    The result of a worker's run.

    Attributes:
        done: the number of completed records: handled, acknowledged as dead letters, or
            skipped.
        dropped: the number of records that were dropped, and will be delivered again.
        dropped_by_reason: the number of dropped records by reason: ``revoked``,
            ``lost``, ``moved`` (by a seek, ``reset-offsets`` or an offset out of
            range), or ``stopped``. Together with ``done`` and ``refetched`` they add up
            to all records that polls returned.
        refetched: the number of records that were given back, to make room, and fetched
            again later.
        given_up: the number of dropped records that handlers were still working on when
            the worker stopped.
        dead_letters: the number of records acknowledged as dead letters.
        skipped: the number of records that failed for good and were skipped.
        gone: the number of offsets whose records were deleted before the worker read
            them, for example by retention.
        committed: whether the last commit succeeded, and no record that was completed
            since then is uncommitted.
        seconds: the seconds from the request to stop until the worker was closed.
        hanging: the ``repr`` of a hook that had been called with an event and had not
            returned for a second or more; None if all hooks had returned. If the
            polling thread was in the hook, another thread has closed the worker. If a
            handler's thread was in the hook, that thread was left running.
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
    A snapshot of a worker's numbers.

    Each record that a poll returned is ``done``, ``dropped``, ``refetched`` or still
    held in memory.

    Attributes:
        state: ``new``, ``running``, ``draining`` or ``closed``.
        partitions: the number of partitions that have records in memory.
        queued: the number of records that wait for a handler.
        running: the number of records that are handed over to handlers. Handlers work
            on some of these, and the others follow in the same hand-over. Records of
            partitions that were taken away count until their hand-over ends.
        bytes: the size of queued and running records, and of finished ones that were
            handed over together with running ones. Records of partitions that were
            taken away do not count.
        done: the number of records completed so far.
        retries: the number of retries of records.
        dead_letters: the number of records acknowledged as dead letters.
        skipped: the number of records that failed for good and were skipped.
        dropped: the number of records dropped because of a rebalance, a stop or a moved
            position. The current or next owner gets these records again, except those
            that the position has skipped.
        dropped_by_reason: the number of dropped records by reason: ``revoked``,
            ``lost``, ``moved`` (by a seek, ``reset-offsets`` or an offset out of
            range), or ``stopped``.
        gone: the number of offsets whose records were deleted before the worker read
            them, for example by retention.
        leaked: the number of records that polls returned in spite of the worker's own
            holds; a value above 0 is a defect.
        refetched: the number of queued records that were given back, mostly to make
            room for partitions without records; they are delivered again.
        commits: the number of commits that succeeded.
        commits_failed: the number of commits that were refused or not sent.
        commits_failing: the seconds for which no commit has succeeded although an
            offset waits to be committed, including the first offset of a partition; 0
            while commits succeed.
        commit_lag: the number of offsets that are complete and not committed. A
            partition whose first offset is not committed yet counts as 0, because none
            of its records is handled before that commit.
        lag: the number of records held in memory, plus the offsets that are not polled
            yet, as of the last fetches. The lag is None while some partition has never
            been fetched, or is held, because its new records are then unknown. The
            worker's own backpressure does not count as such a hold.
        pauses: the number of pauses that handlers requested.
        breaker_opened: how many times a breaker has stopped a topic.
        breaker_open: the number of topics that a breaker has currently stopped. A topic
            whose hold has expired counts while this member has records from it and none
            has succeeded. A topic that other members now own counts until its hold
            expires.
        paused: the owner names of the worker's holds that are currently in force.
        pause_seconds: for each of the worker's owner names except ``worker:outage``,
            ``worker:breaker`` and ``worker:unreadable``, the total seconds for which it
            has held some partition.
        handler_seconds: the durations of handler calls per record, failed records
            included. If several records were handed over together, each of them counts
            with their mean duration.
        poll_gap: the longest time between two polls, in seconds, drains excluded.
        last_poll_at: when the loop last polled, in seconds since the epoch; None if the
            loop has not started, or has stopped on request and without an error.
        alarms: the number of events of level warning or error, by name, except events
            that another attribute counts.
        hook_failures: the number of exceptions of ``on_event`` and of the tracer;
            :attr:`Worker.hook_failures` has a number for each of them.
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


def snapshot(  # noqa: PLR0913 - one for each source of numbers
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
    Return the current numbers, and change nothing. Any thread may call this.

    The call holds the worker's lock while it counts records, but takes no lock of the
    consumer, because it reads the holds that were applied last.

    Args:
        state: the worker's state.
        engine: the worker's loop.
        decisions: the worker's decisions about results.
        lag: the number of offsets that have not been polled yet; None if unknown.
        alarms: the number of events of level warning or error, by event name.
        hook_failures: the number of exceptions of event hooks and of the tracer.
        last_poll_at: the time at which the loop last polled.
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


# Seconds after which the sink is reported if it has not finished a letter. A producer
# may wait in ``send()`` for the metadata of an unknown topic, or for an
# acknowledgement.
_SLOW_LETTER = 5.0
# A loop is stuck if it has not polled for two poll timeouts plus this many seconds.
_GRACE = 1.0


@frozen(kw_only=True)
class Health:
    """
    The health of a worker; true in a boolean context if the worker is healthy.

    Attributes:
        is_alive: whether the loop is polling, or has not started yet. Use ``is_alive``
            for a liveness probe, because slow handlers, failing records and a topic
            without new records are no reason for a restart.
        reasons: one text per problem; empty if there is no problem.
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
    Return a worker's health, after checks of its loop, slots and failed records.

    Args:
        engine: the worker's loop.
        slots: the slots in which handlers run, and the slots of a pump's batches.
        age: the limit in seconds for each of these: a handler's call, the wait for a
            batch's answer, the time for which a failed record blocks, and the time
            without a completed record while there is no room for more records.
        problems: other problems of the worker, such as topics that a breaker has
            stopped.
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
        # A record that becomes a dead letter has blocked for at least as long, and is
        # reported below.
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
    """Yield each slot whose current record takes too long, with the record and the time."""
    for slot in slots:
        task, index, began = slot.task, slot.index, slot.began
        limit = age if slot.limit is None else min(age, slot.limit)
        if task is not None and task.letter is not None:
            limit = _SLOW_LETTER
        if task is None or now - began < limit:
            continue
        # the slot has not gone on to another record since it was read
        if index in task.indexes and is_at(slot, task, index):
            yield slot, task, index, now - began


def is_at(slot: Slot, task: Task, index: int) -> bool:
    """Return whether a slot still works on a record; this may change at any time."""
    return slot.task is task and slot.index == index


def running_offsets(
    slots: Sequence[Slot], *, is_batch: bool
) -> dict[TopicPartition, list[int]]:
    """Return the offsets that handlers work on; for a batch, all its unfinished offsets."""
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
    """Emit an event, once, for each record whose handler has stalled."""
    for slot, task, index, seconds in stalled(slots, age, time.monotonic()):
        reported, slot.reported = slot.reported, (task, index)
        if reported == (task, index):
            continue
        tp = task.epoch.tp
        record, stack = task.records[index], slot.stack()
        if not is_at(slot, task, index):
            continue  # the slot has gone on to another record, for example while a hook ran
        emit(
            worker_events.HandlerStalled,
            partition=partition_text(*tp),
            offset=-1 if record is None else record.offset,
            seconds=seconds,
            stack=stack,
            is_letter=task.letter is not None,
        )
