"""
Keeps a partition's fetched records until they are delivered.

Each ownership's state has one :class:`Buffer`, which is discarded when the ownership
ends. A buffer contains, in order: records that were taken out of the open batch, the
rest of that batch, and later fetch responses ("answers"). The cursor points to the next
record:

=====================================  ==============================================
a drain                                moves the cursor, and in a poll the position
a step of an iteration                 moves the position past each record
a final check, a failed poll, a pause  put records back: the position moves back, or stays
the return of a poll, and the next     set the cursor to the position, and forget the
poll                                   records before it: they are delivered
a seek                                 drops the taken records, and the batch unless it
                                       continues there
=====================================  ==============================================

:class:`Buffers` keeps the buffers that are not empty. They wait for their turn in a
drain, except that the buffers of quiet partitions are parked.
"""

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Any

from kafka.consumer.fetcher import CompletedFetch, ConsumerRecord
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._interrupts import is_from_handler

# Layout of a record batch, see https://kafka.apache.org/documentation/#recordbatch:
# base offset int64, length int32, leader epoch int32, magic int8 at 16, ..., record
# count int32 at 57. The length counts the bytes after its field, from byte 12 on.
_LENGTH = struct.Struct(">i")
_LENGTH_AT, _HEAD, _MAGIC_AT, _COUNT_AT = 8, 12, 16, 57
_BATCH_HEAD = 61
_COUNTED_MAGIC = 2

_offset, _size_parked = attrgetter("offset"), attrgetter("size")

Purged = tuple[TopicPartition, int | None, int]
"""
The partition, and the numbers of discarded records (None if unknown) and bytes.
"""


