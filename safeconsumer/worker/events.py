"""Defines the events of workers and pumps."""

from safeconsumer.events.base import Event, Partitions


class WorkerEvent(Event):
    """Base class of events about a worker or a pump."""

    __match_args__ = ("name",)
    name = "worker"


class PartitionStarted(WorkerEvent):
    """
    The worker starts to read a partition that it owns, from the given offset.

    The event is emitted again if that offset is out of range and ``auto_offset_reset``
    chooses another offset.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the offset from which the worker reads; the next record may have a
            higher one.
        is_committed: whether the group had committed an offset, which is this one
            unless the application has called ``seek()``. If not, ``auto_offset_reset``
            chose the offset; for an added partition, a recreated topic, or a held
            position whose records were deleted, the offset is the first one in the log.
        is_reset: whether the group has a committed offset that is no longer valid,
            usually because that offset is out of range.
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
                "the position was out of range: reading continues at the first remaining "
                "record, or where auto_offset_reset says; records before this offset may "
                "have been deleted, and latest may have skipped others"
            )
        return (
            "the group has no committed offset here: reading starts where "
            "auto_offset_reset says, or at the first record of an added partition or a "
            "recreated topic; with earliest a new group reads all existing records"
        )


class NothingConsumed(WorkerEvent):
    """
    No records can arrive, because there is no subscription or its topics do not exist.

    Attributes:
        reason: why no records can arrive, as text.
    """

    __match_args__ = ("reason",)
    name = "nothing_consumed"
    level = "warning"

    reason: str


class WorkDropped(WorkerEvent):
    """
    Polled records were dropped, because partitions were taken away or positions moved.

    The current or next owners of the partitions get these records again, except those
    that a seek or reset has skipped. The level is info if the worker was stopped and no
    handler was running.

    Attributes:
        partitions: the partitions of the records.
        records: the number of dropped records, queued and running.
        running: the number of dropped records that were handed over to handlers.
        reason: ``revoked``, ``lost``, ``moved`` (by a seek or ``reset-offsets``, or
            because the offset was out of range) or ``stopped``.
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
    The worker has waited for running handlers and, before a rebalance, for a commit.

    A refused commit is retried until ``Drain.revoke`` has passed, or the membership is
    lost. If no try has succeeded by then, the log line is a warning.

    Attributes:
        seconds: the length of the wait, in seconds.
        running: the number of records that were still running at the end of the wait; 0
            if all finished in time.
        reason: ``rebalance``, ``revoked`` or ``stop``.
        uncommitted: partitions with completed records that are not committed; the next
            owners handle these records again. Empty if the reason is ``stop``, because
            in that case the commit is made later.
        floorless: those of the uncommitted partitions that have no valid committed
            offset at all. The next owners start where ``auto_offset_reset`` says, which
            may skip records.
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
    A commit by the worker was refused or could not be sent.

    The worker commits again, with newer offsets, as long as it runs and owns the
    partitions.

    Attributes:
        partitions: the partitions of the commit.
        error: the reason for the failure.
    """

    __match_args__ = ("partitions", "error")
    name = "commit_rejected"
    level = "warning"

    partitions: Partitions
    error: str


class RecordRetried(WorkerEvent):
    """
    A handler failed, or requested a delay, and the record will be tried again.

    After a requested delay or an outage, all records of a batch are tried again
    together. After any other error of a whole batch they are tried again one by one,
    and the failed call does not count as an attempt.

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
    A handler requested a pause; afterwards its record comes first, as if it were new.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the record's offset.
        attempt: the number of the attempt, from 1; it is not counted, so the next
            attempt has the same number.
        scope: the paused scope: ``key``, or the scope of a hold that ``worker:outage``
            owns, such as ``orders:3``, ``orders`` or ``@all``.
        seconds: the length of the pause; longer than requested if another pause of the
            same scope lasts longer.
        reason: the reason that the handler gave; None if it gave none.
        is_for_error: whether the pause was raised from an error, or while an error was
            handled; if so, the log line is a warning. A pause that only limits a rate,
            for example, has no error.
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
    A breaker opened because a topic's records failed; the topic is held for a while.

    Attributes:
        topic: the topic.
        tries: how many times handlers have failed again after a hold had expired.
        seconds: the length of the hold.
        reason: the error, and how many times it occurred.
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
    A breaker closed, and its topic is consumed again.

    Attributes:
        topic: the topic.
        tries: how many times handlers failed again after a hold had expired.
        seconds: the seconds since the topic was first held.
        is_lifted: whether a user lifted the hold. If not, a record succeeded, or the
            topic could not be held.
        error: why the topic could not be held; None if it could.
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
        attempt: the number of attempts to process the record.
        error: the exception of the last attempt.
        then: what the worker does next: ``dead_letter``, ``stop``, ``skip`` or
            ``block``.
        traceback: the tracebacks of the error and of its causes, as Python prints them,
            at most 16 KiB.
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
    A batch cannot be read, for example because it is corrupt; its partition is held.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the first offset that cannot be read.
        error: why the batch cannot be read.
        then: what the worker does next. At first this is ``retry``, which means that
            the batch is fetched again; later it is the final step ``stop``, ``skip`` or
            ``block``. If the broker cannot read its log, the final step is ``block``
            instead of ``skip``.
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
        attempt: the number of tries so far, including a try with a letter that was too
            large.
        delay: seconds until the next try; None if no further try can succeed.
        error: the reason for the failure.
        then: ``retry`` if the letter is sent again while its record waits. Otherwise
            the policy ``on_exhausted`` for the record: ``stop``, ``skip`` or ``block``.
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
    A handler has worked on a record for longer than its limit, or ``Limits.age``.

    The event is also emitted if a call of ``dead_letter`` has not returned after 5 s,
    or if its letter was not acknowledged in that time. kafka-python's producer waits
    for ``max_block_ms`` for an unknown topic, and for ``delivery_timeout_ms`` for an
    acknowledgement.

    The event is also emitted if the program has reported no result for any record of a
    ``Pump``'s batch for ``Limits.age``; the event names the batch's first such record.

    Each stalled call, and each such record of a batch, causes one event.

    Attributes:
        partition: the partition, such as ``orders:3``.
        offset: the record's offset; -1 if the record was completed just before the
            event.
        seconds: the time since the call began, or since the batch's last answer.
        stack: the stack of the call, innermost call last; None for a batch of a
            ``Pump``, and if the stack cannot be read, as in another process.
        is_letter: whether ``dead_letter`` has stalled, not the handler.
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
    A process of the process executor exited unexpectedly, and is replaced.

    Attributes:
        exit_code: the exit code of the process; negative for a signal.
        records: the number of records that failed because the process exited; 0 if it
            was idle. If it is more than 1, the process had a batch, whose records are
            tried again one by one.
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
        done: the number of records that the worker completed.
        dropped: the number of records that the worker dropped, including those that
            were unfinished when it stopped.
        committed: whether the last commit succeeded, and no completed record is left
            uncommitted.
        error: the error that stopped the worker; None if it was requested to stop.
    """

    __match_args__ = ("error",)
    name = "worker_stopped"

    done: int
    dropped: int
    committed: bool
    error: str | None
