"""The kit's cluster as a plain object: requests in, answers out, time when we say so."""

from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from safeconsumer.testing import _codes
from safeconsumer.testing._batches import NewRecord
from safeconsumer.testing._connections import Request
from tests.harness.testing.asking import Client, cluster_of

NONE = _codes.NONE


def batch(*values: bytes, **how: Any) -> bytes:  # noqa: ANN401  a builder's own
    plain = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    how = {"is_transactional": False, **plain, **how}
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, batch_size=10_000, **how
    )
    for number, value in enumerate(values):
        builder.append(number, 1000, b"k", value, [])
    return bytes(builder.build())


def fetch(
    *asked: tuple[int, int],
    topic: str = "t",
    wait: int = 0,
    session: tuple[int, int] = (0, -1),
    **more: Any,  # noqa: ANN401  its fields
) -> FetchRequest:
    kind = FetchRequest.FetchTopic
    partitions = [
        kind.FetchPartition(
            partition=number,
            fetch_offset=offset,
            current_leader_epoch=more.get("epoch", -1),
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=10_000,
        )
        for number, offset in asked
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait,
        min_bytes=1,
        max_bytes=100_000,
        isolation_level=more.get("isolation", 0),
        session_id=session[0],
        session_epoch=session[1],
        topics=[kind(topic=topic, partitions=partitions)] if asked else [],
        forgotten_topics_data=[],
        rack_id="",
    )


def records_in(answer: Any) -> list[tuple[int, bytes]]:  # noqa: ANN401  not typed
    found = []
    for topic in answer.responses:
        for partition in topic.partitions:
            records = MemoryRecords(bytes(partition.records or b""))
            while (one := records.next_batch()) is not None:
                found += [(record.offset, record.value) for record in one]
    return found


def error_in(answer: Any) -> int:  # noqa: ANN401  not typed
    (partition,) = answer.responses[0].partitions
    return int(partition.error_code)


def test_what_is_produced_is_fetched_from_its_offset() -> None:
    """A batch gets the log's next offsets; a fetch from within it has all of it."""
    cluster, _ = cluster_of()
    cluster.create_topic("t")
    client = Client(cluster)
    assert client.produce("t", batch(b"a", b"b")).base_offset == 0
    assert client.produce("t", batch(b"c")).base_offset == 2
    assert records_in(client.ask(fetch((0, 2)), 11)) == [(2, b"c")]
    assert [o for o, _ in records_in(client.ask(fetch((0, 1)), 11))] == [0, 1, 2]
    assert error_in(client.ask(fetch((0, 4)), 11)) == _codes.OFFSET_OUT_OF_RANGE


def test_a_fetch_waits_for_records_and_the_next_request_for_it() -> None:
    """A connection answers in order: what comes behind a long poll waits for its end."""
    cluster, clock = cluster_of()
    cluster.create_topic("t")
    client = Client(cluster)
    client.send(fetch((0, 0), wait=500), 11)
    client.send(ApiVersionsRequest(), 0)
    assert client.answers == []
    cluster.append("t", 0, [b"x"])
    clock.pass_(0)
    assert records_in(client.answers[0]) == [(0, b"x")]
    assert len(client.answers) == 2


def test_a_fetch_ends_with_its_time() -> None:
    """No record comes, so it is answered empty when it has waited long enough."""
    cluster, clock = cluster_of()
    cluster.create_topic("t")
    client = Client(cluster)
    client.send(fetch((0, 0), wait=500), 11)
    clock.pass_(0.499)
    assert client.answers == []
    clock.pass_(0.001)
    assert records_in(client.answers[0]) == []


