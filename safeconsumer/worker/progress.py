"""
Which records of one ownership are complete, and up to where it is safe to commit.

Unlike the rest of the core this changes in place: completing a record is one byte
written, by any thread and without a lock, and must cost no more than that.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from attrs import frozen

# What a record takes beside key, value and headers: the tuple, its numbers and what
# Python adds to each object are 360 bytes (sys.getsizeof, 3.11), and what is kept of it
# here is the rest. A lane of its own, where each record has another key, is not in it.
OVERHEAD_BYTES = 400


class Record(Protocol):
    """
    What is asked of a consumer's record.
    """

    @property
    def offset(self) -> int:
        """
        Where it stands in its partition.
        """

    @property
    def leader_epoch(self) -> int | None:
        """
        Of the leader that wrote it, as the broker says.
        """

    @property
    def serialized_key_size(self) -> int | None:
        """
        Bytes; -1 or None without a key.
        """

    @property
    def serialized_value_size(self) -> int | None:
        """
        Bytes; -1 or None without a value.
        """

    @property
    def serialized_header_size(self) -> int | None:
        """
        Bytes; -1 or None without headers.
        """


@frozen
class Watermark:
    """
    Everything before ``offset`` is complete.

    Attributes:
        offset: the next to be consumed, as it is committed.
        leader_epoch: not older than that of the last complete record; -1 if unknown.
    """

    offset: int
    leader_epoch: int = -1


class Chunk:
    """
    What one poll returned for one partition.

    Attributes:
        records: the records; None where one is finished and given back.
        sizes: bytes of each, as they are counted against limits.
        done: one byte each, 1 if complete.
        base: the ordinal, within the ownership, of the first.
        end: the watermark once all are complete.
        came: when they came, by the clock of whoever holds them.
    """

    __slots__ = ("base", "came", "done", "end", "records", "sizes")

    def __init__(self, records: list[Record], base: int, came: float = 0.0) -> None:
        last = records[-1]
        self.records: list[Record | None] = list(records)
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
        """
        Mark one record complete and let go of it; False if it was already.
        """
        if self.done[index]:
            return False
        self.done[index] = 1
        self.records[index] = None
        return True

    def bytes_of(self, indexes: Iterable[int]) -> int:
        """
        Add up sizes.
        """
        if type(indexes) is range:
            return sum(self.sizes[indexes.start : indexes.stop])
        sizes = self.sizes
        return sum([sizes[index] for index in indexes])


class Progress:
    """
    The chunks of one ownership in order, from the first incomplete record on.

    Asked and changed under the lock of what is held; only a byte of a chunk is not.

    Args:
        start: the offset from which the ownership reads.

    Attributes:
        admitted: how many records were ever admitted.
        next_offset: one behind the last admitted, or where the ownership began.
    """

    __slots__ = ("_chunks", "_passed", "admitted", "next_offset")

    def __init__(self, start: int) -> None:
        self._chunks: deque[Chunk] = deque()
        self._passed = Watermark(start)
        self.admitted = 0
        self.next_offset = start

    def admit(self, chunk: Chunk) -> None:
        """
        Append what a poll returned; offsets must follow what was admitted before.
        """
        self._chunks.append(chunk)
        self.admitted += len(chunk.done)
        self.next_offset = chunk.end.offset

    def reach(self, offset: int) -> None:
        """
        Take note that nothing more comes before an offset, once all is complete.

        What stands there has no records: marks of transactions, or what was compacted.
        """
        if self.floor() == self.admitted and offset > self.next_offset:
            self.next_offset = offset
            self._passed = Watermark(offset, self._passed.leader_epoch)

    def floor(self) -> int:
        """
        Return the ordinal of the first incomplete record.
        """
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

        Offsets that no record has, from compaction or transactions, count as complete.
        """
        ordinal = self.floor()
        if not self._chunks:
            return self._passed
        chunk = self._chunks[0]
        first = ordinal - chunk.base
        record = chunk.records[first]
        if record is None:  # completed since it was looked for: the next look sees it
            return self._passed
        # Not older than the last complete record's, as a truncation check needs it.
        return Watermark(record.offset, _epoch_of(record))

    def span(self) -> int:
        """
        Return how many records stand from the first incomplete one to the last.
        """
        return self.admitted - self.floor()

    def incomplete(self) -> Sequence[tuple[Chunk, int]]:
        """
        Return every incomplete record, for a recount.
        """
        return [
            (chunk, index)
            for chunk in self._chunks
            for index, done in enumerate(chunk.done)
            if not done
        ]


def _epoch_of(record: Record) -> int:
    return -1 if record.leader_epoch is None else record.leader_epoch
