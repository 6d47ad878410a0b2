"""Defines the events of workers and pumps."""

from safeconsumer.events.base import Event, Partitions


class WorkerEvent(Event):
    """Parent of events about a worker or a pump."""

    __match_args__ = ("name",)
    name = "worker"


class PartitionStarted(WorkerEvent):
    """
    An ownership of a partition began, with the offset of its first record.

    It is emitted again if that offset is out of range and ``auto_offset_reset`` chooses
    one.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the offset of the next record, if there is one.
        is_committed: whether the group had committed it, if the application did not
            seek; otherwise ``auto_offset_reset`` has chosen it, or it is the first
            remaining record: of an added partition, of a recreated topic, or after
            records were deleted below a held position.
        is_reset: whether the group has a committed offset that is no longer valid,
            mostly because it is out of range.
    """

    __match_args__ = ("partition", "offset")
    name = "partition_started"

    partition: str
    offset: int
    is_committed: bool
    is_reset: bool = False

    @property
    def advice(self) -> str | None:
        if self.is_committed or not self.offset:
            return None
        if self.is_reset:
            return (
                "the position was out of range: it begins at the first record that is "
                "left, or where auto_offset_reset says; records up to here may have been "
                "deleted, and latest may have passed others over"
            )
        return (
            "the group has no committed offset here: it begins where auto_offset_reset "
            "says, or, of an added partition or a recreated topic, at the first record; "
            "with earliest a new group reads what is there already"
        )


class NothingConsumed(WorkerEvent):
    """
    No record can come: there is no subscription, or its topics do not exist.

    Attributes:
        reason: why no record can come, as text.
    """

    __match_args__ = ("reason",)
    name = "nothing_consumed"
    level = "warning"

    reason: str


class WorkDropped(WorkerEvent):
    """
    Records that a poll had returned were dropped: their partitions departed or moved.

    The partitions' present or next owners get the unread ones again.
    The level is info if the worker was stopped and no handler was at work.

    Attributes:
        partitions: the partitions of the records.
        records: how many, queued and running.
        running: the number of them that were handed over to handlers.
        reason: ``revoked``, ``lost``, ``moved`` (by a seek or ``reset-offsets``, or as its
            offset was out of range) or ``stopped``.
    """

    __match_args__ = ("partitions", "records", "reason")
    name = "work_dropped"
    level = "warning"

    partitions: Partitions
    records: int
    running: int
    reason: str

    @property
    def severity(self) -> str:
        is_ordinary = self.reason == "stopped" and not self.running
        return "info" if is_ordinary else super().severity


class WorkDrained(WorkerEvent):
    """
    A wait for running handlers, and before a rebalance for their commit, has ended.

    A commit that is refused is tried again until ``Drain.revoke`` is over, or the
    membership is lost. If no try has succeeded by then, the log line is a warning.

    Attributes:
        seconds: the length of the wait.
        running: records still being worked on at the end; 0 if all finished in time.
        reason: ``rebalance``, ``revoked`` or ``stop``.
        uncommitted: partitions with completed records that are not committed; their
            next owners handle these again. Empty with ``stop``, whose commit is next.
        floorless: those among them that have no valid committed offset at all; their
            next owners begin where ``auto_offset_reset`` says, which may pass records
            over.
    """

    __match_args__ = ("reason", "running")
    name = "work_drained"

    seconds: float
    running: int
    reason: str
    uncommitted: Partitions = ()
    floorless: Partitions = ()

    @property
    def severity(self) -> str:
        return "warning" if self.uncommitted else super().severity


class CommitRejected(WorkerEvent):
    """
    A commit was refused or could not be sent.

    The worker computes a new commit and tries again, as long as it runs and owns the
    partitions.

    Attributes:
        partitions: the partitions of its offsets.
        error: why it failed.
    """

    __match_args__ = ("partitions", "error")
    name = "commit_rejected"
    level = "warning"

    partitions: Partitions
    error: str


class RecordRetried(WorkerEvent):
    """
    A handler failed, or asked for a delay; the record is tried again.

    After an error of a whole batch all of its records are tried again: together, or one
    by one if the handler raised an error of its own, which does not count as an
    attempt.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the record's offset; for several records, the first offset.
        attempt: the number of the failed attempt, from 1.
        delay: seconds until the next attempt, unless a hold delays it further.
        error: the handler's exception.
        records: the number of records that are tried again.
    """

    __match_args__ = ("partition", "offset", "attempt")
    name = "record_retried"

    partition: str
    offset: int
    attempt: int
    delay: float
    error: str
    records: int = 1


class WorkPaused(WorkerEvent):
    """
    A handler requested a pause: afterwards its record comes first, as a new one.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the record's offset.
        attempt: the number of the attempt, from 1, which is not counted.
        scope: the paused scope: ``key``, or a scope such as ``orders:3``, ``orders`` or
            ``@all``, which a hold of ``worker:outage`` covers.
        seconds: the length of the pause; longer than the handler requested if another
            pause of the same scope lasts longer.
        reason: the handler's reason; None if it gave none.
        is_for_error: whether it was raised from an error, or while one was handled;
            otherwise, for example to limit a rate, its log line is not a warning.
    """

    __match_args__ = ("partition", "offset", "scope")
    name = "work_paused"
    level = "warning"

    partition: str
    offset: int
    attempt: int
    scope: str
    seconds: float
    reason: str | None
    is_for_error: bool = False

    @property
    def severity(self) -> str:
        return self.level if self.is_for_error else "info"