def test_a_session_is_told_only_what_is_new() -> None:
    """KIP-227: after the first answer a partition is named when it has something."""
    cluster, _ = cluster_of()
    cluster.create_topic("t", 2)
    client = Client(cluster)
    first = client.ask(fetch((0, 0), (1, 0), session=(0, 0)), 11)
    assert len(first.responses[0].partitions) == 2
    cluster.append("t", 1, [b"x"])
    second = client.ask(fetch(session=(first.session_id, 1)), 11)
    assert [p.partition_index for p in second.responses[0].partitions] == [1]
    assert records_in(second) == [(0, b"x")]
    assert cluster.requests[-1].partitions == (("t", 0), ("t", 1))
    late = client.ask(fetch(session=(first.session_id, 1)), 11)
    assert late.error_code == _codes.INVALID_FETCH_SESSION_EPOCH
    lost = client.ask(fetch(session=(999, 1)), 11)
    assert lost.error_code == _codes.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [0, -1])
def test_who_ends_a_session_asks_only_for_what_it_names(epoch: int) -> None:
    """A churn took what the old session had for a Fetch of what was held."""
    cluster, _ = cluster_of()
    cluster.create_topic("t", 2)
    client = Client(cluster)
    first = client.ask(fetch((0, 0), (1, 0), session=(0, 0)), 11)
    client.ask(fetch(session=(first.session_id, 1)), 11)
    client.ask(fetch((0, 0), session=(first.session_id, epoch)), 11)
    asked = [one.partitions for one in cluster.requests if one.api == "Fetch"]
    assert asked == [(("t", 0), ("t", 1)), (("t", 0), ("t", 1)), (("t", 0),)]


def test_an_idempotent_producer_writes_nothing_twice() -> None:
    """The same batch again has its old offset, and a gap in the numbers is an error."""
    cluster, _ = cluster_of()
    cluster.create_topic("t")
    client = Client(cluster)
    one = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    assert [client.produce("t", one).base_offset for _ in range(2)] == [0, 0]
    gap = batch(b"d", producer_id=7, producer_epoch=0, base_sequence=3)
    assert client.produce("t", gap).error_code == _codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    follows = batch(b"c", producer_id=7, producer_epoch=0, base_sequence=2)
    assert client.produce("t", follows).base_offset == 2
    later = batch(b"e", producer_id=7, producer_epoch=1, base_sequence=0)
    assert client.produce("t", later).base_offset == 3
    old = batch(b"f", producer_id=7, producer_epoch=0, base_sequence=3)
    assert client.produce("t", old).error_code == _codes.INVALID_PRODUCER_EPOCH


class Transactional:
    """A producer with a transactional id, one request at a time."""

    def __init__(self, client: Client, id_: str = "x") -> None:
        self.client, self.id, self.sequence = client, id_, 0
        request = InitProducerIdRequest(
            transactional_id=id_, transaction_timeout_ms=60_000
        )
        answer = client.ask(request, 2)
        self.producer, self.epoch = answer.producer_id, answer.producer_epoch

    def begin(self, topic: str) -> int:
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[kind(name=topic, partitions=[0])],
        )
        (told,) = self.client.ask(request, 3).results_by_topic_v3_and_below
        return int(told.results_by_partition[0].partition_error_code)

    def write(self, topic: str, value: bytes) -> int:
        data = batch(
            value,
            is_transactional=True,
            producer_id=self.producer,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )
        self.sequence += 1
        return int(self.client.produce(topic, data, txn=self.id).error_code)

    def end(self, *, is_committed: bool) -> int:
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer,
            producer_epoch=self.epoch,
            committed=is_committed,
        )
        return int(self.client.ask(request, 3).error_code)


