"""
What is fetched and not delivered yet: whose it is, how much it is, what went back.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import OffsetAndMetadata, TopicPartition

# Layout of a record batch, https://kafka.apache.org/documentation/#recordbatch:
# base offset int64, length int32, leader epoch int32, magic int8 at 16, ...,
# record count int32 at 57. The length counts from behind itself, 12 bytes in.
_LENGTH = struct.Struct(">i")
_LENGTH_AT, _HEAD, _MAGIC_AT, _COUNT_AT = 8, 12, 16, 57
_BATCH_HEAD = 61
_COUNTED_MAGIC = 2


# Stamped on what was asked for before its partition was gained: never current.
NO_EPOCH = -1


class StampedOffset(int):
    """
    A fetch offset that remembers in which ownership it was asked for.

    It is a plain int to upstream, which carries it from the request through the
    answer into the parsed records; so every fetch can be told from one of an
    earlier ownership, also when both were made at the same offset.
    """

    epoch: int

    @classmethod
    def of(cls, offset: int, epoch: int) -> "StampedOffset":
        """
        Stamp an offset.
        """
        stamped = cls(offset)
        stamped.epoch = epoch
        return stamped


class StampedOffsets(dict[tuple[str, int], int]):
    """
    The offsets of one request, stamped when the answer is matched with them.

    Most partitions of a request are not in its answer; they cost nothing here.
    """

    def __init__(
        self, offsets: Mapping[Any, int], epochs: Mapping[tuple[str, int], int]
    ) -> None:
        super().__init__(offsets)
        self._epochs = epochs

    def __getitem__(self, tp: tuple[str, int]) -> StampedOffset:
        return StampedOffset.of(super().__getitem__(tp), self._epochs.get(tp, NO_EPOCH))


def epoch_of(offset: int) -> int | None:
    """
    Return the epoch an offset was stamped with, None if it never was.
    """
    return getattr(offset, "epoch", None)


def count_records(data: bytes | memoryview | None) -> int | None:
    """
    Count the records in the batches of one answer by their headers alone.

    Returns:
        The number, control records and records below the fetch offset included;
        None if a batch of an old format (before Kafka 0.11) does not tell.
    """
    total, at = 0, 0
    size = len(data) if data is not None else 0
    while data is not None and at + _BATCH_HEAD <= size:
        if data[at + _MAGIC_AT] < _COUNTED_MAGIC:
            return None
        total += _LENGTH.unpack_from(data, at + _COUNT_AT)[0]
        at += _HEAD + max(0, _LENGTH.unpack_from(data, at + _LENGTH_AT)[0])
    return total


class ReturnedRecords:
    """
    Records that were taken from the buffer and put back.

    They have the shape that upstream's fetcher drains; behind them stands the rest of
    the batch they came from.

    Args:
        tp: their partition.
        records: the records, at least one, ready made.
        position: the partition's position before they were taken.
        rest: what is left of the batch, an object of upstream's
            ``PartitionRecords`` or of this class, or None.
    """

    def __init__(
        self,
        tp: TopicPartition,
        records: Sequence[ConsumerRecord],
        position: OffsetAndMetadata,
        fetch_offset: int,
        rest: Any = None,  # noqa: ANN401 - either class, of upstream's shape
    ) -> None:
        self.topic_partition = tp
        self.fetch_offset = fetch_offset
        self.leader_epoch: int = position.leader_epoch
        self.bytes_read = 0
        self._offset: int = position.offset
        self._records = tuple(records)
        self._at = 0
        self._error: Exception | None = None
        self.rest = rest

    def __bool__(self) -> bool:
        return self._at < len(self._records) or bool(self.rest or self._error)

    def __len__(self) -> int:
        return len(self._records) - self._at

    @property
    def next_fetch_offset(self) -> int:
        """
        The position at which the next record counts as next in line.
        """
        if self._at < len(self._records) or self.rest is None:
            return self._offset
        return int(self.rest.next_fetch_offset)

    def records_left(self, total: int | None) -> int | None:
        """
        Return how many records are here; ``total`` is what the whole batch had.
        """
        rest = records_left(self.rest, total)
        return None if rest is None else len(self) + rest

    def take(self, n: int) -> list[ConsumerRecord]:
        """
        Take up to ``n`` records, out of the rest of the batch too.

        Raises:
            Exception: whatever the rest of the batch raises, after the records that
                stand before it.
        """
        if self._error is not None:
            raise self._error
        taken = list(self._records[self._at : self._at + n])
        self._at += len(taken)
        if len(taken) < n and self.rest:
            self._take_rest(taken, n - len(taken))
        if taken:
            self._offset = taken[-1].offset + 1
            self.leader_epoch = taken[-1].leader_epoch
        return taken

    def _take_rest(self, taken: list[ConsumerRecord], n: int) -> None:
        try:
            taken.extend(self.rest.take(n))
        except Exception as error:
            if not taken:
                raise
            self._error = error

    def unread(self) -> tuple[ConsumerRecord, ...]:
        """
        Return the records that are here, without the rest of the batch.
        """
        return self._records[self._at :]

    def drain(self) -> None:
        """
        Throw everything away.
        """
        self._at, self._error = len(self._records), None
        if self.rest is not None:
            self.rest.drain()


def records_left(part: Any, total: int | None) -> int | None:  # noqa: ANN401 - either class, or None
    """
    Return how many records a half-read batch still has; None if that is not known.
    """
    if not part:
        return 0
    if isinstance(part, ReturnedRecords):
        return part.records_left(total)
    return None if total is None else max(0, total - int(part.records_read))
