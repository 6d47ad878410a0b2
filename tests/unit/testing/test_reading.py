"""What a Fetch remembers, and what compaction leaves to be read."""

from safeconsumer.testing import _codes
from safeconsumer.testing._batches import NewRecord
from tests.harness.testing.asking import (
    Client,
    batch,
    cluster_of,
    fetch,
    records_in,
)


def test_a_broker_that_was_down_knows_no_session():
    """Its client hears that, and asks for everything anew."""
    cluster, _ = cluster_of()
    cluster.create_topic("t")
    first = Client(cluster).ask(fetch((0, 0), session=(0, 0)), 11)
    cluster.down(1, failover=None)
    cluster.up(1)
    told = Client(cluster).ask(fetch(session=(first.session_id, 1)), 11)
    assert told.error_code == _codes.FETCH_SESSION_ID_NOT_FOUND


def test_compaction_leaves_a_producers_last_batch_without_records():
    """Readers have to get past it, and the producer's numbers go on."""
    cluster, _ = cluster_of()
    cluster.create_topic("t", 1, {"cleanup.policy": "compact"})
    client = Client(cluster)
    for sequence, value in enumerate((b"a", b"b")):
        client.produce("t", _numbered(value, sequence))
    cluster.append("t", 0, [NewRecord(key=b"k", value=b"last")])
    cluster.compact("t")
    empty, _ = cluster.log("t", 0).batches
    assert (empty.base, empty.end, list(empty.records())) == (1, 2, [])
    assert records_in(client.ask(fetch((0, 0)), 11)) == [(2, b"last")]


def test_a_tombstone_stays_as_long_as_its_topic_says():
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


def test_requests_that_ask_for_the_same_share_its_names():
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


def _numbered(value, sequence):
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)
