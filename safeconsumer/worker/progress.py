"""Keeps track of one ownership's records, and of the offset to commit."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Protocol, TypeAlias

from attrs import field, frozen

from safeconsumer.worker.records import AnyRecord

Ordinals: TypeAlias = Sequence[int]
"""Numbers of records: each is the count of records that the ownership admitted before."""

# The memory, in bytes, that a record takes besides its key, value and headers. The
# tuple, its numbers and Python's overhead per object take 360 bytes (sys.getsizeof,
# 3.11). This module's entries for a record take the rest.
OVERHEAD_BYTES = 400


class OpenTask(Protocol):
    """A task that has not returned, with some records of an ownership."""

    @property
    def ordinals(self) -> Ordinals:
        """The ordinals of the records in the ownership."""

    @property
    def records(self) -> Sequence[AnyRecord | None]:
        """The records themselves, with None in place of each complete record."""


@frozen
class Watermark:
    """
    A mark before which all records are complete.

    Attributes:
        offset: the next offset to be consumed, which is the offset to commit.
        leader_epoch: the leader epoch of the last complete record, or a later epoch; -1
            if unknown.
        records: the number of the ownership's records before the mark.
    """

    offset: int
    leader_epoch: int = -1
    records: int = field(default=0, eq=False)


class Progress:
    """
    Tracks the records of one ownership, from the first one that is not released.

    Each record is identified by its ordinal, the number of records admitted before it.
    A record is released when its task returns. Until then the handler marks the record
    complete in the task itself, on any thread and without a lock. The attributes of
    this class are read and changed under the lock of ``KeptRecords``.

    Args:
        start: the offset from which the ownership reads.
        leader_epoch: the leader epoch of the record before ``start``, or a later epoch;
            -1 if unknown.
    """

    __slots__ = ("_came", "_done", "_end", "_first", "_records", "_sizes")

    def __init__(self, start: int, leader_epoch: int = -1) -> None:
        self._first = 0  # the ordinal of the first entry in the lists
        self._records: list[AnyRecord | None] = []
        self._sizes: list[int] = []
        self._done = bytearray()
        self._came: list[tuple[int, float]] = []  # per poll: first ordinal, time
        # the watermark that applies when all records are complete
        self._end = Watermark(start, leader_epoch)

    @property
    def admitted(self) -> int:
        """The number of records admitted so far."""
        return self._first + len(self._done)

    @property
    def next_offset(self) -> int:
        """The offset after the last admitted record, or the ownership's first offset."""
        return self._end.offset

    def admit(
        self, records: Sequence[AnyRecord], sizes: Sequence[int], now: float = 0.0
    ) -> None:
        """
        Append a poll's records, whose offsets must be higher than all earlier ones.

        Args:
            records: the records.
            sizes: the bytes of each record, as counted against the limits.
            now: the time at which the poll returned the records, on the worker's clock.
        """
        self._trim()
        self._came.append((self.admitted, now))
        self._records += records
        self._sizes += sizes
        self._done += bytes(len(records))
        last = records[-1]
        self._end = Watermark(last.offset + 1, _epoch_of(last))

    def _trim(self) -> None:
        count = self.floor() - self._first
        del self._records[:count], self._sizes[:count], self._done[:count]
        self._first += count
        del self._came[: bisect_right(self._came, (self._first, float("inf"))) - 1]

    def came_at(self, ordinal: int) -> float:
        """Return the time at which a record was admitted."""
        at = bisect_right(self._came, (ordinal, float("inf"))) - 1
        return self._came[at][1]

    # ------------------------------------------------------------ records

    def record(self, ordinal: int) -> AnyRecord:
        """Return a record that has not been released."""
        record = self._records[ordinal - self._first]
        assert record is not None  # noqa: S101 - released
        return record

    def records(self, ordinals: Ordinals) -> list[AnyRecord | None]:
        """Return records that have not been released."""
        first = self._first
        if type(ordinals) is range:
            return self._records[ordinals.start - first : ordinals.stop - first]
        return [self._records[ordinal - first] for ordinal in ordinals]

    def release(self, ordinals: Ordinals) -> int:
        """Free complete records; return their size in bytes."""
        first, count = self._first, len(ordinals)
        if type(ordinals) is range:
            some = slice(ordinals.start - first, ordinals.stop - first)
            self._done[some] = b"\1" * count
            self._records[some] = [None] * count
            return sum(self._sizes[some])
        places = [ordinal - first for ordinal in ordinals]
        for at in places:
            self._done[at] = 1
            self._records[at] = None
        sizes = self._sizes
        return sum([sizes[at] for at in places])

    def size(self, ordinal: int) -> int:
        """Return the bytes of a record, as counted against the limits."""
        return self._sizes[ordinal - self._first]

    def cut(self, end: int) -> int:
        """
        Drop the records from ordinal ``end`` on, none of which may have been begun.

        Return the offset of the first one.
        """
        at, record = end - self._first, self.record(end)
        self._end = Watermark(record.offset, _epoch_of(record))
        del self._records[at:], self._sizes[at:], self._done[at:]
        while self._came and self._came[-1][0] >= end:
            self._came.pop()
        return record.offset

    # ------------------------------------------------------------ completion

    def reach(self, offset: int, leader_epoch: int = -1) -> None:
        """
        Raise the offset to commit, if all records are complete.

        The offsets below the given one have no more records, because they belong to
        transaction markers or were compacted.
        """
        if self.floor() == self.admitted and offset > self.next_offset:
            self._end = Watermark(offset, leader_epoch)

    def floor(self) -> int:
        """Return the ordinal of the first unreleased record."""
        at = self._done.find(0)
        return self._first + (len(self._done) if at < 0 else at)

    def first_incomplete(self, tasks: Collection[OpenTask]) -> int:
        """
        Return the ordinal of the first incomplete record.

        Args:
            tasks: the tasks that have not returned; records marked complete in a task
                count as complete.
        """
        done = bytearray(self._done) if tasks else self._done
        for task in tasks:
            for ordinal, record in zip(task.ordinals, task.records, strict=True):
                if record is None:
                    done[ordinal - self._first] = 1
        at = done.find(0)
        return self._first + (len(done) if at < 0 else at)

    def watermark(self, tasks: Collection[OpenTask]) -> Watermark:
        """
        Return the watermark, which at first is the offset where the ownership began.

        Offsets that have no record because of compaction or transactions count as
        complete.

        Args:
            tasks: the tasks that have not returned; records marked complete in a task
                count as complete.
        """
        first = self.first_incomplete(tasks)
        if first == self.admitted:
            return Watermark(self._end.offset, self._end.leader_epoch, first)
        record = self.record(first)
        # This record's leader epoch is not older than the last complete record's, as a
        # truncation check requires.
        return Watermark(record.offset, _epoch_of(record), first)


def sizes_of(records: Sequence[AnyRecord]) -> list[int]:
    """Return the bytes of each record, as counted against the limits."""
    return [  # not a helper function, because this code runs for every record
        (record.serialized_value_size or 0)
        + (record.serialized_key_size or 0)
        + (record.serialized_header_size or 0)
        + OVERHEAD_BYTES
        for record in records
    ]


def _epoch_of(record: AnyRecord) -> int:
    return -1 if record.leader_epoch is None else record.leader_epoch
