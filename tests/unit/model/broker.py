"""The simulated brokers: logs, fetch sessions, committed offsets, and answers on demand."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import Any

from attrs import define, field
from kafka.errors import (
    CorruptRecordError,
    KafkaConnectionError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from kafka.future import Future
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsResponse
from kafka.structs import TopicPartition

from tests.harness.model.log import Log

_FetchTopic = FetchResponse.FetchableTopicResponse
_FetchPartition = _FetchTopic.PartitionData
_OffsetsTopic = ListOffsetsResponse.ListOffsetsTopicResponse
_OffsetsPartition = _OffsetsTopic.ListOffsetsPartitionResponse

# The answers of a 2.3 broker.
_FETCH_VERSION, _OFFSETS_VERSION = 11, 5
_NEW_SESSION = 0  # a request with this session epoch names all its partitions
_SESSION_NOT_FOUND = 70


class How(enum.Enum):
    """What a fetch is answered with; an error is for one of its partitions."""

    DATA = "data"
    EMPTY = "empty"
    NOT_LEADER = NotLeaderForPartitionError.errno
    OUT_OF_RANGE = OffsetOutOfRangeError.errno
    UNAUTHORIZED = TopicAuthorizationFailedError.errno
    CORRUPT = CorruptRecordError.errno
    NO_SESSION = "no session"
    NO_CONNECTION = "no connection"


# What a poll may raise because of what.
RAISES = {
    How.UNAUTHORIZED: TopicAuthorizationFailedError,
    How.CORRUPT: CorruptRecordError,
}


@define(eq=False)
class Pending:
    """
    A request that waits for its answer.

    Attributes:
        stamps: of a fetch: for each of the session's partitions, the number of the
            ownership in which it was asked for.
        offsets: of a fetch: from where.
    """

    node: int
    request: Any
    future: Future = field(factory=Future)
    stamps: dict[TopicPartition, int] = field(factory=dict)
    offsets: dict[TopicPartition, int] = field(factory=dict)

    @property
    def is_fetch(self) -> bool:
        """Tell a fetch from a question for offsets."""
        return isinstance(self.request, FetchRequest)

    def starts(self) -> list[TopicPartition]:
        """Return whose log's beginning is asked for."""
        if self.is_fetch:
            return []
        return [
            TopicPartition(topic, one.partition_index)
            for topic, partitions in self.request.topics
            for one in partitions
        ]


@define
class Answered:
    """What one partition was told: records up to ``end``, or an error."""

    tp: TopicPartition
    stamp: int
    offset: int
    end: int
    how: How
    size: int = 0


class Broker:
    """Two nodes and a group's commits; nothing is answered until it is asked to."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.pending: list[Pending] = []
        self.sights: Counter[str] = Counter()
        self._sessions: dict[int, dict[TopicPartition, int]] = {}
        for tp in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
            self.create(TopicPartition(*tp))

    def create(self, tp: TopicPartition) -> None:
        """Add a partition, and its topic if there is none."""
        self.logs[tp] = Log(tp)

    def partitions(self, topic: str) -> set[int]:
        """Return the partitions of a topic."""
        return {tp.partition for tp in self.logs if tp.topic == topic}

    def forget_client(self) -> None:
        """Drop what belongs to the connections of a client that is gone."""
        self.pending.clear()
        self._sessions.clear()

    def take(self, node: int, request: object) -> Pending:
        """Take a request; a fetch also changes the session of its connection."""
        pending = Pending(node, request)
        if isinstance(request, FetchRequest):
            if request.session_epoch == _NEW_SESSION:
                self._sessions[node] = {}
            session = self._sessions.setdefault(node, {})
            for topic in request.forgotten_topics_data:
                for number in topic.partitions:
                    session.pop(TopicPartition(topic.topic, number), None)
            for topic in request.topics:
                for one in topic.partitions:
                    tp = TopicPartition(topic.topic, one.partition)
                    session[tp] = one.fetch_offset
            pending.offsets.update(session)
        self.pending.append(pending)
        return pending

    def answer(self, at: int, how: How, batches: int) -> Iterable[Answered]:
        """
        Answer the request at a place in the queue (modulo its length).

        Returns:
            What its partitions were told.
        """
        if not self.pending:
            return []
        pending = self.pending.pop(at % len(self.pending))
        if pending.request is None:
            pending.future.success(None)
            return []
        if not pending.is_fetch:
            pending.future.success(self._offsets(pending.request))
            return []
        if how is How.NO_CONNECTION:
            pending.future.failure(KafkaConnectionError("closed"))
            return []
        if how is How.NO_SESSION:
            response = FetchResponse(
                version=_FETCH_VERSION, error_code=_SESSION_NOT_FOUND, responses=[]
            )
            pending.future.success(response)
            return []
        return self._fetched(pending, how, batches, at)

    def _fetched(
        self, pending: Pending, how: How, batches: int, at: int
    ) -> list[Answered]:
        tps = sorted(pending.offsets)
        wrong = tps[at % len(tps)] if tps else None
        told, topics = [], []
        is_full = pending.request.session_epoch == _NEW_SESSION
        for tp in tps:
            mine = how if tp == wrong or how is How.EMPTY else How.DATA
            one, data = self._partition(pending, tp, mine, batches)
            if is_full or data.records or data.error_code:
                topics.append(_FetchTopic(topic=tp.topic, partitions=[data]))
                told.append(one)
        response = FetchResponse(
            version=_FETCH_VERSION,
            error_code=0,
            session_id=7,
            responses=topics,
        )
        pending.future.success(response)
        return told

    def _partition(
        self, pending: Pending, tp: TopicPartition, how: How, batches: int
    ) -> tuple[Answered, Any]:
        log, offset, stamp = self.logs[tp], pending.offsets[tp], pending.stamps[tp]
        records, end, error = b"", offset, 0
        if how in {How.DATA, How.CORRUPT}:
            records, end = log.read(offset, batches, stamp)
            if records and how is How.CORRUPT:
                records = records[:-1] + bytes([records[-1] ^ 0xFF])
        elif how is not How.EMPTY:
            error = how.value
        if how is How.CORRUPT and not records:
            how = How.EMPTY
        data = _FetchPartition(
            partition_index=tp.partition,
            error_code=error,
            high_watermark=log.end,
            records=records,
        )
        return Answered(tp, stamp, offset, end, how, len(records)), data

    def _offsets(self, request: Any) -> object:  # noqa: ANN401 - upstream's
        return ListOffsetsResponse(
            version=_OFFSETS_VERSION,
            topics=[
                _OffsetsTopic(
                    name=name,
                    partitions=[
                        _OffsetsPartition(
                            partition_index=one.partition_index,
                            error_code=0,
                            timestamp=-1,
                            offset=0,  # nothing is ever taken from the logs' start
                            leader_epoch=-1,
                        )
                        for one in partitions
                    ],
                )
                for name, partitions in request.topics
            ],
        )
