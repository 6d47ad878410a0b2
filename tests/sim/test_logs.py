"""What logs hold besides records, as brokers give it out: readers get past it."""

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer.testing._batches import NewRecord
from tests.sim.reading import Reader

both = pytest.mark.parametrize("kind", [SafeConsumer, KafkaConsumer])


@pytest.mark.contract("P8", "P10")
@both
def test_a_reader_gets_past_a_batch_without_records(lab, kind):
    """Compaction leaves it of an idempotent producer; here a Fetch brings nothing else."""
    (tp,) = lab.topic("t")
    producer = KafkaProducer(**lab.connection, enable_idempotence=True)
    for value in (b"0", b"1"):
        producer.send("t", value, key=b"k").get(10)
    lab.cluster.append("t", 0, [NewRecord(key=b"k", value=b"2")])
    lab.cluster.compact("t")
    reader = Reader(lab, kind, "t", max_partition_fetch_bytes=1)
    reader.reads(tp, [2])


@pytest.mark.contract("P8")
@both
def test_a_batch_that_was_cut_off_is_fetched_again(lab, kind):
    """Of two partitions with small limits none is read past what came whole."""
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
@both
def test_offsets_of_a_transaction_that_is_ending_are_waited_for(lab, kind):
    """Its end was acknowledged: who reads what is committed begins behind it."""
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