def test_readers_of_committed_records_stop_where_a_transaction_is_open() -> None:
    """And they are told which records were aborted, to drop them."""
    cluster, _ = cluster_of()
    cluster.create_topic("t")
    client = Client(cluster)
    producer = Transactional(client)
    assert producer.write("t", b"no part of it") == _codes.INVALID_TXN_STATE
    producer.sequence = 0
    assert [producer.begin("t"), producer.write("t", b"a")] == [NONE, NONE]
    assert client.produce("t", batch(b"b")).base_offset == 1
    assert records_in(client.ask(fetch((0, 0), isolation=1), 11)) == []
    assert len(records_in(client.ask(fetch((0, 0)), 11))) == 2
    assert producer.end(is_committed=False) == NONE
    answer = client.ask(fetch((0, 0), isolation=1), 11)
    (partition,) = answer.responses[0].partitions
    (aborted,) = partition.aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (producer.producer, 0)
    assert partition.last_stable_offset == cluster.log("t", 0).end == 3
    assert producer.end(is_committed=False) == NONE  # asked again
    assert producer.end(is_committed=True) == _codes.INVALID_TXN_STATE


def test_a_second_producer_fences_the_first_and_aborts_what_it_left() -> None:
    cluster, _ = cluster_of()
    cluster.create_topic("t")
    client = Client(cluster)
    first = Transactional(client)
    first.begin("t")
    first.write("t", b"left open")
    Transactional(client)
    assert cluster.log("t", 0).stable_end == cluster.log("t", 0).end == 2
    assert first.write("t", b"too late") == _codes.INVALID_PRODUCER_EPOCH
    assert first.end(is_committed=True) == _codes.PRODUCER_FENCED


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    cluster, clock = cluster_of()
    cluster.create_topic("t")
    producer = Transactional(Client(cluster))
    producer.begin("t")
    producer.write("t", b"slow")
    clock.pass_(59.9)
    assert cluster.log("t", 0).stable_end == 0
    clock.pass_(0.2)
    assert cluster.log("t", 0).stable_end == 2
    assert producer.end(is_committed=True) == _codes.PRODUCER_FENCED


def test_compaction_keeps_the_last_of_each_key_where_it_is() -> None:
    """Offsets have gaps afterwards, and old tombstones are gone."""
    cluster, clock = cluster_of()
    cluster.create_topic("t", 1, {"cleanup.policy": "compact"})
    for pairs in ([b"a1", b"b1", b"a2"], [b"a3", b"c1"]):
        cluster.append("t", 0, [NewRecord(key=p[:1], value=p) for p in pairs])
    cluster.append("t", 0, [NewRecord(key=b"c", value=None), NewRecord(key=b"d")])
    client = Client(cluster)
    cluster.compact("t")
    kept = [(1, b"b1"), (3, b"a3"), (5, None), (6, b"")]
    assert records_in(client.ask(fetch((0, 0)), 11)) == kept
    clock.pass_(2 * 86400)
    cluster.compact("t")
    assert records_in(client.ask(fetch((0, 0)), 11)) == [kept[0], kept[1], kept[3]]
    assert cluster.append("t", 0, [NewRecord(key=b"e")]) == 7


def test_compaction_drops_what_was_aborted() -> None:
    """An aborted record must not hide the committed one before it."""
    cluster, _ = cluster_of()
    cluster.create_topic("t")
    cluster.append("t", 0, [NewRecord(key=b"k", value=b"committed")])
    client = Client(cluster)
    producer = Transactional(client)
    producer.begin("t")
    producer.write("t", b"aborted")
    producer.end(is_committed=False)
    cluster.append("t", 0, [NewRecord(key=b"other")])
    cluster.compact("t")
    answer = client.ask(fetch((0, 0), isolation=1), 11)
    assert records_in(answer)[0] == (0, b"committed")
    assert answer.responses[0].partitions[0].aborted_transactions == []


def test_retention_deletes_old_batches_and_too_many_bytes() -> None:
    cluster, clock = cluster_of()
    cluster.create_topic("t", 1, {"retention.ms": "60000"})
    cluster.append("t", 0, 3)
    clock.pass_(61)
    cluster.append("t", 0, 2)
    cluster.retain()
    assert (cluster.log("t", 0).start, cluster.log("t", 0).end) == (3, 5)
    clock.pass_(61)
    cluster.retain()
    assert (cluster.log("t", 0).start, cluster.log("t", 0).end) == (5, 5)
    cluster.create_topic("small", 1, {"retention.bytes": "150"})
    for _ in range(3):
        cluster.append("small", 0, [b"x" * 20])
    cluster.retain()
    assert cluster.log("small", 0).start == 2


