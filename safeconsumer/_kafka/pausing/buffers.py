"""Keeps fetched data that is not delivered yet, with its ownership and its size."""

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kafka.consumer.fetcher import CompletedFetch, ConsumerRecord
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.pausing.undelivered import Fetch, OwnedPartitionState

# Layout of a record batch, https://kafka.apache.org/documentation/#recordbatch:
# base offset int64, length int32, leader epoch int32, magic int8 at 16, ...,
# record count int32 at 57. The length counts from behind itself, 12 bytes in.
_LENGTH = struct.Struct(">i")
_LENGTH_AT, _HEAD, _MAGIC_AT, _COUNT_AT = 8, 12, 16, 57
_BATCH_HEAD = 61
_COUNTED_MAGIC = 2


class Stamped(int):
    """
    A number that remembers for which ownership, and reset, a broker was asked.

    It is a plain int to upstream, which carries it from the request to the answer: the
    offset of a fetch, through the answer into the parsed records, or the strategy of a
    reset. Upstream makes a new state for every ownership; so what was asked in an
    earlier one is recognized, also if both were at the same offset.

    Attributes:
        state: upstream's state of the partition; None if it was not assigned any more.
        reset: the number of its last reset.
        leader_epoch: of the offset that a broker has answered; -1 if it named none.
    """

    state: OwnedPartitionState | None
    reset: int
    leader_epoch: int = -1

    @classmethod
    def of(cls, number: int, state: OwnedPartitionState | None) -> "Stamped":
        """Stamp a number with a state as it is now."""
        stamped = cls(number)
        stamped.state = state
        stamped.reset = 0 if state is None else state.reset_number
        return stamped


def is_of(number: int, state: OwnedPartitionState | None) -> bool:
    """Tell whether it was asked in this ownership; one without a stamp was."""
    return getattr(number, "state", state) is state


class StampedOffsets(dict[TopicPartition, int]):
    """
    The offsets of one request, stamped when the answer is matched with them.

    Most partitions of a request are not in its answer; they cost little here.

    Attributes:
        moves: how often partitions had become quiet, or begun to flow, before it.
        doubtful: the partitions of which it is not known whether their topics were
            recreated: what is answered of them proves nothing.
        fetch: when it was answered; until then it sees the topics of the others.
    """

    def __init__(
        self,
        offsets: Mapping[TopicPartition, int],
        states: Mapping[TopicPartition, OwnedPartitionState],
        moves: int,
        doubtful: Collection[TopicPartition] = (),
    ) -> None:
        super().__init__(offsets)
        self._states = {tp: states[tp] for tp in offsets}
        self.moves, self.doubtful = moves, doubtful
        # Not this object: a held partition would keep all that it was fetched with.
        self.fetch = Fetch()
        for tp, state in self._states.items():
            state.waited_since = None
            if tp not in doubtful:
                state.last_fetch = self.fetch

    def state(self, tp: TopicPartition) -> OwnedPartitionState:
        """Return the state that a partition had when it was asked for."""
        return self._states[tp]

    def __getitem__(self, tp: TopicPartition) -> Stamped:
        return Stamped.of(super().__getitem__(tp), self._states[tp])


def _count_records(data: bytes | memoryview) -> int | None:
    """
    Count the records in the batches of one answer by their headers alone.

    Only what is thrown away is counted: this takes as long as making a record.

    Returns:
        The number, control records and records below the fetch offset included; None if
        a batch of an old format (before Kafka 0.11) has no count.
    """
    total, at = 0, 0
    while at + _BATCH_HEAD <= len(data):
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
    tp, data = answer.topic_partition, answer.partition_data.records or b""
    if answer.metric_aggregator:
        answer.metric_aggregator.record(tp, 0, 0)
    return tp, _count_records(data), len(data)


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
        self._bytes: dict[TopicPartition, int] = {}  # oldest first

    def keep_part(self, part: Any) -> None:  # noqa: ANN401 - either class
        """Keep a batch; its partition becomes the newest."""
        tp = part.topic_partition
        self._parts[tp] = part
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
        part, answer = self._parts.get(tp), self._answers.get(tp)
        if part is None and answer is None:
            self._bytes.pop(tp, None)
            return
        raw = 0 if answer is None else len(answer.partition_data.records or b"")
        self._bytes[tp] = size_of(part) + raw

    def parts(self) -> list[TopicPartition]:
        return list(self._parts)

    def answers(self) -> list[TopicPartition]:
        return list(self._answers)

    def bytes_kept(self) -> int:
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

    def clear(self) -> None:
        """Forget everything; upstream has thrown it away."""
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
    def is_transactional(self) -> bool:
        """Whether a batch of a transaction was read of the rest."""
        return bool(getattr(self.rest, "is_transactional", False))

    @property
    def next_fetch_offset(self) -> int:
        """The offset that upstream compares with the partition's position."""
        if self._at < len(self._records) or self.rest is None:
            return self._offset
        return int(self.rest.next_fetch_offset)

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
        self._at, self._error = len(self._records), None
        if self.rest is not None:
            self.rest.drain()


def records_left(part: Any) -> int | None:  # noqa: ANN401 - either class, or None
    """Return how many records a half-read batch still has; None if that is not known."""
    if not part:
        return 0
    if isinstance(part, ReturnedRecords):
        rest = records_left(part.rest)
        return None if rest is None else len(part) + rest
    count = _count_records(_data_of(part))
    return None if count is None else max(0, count - int(part.records_read))


def size_of(part: Any) -> int:  # noqa: ANN401 - either class, or None
    """
    Return how many bytes a half-read batch has, as they came from the broker.

    The whole batch counts, as long as one record of it is to be read. Records that were
    put back count with their keys and values.
    """
    if not part:
        return 0
    if isinstance(part, ReturnedRecords):
        return sum(map(_size, part.unread())) + size_of(part.rest)
    return len(_data_of(part))


def _data_of(part: Any) -> bytes | memoryview:  # noqa: ANN401 - upstream's
    data: bytes | memoryview = part.data  # the fetcher's note
    return data


def _size(record: ConsumerRecord) -> int:
    key, value = record.serialized_key_size, record.serialized_value_size
    return int(max(key, 0) + max(value, 0))
