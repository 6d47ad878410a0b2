"""
Events of workers and pumps.
"""

from typing import ClassVar

from safeconsumer.events.consumer import Event, Partitions, event


@event
class WorkerEvent(Event):
    """
    Parent of what happens in a worker or a pump.
    """

    __match_args__ = ("name",)
    name: ClassVar[str] = "worker"


@event
class PartitionStarted(WorkerEvent):
    """
    An ownership of a partition began, and where its first record is looked for.

    Again if that turns out to be out of range, and ``auto_offset_reset`` chooses.

    Attributes:
        partition: such as ``orders:3``.
        offset: of the next record, if there is one.
        is_committed: whether the group had committed it, unless somebody sought; else
            ``auto_offset_reset`` has chosen it.
        is_reset: whether that was since what the group had committed is out of range.
    """

    __match_args__ = ("partition", "offset")
    name: ClassVar[str] = "partition_started"

    partition: str
    offset: int
    is_committed: bool
    is_reset: bool = False


@event
class NothingConsumed(WorkerEvent):
    """
    No record can come: nothing is subscribed to, or nothing like it exists.

    Attributes:
        reason: what is missing.
    """

    __match_args__ = ("reason",)
    name: ClassVar[str] = "nothing_consumed"
    level: ClassVar[str] = "warning"

    reason: str


@event
class TopicsNotConsumed(WorkerEvent):
    """
    A setting names topics that are not consumed here: what it says of them is unused.

    Attributes:
        setting: ``handlers`` or ``topic_concurrency``.
        topics: that it names.
    """

    __match_args__ = ("setting", "topics")
    name: ClassVar[str] = "topics_not_consumed"
    level: ClassVar[str] = "warning"

    setting: str
    topics: tuple[str, ...]


@event
class WorkDropped(WorkerEvent):
    """
    Records that a poll had returned were dropped, since their partitions departed.

    Whoever owns the partitions now, or next, gets them again.

    Attributes:
        partitions: whose they were.
        records: how many, queued and running.
        running: how many of them were handed over to handlers.
        reason: ``revoked``, ``lost``, ``moved`` (somebody sought back) or ``stopped``.
    """

    __match_args__ = ("partitions", "records", "reason")
    name: ClassVar[str] = "work_dropped"
    level: ClassVar[str] = "warning"

    partitions: Partitions
    records: int
    running: int
    reason: str


@event
class WorkDrained(WorkerEvent):
    """
    A wait for running handlers is over.

    Attributes:
        seconds: how long it took.
        running: records still being worked on at the end; 0 if all finished in time.
        reason: ``rebalance``, ``revoked`` or ``stop``.
    """

    __match_args__ = ("reason", "running")
    name: ClassVar[str] = "work_drained"

    seconds: float
    running: int
    reason: str


@event
class CommitRejected(WorkerEvent):
    """
    A commit was refused or could not be sent.

    It is computed anew and tried again, as long as the partitions are there and the
    worker goes on.

    Attributes:
        partitions: whose offsets it had.
        error: why.
    """

    __match_args__ = ("partitions", "error")
    name: ClassVar[str] = "commit_rejected"
    level: ClassVar[str] = "warning"

    partitions: Partitions
    error: str


@event
class RecordRetried(WorkerEvent):
    """
    A handler failed, or asked for a delay; the record is tried again.

    Of a batch of which nothing else is known all of its records are: together, or one
    by one if the handler raised an error of its own, which counts for none of them.

    Attributes:
        partition: as ``orders:3``.
        offset: of the record; of several, of the first.
        attempt: the one that failed, from 1.
        delay: seconds until the next, unless something holds it for longer.
        error: what it raised.
        records: how many are tried again.
    """

    __match_args__ = ("partition", "offset", "attempt")
    name: ClassVar[str] = "record_retried"

    partition: str
    offset: int
    attempt: int
    delay: float
    error: str
    records: int = 1


@event
class WorkPaused(WorkerEvent):
    """
    A handler asked for a pause: its record comes first afterwards, as if it were new.

    Attributes:
        partition: as ``orders:3``.
        offset: of the record.
        attempt: the one that is not counted, from 1.
        scope: what is left alone: ``key``, or a scope as ``orders:3``, ``orders`` or
            ``@all``, which a hold of ``worker:outage`` covers.
        seconds: for how long; longer than it asked for if another pause of the same
            scope is.
        reason: what the handler said; None if it said nothing.
    """

    __match_args__ = ("partition", "offset", "scope")
    name: ClassVar[str] = "work_paused"
    level: ClassVar[str] = "warning"

    partition: str
    offset: int
    attempt: int
    scope: str
    seconds: float
    reason: str | None