def test_the_log_can_set_the_time_of_records() -> None:
    """message.timestamp.type=LogAppendTime: a reader sees when it was written."""
    cluster, clock = cluster_of()
    cluster.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"})
    client = Client(cluster)
    answer = client.produce("t", batch(b"a"))
    assert answer.log_append_time_ms == clock.now * 1000
    (record,) = cluster.log("t", 0).batches[0].records()
    assert record.timestamp == clock.now * 1000


def test_others_lead_when_a_broker_has_been_down_for_a_while() -> None:
    """Until then it is still named; then a new epoch fences who knows the old leader."""
    cluster, clock = cluster_of(brokers=2)
    cluster.create_topic("t", 2)
    first, second = Client(cluster, 1), Client(cluster, 2)
    cluster.down(1, failover=9.0)
    assert first.is_closed
    with pytest.raises(ConnectionRefusedError):
        Client(cluster, 1)
    assert error_in(second.ask(fetch((0, 0)), 11)) == _codes.NOT_LEADER_OR_FOLLOWER
    clock.pass_(9)
    assert error_in(second.ask(fetch((0, 0)), 11)) == NONE
    fenced = second.ask(fetch((0, 0), epoch=0), 11)
    assert error_in(fenced) == _codes.FENCED_LEADER_EPOCH
    told = second.ask(MetadataRequest(topics=None), 7)
    assert [broker.node_id for broker in told.brokers] == [2]
    cluster.up(1)
    assert len(Client(cluster, 1).ask(MetadataRequest(topics=None), 7).brokers) == 2


def test_a_group_has_another_coordinator_when_its_own_is_down() -> None:
    cluster, clock = cluster_of(brokers=3)

    def coordinator() -> int:
        asking = Client(cluster, 3).ask(FindCoordinatorRequest(key="g", key_type=0), 2)
        return int(asking.node_id)

    cluster.move_coordinator("g", 1)
    cluster.down(1)
    assert coordinator() == 1
    clock.pass_(9)
    assert coordinator() in {2, 3}


def test_a_topic_that_is_asked_for_is_made_if_the_client_allows_it() -> None:
    """As in Kafka the first answer does not know it yet."""
    cluster, clock = cluster_of()
    kind = MetadataRequest.MetadataRequestTopic
    client = Client(cluster)
    for name, may_be_made in (("no", False), ("yes", True), ("a b", True)):
        request = MetadataRequest(
            topics=[kind(name=name)], allow_auto_topic_creation=may_be_made
        )
        (topic,) = client.ask(request, 7).topics
        wanted = 17 if name == "a b" else _codes.UNKNOWN_TOPIC_OR_PARTITION
        assert topic.error_code == wanted
    clock.pass_(0)
    assert [topic.name for topic in cluster.topics] == ["yes"]


