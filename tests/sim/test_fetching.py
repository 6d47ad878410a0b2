"""Partitions named in fetches, responses in flight during a pause, and unusual logs."""

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import CorruptRecordError
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer.testing._batches import NewRecord
from tests.sim.reading import (
    Reader,
    both_ways,
    corrupt,
    fetched_offsets,
    known,
    stock_fails,
)


@stock_fails("any metadata response counts as the awaited one")
def test_topic_subscribed_during_a_metadata_request_is_requested_next(lab, kind):
    """Otherwise a new consumer sometimes reads nothing for five minutes."""
    (p0,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, kind, group_id=None)
    lab.sleep(5)
    late = lab.cluster.fail("Metadata", is_held=True)
    reader.consumer._cluster.request_update()
    lab.until(lambda: late.kept)
    reader.consumer.subscribe([p0.topic])
    late.end()
    reader.reads(p0, range(3))


def test_fetch_requests_name_only_partitions_that_are_not_paused(lab):
    p0, p1 = lab.topic("t", 2, records=1)
    # With sessions a request names only the partitions that have changed since the last
    # request.
    settings = {"enable_incremental_fetch_sessions": False, "fetch_max_wait_ms": 100}
    reader = Reader(lab, SafeConsumer, tps=[p0, p1], **settings)
    reader.take(2)
    reader.consumer.pause(p0)
    lab.sleep(1)
    since = len(lab.cluster.requests)
    reader.is_silent(seconds=2)
    assert lab.fetched_partitions(since) == {p1}


@pytest.mark.contract("P8")
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (SafeConsumer, "poll"),
        (SafeConsumer, "iterate"),
        pytest.param(
            KafkaConsumer,
            "iterate",
            marks=known("it fetches buffered records, as its position lags behind"),
        ),
    ],
)
def test_resume_delivers_buffered_records_without_another_fetch(lab, kind, how):
    """P8: the length of the pause does not matter."""
    (p0,) = lab.topic("t", 1, records=200)
    asked = []
    lab.cluster.on_request = lambda _, message: asked.extend(
        fetched_offsets(message, p0)
    )
    reader = Reader(lab, kind, tps=[p0], how=how)
    reader.take(3)
    for count in (50, 70):
        reader.consumer.pause(p0)
        reader.is_silent(seconds=20)
        reader.consumer.resume(p0)
        reader.take(count)
    reader.reads(p0, range(123, 200))
    assert set(asked) <= {0, 200}


@both_ways
def test_corrupt_batch_of_a_paused_partition_raises_after_the_resume(lab, how):
    p0, p1 = lab.topic("t", 2, records=3)
    reader = Reader(lab, SafeConsumer, tps=[p0, p1], how=how)
    reader.until(lambda: len(reader.log) == 6)
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.until(lambda: late.kept)
    corrupt(lab, p0)
    late.end()
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.until(lambda: late.kept)
    reader.consumer.pause(p0)
    late.end()
    lab.append(p1, 3, first=3)
    reader.reads(p1, range(3, 6))
    assert reader.consumer.position(p0) == 3
    reader.consumer.resume(p0)
    with pytest.raises(CorruptRecordError):
        reader.until(lambda: False)


# ------------------------------------------------------------ unusual logs

both_clients = pytest.mark.parametrize("kind", [SafeConsumer, KafkaConsumer])


@pytest.mark.contract("P8", "P10")
@both_clients
def test_reading_continues_after_a_batch_without_records(lab, kind):
    """Compaction empties an idempotent producer's batch; a fetch returns only that batch."""
    (tp,) = lab.topic("t")
    producer = KafkaProducer(**lab.connection, enable_idempotence=True)
    for value in (b"0", b"1"):
        producer.send("t", value, key=b"k").get(10)
    lab.cluster.append("t", 0, [NewRecord(key=b"k", value=b"2")])
    lab.cluster.compact("t")
    reader = Reader(lab, kind, "t", max_partition_fetch_bytes=1)
    reader.reads(tp, [2])


@pytest.mark.contract("P8")
@both_clients
def test_batch_that_was_cut_off_is_fetched_again(lab, kind):
    """The consumer reads two partitions, with small limits on the size of a response."""
    tps = lab.topic("t", 2)
    for number in range(30):
        for tp in tps:
            lab.append(tp, 1 + number % 3, number)
    size = len(lab.cluster.log("t", 0).batches[0].data)
    limits = {"max_partition_fetch_bytes": 2 * size + 9, "fetch_max_bytes": 3 * size}
    reader = Reader(lab, kind, "t", **limits)
    reader.take(120)
    assert [reader.offsets(tp) for tp in tps] == [list(range(60))] * 2


@pytest.mark.contract("P8")
@both_clients
def test_member_waits_for_offsets_of_a_transaction_that_is_being_committed(lab, kind):
    """The end of the transaction is acknowledged before its offsets are committed."""
    (tp,) = lab.topic("t", records=10)
    lab.cluster.transactions.end_takes = 2.0
    committed = {"isolation_level": "read_committed"}
    first = Reader(lab, kind, "t", **committed)
    first.take(5)
    producer = KafkaProducer(**lab.connection, transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    offset = {tp: OffsetAndMetadata(5, "", -1)}
    producer.send_offsets_to_transaction(offset, first.consumer.group_metadata())
    producer.commit_transaction()
    first.consumer.close(autocommit=False)
    assert lab.committed(tp) is None
    Reader(lab, kind, "t", **committed).reads(tp, range(5, 10))
