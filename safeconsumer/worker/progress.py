"""
Keeps which records of one ownership are complete, and what may be committed.

Unlike the rest of the core this changes in place: completing a record writes one byte,
on any thread and without a lock, and must cost no more than that.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from attrs import frozen

from safeconsumer.worker.records import AnyRecord

# Bytes that a record takes besides key, value and headers: the tuple, its numbers and
# what Python adds to each object are 360 bytes (sys.getsizeof, 3.11), and what is kept
# of it here is the rest. A separate lane for each record, if keys never repeat, is not
# included.
OVERHEAD_BYTES = 400


@frozen
class Watermark:
    """
    Says that everything before ``offset`` is complete.

    Attributes:
        offset: the next offset to be consumed, which is the one to commit.
        leader_epoch: at least that of the last complete record; -1 if unknown.
    """

    offset: int
    leader_epoch: int = -1


class Chunk:
    """
    The records that one poll returned for one partition.

    Attributes:
        records: the records; None where one is finished and freed.
        sizes: the bytes of each, as they count against limits.
        done: one byte each, 1 if complete.
        base: the ordinal of the first, within the ownership.
        end: the watermark once all are complete.
        came: when they came, on the clock of the pump.
    """

    __slots__ = ("base", "came", "done", "end", "records", "sizes")

    def __init__(self, records: list[AnyRecord], base: int, came: float = 0.0) -> None:
        last = records[-1]
        self.records: list[AnyRecord | None] = list(records)
        self.sizes = [  # in line: it is done for every record
            (record.serialized_value_size or 0)
            + (record.serialized_key_size or 0)
            + (record.serialized_header_size or 0)
            + OVERHEAD_BYTES
            for record in records
        ]
        self.done = bytearray(len(records))
        self.base = base
        self.came = came
        self.end = Watermark(last.offset + 1, _epoch_of(last))

    def finish(self, index: int) -> bool:
        """Mark one record complete and free it; False if it was complete already."""
        if self.done[index]:
            return False
        self.done[index] = 1
        self.records[index] = None
        return True

    def cut(self, keep: int) -> int:
        """Forget all but so many records, none of which was begun; return their offset."""
        first = self.records[keep]
        assert first is not None  # noqa: S101 - it was not begun
        self.end = Watermark(first.offset, _epoch_of(first))
        del self.records[keep:], self.sizes[keep:], self.done[keep:]
        return first.offset

    def bytes_of(self, indexes: Iterable[int]) -> int:
        """Add up the sizes of these records."""
        if type(indexes) is range:
            return sum(self.sizes[indexes.start : indexes.stop])
        sizes = self.sizes
        return sum([sizes[index] for index in indexes])


class Progress:
    """
    The chunks of one ownership in order, from the first incomplete record on.

    It is read and changed under the lock of ``Held``, except for the bytes of a chunk.

    Args:
        start: the offset from which the ownership reads.
        leader_epoch: at least that of the record before it; -1 if unknown.

    Attributes:
        admitted: how many records were ever admitted.
        next_offset: one after the last admitted offset, or where the ownership began.
    """

    __slots__ = ("_chunks", "_passed", "admitted", "next_offset")

    def __init__(self, start: int, leader_epoch: int = -1) -> None:
        self._chunks: deque[Chunk] = deque()
        self._passed = Watermark(start, leader_epoch)
        self.admitted = 0
        self.next_offset = start

    def admit(self, chunk: Chunk) -> None:
        """Append what a poll returned; offsets must be higher than those admitted before."""
        self._chunks.append(chunk)
        self.admitted += len(chunk.done)
        self.next_offset = chunk.end.offset

    def last(self) -> Chunk | None:
        """Return what was admitted last; None if nothing is left of all."""
        return self._chunks[-1] if self._chunks else None

    def cut(self, keep: int) -> int:
        """
        Forget what was admitted last, but for so many of its records.

        Returns:
            The first forgotten offset.
        """
        chunk = self._chunks[-1]
        self.admitted = chunk.base + keep
        self.next_offset = chunk.cut(keep)
        if not keep:
            self._chunks.pop()
        return self.next_offset

    def reach(self, offset: int, leader_epoch: int = -1) -> None:
        """
        Note that no more records come before an offset, once all are complete.

        The offsets in between have no records: transaction markers, or compacted ones.
        """
        if self.floor() == self.admitted and offset > self.next_offset:
            self.next_offset = offset
            self._passed = Watermark(offset, leader_epoch)

    def floor(self) -> int:
        """Return the ordinal of the first incomplete record."""
        chunks = self._chunks
        while chunks:
            first = chunks[0].done.find(0)
            if first >= 0:
                return chunks[0].base + first
            self._passed = chunks.popleft().end
        return self.admitted

    def watermark(self) -> Watermark:
        """
        Return up to where everything is complete; at first, where the ownership began.

        Offsets without a record, from compaction or transactions, count as complete.
        """
        while True:
            ordinal = self.floor()
            if not self._chunks:
                return self._passed
            chunk = self._chunks[0]
            record = chunk.records[ordinal - chunk.base]
            if record is not None:
                # At least the last complete record's epoch, as a truncation check
                # needs it.
                return Watermark(record.offset, _epoch_of(record))
            # It was completed between the two looks: what is before it is not all.

    def span(self) -> int:
        """Return how many records there are from the first incomplete one to the last."""
        return self.admitted - self.floor()

    def incomplete(self) -> Sequence[tuple[Chunk, int]]:
        """Return every incomplete record, to count them again."""
        return [
            (chunk, index)
            for chunk in self._chunks
            for index, done in enumerate(chunk.done)
            if not done
        ]


def record_at(chunk: Chunk, index: int) -> AnyRecord:
    """Return a record that is not finished, and so is not freed."""
    record = chunk.records[index]
    assert record is not None  # noqa: S101 - see above
    return record


def _epoch_of(record: AnyRecord) -> int:
    return -1 if record.leader_epoch is None else record.leader_epoch
