"""
Committing what is complete: one at a time, never backwards, recomputed if refused.
"""

import math
from collections.abc import Callable, Mapping

from kafka.structs import TopicPartition

from safeconsumer.events import worker as worker_events
from safeconsumer.worker.client import REFUSED, Client, sorted_tps
from safeconsumer.worker.held import Epoch, Held
from safeconsumer.worker.progress import Watermark
from safeconsumer.worker.settings import Commit

# A refused commit is computed anew and tried after this, or earlier if due anyway.
_AGAIN_AFTER = 0.5
# Longer than kafka-python waits for any answer by default.
_GIVEN_UP_AFTER = 60.0


class Commits:
    """
    Commits the watermarks of open epochs. The polling thread's.

    Attributes:
        succeeded: how many commits went through.
        failed: how many were refused or could not be sent.
    """

    def __init__(
        self,
        client: Client,
        held: Held,
        setting: Commit,
        emit: Callable[..., None],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._held = held
        self._setting = setting
        self._emit = emit
        self._clock = clock
        self._committed: dict[Epoch, int] = {}
        self._under_way: object | None = None
        self._sent_at = 0.0
        self._due = clock() + setting.every
        self._done_before = 0
        self.succeeded = 0
        self.failed = 0

    # ------------------------------------------------------------ floors

    def begin(self, epoch: Epoch) -> None:
        """
        Take note of where an ownership begins, if that is committed already.

        Elsewhere its first commit is that: until then it has no floor, and whoever gets
        the partition next would begin wherever ``auto_offset_reset`` says.
        """
        if not self._client.lacks_commit(epoch.tp):
            self._committed[epoch] = epoch.progress.next_offset

    def has_floor(self, epoch: Epoch) -> bool:
        """
        Tell whether the group has a committed offset from which to repeat the epoch.
        """
        return epoch in self._committed

    # ------------------------------------------------------------ committing

    def turn(self) -> None:
        """
        Commit without waiting, if it is time and there is something new.
        """
        if self._is_under_way() or not self._is_due():
            return
        marks, epochs = self._new_marks()
        self._due = self._clock() + self._setting.every
        self._done_before = self._held.done
        if not marks:
            return
        ticket = self._under_way = object()
        self._sent_at = self._clock()

        def told(error: Exception | None) -> None:
            if self._under_way is ticket:
                self._under_way = None
            self._conclude(marks, epochs, error)

        try:
            self._client.commit_soon(marks, told)
        except REFUSED as error:
            told(error)

    def now(self, *, seconds: float = math.inf) -> bool:
        """
        Commit and wait for it; True if all that is complete is committed.

        One that was sent before is in front of it on the same connection.

        Args:
            seconds: to wait at most, if that is less than ``Commit.timeout``.
        """
        marks, owners = self._new_marks()
        self._under_way = None
        if not marks:
            return True
        error: Exception | None = None
        try:
            timeout = max(0.0, min(self._setting.timeout, seconds))
            self._client.commit(marks, timeout)
        except REFUSED as refused:
            error = refused
        self._conclude(marks, owners, error)
        return error is None

    def lag(self) -> int:
        """
        Return how many offsets are complete and not committed yet.
        """
        marks, committed = self._held.watermarks(), self._committed
        return sum(
            max(0, marks[epoch.tp].offset - committed[epoch])
            for epoch in tuple(self._held.epochs.values())
            if epoch.tp in marks and epoch in committed
        )

    def _is_under_way(self) -> bool:
        if self._under_way is None:
            return False
        # One whose answer never comes must not be the last.
        return self._clock() - self._sent_at < _GIVEN_UP_AFTER

    def _is_due(self) -> bool:
        limit = self._setting.records
        if limit is not None and self._held.done - self._done_before >= limit:
            return True
        return self._clock() >= self._due

    def _new_marks(
        self,
    ) -> tuple[Mapping[TopicPartition, Watermark], dict[TopicPartition, Epoch]]:
        open_ = tuple(self._held.epochs.values())
        self._committed = {
            epoch: offset
            for epoch, offset in self._committed.items()
            if not epoch.is_closed
        }
        owners = {epoch.tp: epoch for epoch in open_}
        marks = self._held.watermarks(open_)
        return {
            tp: mark
            for tp, mark in marks.items()
            if mark.offset > self._committed.get(owners[tp], -1)
        }, owners

    def _conclude(
        self,
        marks: Mapping[TopicPartition, Watermark],
        owners: Mapping[TopicPartition, Epoch],
        error: Exception | None,
    ) -> None:
        if error is None:
            self.succeeded += 1
            for tp, mark in marks.items():
                before = self._committed.get(owners[tp], -1)
                self._committed[owners[tp]] = max(before, mark.offset)
            return
        self.failed += 1
        self._due = min(self._due, self._clock() + _AGAIN_AFTER)
        self._emit(
            worker_events.CommitRejected,
            partitions=sorted_tps(marks),
            error=repr(error),
        )
