"""
One broker, which answers a request when it is told to.

It has a log per partition, the group's committed offsets and one group of which the
explored consumer is a member, never the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from attrs import frozen
from kafka.coordinator.base import Generation
from kafka.future import Future
from kafka.protocol.consumer import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    FetchResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListOffsetsResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
    SyncGroupResponse,
)
from kafka.structs import TopicPartition

from safeconsumer.testing._batches import NewRecord, of_records
from tests.system.explorer.network import Request

TOPIC = "orders"
ONE, TWO, THREE = (TopicPartition(TOPIC, number) for number in range(3))

END = 6
"""
Each partition has so many records, in one batch.
"""

_BATCH = of_records((NewRecord(value=b"%d" % at) for at in range(END)), now=1).data
_EARLIEST = -2
_ILLEGAL_GENERATION, _UNKNOWN_MEMBER, _REBALANCING = 22, 25, 27


@frozen
class Written:
    """One offset as a commit brought it."""

    tp: TopicPartition
    offset: int
    at: int
    is_accepted: bool


class Broker:
    """Takes requests and answers them."""

    def __init__(self, tick: Callable[[], int]) -> None:
        self._tick = tick
        self.pending: list[Request] = []
        self.kept: list[Request] = []
        self.committed: dict[TopicPartition, int] = {}
        self.written: list[Written] = []
        self.elsewhere: list[tuple[TopicPartition, int]] = []
        self.generation = 0
        self.member: str | None = None
        self.plan: tuple[TopicPartition, ...] = (ONE, TWO)
        self._topics: frozenset[str] = frozenset()
        self.on_start: Callable[[Request, TopicPartition, int], None] | None = None

    def take(self, body: Any) -> Future:  # noqa: ANN401 - upstream's
        """Take a request; a commit takes effect at once, only its answer waits."""
        api = type(body).__name__.removesuffix("Request")
        request = Request(api, body, self._tick())
        self.pending.append(request)
        if api == "OffsetCommit":
            self._write(request)
        return request.future

    def of(self, api: str, tp: TopicPartition | None = None) -> list[Request]:
        """Return the requests of a kind that wait; fetches of a partition, if given."""
        return [
            one
            for one in self.pending
            if one.api == api and (tp is None or tp in _fetched(one.body))
        ]

    def keep(self, requests: Iterable[Request]) -> None:
        """Answer these only when they are named, not because somebody waits."""
        self.kept.extend(requests)

    def answer(self, request: Request) -> None:
        if request not in self.pending:
            return
        self.pending.remove(request)
        if request in self.kept:
            self.kept.remove(request)
        make: Callable[[Request], object] = getattr(self, f"_{request.api.lower()}")
        request.future.success(make(request))

    def answer_next(self) -> bool:
        """Answer the oldest request that is not kept; return whether there was one."""
        found = next((one for one in self.pending if one not in self.kept), None)
        if found is not None:
            self.answer(found)
        return found is not None

    # ------------------------------------------------------------ answers

    def _fetch(self, request: Request) -> object:
        topics = []
        for topic in request.body.topics:
            partitions = [
                _records(one.partition, one.fetch_offset) for one in topic.partitions
            ]
            topics.append(_FetchTopic(topic=topic.topic, partitions=partitions))
        return FetchResponse(version=11, error_code=0, session_id=0, responses=topics)

    def _listoffsets(self, request: Request) -> object:
        topics = []
        for name, partitions in request.body.topics:
            found = []
            for one in partitions:
                offset = 0 if one.timestamp == _EARLIEST else END
                self._start(request, TopicPartition(name, one.partition_index), offset)
                found.append(
                    _OffsetsPartition(
                        partition_index=one.partition_index,
                        error_code=0,
                        timestamp=-1,
                        offset=offset,
                        leader_epoch=-1,
                    )
                )
            topics.append(_OffsetsTopic(name=name, partitions=found))
        return ListOffsetsResponse(version=5, topics=topics)

    def _offsetfetch(self, request: Request) -> object:
        topics = []
        for topic in request.body.topics:
            found = []
            for number in topic.partition_indexes:
                tp = TopicPartition(topic.name, number)
                offset = self.committed.get(tp, -1)
                if offset >= 0:
                    self._start(request, tp, offset)
                found.append(
                    _CommittedPartition(
                        partition_index=number,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        metadata="",
                        error_code=0,
                    )
                )
            topics.append(_CommittedTopic(name=topic.name, partitions=found))
        return OffsetFetchResponse(version=5, error_code=0, topics=topics)

    def _start(self, request: Request, tp: TopicPartition, offset: int) -> None:
        if self.on_start is not None:
            self.on_start(request, tp, offset)

    def _write(self, request: Request) -> None:
        request.error = self._commit_error(request.body)
        for topic in request.body.topics:
            for one in topic.partitions:
                tp = TopicPartition(topic.name, one.partition_index)
                offset, is_accepted = one.committed_offset, not request.error
                self.written.append(Written(tp, offset, self._tick(), is_accepted))
                if is_accepted:
                    self.committed[tp] = offset

    def _commit_error(self, body: Any) -> int:  # noqa: ANN401 - upstream's
        generation = body.generation_id_or_member_epoch
        if generation < 0 and not body.member_id:
            return 0 if self.member is None else _UNKNOWN_MEMBER
        if body.member_id != self.member:
            return _UNKNOWN_MEMBER
        return 0 if generation == self.generation else _ILLEGAL_GENERATION

    def _offsetcommit(self, request: Request) -> object:
        return OffsetCommitResponse(
            version=7,
            topics=[
                _WrittenTopic(
                    version=7,
                    name=topic.name,
                    partitions=[
                        _WrittenPartition(
                            version=7,
                            partition_index=one.partition_index,
                            error_code=request.error,
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.body.topics
            ],
        )

    # ------------------------------------------------------------ the group

    def _joingroup(self, request: Request) -> object:
        self.generation += 1
        self.member = request.body.member_id or f"member-{self.generation}"
        self._topics = _subscribed(request.body.protocols[0][1])
        return JoinGroupResponse(
            version=5,
            error_code=0,
            generation_id=self.generation,
            protocol_name=request.body.protocols[0][0],
            leader="another",
            member_id=self.member,
            members=[],
        )

    def _syncgroup(self, request: Request) -> object:
        if request.body.generation_id != self.generation:
            return SyncGroupResponse(version=3, error_code=_REBALANCING, assignment=b"")
        mine = tuple(tp for tp in self.plan if tp.topic in self._topics)
        return SyncGroupResponse(version=3, error_code=0, assignment=_encoded(mine))

    def _leavegroup(self, _: Request) -> object:
        self.member = None
        return LeaveGroupResponse(version=2, error_code=0)

    def _heartbeat(self, _: Request) -> object:
        return HeartbeatResponse(version=3, error_code=0)

    def admit(self) -> Generation:
        """Take the consumer in, and return what it would know of it after a join."""
        self.generation, self.member = 1, "member-1"
        return Generation(1, self.member, "range")

    def assigned(self) -> bytes:
        return _encoded(self.plan)

    def commit_elsewhere(self, tp: TopicPartition, offset: int) -> None:
        self.committed[tp] = offset
        self.elsewhere.append((tp, offset))

    def expel(self) -> None:
        """Remove the member from the group, as if its session had expired."""
        self.generation += 1
        self.member = ""


def _fetched(body: Any) -> set[TopicPartition]:  # noqa: ANN401 - upstream's
    return {
        TopicPartition(topic.topic, one.partition)
        for topic in body.topics
        for one in topic.partitions
    }


@cache
def _records(partition: int, offset: int) -> object:
    # Upstream only reads it, so that one will do for all runs.
    return _FetchPartition(
        partition_index=partition,
        error_code=0,
        high_watermark=END,
        records=_BATCH if offset < END else b"",
    )


def _subscribed(metadata: Any) -> frozenset[str]:  # noqa: ANN401 - bytes, or to be encoded
    if not isinstance(metadata, bytes):
        return frozenset(metadata.topics)
    return frozenset(ConsumerProtocolSubscription.decode(metadata).topics)


@cache
def _encoded(partitions: tuple[TopicPartition, ...]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic.items()
        ],
        user_data=b"",
    )
    return bytes(assignment.encode(version=0))


_FetchTopic = FetchResponse.FetchableTopicResponse
_FetchPartition = _FetchTopic.PartitionData
_OffsetsTopic = ListOffsetsResponse.ListOffsetsTopicResponse
_OffsetsPartition = _OffsetsTopic.ListOffsetsPartitionResponse
_CommittedTopic = OffsetFetchResponse.OffsetFetchResponseTopic
_CommittedPartition = _CommittedTopic.OffsetFetchResponsePartition
_WrittenTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_WrittenPartition = _WrittenTopic.OffsetCommitResponsePartition
