# ruff: noqa: ALL
# The broker of the kit takes its place.
"""
A Kafka cluster as a plain Python object: logs, offsets, groups, faults.

Requests arrive as bytes and are read by kafka-python's own classes. JoinGroup,
SyncGroup, Heartbeat, LeaveGroup, DescribeGroups and the judging of commits are the
test kit's own coordinator, unchanged; here it schedules in virtual time.
As in Kafka, a connection's next request waits until its last one is answered.
"""

import struct
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import group as group_protocol
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from kafka.record.util import calc_crc32c
from kafka.structs import TopicPartition

from safeconsumer.testing import _apis
from safeconsumer.testing._coordinator import Coordinator, group_of, refusal
from safeconsumer.testing._wire import Frames, Header, framed

_REQUESTS = {
    one.API_KEY: one
    for module in (admin, consumer, metadata, producer, group_protocol)
    for one in vars(module).values()
    if isinstance(one, type)
    and issubclass(one, ApiMessage)
    and one is not ApiMessage
    and one.is_request()
}
_RESPONSES = {
    one.API_KEY: one
    for module in (admin, consumer, metadata, producer, group_protocol)
    for one in vars(module).values()
    if isinstance(one, type)
    and issubclass(one, ApiMessage)
    and one is not ApiMessage
    and not one.is_request()
}
# Newest versions; the coordinator reads no tagged fields, and topic ids are not played.
_NEWEST = {
    "Metadata": 8,
    "Fetch": 11,
    "Produce": 8,
    "ListOffsets": 5,
    "DescribeGroups": 4,
    "ListGroups": 2,
    "CreateTopics": 5,
    "DeleteTopics": 5,
    "OffsetForLeaderEpoch": 3,
    **_apis.NEWEST_VERSIONS,
}

(
    OUT_OF_RANGE,
    UNKNOWN_TOPIC,
    NOT_LEADER,
    NOT_COORDINATOR,
    TOPIC_EXISTS,
    INVALID_CONFIG,
) = 1, 3, 6, 16, 36, 40
EARLIEST, LATEST = -2, -1


class Batch:
    """A record batch as it is on disk, and what is asked about it."""

    __slots__ = ("base", "count", "data", "newest")

    def __init__(self, data: bytes, base: int, append_time: int | None = None) -> None:
        raw = bytearray(data)
        struct.pack_into(">q", raw, 0, base)
        if append_time is not None:  # LogAppendTime: a bit, the time, a new checksum
            attributes = struct.unpack_from(">h", raw, 21)[0] | 8
            struct.pack_into(">h", raw, 21, attributes)
            struct.pack_into(">q", raw, 35, append_time)
            struct.pack_into(">I", raw, 17, calc_crc32c(bytes(raw[21:])))
        self.data, self.base = bytes(raw), base
        self.count = struct.unpack_from(">i", raw, 23)[0] + 1
        self.newest = struct.unpack_from(">q", raw, 35)[0]

    @property
    def end(self) -> int:
        return self.base + self.count

    def records(self) -> list[Any]:
        found = MemoryRecords(self.data)
        return [record for batch in iter(found.next_batch, None) for record in batch]


class Log:
    """One partition."""

    def __init__(self, leader: int) -> None:
        self.batches: list[Batch] = []
        self.start, self.leader, self.epoch = 0, leader, 0

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.start

    def add(self, data: bytes, append_time: int | None = None) -> int:
        base = self.end
        batch = Batch(data, base, append_time)
        self.batches.append(batch)
        return base

    def delete_before(self, offset: int) -> None:
        """What retention does, and DeleteRecords."""
        self.start = max(self.start, min(offset, self.end))
        kept = [one for one in self.batches if one.end > self.start]
        self.batches = kept or self.batches[-1:]  # the end is told by the last one

    def read(self, offset: int, room: int) -> bytes:
        found, size = [], 0
        for one in self.batches:
            if one.end <= max(offset, self.start):
                continue
            if found and size + len(one.data) > room:
                break
            found.append(one.data)
            size += len(one.data)
        return b"".join(found)

    def first_since(self, timestamp: int) -> tuple[int, int]:
        for one in self.batches:
            if one.newest >= timestamp:
                for record in one.records():
                    if record.timestamp >= timestamp and record.offset >= self.start:
                        return record.offset, record.timestamp
        return -1, -1


