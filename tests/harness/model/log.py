"""The simulated log of one partition: acknowledged records in batches of real bytes."""

import struct
from bisect import bisect_left

from attrs import frozen
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.structs import TopicPartition

# Layout of a record batch, https://kafka.apache.org/documentation/#recordbatch: both
# fields stand outside of what the checksum covers, and brokers set them too.
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH, _LEADER_EPOCH_AT = struct.Struct(">i"), 12


@frozen
class Batch:
    """One batch as a producer wrote it."""

    base: int
    count: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self.base + self.count

    def stamped(self, stamp: int) -> bytes:
        """Return the bytes with the stamp where the leader's epoch stands."""
        data = bytearray(self.data)
        _LEADER_EPOCH.pack_into(data, _LEADER_EPOCH_AT, stamp)
        return bytes(data)


class Log:
    """All records of one partition, none of them ever taken away."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.end = 0
        self.offsets: list[int] = []
        self._batches: list[Batch] = []

    def value(self, offset: int) -> bytes:
        """Return what the record at the offset says."""
        return f"{self.tp.topic}:{self.tp.partition}@{offset}".encode()

    def append(self, count: int, gap: int) -> None:
        """Acknowledge a batch; ``gap`` offsets behind it stay without a record."""
        builder = MemoryRecordsBuilder(2, 0, 2**20)
        offsets = range(self.end, self.end + count)
        for offset in offsets:
            builder.append(1, None, self.value(offset))
        builder.close()
        data = bytearray(builder.buffer())
        _BASE_OFFSET.pack_into(data, 0, self.end)
        self._batches.append(Batch(self.end, count, bytes(data)))
        self.offsets.extend(offsets)
        self.end += count + gap

    def next_from(self, offset: int) -> int | None:
        """Return the offset of the first record at or after the given one."""
        at = bisect_left(self.offsets, offset)
        return self.offsets[at] if at < len(self.offsets) else None

    def between(self, start: int, end: int) -> list[int]:
        """Return the offsets of the records from ``start`` up to, not including, ``end``."""
        return self.offsets[
            bisect_left(self.offsets, start) : bisect_left(self.offsets, end)
        ]

    def read(self, offset: int, batches: int, stamp: int) -> tuple[bytes, int]:
        """
        Answer a fetch: whole batches, the first of which may begin before the offset.

        Returns:
            The bytes, and the offset after the last record in them.
        """
        found = [one for one in self._batches if one.end > offset][:batches]
        end = found[-1].end if found else offset
        return b"".join(one.stamped(stamp) for one in found), end
