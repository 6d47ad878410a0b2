"""Tests the kit's cluster as a plain object, without sockets and with a test clock."""

import pytest
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    MetadataRequest,
)

from safeconsumer.testing import _codes
from safeconsumer.testing._batches import NewRecord
from tests.harness.testing.asking import (
    Client,
    batch,
    cluster_of,
    error_in,
    fetch,
    records_in,
    with_topic,
)
from tests.harness.testing.requests import QUESTIONS, in_kit

NONE = _codes.NONE


def test_fetch_session_returns_only_changed_partitions():
    """KIP-227: later responses of a session contain only partitions that have changed."""
    cluster, client = with_topic(2)
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
def test_fetch_that_closes_its_session_is_logged_with_its_own_partitions(epoch):
    """Otherwise the request log would name held partitions from the old fetch session."""
    cluster, client = with_topic(2)
    first = client.ask(fetch((0, 0), (1, 0), session=(0, 0)), 11)
    client.ask(fetch(session=(first.session_id, 1)), 11)
    client.ask(fetch((0, 0), session=(first.session_id, epoch)), 11)
    asked = [one.partitions for one in cluster.requests if one.api == "Fetch"]
    assert asked == [(("t", 0), ("t", 1)), (("t", 0), ("t", 1)), (("t", 0),)]


def test_log_append_time_replaces_the_producers_time():
    """message.timestamp.type=LogAppendTime gives records the time of their append."""
    cluster, clock = cluster_of()
    cluster.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"})
    client = Client(cluster)
    answer = client.produce("t", batch(b"a"))
    assert answer.log_append_time_ms == clock.now * 1000
    (record,) = cluster.log("t", 0).batches[0].records()
    assert record.timestamp == clock.now * 1000


def test_metadata_request_creates_a_topic_if_the_client_allows_it():
    """As in Kafka, the first response lacks the new topic."""
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
    def test_error_affects_a_limited_number_of_requests_of_one_origin(self):
        cluster, _ = cluster_of()
        cluster.create_topic("t")
        cluster.fail("Fetch", error=6, origin="a", count=2)
        a, b = Client(cluster, origin="a"), Client(cluster, origin="b")
        errors = [error_in(one.ask(fetch((0, 0)), 11)) for one in (a, b, a, a)]
        assert errors == [6, 0, 6, 0]

    def test_responses_can_be_delayed_or_withheld(self):
        cluster, clock = cluster_of()
        late = cluster.fail("ApiVersions", delay=2)
        held = cluster.fail("*", is_held=True)
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

    def test_connection_is_cut_before_or_after_the_request_takes_effect(self):
        cluster, _ = cluster_of()
        cluster.create_topic("t")
        for how, is_there in (("is_cut", False), ("is_lost", True)):
            cluster.fail("Produce", count=1, **{how: True})
            client = Client(cluster)
            with pytest.raises(AssertionError, match="no answer"):
                client.produce("t", batch(b"a"))
            assert client.is_closed
            assert bool(cluster.log("t", 0).end) == is_there

    def test_frozen_broker_responds_after_unfreeze(self):
        cluster, _ = cluster_of()
        client = Client(cluster)
        cluster.freeze(1)
        client.send(ApiVersionsRequest(), 0)
        assert (client.answers, list(cluster.requests)) == ([], [])
        cluster.unfreeze(1)
        assert len(client.answers) == 1


def test_new_topic_has_as_many_partitions_as_a_request_assigns():
    cluster, _ = cluster_of()
    kind = CreateTopicsRequest.CreatableTopic
    place = kind.CreatableReplicaAssignment
    request = CreateTopicsRequest(
        topics=[
            kind(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    place(partition_index=number, broker_ids=[1]) for number in range(3)
                ],
                configs=[],
            )
        ],
        timeout_ms=1000,
        validate_only=False,
    )
    (made,) = Client(cluster).ask(request, 5).topics
    assert (made.error_code, made.num_partitions) == (0, 3)
    assert len(cluster.topics.known("t").logs) == 3