class Fault:
    """Something wrong with some answers; ``end()`` repairs it."""

    def __init__(
        self,
        cluster: "Cluster",
        api: str,
        *,
        error: int = 0,
        delay: float = 0.0,
        is_held: bool = False,
        process: str | None = None,
        count: float = float("inf"),
        chance: float = 1.0,
    ) -> None:
        self.cluster, self.api, self.error, self.delay, self.is_held = (
            cluster,
            api,
            error,
            delay,
            is_held,
        )
        self.process, self.count, self.chance = process, count, chance
        self.kept: list[Callable[[], None]] = []

    def takes(self, api: str, process: str) -> bool:
        if (
            self.count <= 0
            or self.api not in (api, "*")
            or self.process not in (None, process)
        ):
            return False
        if self.chance < 1.0 and self.cluster.random.random() >= self.chance:
            return False
        self.count -= 1
        return True

    def end(self) -> None:
        if self in self.cluster.faults:
            self.cluster.faults.remove(self)
        kept, self.kept = self.kept, []
        for go_on in kept:
            go_on()


class _Session:
    """One connection: a request at a time."""

    def __init__(
        self, cluster: "Cluster", node: int, send: Any, close: Any, origin: str
    ) -> None:
        self.cluster, self.node, self.send, self.close, self.origin = (
            cluster,
            node,
            send,
            close,
            origin,
        )
        self.frames, self.queue, self.is_busy = Frames(), deque(), False
        self.is_open = True

    def lost(self) -> None:
        self.is_open = False
        self.queue.clear()

    def receive(self, data: bytes) -> None:
        self.queue.extend(self.frames.feed(data))
        self._next()

    def _next(self) -> None:
        while self.queue and not self.is_busy and self.is_open:
            self.is_busy = True
            self.cluster._serve(self, self.queue.popleft())

    def answer(self, header: Header, body: bytes | None) -> None:
        """Send what is an answer without its correlation id; None if none is wanted."""
        if body is not None and self.is_open:
            self.send(framed(struct.pack(">i", header.correlation_id) + body))
        self.is_busy = False
        self.cluster.call_later(0.0, self._next)