class Buffer:
    """
    The records that were fetched in one ownership of a partition, and a cursor.

    Thread rules: only the polling thread uses this object.

    Attributes:
        taken: the records that were taken out of batches and not removed yet.
        at: the cursor, as an index into ``taken``.
        batch: upstream's object that reads the open batch; None if no batch is open.
        data: the bytes of the answer that the open batch belongs to.
        answers: the answers that follow the one with the open batch.
        size: the size of the buffer, in bytes, when it was parked.
        moves: the position's number of moves when the batch was opened.
    """

    def __init__(self) -> None:
        self.taken: list[ConsumerRecord] = []
        self.at = 0
        self.batch: Any = None
        self.data: bytes | memoryview = b""
        self.answers: deque[CompletedFetch] = deque()
        self.size = 0
        self.moves = 0
        # The offsets before and after the taken records, and the leader epoch of the
        # latter.
        self._start = self._end = 0
        self._epoch = -1

    @property
    def is_open(self) -> bool:
        """Whether a taken record or the open batch remains after the cursor."""
        return self.batch is not None or self.at < len(self.taken)

    @property
    def is_empty(self) -> bool:
        """Whether no record or answer remains after the cursor."""
        return not self.answers and not self.is_open

    def open(self, batch: Any, data: bytes | memoryview, moves: int) -> None:  # noqa: ANN401 - upstream's
        """Set the open batch; keep the taken records if the batch continues after them."""
        begin = batch.next_fetch_offset
        if moves != self.moves or begin != self._end:
            self._begin_at(begin, moves)
        self.batch, self.data = batch, data

    def move_cursor(self, offset: int, moves: int) -> None:
        """
        Set the cursor to the partition's position.

        Args:
            offset: the offset of the position.
            moves: the position's number of moves. If the position was moved, the taken
                records are dropped, and the open batch is kept only if it continues at
                the offset.
        """
        if moves != self.moves or not self._start <= offset <= self._end:
            self._begin_at(offset, moves)
        elif offset == self._end:
            self.at = len(self.taken)
        else:
            self.at = bisect_left(self.taken, offset, key=_offset)

    def forget(self, offset: int, moves: int) -> None:
        """Set the cursor to the position, and remove the delivered records before it."""
        self.move_cursor(offset, moves)
        rest = self.taken[self.at :]
        # These steps are in this order because a signal handler may raise between them.
        self._start, self.at, self.taken = offset, 0, rest

    def _begin_at(self, offset: int, moves: int) -> None:
        self._end = -1  # set first, so after an interrupt the next call starts over
        self.taken, self.at, self._epoch = [], 0, -1
        if self.batch is not None and self.batch.next_fetch_offset != offset:
            self.close_batch()
        self._start, self.moves = offset, moves
        self._end = offset

    def take(self, most: int) -> list[ConsumerRecord]:
        """
        Return up to ``most`` records from the cursor on, and move the cursor past them.

        Deserializers run in this call. If a signal handler has interrupted the previous
        call, the batch may not continue directly after the last taken record; if so, it
        is discarded.

        Raises:
            Exception: the batch's error, or a signal handler's exception.
        """
        if self.at < len(self.taken):
            records = self.taken[self.at : self.at + most]
        elif self.batch is None or self.batch.next_fetch_offset != self._end:
            self.close_batch()
            return []
        else:
            records = self._read(most)
        self.at += len(records)
        return records

    def _read(self, most: int) -> list[ConsumerRecord]:
        batch = self.batch
        records: list[ConsumerRecord] = batch.take(most)
        error = batch._next_inline_exception
        if error is not None and is_from_handler(error):
            raise error  # raised immediately, not in the next call
        # The end is the offset after the returned records. Before an error, a decoder
        # may have counted a record that it did not return, or not counted one that it
        # returned.
        end = batch.next_fetch_offset if error is None else records[-1].offset + 1
        # self._end is -1 until the other attributes are set, so an interrupt in between
        # causes a new fetch.
        self._end = -1
        self.taken = [*self.taken, *records] if self.taken else records
        self._epoch = batch.leader_epoch
        self._end = end
        if not batch:
            self.batch, self.data = None, b""
        return records

    def reached(self, position: OffsetAndMetadata) -> OffsetAndMetadata:
        """
        Return the position at the cursor.

        Args:
            position: the previous position; its leader epoch is kept if an answer had
                no records.
        """
        offset, epoch = self._end, self._epoch
        if self.at < len(self.taken):
            last = self.taken[self.at - 1]
            offset, epoch = last.offset + 1, last.leader_epoch
        return OffsetAndMetadata(
            offset, "", epoch if epoch >= 0 else position.leader_epoch
        )

    # ------------------------------------------------------------ discarding data

    def close_batch(self) -> None:
        """Discard the rest of the open batch, so that it is fetched again."""
        batch, self.batch, self.data = self.batch, None, b""
        if batch is not None:
            batch.drain()

    def close_open(self) -> None:
        """Discard everything but the fetch responses that have not been opened yet."""
        self._start = self._end
        self.taken, self.at = [], 0
        self.close_batch()

    def purged(self, tp: TopicPartition) -> list[Purged]:
        """Discard everything; return the discarded numbers of records and bytes."""
        found: list[Purged] = []
        if self.is_open:
            found.append((tp, self._records_left(), self._open_bytes()))
        self.close_open()
        while self.answers:
            found.append(drop_answer(self.answers.popleft()))
        return found

    def count_bytes(self) -> int:
        """
        Return the size of the buffer in bytes.

        All bytes of an answer, as received from the broker, count until its last record
        is read. The keys and values of records that were put back are added.
        """
        return self._open_bytes() + sum(map(_size_of_answer, self.answers))

    def _open_bytes(self) -> int:
        return sum(map(_size, self.taken[self.at :])) + len(self.data)

    def _records_left(self) -> int | None:
        taken = len(self.taken) - self.at
        if self.batch is None:
            return taken
        count = _count_records(self.data)
        if count is None:
            return None
        return taken + max(0, count - int(self.batch.records_read))