class TestFaults:
    def test_so_many_answers_of_one_origin_fail(self) -> None:
        cluster, _ = cluster_of()
        cluster.create_topic("t")
        cluster.fail("Fetch", error=6, origin="a", count=2)
        a, b = Client(cluster, origin="a"), Client(cluster, origin="b")
        told = [error_in(one.ask(fetch((0, 0)), 11)) for one in (a, b, a, a)]
        assert told == [6, 0, 6, 0]

    def test_answers_are_late_or_kept_back(self) -> None:
        cluster, clock = cluster_of()
        late, held = (
            cluster.fail("ApiVersions", delay=2),
            cluster.fail("*", is_held=True),
        )
        client = Client(cluster)
        client.send(ApiVersionsRequest(), 0)
        assert (client.answers, len(held.kept)) == ([], 1)
        held.end()
        assert len(client.answers) == 1
        client.send(ApiVersionsRequest(), 0)
        clock.pass_(1.9)
        assert len(client.answers) == 1
        clock.pass_(0.1)
        assert len(client.answers) == 2
        late.end()
        client.ask(ApiVersionsRequest(), 0)

    def test_a_connection_is_cut_before_or_after_what_is_asked(self) -> None:
        """The difference is whether the record is there: only retries tell."""
        cluster, _ = cluster_of()
        cluster.create_topic("t")
        for how, is_there in (("is_cut", False), ("is_lost", True)):
            cluster.fail("Produce", count=1, **{how: True})
            client = Client(cluster)
            with pytest.raises(AssertionError, match="no answer"):
                client.produce("t", batch(b"a"))
            assert client.is_closed
            assert bool(cluster.log("t", 0).end) == is_there

    def test_some_are_met_by_chance(self) -> None:
        cluster, _ = cluster_of()
        cluster.create_topic("t")
        cluster.fail("Fetch", error=6, chance=0.5)
        client = Client(cluster)
        told = [error_in(client.ask(fetch((0, 0)), 11)) for _ in range(50)]
        assert 10 < told.count(6) < 40

    def test_a_frozen_broker_answers_when_it_is_no_more(self) -> None:
        cluster, _ = cluster_of()
        client = Client(cluster)
        cluster.freeze(1)
        client.send(ApiVersionsRequest(), 0)
        assert (client.answers, list(cluster.requests)) == ([], [])
        cluster.unfreeze(1)
        assert len(client.answers) == 1


def test_what_is_no_request_ends_the_connection() -> None:
    """An unknown kind, an unknown version, and what is no message at all."""
    cluster, _ = cluster_of()
    for data in (b"\0\0\0\x08\x03\xe7\0\0\0\0\0\1", b"\xff" * 8, b"\0\0\0\x02\0\0"):
        client = Client(cluster)
        client.connection.receive(data)
        assert client.is_closed
    client = Client(cluster)
    with pytest.raises(AssertionError, match="no answer"):
        client.ask(ListOffsetsRequest(replica_id=-1, topics=[]), 0)
    assert client.is_closed


def test_a_too_new_question_for_versions_is_told_what_to_ask() -> None:
    """KIP-511: the answer is in the oldest form, and names the versions that are known."""
    cluster, _ = cluster_of()
    client = Client(cluster)
    sent = bytes.fromhex(
        "0000000f 0012 0063 00000007 0001 61 00 0101 00".replace(" ", "")
    )
    taken: list[bytes] = []
    client.connection._send = taken.append
    client.connection.receive(sent)
    assert taken[0].hex() == "0000001000000007002300000001001200000004"


def test_who_watches_sees_each_request_with_its_origin() -> None:
    cluster, clock = cluster_of()
    seen: list[tuple[Request, Any]] = []
    cluster.on_request = lambda request, message: seen.append((request, message.body))
    clock.pass_(5)
    Client(cluster, origin="me").ask(MetadataRequest(topics=None), 7)
    ((request, body),) = seen
    assert (request.api, request.origin, request.client_id) == (
        "Metadata",
        "me",
        "test",
    )
    assert (request.at, request.broker_id, body.topics) == (clock.now, 1, None)


@pytest.mark.parametrize("asked", [1, 3])
def test_the_same_requests_have_the_same_answers(asked: int) -> None:
    """Nothing is drawn but from what was handed in: not even the ids of topics."""

    def told() -> list[str]:
        cluster, clock = cluster_of(brokers=asked)
        cluster.create_topic("t", 3)
        client = Client(cluster)
        client.produce("t", batch(b"a"))
        client.ask(fetch((0, 0)), 11)
        Transactional(client)
        clock.pass_(1)
        client.ask(MetadataRequest(topics=None), 12)
        return [repr(answer) for answer in client.answers]

    assert told() == told()