class Cluster:
    """The brokers ``broker-1`` to ``broker-n`` of a world."""

    def __init__(
        self, addresses: Any, *, call_later: Any, wall: Any, random: Any
    ) -> None:
        self.call_later, self.wall, self.random = call_later, wall, random
        self.nodes = [host for host, _ in addresses]
        self._sessions: list[_Session] = []
        self._is_up = dict.fromkeys(range(1, len(self.nodes) + 1), True)
        self.coordinator = Coordinator(call_later)
        self.logs: dict[tuple[str, int], Log] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.committed: dict[tuple[str, str, int], tuple[int, str]] = {}
        self.faults: list[Fault] = []
        self.requests: list[
            tuple[float, str, str, int]
        ] = []  # when, api, process, node
        self.on_fetch: Callable[[str, list[tuple[str, int, int]]], None] = (
            lambda process, asked: None
        )
        self.on_commit: Callable[[str, str, dict[tuple[str, int], int]], None] = (
            lambda process, group, offsets: None
        )
        self._waiting: list[Callable[[], None]] = []  # fetches that wait for records
        self._producers = 0
        self._fenced: set[int] = set()  # brokers that are known to be down

    def connect(self, node: int, *, send: Any, close: Any, origin: str) -> _Session:
        if not self._is_up[node]:
            raise ConnectionRefusedError
        session = _Session(self, node, send, close, origin)
        self._sessions.append(session)
        return session

    # What a test does to it

    def create_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] = {}
    ) -> None:
        self.settings.setdefault(name, dict(settings))
        for number in range(partitions):
            if (name, number) not in self.logs:
                self.logs[name, number] = Log(number % len(self.nodes) + 1)

    def append(
        self, topic: str, partition: int, values: int | Iterable[bytes] = 1
    ) -> int:
        """Put records into the log, as one batch; return the first one's offset."""
        values = [b"value"] * values if isinstance(values, int) else list(values)
        builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=2**30)
        now = int(self.wall() * 1000)
        for value in values:
            builder.append(timestamp=now, key=None, value=value, headers=[])
        builder.close()
        base = self._add(topic, partition, bytes(builder.buffer()))
        return base

    def _add(self, topic: str, partition: int, data: bytes) -> int:
        is_append = (
            self.settings.get(topic, {}).get("message.timestamp.type")
            == "LogAppendTime"
        )
        now = int(self.wall() * 1000) if is_append else None
        base = self.logs[topic, partition].add(data, now)
        self._look_again()
        return base

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        self.logs[topic, partition].delete_before(offset)
        self._look_again()

    def fail(self, api: str, **what: Any) -> Fault:
        """Let answers fail, be late or be held back, until ``end()`` of what it returns."""
        fault = Fault(self, api, **what)
        self.faults.append(fault)
        return fault

    def down(self, node: int, failover: float = 9.0) -> None:
        """Stop a broker: its connections end, and nobody listens; others follow later."""
        self._is_up[node] = False
        for one in [s for s in self._sessions if s.node == node and s.is_open]:
            one.is_open = False
            one.close()
        self.call_later(failover, lambda: self._elect(node))

    def up(self, node: int) -> None:
        self._is_up[node] = True
        self._fenced.discard(node)

    def _elect(self, node: int) -> None:
        if self._is_up[node] or not any(self._is_up.values()):
            return
        self._fenced.add(node)
        others = [n for n in range(1, len(self.nodes) + 1) if self._is_up[n]]
        for (topic, number), log in self.logs.items():
            if log.leader == node:
                self.lead(topic, number, others[number % len(others)])

    def lead(self, topic: str, partition: int, node: int) -> None:
        """Move a partition to another leader."""
        log = self.logs[topic, partition]
        log.leader, log.epoch = node, log.epoch + 1
        self._look_again()

    def coordinator_of(self, group: str) -> int:
        able = [n for n in range(1, len(self.nodes) + 1) if n not in self._fenced]
        return able[zlib.crc32(group.encode()) % len(able)]

    # Requests

    def _serve(self, session: _Session, message: bytes) -> None:
        header = Header.read(message)
        api = _REQUESTS[header.api_key].__name__.removesuffix("Request")
        process = session.origin
        self.requests.append((round(self.wall(), 6), api, process, session.node))
        error, delay = 0, 0.0
        for fault in list(self.faults):
            if fault.takes(api, process):
                if fault.is_held:
                    fault.kept.append(
                        lambda: self._handle(session, header, message, api, 0)
                    )
                    return
                error, delay = fault.error or error, fault.delay + delay
        if delay:
            self.call_later(
                delay, lambda: self._handle(session, header, message, api, error)
            )
        else:
            self._handle(session, header, message, api, error)

    def _handle(
        self, session: _Session, header: Header, message: bytes, api: str, error: int
    ) -> None:
        if not session.is_open:
            return

        def raw(body: bytes) -> None:
            session.answer(header, body)

        group = group_of(header, message)
        if group is not None and self.coordinator_of(group) != session.node:
            error = error or NOT_COORDINATOR
        if error and (body := refusal(header, message, error)) is not None:
            raw(body)
            return
        if self.coordinator.handle(header, message, raw):
            return
        kind = _REQUESTS[header.api_key]
        is_flexible = kind.flexible_version_q(header.version)
        request = kind.decode(
            message[header.body_at + is_flexible :], version=header.version
        )
        shape = _RESPONSES[header.api_key]

        def reply(**fields: Any) -> None:
            answer = shape(version=header.version, **fields)
            answer.with_header(correlation_id=header.correlation_id)
            session.answer(header, bytes(answer.encode(header=True))[4:])

        handler = getattr(self, f"_{api}", None)
        if handler is None:
            raise NotImplementedError(
                f"the simulated broker does not know {api}: {request}"
            )
        handler(request, reply, session, error)

    def _ApiVersions(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        known = []
        for key, kind in sorted(_REQUESTS.items()):
            api = kind.__name__.removesuffix("Request")
            if hasattr(self, f"_{api}") or api in (
                "JoinGroup",
                "SyncGroup",
                "Heartbeat",
                "LeaveGroup",
                "DescribeGroups",
            ):
                known.append(
                    (key, min(kind.max_version, _NEWEST.get(api, kind.max_version)))
                )
        shape = _RESPONSES[18].ApiVersion
        reply(
            error_code=error,
            throttle_time_ms=0,
            api_keys=[
                shape(api_key=key, min_version=0, max_version=newest)
                for key, newest in known
            ],
        )

    def _Metadata(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        shape = metadata.MetadataResponse
        part = shape.MetadataResponseTopic.MetadataResponsePartition
        names = (
            sorted({t for t, _ in self.logs})
            if q.topics is None
            else [t.name for t in q.topics]
        )
        nodes = list(range(1, len(self.nodes) + 1))
        topics = []
        for name in names:
            numbers = sorted(p for t, p in self.logs if t == name)
            topics.append(
                shape.MetadataResponseTopic(
                    error_code=error or (0 if numbers else UNKNOWN_TOPIC),
                    name=name,
                    is_internal=False,
                    partitions=[]
                    if error
                    else [
                        part(
                            error_code=0,
                            partition_index=p,
                            leader_id=self.logs[name, p].leader,
                            leader_epoch=self.logs[name, p].epoch,
                            replica_nodes=nodes,
                            isr_nodes=nodes,
                            offline_replicas=[],
                        )
                        for p in numbers
                    ],
                )
            )
        reply(
            throttle_time_ms=0,
            cluster_id="sim",
            controller_id=1,
            topics=topics,
            brokers=[
                shape.MetadataResponseBroker(
                    node_id=n, host=self.nodes[n - 1], port=9092, rack=None
                )
                for n in nodes
            ],
        )

    def _FindCoordinator(
        self, q: Any, reply: Any, session: _Session, error: int
    ) -> None:
        node = self.coordinator_of(q.key)
        reply(
            throttle_time_ms=0,
            error_code=error,
            error_message=None,
            node_id=node,
            host=self.nodes[node - 1],
            port=9092,
        )

    def _problem(
        self, topic: str, partition: int, session: _Session, error: int
    ) -> int:
        log = self.logs.get((topic, partition))
        if error or log is None:
            return error or UNKNOWN_TOPIC
        return 0 if log.leader == session.node else NOT_LEADER

    def _ListOffsets(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        shape = consumer.ListOffsetsResponse.ListOffsetsTopicResponse
        part = shape.ListOffsetsPartitionResponse

        def one(topic: str, p: Any) -> Any:
            problem = self._problem(topic, p.partition_index, session, error)
            offset, at = -1, -1
            if not problem:
                log = self.logs[topic, p.partition_index]
                offset = {EARLIEST: log.start, LATEST: log.end}.get(p.timestamp, -1)
                if p.timestamp >= 0:
                    offset, at = log.first_since(p.timestamp)
            return part(
                partition_index=p.partition_index,
                error_code=problem,
                timestamp=at,
                offset=offset,
                leader_epoch=-1,
                old_style_offsets=[offset],
            )

        reply(
            throttle_time_ms=0,
            topics=[
                shape(name=t.name, partitions=[one(t.name, p) for p in t.partitions])
                for t in q.topics
            ],
        )

    def _OffsetForLeaderEpoch(
        self, q: Any, reply: Any, session: _Session, error: int
    ) -> None:
        shape = consumer.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        part = shape.EpochEndOffset
        reply(
            throttle_time_ms=0,
            topics=[
                shape(
                    topic=t.topic,
                    partitions=[
                        part(
                            error_code=error,
                            partition=p.partition,
                            leader_epoch=self.logs[t.topic, p.partition].epoch,
                            end_offset=self.logs[t.topic, p.partition].end,
                        )
                        for p in t.partitions
                    ],
                )
                for t in q.topics
            ],
        )

    def _OffsetCommit(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        shape = group_protocol.OffsetCommitResponse.OffsetCommitResponseTopic
        part = shape.OffsetCommitResponsePartition
        if not error:
            self.on_commit(
                session.origin,
                q.group_id,
                {
                    TopicPartition(t.name, p.partition_index): p.committed_offset
                    for t in q.topics
                    for p in t.partitions
                },
            )
        for t in q.topics:
            for p in t.partitions:
                if not error:
                    self.committed[q.group_id, t.name, p.partition_index] = (
                        p.committed_offset,
                        p.committed_metadata,
                    )
        reply(
            throttle_time_ms=0,
            topics=[
                shape(
                    name=t.name,
                    partitions=[
                        part(partition_index=p.partition_index, error_code=error)
                        for p in t.partitions
                    ],
                )
                for t in q.topics
            ],
        )

    def _OffsetFetch(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        shape = group_protocol.OffsetFetchResponse.OffsetFetchResponseTopic
        part = shape.OffsetFetchResponsePartition
        if q.topics is None:
            asked: dict[str, list[int]] = defaultdict(list)
            for group, topic, number in self.committed:
                if group == q.group_id:
                    asked[topic].append(number)
        else:
            asked = {t.name: t.partition_indexes for t in q.topics}

        def one(topic: str, number: int) -> Any:
            offset, said = self.committed.get((q.group_id, topic, number), (-1, ""))
            return part(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=-1,
                metadata=said,
                error_code=0,
            )

        reply(
            throttle_time_ms=0,
            error_code=error,
            topics=[
                shape(name=t, partitions=[one(t, n) for n in numbers])
                for t, numbers in asked.items()
            ],
        )

    def _Fetch(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        shape = consumer.FetchResponse.FetchableTopicResponse
        part = shape.PartitionData
        self.on_fetch(
            session.origin,
            [
                (t.topic, p.partition, p.fetch_offset)
                for t in q.topics
                for p in t.partitions
            ],
        )

        def answer(is_last: bool = False) -> bool:
            size, is_due, topics = 0, is_last, []
            for t in q.topics:
                parts = []
                for p in t.partitions:
                    problem = self._problem(t.topic, p.partition, session, error)
                    log, data = self.logs.get((t.topic, p.partition)), b""
                    if not problem and not log.start <= p.fetch_offset <= log.end:
                        problem = OUT_OF_RANGE
                    if not problem and size < q.max_bytes:
                        data = log.read(
                            p.fetch_offset,
                            min(p.partition_max_bytes, q.max_bytes - size),
                        )
                        size += len(data)
                    is_due = is_due or bool(problem)
                    end = log.end if log and not problem else -1
                    parts.append(
                        part(
                            partition_index=p.partition,
                            error_code=problem,
                            high_watermark=end,
                            last_stable_offset=end,
                            log_start_offset=log.start if log else -1,
                            aborted_transactions=None,
                            preferred_read_replica=-1,
                            records=data,
                        )
                    )
                topics.append(shape(topic=t.topic, partitions=parts))
            if not is_due and size < q.min_bytes:
                return False
            reply(throttle_time_ms=0, error_code=0, session_id=0, responses=topics)
            return True

        if answer(q.max_wait_ms <= 0):
            return

        def look() -> None:
            if not session.is_open or answer():
                self._waiting.remove(look)
                timer.cancel()

        def over() -> None:
            self._waiting.remove(look)
            if session.is_open:
                answer(is_last=True)

        self._waiting.append(look)
        timer = self.call_later(q.max_wait_ms / 1000, over)

    def _look_again(self) -> None:
        for look in list(self._waiting):
            look()

    def _Produce(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        shape = producer.ProduceResponse.TopicProduceResponse
        part = shape.PartitionProduceResponse

        def one(topic: str, p: Any) -> Any:
            problem = self._problem(topic, p.index, session, error)
            base = -1 if problem else self._add(topic, p.index, bytes(p.records))
            return part(
                index=p.index,
                error_code=problem,
                base_offset=base,
                log_append_time_ms=-1,
                log_start_offset=0,
                record_errors=[],
                error_message=None,
            )

        done = [
            shape(
                name=t.name,
                partition_responses=[one(t.name, p) for p in t.partition_data],
            )
            for t in q.topic_data
        ]
        if q.acks == 0:
            session.answer(None, None)
        else:
            reply(throttle_time_ms=0, responses=done)

    def _InitProducerId(
        self, q: Any, reply: Any, session: _Session, error: int
    ) -> None:
        self._producers += 1
        reply(
            throttle_time_ms=0,
            error_code=error,
            producer_id=self._producers,
            producer_epoch=0,
        )

    def _DeleteRecords(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        shape = admin.DeleteRecordsResponse.DeleteRecordsTopicResult
        part = shape.DeleteRecordsPartitionResult

        def one(topic: str, p: Any) -> Any:
            problem = self._problem(topic, p.partition_index, session, error)
            if not problem:
                log = self.logs[topic, p.partition_index]
                self.delete_before(
                    topic, p.partition_index, log.end if p.offset < 0 else p.offset
                )
            return part(
                partition_index=p.partition_index,
                low_watermark=-1 if problem else log.start,
                error_code=problem,
            )

        reply(
            throttle_time_ms=0,
            topics=[
                shape(name=t.name, partitions=[one(t.name, p) for p in t.partitions])
                for t in q.topics
            ],
        )

    def _CreateTopics(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        shape = admin.CreateTopicsResponse.CreatableTopicResult

        def one(t: Any) -> Any:
            problem = error or (TOPIC_EXISTS if (t.name, 0) in self.logs else 0)
            if not problem and not q.validate_only:
                self.create_topic(
                    t.name,
                    max(1, t.num_partitions),
                    {c.name: c.value for c in t.configs},
                )
            return shape(
                name=t.name,
                error_code=problem,
                error_message=None,
                num_partitions=t.num_partitions,
                replication_factor=1,
                configs=[],
                topic_config_error_code=0,
            )

        reply(throttle_time_ms=0, topics=[one(t) for t in q.topics])

    def _DeleteTopics(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        shape = admin.DeleteTopicsResponse.DeletableTopicResult
        done = []
        for name in q.topic_names or [t.name for t in q.topics]:
            gone = [tp for tp in self.logs if tp[0] == name]
            for tp in gone:
                del self.logs[tp]
            self.settings.pop(name, None)
            done.append(
                shape(
                    name=name,
                    error_code=0 if gone else UNKNOWN_TOPIC,
                    error_message=None,
                )
            )
        self._look_again()
        reply(throttle_time_ms=0, responses=done)

    def _CreatePartitions(
        self, q: Any, reply: Any, session: _Session, error: int
    ) -> None:
        shape = admin.CreatePartitionsResponse.CreatePartitionsTopicResult
        for t in q.topics:
            self.create_topic(t.name, t.count)
        reply(
            throttle_time_ms=0,
            results=[
                shape(name=t.name, error_code=0, error_message=None) for t in q.topics
            ],
        )

    def _DescribeConfigs(
        self, q: Any, reply: Any, session: _Session, error: int
    ) -> None:
        shape = admin.DescribeConfigsResponse.DescribeConfigsResult
        one_of = shape.DescribeConfigsResourceResult
        results = []
        for r in q.resources:
            given = self.settings.get(r.resource_name) if r.resource_type == 2 else {}
            problem = error or (UNKNOWN_TOPIC if given is None else 0)
            every = (
                {
                    "cleanup.policy": "delete",
                    "retention.ms": "604800000",
                    "delete.retention.ms": "86400000",
                    "min.insync.replicas": "1",
                    "message.timestamp.type": "CreateTime",
                    **(given or {}),
                }
                if r.resource_type == 2 and not problem
                else {}
            )
            results.append(
                shape(
                    error_code=problem,
                    error_message=None,
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                    configs=[
                        one_of(
                            name=key,
                            value=value,
                            read_only=False,
                            config_source=1 if key in (given or {}) else 5,
                            is_default=key not in (given or {}),
                            is_sensitive=False,
                            synonyms=[],
                            config_type=2,
                            documentation=None,
                        )
                        for key, value in every.items()
                        if r.configuration_keys is None or key in r.configuration_keys
                    ],
                )
            )
        reply(throttle_time_ms=0, results=results)

    def _DescribeAcls(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        reply(
            throttle_time_ms=0,
            error_code=error or _apis.SECURITY_DISABLED,
            error_message=None,
            resources=[],
        )

    def _ListGroups(self, q: Any, reply: Any, session: _Session, error: int) -> None:
        shape = _RESPONSES[16].ListedGroup
        reply(
            throttle_time_ms=0,
            error_code=error,
            groups=[
                shape(group_id=name, protocol_type="consumer")
                for name in self.coordinator.groups
                if self.coordinator_of(name) == session.node
            ],
        )
