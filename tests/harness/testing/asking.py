"""Sends single requests to the test kit's cluster, without a network."""

import struct
from random import Random

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from safeconsumer.testing._cluster import Cluster

ADDRESSES = [("one", 9092), ("two", 9092), ("three", 9092)]


class Clock:
    """A clock that makes its scheduled calls when a test advances it."""

    def __init__(self, now=0.0):
        self.now = now
        self._calls = []

    def schedule(self, seconds, function):
        call = Call(self.now + seconds, function)
        self._calls.append(call)
        return call

    def pass_(self, seconds):
        end = self.now + seconds
        while due := [c for c in self._calls if not c.is_done and c.at <= end]:
            call = min(due, key=lambda c: c.at)
            self.now, call.is_done = call.at, True
            call.function()
        self.now = end


class Call:
    def __init__(self, at, function):
        self.at = at
        self.function = function
        self.is_done = False

    def cancel(self):
        self.is_done = True


def cluster_of(brokers=1):
    """Make a cluster; return it with the clock by which a test advances its time."""
    clock = Clock(now=1_000_000.0)
    cluster = Cluster(
        ADDRESSES[:brokers],
        call_later=clock.schedule,
        wall=lambda: clock.now,
        random=Random(1),  # noqa: S311 no secret
    )
    return cluster, clock


class Client:
    """One connection to a cluster, with the responses in the order in which they arrived."""

    def __init__(self, cluster, node=1, origin=None):
        self.answers = []
        self.is_closed = False
        self._kinds = []
        self._count = 0
        self.connection = cluster.connect(node, self._take, self._closed, origin)

    def send(self, request, version):
        """Send a request, whose response may arrive later."""
        self._count += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._count, client_id="test")
        self._kinds.append(ResponseClassRegistry.get_response_class(request.header))
        self.connection.receive(bytes(request.encode(header=True, framed=True)))

    def ask(self, request, version):
        """Send a request; return the response, which must arrive immediately."""
        before = len(self.answers)
        self.send(request, version)
        assert len(self.answers) == before + 1, "no answer yet"
        return self.answers[-1]

    def produce(self, topic, records, partition=0, txn=None):
        """Write a batch; return the part of the response that concerns the partition."""
        kind = ProduceRequest.TopicProduceData
        data = kind.PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=txn,
            acks=-1,
            timeout_ms=1000,
            topic_data=[kind(name=topic, partition_data=[data])],
        )
        return self.ask(request, 9).responses[0].partition_responses[0]

    def _take(self, data):
        assert struct.unpack(">i", data[:4])[0] == len(data) - 4
        kind = self._kinds.pop(0)
        self.answers.append(kind.decode(data[4:], header=True))

    def _closed(self):
        self.is_closed = True


def with_topic(*partitions_and_settings):
    """Make a cluster that has the topic ``t``; return the cluster and a client."""
    cluster, _ = cluster_of()
    cluster.create_topic("t", *partitions_and_settings)
    return cluster, Client(cluster)


def batch(*values, **how):
    """Make a batch of records as a producer would; by default the key is ``k``."""
    plain = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    how = {"is_transactional": False, **plain, **how}
    key = how.pop("key", b"k")
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, batch_size=10_000, **how
    )
    for number, value in enumerate(values):
        builder.append(number, 1000, key, value, [])
    return bytes(builder.build())


def fetch(*asked, topic="t", wait=0, session=(0, -1), **more):
    """Make a Fetch request for pairs of a partition and an offset."""
    kind = FetchRequest.FetchTopic
    partitions = [
        kind.FetchPartition(
            partition=number,
            fetch_offset=offset,
            current_leader_epoch=more.get("epoch", -1),
            last_fetched_epoch=more.get("last_epoch", -1),
            log_start_offset=-1,
            partition_max_bytes=more.get("room", 10_000),
        )
        for number, offset in asked
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait,
        min_bytes=1,
        max_bytes=more.get("all_room", 100_000),
        isolation_level=more.get("isolation", 0),
        session_id=session[0],
        session_epoch=session[1],
        topics=[kind(topic=topic, partitions=partitions)] if asked else [],
        forgotten_topics_data=[],
        rack_id="",
    )


def records_in(answer):
    """Return the offsets and values in a Fetch response."""
    found = []
    for topic in answer.responses:
        for partition in topic.partitions:
            records = MemoryRecords(bytes(partition.records or b""))
            while (one := records.next_batch()) is not None:
                found += [(record.offset, record.value) for record in one]
    return found


def error_in(answer):
    (partition,) = answer.responses[0].partitions
    return int(partition.error_code)