class Buffers:
    """
    All buffers that are not empty: those that wait for a drain, and the parked ones.

    The partitions of these buffers are not fetched.

    Args:
        max_bytes: the maximum number of parked bytes.

    Attributes:
        waiting: the buffers that wait for a drain, by partition, in the order of their
            turns.
        parked: the buffers of quiet partitions, the longest parked first.

    Thread rules: only the polling thread changes the buffers; any thread may read.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.waiting: dict[TopicPartition, Buffer] = {}
        self.parked: dict[TopicPartition, Buffer] = {}

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self.waiting or tp in self.parked

    def add_answer(
        self, tp: TopicPartition, buffer: Buffer, answer: CompletedFetch
    ) -> None:
        """Add an answer to a buffer; a parked buffer then counts as parked just now."""
        buffer.answers.append(answer)
        if tp in self.parked:
            self.park(tp, buffer)
        else:
            self.waiting[tp] = buffer

    def put_back(self, buffers: dict[TopicPartition, Buffer]) -> None:
        """Move buffers to the front of the waiting ones, in the given order."""
        waiting = self.waiting.items()
        rest = {tp: one for tp, one in waiting if tp not in buffers}
        self.waiting = {**buffers, **rest}

    def park(self, tp: TopicPartition, buffer: Buffer) -> None:
        """Park the buffer of a quiet partition, at the end of the parked ones."""
        buffer.size = buffer.count_bytes()
        self.parked.pop(tp, None)
        self.parked[tp] = buffer
        self.waiting.pop(tp, None)

    def resume(self, quiet: AbstractSet[TopicPartition]) -> None:
        """Move parked buffers whose partitions are no longer quiet to the front."""
        if self.parked.keys() <= quiet:
            return
        parked = tuple(self.parked.items())
        flowing = {tp: buffer for tp, buffer in parked if tp not in quiet}
        self.put_back(flowing)
        for tp in flowing:
            self.parked.pop(tp, None)

    def items(self) -> list[tuple[TopicPartition, Buffer]]:
        return [*self.waiting.items(), *self.parked.items()]

    def remove(self, tp: TopicPartition, buffer: Buffer) -> None:
        """Remove a buffer, whether it waits or is parked."""
        for buffers in (self.waiting, self.parked):
            if buffers.get(tp) is buffer:
                del buffers[tp]

    def bytes_parked(self) -> int:
        return sum(map(_size_parked, tuple(self.parked.values())))

    def drop_excess(self) -> dict[TopicPartition, int]:
        """
        Discard the buffers parked longest, until the rest is within the limit.

        Returns:
            The number of discarded bytes, by partition.
        """
        dropped: dict[TopicPartition, int] = {}
        left = self.bytes_parked()
        if left <= self.max_bytes:
            return dropped
        for tp, buffer in tuple(self.parked.items()):
            if left <= self.max_bytes:
                break
            dropped[tp] = buffer.size
            left -= buffer.size
            buffer.purged(tp)
            self.remove(tp, buffer)
        return dropped


def drop_answer(answer: CompletedFetch) -> Purged:
    """Discard an answer; return its numbers of records and bytes."""
    tp, data = answer.topic_partition, answer.partition_data.records or b""
    if answer.metric_aggregator:
        answer.metric_aggregator.record(tp, 0, 0)
    return tp, _count_records(data), len(data)


def _count_records(data: bytes | memoryview) -> int | None:
    """
    Count the records in the batches of one answer, according to the batch headers.

    Only discarded answers are counted; counting takes about as long as reading one
    record.

    Returns:
        The number, including control records and records below the fetch offset; None
        if a batch of an old format (before Kafka 0.11) has no count.
    """
    total, at = 0, 0
    while at + _BATCH_HEAD <= len(data):
        if data[at + _MAGIC_AT] < _COUNTED_MAGIC:
            return None
        total += _LENGTH.unpack_from(data, at + _COUNT_AT)[0]
        at += _HEAD + max(0, _LENGTH.unpack_from(data, at + _LENGTH_AT)[0])
    return total


def _size_of_answer(answer: CompletedFetch) -> int:
    return len(answer.partition_data.records or b"")


def _size(record: ConsumerRecord) -> int:
    key, value = record.serialized_key_size, record.serialized_value_size
    return int(max(key, 0) + max(value, 0))
