"""How much a Fetch is given, and what compaction and deletion leave to be read."""

from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest

from safeconsumer.testing import _codes
from safeconsumer.testing._batches import Batch, NewRecord
from tests.harness.testing.asking import (
    Client,
    batch,
    cluster_of,
    error_in,
    fetch,
    records_in,
)


def sizes(answer: Any) -> list[int]:  # noqa: ANN401  not typed
    return [
        len(one.records or b"")
        for topic in answer.responses
        for one in topic.partitions
    ]


def test_only_the_first_partition_with_records_exceeds_a_limit() -> None:
    """Who has no room for more is given no more, or limits would bound nothing."""
    cluster, _ = cluster_of()
    cluster.create_topic("t", 3)
    for number in (1, 2):
        cluster.append("t", number, [b"x" * 500])
    client = Client(cluster)
    for how in ({"room": 100}, {"all_room": 100}):
        told = client.ask(fetch((0, 0), (1, 0), (2, 0), **how), 11)
        assert records_in(told) == [(0, b"x" * 500)]
        assert [bool(size) for size in sizes(told)] == [False, True, False]


def test_the_last_batch_is_cut_off_where_the_room_ends() -> None:
    """As brokers do, who send a piece of a file; a reader asks for that batch again."""
    cluster, _ = cluster_of()
    cluster.create_topic("t")
    for _ in range(3):
        cluster.append("t", 0, [b"x" * 100])
    client = Client(cluster)
    room = 2 * len(cluster.log("t", 0).batches[0].data) - 10
    told = client.ask(fetch((0, 0), room=room), 11)
    assert sizes(told) == [room]
    assert records_in(told) == [(0, b"x" * 100)]


def test_a_fetch_of_nothing_is_answered_at_once() -> None:
    """There is nothing that it could wait for."""
    cluster, _ = cluster_of()
    assert Client(cluster).ask(fetch(wait=10_000), 11).responses == []


def test_a_broker_that_was_down_knows_no_session() -> None:
    """Its client hears that, and asks for everything anew."""
    cluster, _ = cluster_of()
    cluster.create_topic("t")
    first = Client(cluster).ask(fetch((0, 0), session=(0, 0)), 11)
    cluster.down(1, failover=None)
    cluster.up(1)
    told = Client(cluster).ask(fetch(session=(first.session_id, 1)), 11)
    assert told.error_code == _codes.FETCH_SESSION_ID_NOT_FOUND


def test_the_stable_end_is_never_below_the_start() -> None:
    """An open transaction may lose its records: the end is then no place to begin at."""
    cluster, _ = cluster_of()
    cluster.create_topic("t")
    client = Client(cluster)
    log = cluster.log("t", 0)
    open_ = batch(b"a", is_transactional=True, producer_id=7, base_sequence=0)
    log.append(Batch(open_))
    cluster.append("t", 0, 4)
    cluster.delete_before("t", 0, 3)
    end = _end_of(client, isolation=1)
    assert end == log.start == 3
    assert error_in(client.ask(fetch((0, end), isolation=1), 11)) == _codes.NONE


def test_compaction_leaves_a_producers_last_batch_without_records() -> None:
    """Readers have to get past it, and the producer's numbers go on."""
    cluster, _ = cluster_of()
    cluster.create_topic("t", 1, {"cleanup.policy": "compact"})
    client = Client(cluster)
    for sequence, value in enumerate((b"a", b"b")):
        client.produce("t", _numbered(value, sequence))
    cluster.append("t", 0, [NewRecord(key=b"k", value=b"last")])
    cluster.compact("t")
    empty, last = cluster.log("t", 0).batches
    assert (empty.base, empty.end, list(empty.records())) == (1, 2, [])
    assert records_in(client.ask(fetch((0, 0)), 11)) == [(2, b"last")]
    assert sizes(client.ask(fetch((0, 0)), 11)) == [len(empty.data) + len(last.data)]


def test_a_tombstone_stays_as_long_as_its_topic_says() -> None:
    """From when it is first found, whatever its time: a member's clock may be wrong."""
    cluster, clock = cluster_of()
    settings = {"cleanup.policy": "compact", "delete.retention.ms": "60000"}
    cluster.create_topic("t", 1, settings)
    for one in (NewRecord(key=b"k", value=None, timestamp=1), NewRecord(key=b"l")):
        cluster.append("t", 0, [one])
    client = Client(cluster)
    for seconds, offsets in ((0, [0, 1]), (59, [0, 1]), (1, [1])):
        clock.pass_(seconds)
        cluster.compact("t")
        told = client.ask(fetch((0, 0)), 11)
        assert [offset for offset, _ in records_in(told)] == offsets


def test_requests_that_ask_for_the_same_share_its_names() -> None:
    """Of 100,000 Fetches each would keep the names of all partitions."""
    cluster, _ = cluster_of()
    cluster.create_topic("t", 2)
    cluster.append("t", 1)
    client = Client(cluster)
    first = client.ask(fetch((1, 0), (0, 0), session=(0, 0)), 11)
    client.ask(fetch(session=(first.session_id, 1)), 11)
    one, other = (taken.partitions for taken in cluster.requests)
    assert one is other
    assert one == (("t", 0), ("t", 1))


def _numbered(value: bytes, sequence: int) -> bytes:
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)


def _end_of(client: Client, *, isolation: int) -> int:
    kind = ListOffsetsRequest.ListOffsetsTopic
    asked = kind.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=-1, max_num_offsets=1
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[kind(name="t", partitions=[asked])],
    )
    (topic,) = client.ask(request, 4).topics
    return int(topic.partitions[0].offset)