@event
class BreakerOpened(WorkerEvent):
    """
    A topic's handlers fail with what a breaker was told of; it is held for a while.

    Attributes:
        topic: which.
        tries: how many records have tried in vain since the first time.
        seconds: until one record tries.
        reason: what failed, and how often.
    """

    __match_args__ = ("topic", "tries", "reason")
    name: ClassVar[str] = "breaker_opened"
    level: ClassVar[str] = "error"

    topic: str
    tries: int
    seconds: float
    reason: str


@event
class BreakerClosed(WorkerEvent):
    """
    A topic that a breaker had stopped goes on.

    Attributes:
        topic: which.
        tries: how many records have tried in vain.
        seconds: since it was first stopped.
        is_lifted: whether somebody lifted the hold; else a record has succeeded, or
            it could not be held.
        error: why it could not; else None.
    """

    __match_args__ = ("topic", "is_lifted")
    name: ClassVar[str] = "breaker_closed"
    level: ClassVar[str] = "warning"

    topic: str
    tries: int
    seconds: float
    is_lifted: bool
    error: str | None = None


@event
class RecordExhausted(WorkerEvent):
    """
    A record failed for good.

    Attributes:
        partition: as ``orders:3``.
        offset: of the record.
        attempt: how many there were.
        error: what the last one raised.
        then: what becomes of it: ``dead_letter``, ``stop``, ``skip`` or ``block``.
        traceback: of the error and of all its causes, as Python prints them, at most
            16 KiB.
    """

    __match_args__ = ("partition", "offset", "then")
    name: ClassVar[str] = "record_exhausted"
    level: ClassVar[str] = "error"

    partition: str
    offset: int
    attempt: int
    error: str
    then: str
    traceback: str


@event
class DeadLetterFailed(WorkerEvent):
    """
    A dead letter was not acknowledged; the record waits and it is tried again.

    Attributes:
        partition: as ``orders:3``.
        offset: of the record.
        attempt: how often it was tried.
        delay: seconds until the next time.
        error: why.
    """

    __match_args__ = ("partition", "offset", "error")
    name: ClassVar[str] = "dead_letter_failed"
    level: ClassVar[str] = "error"

    partition: str
    offset: int
    attempt: int
    delay: float
    error: str


@event
class DeadLetterRefused(WorkerEvent):
    """
    A record can never be a dead letter: ``on_exhausted`` says what becomes of it.

    Attributes:
        partition: as ``orders:3``.
        offset: of the record.
        error: why no attempt could be better.
        then: ``stop``, ``skip`` or ``block``.
    """

    __match_args__ = ("partition", "offset", "error")
    name: ClassVar[str] = "dead_letter_refused"
    level: ClassVar[str] = "error"

    partition: str
    offset: int
    error: str
    then: str


@event
class DeadLetterSlow(WorkerEvent):
    """
    A dead letter was given to its producer, which does not return, or acknowledge it.

    kafka-python's waits for a topic that it does not know for ``max_block_ms``, and for
    an acknowledgement for ``delivery_timeout_ms``.

    Attributes:
        partition: as ``orders:3``.
        offset: of the record.
        seconds: since it was given.
    """

    __match_args__ = ("partition", "offset", "seconds")
    name: ClassVar[str] = "dead_letter_slow"
    level: ClassVar[str] = "warning"

    partition: str
    offset: int
    seconds: float


@event
class HandlerStalled(WorkerEvent):
    """
    A handler has worked on one record for longer than its limit, or ``Limits.age``.

    Attributes:
        partition: as ``orders:3``.
        offset: of the record; -1 if nobody knows which it is of those that an executor
            of yours was given together, or if it has just ended.
        seconds: since it began.
        stack: where it stands, innermost call last; None if that cannot be seen.
    """

    __match_args__ = ("partition", "offset", "seconds")
    name: ClassVar[str] = "handler_stalled"
    level: ClassVar[str] = "error"

    partition: str
    offset: int
    seconds: float
    stack: str | None


@event
class WorkerProcessDied(WorkerEvent):
    """
    A process of the process executor ended by itself; another one took its place.

    Attributes:
        exit_code: negative for a signal.
        records: how many it had and has not finished; 0 if it was idle. Only the one
            that it was at has failed; of a batch all are repeated one by one.
    """

    __match_args__ = ("exit_code",)
    name: ClassVar[str] = "worker_process_died"
    level: ClassVar[str] = "error"

    exit_code: int | None
    records: int


@event
class WorkerStopped(WorkerEvent):
    """
    A worker is closed.

    Attributes:
        done: records completed in its life.
        dropped: records given up in its life: revoked, lost, or unfinished now.
        committed: whether the last commit went through, and nothing complete has gone
            without one since.
        error: what stopped it; None if it was asked to.
    """

    __match_args__ = ("error",)
    name: ClassVar[str] = "worker_stopped"

    done: int
    dropped: int
    committed: bool
    error: str | None
