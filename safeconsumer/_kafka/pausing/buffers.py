"""Keeps fetched data that is not delivered yet, with its ownership and its size."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.consumer.fetcher import CompletedFetch, ConsumerRecord
from kafka.structs import OffsetAndMetadata, TopicPartition

# Layout of a record batch, https://kafka.apache.org/documentation/#recordbatch:
# base offset int64, length int32, leader epoch int32, magic int8 at 16, ...,
# record count int32 at 57. The length counts from behind itself, 12 bytes in.
_LENGTH = struct.Struct(">i")
_LENGTH_AT, _HEAD, _MAGIC_AT, _COUNT_AT = 8, 12, 16, 57
_BATCH_HEAD = 61
_COUNTED_MAGIC = 2


# The stamp of requests from before their partition was gained: never current.
NO_EPOCH = -1


class StampedOffset(int):
    """
    A fetch offset that remembers in which ownership it was asked for.

    It is a plain int to upstream, which carries it from the request through the answer
    into the parsed records; so every fetch can be distinguished from one of an earlier
    ownership, also when both were made at the same offset.
    """

    epoch: int

    @classmethod
    def of(cls, offset: int, epoch: int) -> "StampedOffset":
        """Stamp an offset."""
        stamped = cls(offset)
        stamped.epoch = epoch
        return stamped


class StampedOffsets(dict[tuple[str, int], int]):
    """
    The offsets of one request, stamped when the answer is matched with them.

    Most partitions of a request are not in its answer; they cost nothing here.

    Attributes:
        moves: how often partitions had become quiet, or begun to flow, before it.
    """

    def __init__(
        self,
        offsets: Mapping[Any, int],
        epochs: Mapping[tuple[str, int], int],
        moves: int,
    ) -> None:
        super().__init__(offsets)
        self._epochs = epochs
        self.moves = moves

    def __getitem__(self, tp: tuple[str, int]) -> StampedOffset:
        return StampedOffset.of(super().__getitem__(tp), self._epochs.get(tp, NO_EPOCH))


def epoch_of(offset: int) -> int | None:
    """Return the epoch an offset was stamped with, None if it never was."""
    return getattr(offset, "epoch", None)


def count_records(data: bytes | memoryview | None) -> int | None:
    """
    Count the records in the batches of one answer by their headers alone.

    Returns:
        The number, control records and records below the fetch offset included; None if
        a batch of an old format (before Kafka 0.11) has no count.
    """
    total, at = 0, 0
    size = len(data) if data is not None else 0
    while data is not None and at + _BATCH_HEAD <= size:
        if data[at + _MAGIC_AT] < _COUNTED_MAGIC:
            return None
        total += _LENGTH.unpack_from(data, at + _COUNT_AT)[0]
        at += _HEAD + max(0, _LENGTH.unpack_from(data, at + _LENGTH_AT)[0])
    return total


Purged = tuple[TopicPartition, int | None, int]
"""
The partition, how many records were thrown away (None: unknown), and how many bytes.
"""


def drop_answer(answer: CompletedFetch) -> Purged:
    """Throw away an answer that was not parsed yet."""
    tp, data = answer.topic_partition, answer.partition_data.records
    if answer.metric_aggregator:
        answer.metric_aggregator.record(tp, 0, 0)
    return tp, count_records(data), len(data or b"")


class ParkedData:
    """
    Fetched data of quiet partitions, which waits for their resume, and its size.

    For one partition there may be a batch, partly read or put back, and behind it an
    answer that was not parsed yet.

    Args:
        parts: upstream's dictionary of batches.
        answers: upstream's dictionary of answers. No fetch is sent for a partition that
            is in one of the two.
        max_bytes: the most bytes to keep, as they came from the broker.

    Thread rules: everything on the polling thread.
    """

    def __init__(
        self,
        parts: dict[TopicPartition, Any],
        answers: dict[TopicPartition, CompletedFetch],
        max_bytes: int,
    ) -> None:
        self.max_bytes = max_bytes
        self._parts, self._answers = parts, answers
        self._part_bytes: dict[TopicPartition, int] = {}
        self._bytes: dict[TopicPartition, int] = {}  # oldest first
        self._reported: dict[TopicPartition, int] = {}

    def keep_part(self, part: Any, size: int) -> None:  # noqa: ANN401 - either class
        """Keep a batch; its partition becomes the newest."""
        tp = part.topic_partition
        self._parts[tp], self._part_bytes[tp] = part, size
        self._bytes.pop(tp, None)
        self._count(tp)

    def keep_answer(self, answer: CompletedFetch) -> None:
        """Keep an answer; its partition becomes the newest."""
        tp = answer.topic_partition
        self._answers[tp] = answer
        self._bytes.pop(tp, None)
        self._count(tp)

    def pop_part(self, tp: TopicPartition) -> Any:  # noqa: ANN401 - either class
        """Return the batch of a partition, which is no longer kept; None: there is none."""
        part = self._parts.pop(tp, None)
        self._count(tp)
        return part

    def pop_answer(self, tp: TopicPartition) -> CompletedFetch | None:
        """Return the answer for a partition, which is no longer kept; None: there is none."""
        answer = self._answers.pop(tp, None)
        self._count(tp)
        return answer

    def _count(self, tp: TopicPartition) -> None:
        if tp not in self._parts:
            self._part_bytes.pop(tp, None)
        if tp not in self._parts and tp not in self._answers:
            self._bytes.pop(tp, None)
            return
        answer = self._answers.get(tp)
        raw = 0 if answer is None else len(answer.partition_data.records or b"")
        self._bytes[tp] = self._part_bytes.get(tp, 0) + raw

    def parts(self) -> list[TopicPartition]:
        """Return the partitions with a batch that is kept."""
        return list(self._parts)

    def answers(self) -> list[TopicPartition]:
        """Return the partitions with an answer that is kept."""
        return list(self._answers)

    def bytes_kept(self) -> int:
        """Return how many bytes are kept."""
        return sum(self._bytes.values())

    def drop_excess(self) -> dict[TopicPartition, int]:
        """
        Throw away the oldest data until no more is kept than allowed.

        Returns:
            How many bytes of which partitions were thrown away.
        """
        dropped: dict[TopicPartition, int] = {}
        left = self.bytes_kept()
        while self._bytes and left > self.max_bytes:
            tp, size = next(iter(self._bytes.items()))
            dropped[tp] = size
            left -= size
            part, answer = self.pop_part(tp), self.pop_answer(tp)
            if part is not None:
                part.drain()
            if answer is not None:
                drop_answer(answer)
        return dropped

    def changes(self) -> dict[TopicPartition, int]:
        """Return the sizes that changed since the last call; 0: no longer kept."""
        before, self._reported = self._reported, dict(self._bytes)
        now = self._reported
        changed = {tp: size for tp, size in now.items() if before.get(tp, 0) != size}
        changed.update({tp: 0 for tp in before if tp not in now and before[tp]})
        return changed

    def clear(self) -> None:
        """Forget everything; upstream has thrown it away."""
        self._part_bytes.clear()
        self._bytes.clear()


class ReturnedRecords:
    """
    Records that were taken from the buffer and put back.

    They have the methods that upstream's fetcher uses; behind them is the rest of the
    batch they came from.

    Args:
        tp: their partition.
        records: the records, at least one, as they will be delivered.
        position: the partition's position before they were taken.
        rest: the rest of the batch, an object of upstream's ``PartitionRecords`` or of
            this class, or None.
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

    @property
    def _next_inline_exception(self) -> Exception | None:
        # Upstream's name for what the next call of take() raises.
        if self._error is None and self.rest is not None:
            error: Exception | None = self.rest._next_inline_exception
            return error
        return self._error

    def __bool__(self) -> bool:
        return self._at < len(self._records) or bool(self.rest or self._error)

    def __len__(self) -> int:
        return len(self._records) - self._at

    @property
    def next_fetch_offset(self) -> int:
        """The offset that upstream compares with the partition's position."""
        if self._at < len(self._records) or self.rest is None:
            return self._offset
        return int(self.rest.next_fetch_offset)

    def records_left(self, total: int | None) -> int | None:
        """Return how many records are here; ``total`` is the count of the whole batch."""
        rest = records_left(self.rest, total)
        return None if rest is None else len(self) + rest

    def payload_bytes(self) -> int:
        """Return the bytes of keys and values of the records here, without the rest."""
        return sum(map(_size, self.unread()))

    def take(self, n: int) -> list[ConsumerRecord]:
        """
        Take up to ``n`` records, out of the rest of the batch too.

        Raises:
            Exception: what the rest of the batch raises, after the records before it.
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
        """Return the records that are here, without the rest of the batch."""
        return self._records[self._at :]

    def drain(self) -> None:
        """Throw everything away."""
        self._at, self._error = len(self._records), None
        if self.rest is not None:
            self.rest.drain()


def records_left(part: Any, total: int | None) -> int | None:  # noqa: ANN401 - either class, or None
    """Return how many records a half-read batch still has; None if that is not known."""
    if not part:
        return 0
    if isinstance(part, ReturnedRecords):
        return part.records_left(total)
    return None if total is None else max(0, total - int(part.records_read))


def _size(record: ConsumerRecord) -> int:
    key, value = record.serialized_key_size, record.serialized_value_size
    return int(max(key, 0) + max(value, 0))
