"""Commits offsets of complete records, and drains running work before partitions leave."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from attrs import define, field, frozen
from kafka.structs import TopicPartition

from safeconsumer._kafka.membership import Membership
from safeconsumer.errors.base import SafeConsumerError
from safeconsumer.events.base import Partitions, sorted_partitions
from safeconsumer.holds.scope import partition_text
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.client import REFUSED, ConsumerClient
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.kept import DroppedWork, KeptRecords
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import Watermark
from safeconsumer.worker.settings import Commit, Drain

# Seconds after which a refused commit is retried with new offsets, unless a commit is
# due earlier.
_AGAIN_AFTER = 0.5
# Seconds after which the worker no longer waits for the answer to a commit; longer than
# any default timeout of kafka-python.
_GIVEN_UP_AFTER = 60.0


@define(eq=False, slots=False)
class Commits:
    """
    Commits the watermarks of open epochs. Only the polling thread may use this class.

    Attributes:
        succeeded: the number of commits that succeeded.
        failed: the number of commits that were refused or could not be sent.
        is_behind: whether, since the last successful commit, partitions have left whose
            completed records are not committed.
    """

    _client: ConsumerClient
    _kept: KeptRecords
    _setting: Commit
    _emit: Callable[..., None]
    _clock: Callable[[], float]
    succeeded: int = 0
    failed: int = 0
    is_behind: bool = False
    _sent_at: float | None = None  # when the commit that has no answer yet was sent
    _refused: tuple[float, Exception] | None = None
    _due: float = field(init=False)

    @_due.default
    def _after_a_while(self) -> float:
        return self._clock() + self._setting.every

    # ------------------------------------------------------------ floors

    def begin(self, epoch: Epoch, read_from: int | None) -> None:
        """
        Treat an ownership's first offset as committed, if the group has committed one.

        The committed offset may be lower than the first offset, if the offsets in
        between have no records, as for a transaction marker. The next commit then
        covers these, too.

        If it is not known that the group has a committed offset, the first offset must
        be committed before any record is handled. Until then the ownership has no
        floor: the partition's next owner would start where ``auto_offset_reset`` says.
        The same applies after the position was reset because the group's committed
        offset was out of range.

        Args:
            epoch: the ownership.
            read_from: the offset from which the ownership's first poll read; None if
                unknown.
        """
        group = self._client.membership
        if epoch.reset or not group.has_commit(epoch.tp):
            self._due = min(self._due, self._clock())
            return
        epoch.committed = start = epoch.progress.next_offset
        is_read = self._client.reads_on(epoch.tp, start)  # not a later seek's target
        if is_read and read_from is not None and read_from == group.committed(epoch.tp):
            epoch.committed = min(start, read_from)

    def restart(self, epoch: Epoch) -> None:
        """Continue an epoch from its reset position; a commit of that position is now due."""
        epoch.has_lost_floor = False
        epoch.committed = -1
        self._due = min(self._due, self._clock())

    def report_start(self, epoch: Epoch) -> None:
        """Emit an event with the offset from which an ownership reads."""
        has_floor = self.has_floor(epoch)
        self._emit(
            worker_events.PartitionStarted,
            partition=partition_text(*epoch.tp),
            offset=epoch.progress.next_offset,
            is_committed=has_floor,
            is_reset=not has_floor
            and bool(self._client.membership.has_commit(epoch.tp)),
        )

    def has_floor(self, epoch: Epoch) -> bool:
        """Return whether the epoch can be read again from a valid committed offset."""
        return epoch.committed >= 0 and not epoch.has_lost_floor

    # ------------------------------------------------------------ committing

    def turn(self) -> None:
        """Commit without waiting, if a commit is due and a watermark has moved."""
        if self._is_under_way() or not self.is_due():
            return
        marks, epochs = self._new_marks()
        self._due = self._clock() + self._setting.every
        if not marks:
            self._refused = None
            return
        sent_at = self._sent_at = self._clock()

        def answered(error: Exception | None) -> None:
            if self._sent_at == sent_at:
                self._sent_at = None
            self._conclude(marks, epochs, error)

        try:
            self._client.commit_soon(marks, answered)
        except REFUSED as error:
            answered(error)

    def now(self, *, seconds: float) -> bool:
        """
        Commit and wait; return whether all complete records are then committed.

        The broker answers an earlier commit first, because it uses the same connection.

        Args:
            seconds: the longest wait, in seconds.
        """
        return self._commit(*self._new_marks(), seconds)

    def last(self, dropped: Sequence[DroppedWork], seconds: float) -> bool:
        """
        Commit the watermarks of the dropped epochs, and wait for the answer.

        Returns:
            Whether all complete records are committed, including those of epochs that
            were dropped earlier.
        """
        owners = {one.tp: one.epoch for one in dropped}
        marks = {
            one.tp: one.mark for one in dropped if one.mark.offset > one.epoch.committed
        }
        return self._commit(marks, owners, seconds) and not self.is_behind

    def note(self, dropped: Sequence[DroppedWork]) -> None:
        """Set :attr:`is_behind` if dropped epochs had uncommitted completed records."""
        self.is_behind |= any(
            one.epoch.is_behind(one.mark) for one in dropped if one.epoch.committed >= 0
        )

    def _commit(
        self,
        marks: Mapping[TopicPartition, Watermark],
        owners: Mapping[TopicPartition, Epoch],
        seconds: float,
    ) -> bool:
        self._sent_at = None
        if not marks:
            return True
        self._due = self._clock() + self._setting.every
        error: Exception | None = None
        try:
            self._client.commit(marks, max(0.0, seconds))
        except REFUSED as refused:
            error = refused
        self._conclude(marks, owners, error)
        return error is None

    def is_due(self) -> bool:
        """Return whether the next commit is due."""
        return self._clock() >= self._due

    @property
    def is_backing_off(self) -> bool:
        """Whether the last commit was refused, and the next one is not due yet."""
        return self._refused is not None and not self.is_due()

    def missing(self, leaving: Iterable[Epoch]) -> dict[str, Partitions]:
        """Return which of the leaving partitions are uncommitted, and which have no floor."""
        marks, _ = self._new_marks()
        new = [one for one in leaving if one.tp in marks]
        floorless = [one for one in new if not self.has_floor(one)]
        behind = [
            one for one in new if one in floorless or one.is_behind(marks[one.tp])
        ]
        return {
            "uncommitted": sorted_partitions(one.tp for one in behind),
            "floorless": sorted_partitions(one.tp for one in floorless),
        }

    def lag(self) -> int:
        """Return the number of completed offsets that are not committed yet."""
        marks = self._kept.watermarks()
        # Each committed offset is read only once, because the polling thread may change it.
        known = [(one.tp, one.committed) for one in tuple(self._kept.epochs.values())]
        return sum(
            max(0, marks[tp].offset - committed)
            for tp, committed in known
            if tp in marks and committed >= 0
        )

    def failing(self) -> float:
        """Return for how many seconds commits have been failing; 0 after a success."""
        refused = self._refused
        return 0.0 if refused is None else self._clock() - refused[0]

    def problems(self, age: float) -> list[str]:
        """Describe the failure, if commits have been failing for ``age`` seconds or more."""
        refused, seconds = self._refused, self.failing()
        if refused is None or seconds < age:
            return []
        return [f"no commit has succeeded for {seconds:.1f} s: {refused[1]!r}"]

    def _is_under_way(self) -> bool:
        # Later commits must be sent even if the answer to a commit never arrives.
        sent_at = self._sent_at
        return sent_at is not None and self._clock() - sent_at < _GIVEN_UP_AFTER

    def _new_marks(
        self,
    ) -> tuple[Mapping[TopicPartition, Watermark], dict[TopicPartition, Epoch]]:
        owners = {epoch.tp: epoch for epoch in self._kept.epochs.values()}
        marks = self._kept.watermarks(owners.values())
        return {
            tp: mark for tp, mark in marks.items() if mark.offset > owners[tp].committed
        }, owners

    def _conclude(
        self,
        marks: Mapping[TopicPartition, Watermark],
        owners: Mapping[TopicPartition, Epoch],
        error: Exception | None,
    ) -> None:
        if error is None:
            self.succeeded += 1
            self.is_behind = False
            self._refused = None
            for tp, mark in marks.items():
                owner = owners[tp]
                owner.committed = max(owner.committed, mark.offset)
                owner.committed_records = max(owner.committed_records, mark.records)
            return
        self.failed += 1
        since = self._clock() if self._refused is None else self._refused[0]
        self._refused = since, error
        self._due = min(self._due, self._clock() + _AGAIN_AFTER)
        self._emit(
            worker_events.CommitRejected,
            partitions=sorted_partitions(marks),
            error=repr(error),
        )


# Seconds to wait for the answer to one attempt at the commit before a rebalance.
_SECONDS_BEFORE_JOIN = 1.0
# The longest wait in seconds for running handlers after a cooperative revocation.
COOPERATIVE_DRAIN = 1.0

# The reasons for waiting for running work.
REBALANCE, REVOKED, STOP = "rebalance", "revoked", "stop"
# The reasons for dropping records: the partition was revoked in a rebalance, or lost
# with the membership; its position was moved by a seek, an offset out of range or a
# reset of the group's offsets (G10); or the worker stopped.
LOST, MOVED, STOPPED = "lost", "moved", "stopped"
_REASONS = (REVOKED, LOST, MOVED, STOPPED)


class JoinDeferred(SafeConsumerError):  # noqa: N818 - a signal, not an error
    """Aborts a ``poll`` that would join the group before running work is drained."""


@frozen
class _Wait:
    """
    A wait for running handlers, and then for a commit of the completed records.

    Attributes:
        began: when the wait began.
        deadline: the time at which the wait for running handlers ends.
        commit_by: the time after which a refused commit is not retried, even if a
            partition has no floor.
        reason: the reason for the wait.
    """

    began: float
    deadline: float
    commit_by: float
    reason: str


@define(eq=False, slots=False)
class Departures:
    """
    Before partitions leave, drains running work, commits it, and drops what is left.

    It waits before an eager join, after a cooperative revocation, and when the worker
    stops. Only the polling thread may use this class.

    Attributes:
        work: processes the results of the records.
        dropped: the number of dropped records, by reason.
    """

    _group: Membership
    _kept: KeptRecords
    _commits: Commits
    _drain: Drain
    _emit: Callable[..., None]
    _clock: Callable[[], float]
    work: Decisions = field(init=False)
    dropped: Counter[str] = field(factory=lambda: Counter(dict.fromkeys(_REASONS, 0)))
    _waiting: _Wait | None = None
    _may_join: bool = False
    _was_joining: bool = False
    _revoked: list[Epoch] = field(factory=list)
    _owned: Mapping[TopicPartition, object] | None = None

    # ------------------------------------------------------------ queries

    @property
    def deadline(self) -> float | None:
        """The time at which the wait for running work ends; None if nothing is waited for."""
        waiting = self._waiting
        return None if waiting is None else waiting.deadline

    @property
    def is_draining(self) -> bool:
        """Whether fetching must stop, because of a wait for running work or a join."""
        waits_for_all = self._waiting is not None and self._waiting.reason != REVOKED
        return waits_for_all or self._may_join or self._was_joining

    @property
    def _is_stopping(self) -> bool:
        return self._waiting is not None and self._waiting.reason == STOP

    @property
    def is_drained(self) -> bool:
        """Whether running work has finished, or the wait for it is over."""
        waiting = self._waiting
        return waiting is None or not self.is_busy or self._clock() >= waiting.deadline

    @property
    def is_busy(self) -> bool:
        """Whether the current wait is for tasks that have not returned yet."""
        has_left = self._is_stopping and bool(self._kept.left_behind)
        return has_left or any(epoch.tasks for epoch in self._leaving())

    def running(self) -> int:
        """Return the number of unfinished records that the worker currently waits for."""
        leaving = self._leaving()
        with self._kept.lock:
            running = sum(epoch.running for epoch in leaving)
            running -= self._kept.finished(leaving)
            return running + (self._kept.left_running() if self._is_stopping else 0)

    def _leaving(self) -> Collection[Epoch]:
        # Returns the epochs whose running records the worker currently waits for.
        waiting = self._waiting
        is_partial = waiting is not None and waiting.reason == REVOKED
        return self._revoked if is_partial else self._kept.epochs.values()

    # ------------------------------------------------------------ joins

    def before_join(self) -> None:
        """
        Allow or defer a join. Called on the polling thread, inside ``poll``.

        Raises:
            JoinDeferred: running work must finish before the join.
        """
        if self._group.is_lost():
            self._lose_all()
        self._note_departed()
        if self._revoked or not self._may_begin():
            raise JoinDeferred

    def settle(self) -> None:
        """Process the changes of the assignment that happened during a poll."""
        self._note_departed()
        # The member has joined, or the join is no longer needed.
        is_over = not self._group.is_joining()
        if is_over and (self._was_joining or self._may_join):
            self._was_joining = self._may_join = False
            if not self._is_stopping:
                self.work.queue.go_on()

    def _lose_all(self) -> None:
        if not self._is_stopping:
            self._report_leaving(self._kept.epochs.values())
        self.drop(tuple(self._kept.epochs.values()), LOST)
        self._revoked = []
        if not self._is_stopping:  # the wait of a stopping worker continues
            self._waiting = None
            self._may_join = True

    def _may_begin(self) -> bool:
        if self._is_stopping:
            return False
        if self._may_join:
            self._was_joining = True
            return True
        going = self._group.revokes_on_join()
        if not any(map(self._holds_up, going)):
            return True
        if self._waiting is None:
            self.work.queue.halt()
            self._wait(self._drain.revoke, REBALANCE)
        return False

    def _holds_up(self, tp: TopicPartition) -> bool:
        # Returns whether a join must wait for a partition, because its epoch has
        # admitted records or its floor is not committed.
        epoch = self._kept.epochs.get(tp)
        return epoch is not None and (
            epoch.progress.admitted > 0 or not self._commits.has_floor(epoch)
        )

    def _note_departed(self) -> None:
        # The mapping is replaced by a new object whenever the ownership changes.
        owned = self._group.owned()
        if owned is self._owned:
            return
        self._owned = owned
        ended = [
            epoch
            for tp, epoch in self._kept.epochs.items()
            if owned.get(tp) is not epoch.ownership and epoch not in self._revoked
        ]
        if not ended:
            return
        losses, keeps = self._group.losses, self._group.is_cooperative
        lost = [epoch for epoch in ended if epoch.losses != losses]
        self.drop(lost, LOST)
        known = [one for one in ended if one.losses == losses]
        moved = [one for one in known if self._group.was_moved(one.tp, one.ownership)]
        self.drop(moved, MOVED)
        revoked = [one for one in known if one not in moved]
        # in an eager rebalance, these epochs were drained and committed before the join
        if not keeps:
            self.drop(revoked, REVOKED)
        elif revoked:
            self.work.queue.drop_queued(revoked)
            self._revoked += revoked
            if self._waiting is None:
                self._wait(self._drain.revoke, REVOKED)

    # ------------------------------------------------------------ waiting, dropping

    def stop(self, seconds: float) -> None:
        """Start the last wait for running work; from now on no join starts."""
        self.work.queue.halt()
        self._wait(seconds, STOP)

    def turn(self) -> None:
        """Finish a wait that is over: drop leftover records, and let the join start."""
        waiting = self._waiting
        if waiting is None or self._is_stopping:
            return
        if self.is_busy and self._clock() < waiting.deadline:
            return
        if self._group.is_lost():  # the next join drops all records
            self._report_leaving(self._kept.epochs.values())
            self._waiting = None
            return
        if not self._commits_in_time(waiting):
            return
        self._report_leaving(self._leaving())
        self._waiting = None
        revoked, self._revoked = self._revoked, []
        self.drop(revoked, REVOKED)
        self._may_join = waiting.reason == REBALANCE

    def _commits_in_time(self, waiting: _Wait) -> bool:
        # Returns False if the commit was refused and there is time for another attempt.
        # Between two attempts the loop continues to poll, so that the member stays in
        # its group and the worker notices a request to stop.
        if self._clock() < waiting.commit_by and self._commits.is_backing_off:
            return False
        is_committed = self._commits.now(seconds=_SECONDS_BEFORE_JOIN)
        return is_committed or self._clock() >= waiting.commit_by

    def _report_leaving(self, leaving: Iterable[Epoch]) -> None:
        # Also called after the membership was lost, when no commit is possible any
        # more.
        self.report_wait(**self._commits.missing(leaving))

    def report_wait(self, **missing: Partitions) -> None:
        """Report the length of the current wait, and the uncommitted partitions."""
        waiting = self._waiting
        if waiting is None:
            return
        self._emit(
            worker_events.WorkDrained,
            seconds=self._clock() - waiting.began,
            running=self.running(),
            reason=waiting.reason,
            **missing,
        )

    def drop(self, epochs: Sequence[Epoch], reason: str) -> Sequence[DroppedWork]:
        """Close epochs; return what each of them drops."""
        dropped = [self._kept.close(epoch) for epoch in epochs]
        self._commits.note(dropped)
        if reason in (REVOKED, LOST):
            for one in dropped:
                self._kept.end_ownership(one.tp)
        records = sum(one.records for one in dropped)
        if records:
            self.dropped[reason] += records
            self._emit(
                worker_events.WorkDropped,
                partitions=sorted_partitions(one.tp for one in dropped if one.records),
                records=records,
                running=sum(one.running for one in dropped),
                reason=reason,
            )
        return dropped

    def _wait(self, seconds: float, reason: str) -> None:
        now, for_handlers = self._clock(), seconds
        if reason == REVOKED:
            # The group has already assigned the partitions to their next owners, so the
            # wait for running records is short; the next owners can repeat these. But
            # without a floor the next owner does not know where to start, so the commit
            # may take all of the time.
            for_handlers = min(COOPERATIVE_DRAIN, seconds)
        self._waiting = _Wait(now, now + for_handlers, now + seconds, reason)