class BreakerOpened(WorkerEvent):
    """
    A topic's handlers fail with errors that a breaker counts; it is held for a while.

    Attributes:
        topic: the topic.
        tries: the number of earlier holds for the same errors, after which handlers
            failed again.
        seconds: the length of the hold.
        reason: the error, and how often it occurred.
    """

    __match_args__ = ("topic", "tries", "reason")
    name = "breaker_opened"
    level = "error"

    topic: str
    tries: int
    seconds: float
    reason: str


class BreakerClosed(WorkerEvent):
    """
    A topic that a breaker had stopped continues.

    Attributes:
        topic: the topic.
        tries: the number of holds after which handlers failed again.
        seconds: the seconds since it was first held.
        is_lifted: whether the hold was lifted; otherwise a record has succeeded, or the
            topic could not be held.
        error: why it could not be held; otherwise None.
    """

    __match_args__ = ("topic", "is_lifted")
    name = "breaker_closed"
    level = "warning"

    topic: str
    tries: int
    seconds: float
    is_lifted: bool
    error: str | None = None


class RecordExhausted(WorkerEvent):
    """
    A record failed for good.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the record's offset.
        attempt: the number of attempts.
        error: the exception of the last one.
        then: the next step: ``dead_letter``, ``stop``, ``skip`` or ``block``.
        traceback: the traceback of the error and of all its causes, as Python prints
            them, at most 16 KiB.
    """

    __match_args__ = ("partition", "offset", "then")
    name = "record_exhausted"
    level = "error"

    partition: str
    offset: int
    attempt: int
    error: str
    then: str
    traceback: str


class BatchUnreadable(WorkerEvent):
    """
    A batch of records cannot be read, as its checksum is wrong; its partition is held.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the first offset that cannot be read.
        error: the reason why it cannot be read.
        then: ``retry`` at first: the batch is fetched again; afterwards the final step:
            ``stop``, ``skip`` or ``block``; the step is ``block`` instead of ``skip``
            if the broker cannot read its log.
    """

    __match_args__ = ("partition", "offset", "then")
    name = "batch_unreadable"
    level = "error"

    partition: str
    offset: int
    error: str
    then: str


class DeadLetterFailed(WorkerEvent):
    """
    A dead letter was not acknowledged.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the record's offset.
        attempt: the number of tries, including one with the whole letter, if it was too
            large.
        delay: seconds until the next try; None if no further try can succeed.
        error: why it failed.
        then: ``retry``: its record waits, and the letter is tried again; otherwise the
            step of ``on_exhausted`` for its record: ``stop``, ``skip`` or ``block``.
    """

    __match_args__ = ("partition", "offset", "then")
    name = "dead_letter_failed"
    level = "error"

    partition: str
    offset: int
    attempt: int
    delay: float | None
    error: str
    then: str


class HandlerStalled(WorkerEvent):
    """
    A handler has worked on one record for longer than its limit, or ``Limits.age``.

    It is also emitted if ``dead_letter`` was called 5 s ago and does not return, or its
    letter is not acknowledged. kafka-python's producer waits for ``max_block_ms`` for an
    unknown topic, and for ``delivery_timeout_ms`` for an acknowledgement.

    It is also emitted if a batch of a ``Pump`` has had no answer for this long; the
    record is the first one of the batch without an answer.

    Each call, and each such record, has one event.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the record's offset; -1 if it has just ended.
        seconds: the time since the call began, or since the batch's last answer.
        stack: the stack of the call, innermost call last; None if it cannot be seen, as
            in another process, and for a batch.
        is_letter: whether ``dead_letter`` was called, and not the handler.
    """

    __match_args__ = ("partition", "offset", "seconds")
    name = "handler_stalled"
    level = "error"

    partition: str
    offset: int
    seconds: float
    stack: str | None
    is_letter: bool = False


class WorkerProcessDied(WorkerEvent):
    """
    A process of the process executor ended unexpectedly, and was replaced.

    Attributes:
        exit_code: its exit code; negative for a signal.
        records: the number of records that it had, and that failed with it; 0 if it was
            idle. More than one are a batch, which is repeated one by one.
    """

    __match_args__ = ("exit_code",)
    name = "worker_process_died"
    level = "error"

    exit_code: int | None
    records: int


class WorkerStopped(WorkerEvent):
    """
    A worker was closed.

    Attributes:
        done: records completed in its life.
        dropped: records that it dropped in its life: revoked, lost, or unfinished now.
        committed: whether the last commit succeeded, and every completed record since
            was committed, too.
        error: the error that stopped it; None if it was asked to stop.
    """

    __match_args__ = ("error",)
    name = "worker_stopped"

    done: int
    dropped: int
    committed: bool
    error: str | None
