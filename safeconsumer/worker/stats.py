"""
A worker in numbers, of one moment and at the end.
"""

from collections.abc import Mapping

from attrs import frozen

from safeconsumer.worker.brakes import OWNERS
from safeconsumer.worker.engine import Engine
from safeconsumer.worker.histogram import Histogram
from safeconsumer.worker.schedule import Schedule


@frozen(kw_only=True)
class Report:
    """
    How a worker ended.

    Attributes:
        done: records completed in its life.
        dropped: records given up: revoked, lost, or unfinished when it stopped.
        given_up: those of them that a handler still worked on when it stopped.
        dead_letters: records acknowledged as dead letters.
        skipped: records that failed for good and were passed over.
        committed: whether the last commit went through.
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
        running: records that handlers work on.
        bytes: of both.
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
        paused: owners of ours that hold something now.
        pause_seconds: by owner of ours, for how long it has held something.
        handler_seconds: how long handlers took for a record; of records that were
            handed over together, each counts with their mean.
        drain_seconds: spent waiting for running handlers.
        poll_gap: the longest time between two polls, in seconds, drains left out.
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
    paused: tuple[str, ...]
    pause_seconds: Mapping[str, float]
    handler_seconds: Histogram
    drain_seconds: float
    poll_gap: float


def taken(state: str, engine: Engine, schedule: Schedule, lag: int) -> Stats:
    """
    Return the numbers of this moment. Any thread.

    Args:
        state: of the worker.
        engine: its loop.
        schedule: its work.
        lag: offsets that are there and not polled yet.
    """
    held, brakes = engine.held, engine.brakes
    with held.lock:
        spans = [
            epoch.progress.span() for epoch in held.epochs.values() if epoch.records
        ]
        queued, running = held.records - held.running, held.running
        handler_seconds = schedule.durations.taken()
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
        paused=tuple(owner for owner in OWNERS if brakes.is_held(owner)),
        pause_seconds=dict(brakes.pause_seconds),
        handler_seconds=handler_seconds,
        drain_seconds=engine.departures.seconds,
        poll_gap=engine.gap,
    )