def test_unreadable_message_closes_the_connection():
    cluster, _ = cluster_of()
    for data in (b"\0\0\0\x08\x03\xe7\0\0\0\0\0\1", b"\xff" * 8, b"\0\0\0\x02\0\0"):
        client = Client(cluster)
        client.connection.receive(data)
        assert client.is_closed
    client = Client(cluster)
    with pytest.raises(AssertionError, match="no answer"):
        client.ask(ListOffsetsRequest(replica_id=-1, topics=[]), 0)
    assert client.is_closed


def test_api_versions_request_that_is_too_new_gets_the_known_versions():
    """KIP-511: the response has the oldest form, and lists the known versions."""
    cluster, _ = cluster_of()
    client = Client(cluster)
    sent = bytes.fromhex(
        "0000000f 0012 0063 00000007 0001 61 00 0101 00".replace(" ", "")
    )
    taken = []
    client.connection._send = taken.append
    client.connection.receive(sent)
    assert taken[0].hex() == "0000001000000007002300000001001200000004"


@pytest.mark.parametrize("asked", [1, 3])
def test_identical_requests_get_identical_responses(asked):
    """The seed determines all random choices, including topic ids."""

    def answers():
        cluster, clock = cluster_of(brokers=asked)
        cluster.create_topic("t", 3)
        client = Client(cluster)
        client.produce("t", batch(b"a"))
        client.ask(fetch((0, 0)), 11)
        clock.pass_(1)
        client.ask(MetadataRequest(topics=None), 12)
        return [repr(answer) for answer in client.answers]

    assert answers() == answers()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.__name__)
def test_cluster_responds_as_kafka_does(question):
    """tests/broker/parity/test_parity.py sends the same requests to Kafka."""
    assert question(in_kit(*cluster_of())) == QUESTIONS[question]


def test_restarted_broker_has_forgotten_its_fetch_sessions():
    """A client gets FETCH_SESSION_ID_NOT_FOUND, and starts another session."""
    cluster, _ = cluster_of()
    cluster.create_topic("t")
    first = Client(cluster).ask(fetch((0, 0), session=(0, 0)), 11)
    cluster.down(1, failover=None)
    cluster.up(1)
    second = Client(cluster).ask(fetch(session=(first.session_id, 1)), 11)
    assert second.error_code == _codes.FETCH_SESSION_ID_NOT_FOUND


def test_compaction_keeps_the_last_batch_of_a_producer_without_records():
    """Readers skip the empty batch, and the producer's sequence numbers continue."""
    cluster, client = with_topic(1, {"cleanup.policy": "compact"})
    for sequence, value in enumerate((b"a", b"b")):
        client.produce("t", _numbered(value, sequence))
    cluster.append("t", 0, [NewRecord(key=b"k", value=b"last")])
    cluster.compact("t")
    empty, _ = cluster.log("t", 0).batches
    assert (empty.base, empty.end, list(empty.records())) == (1, 2, [])
    assert records_in(client.ask(fetch((0, 0)), 11)) == [(2, b"last")]


def test_tombstone_stays_for_delete_retention_ms():
    """The time is measured from the first compaction, as a member's clock may be wrong."""
    cluster, clock = cluster_of()
    settings = {"cleanup.policy": "compact", "delete.retention.ms": "60000"}
    cluster.create_topic("t", 1, settings)
    for one in (NewRecord(key=b"k", value=None, timestamp=1), NewRecord(key=b"l")):
        cluster.append("t", 0, [one])
    client = Client(cluster)
    for seconds, offsets in ((0, [0, 1]), (59, [0, 1]), (1, [1])):
        clock.pass_(seconds)
        cluster.compact("t")
        answer = client.ask(fetch((0, 0)), 11)
        assert [offset for offset, _ in records_in(answer)] == offsets


def test_fetches_of_the_same_partitions_share_one_tuple():
    """Otherwise each of 100,000 logged Fetches would keep a separate tuple."""
    cluster, client = with_topic(2)
    cluster.append("t", 1)
    first = client.ask(fetch((1, 0), (0, 0), session=(0, 0)), 11)
    client.ask(fetch(session=(first.session_id, 1)), 11)
    one, other = (taken.partitions for taken in cluster.requests)
    assert one is other
    assert one == (("t", 0), ("t", 1))


def _numbered(value, sequence):
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)
