"""
Reproduces reported bugs of Spark's Kafka source while partitions are held.

Each test places a hold during the reported sequence of events. The hold must not make
the bug worse.
"""

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from tests.harness.spark.lake import LIMIT, metrics, progress, until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_broker,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
]

EVERY = {"processingTime": "100 milliseconds"}


def transactions(lake, topic, *ends):
    """Write transactions of five records per partition; end each as ``ends`` says."""
    settings = {"transactional_id": f"of-{topic}", "enable_idempotence": True}
    producer = KafkaProducer(**lake.broker.client_config, **settings)
    producer.init_transactions()
    for end in ends:
        producer.begin_transaction()
        sent = [
            producer.send(topic, b"x", partition=number)
            for number in range(lake.partitions)
            for _ in range(5)
        ]
        producer.flush()
        if end == "commit":
            producer.commit_transaction()
            for one in sent:
                found = one.get(30)
                lake.expected[topic, found.partition, found.offset] += 1
        else:
            producer.abort_transaction()
    producer.close()


def delete_below(lake, offset):
    """Delete the records below an offset from all partitions of ``orders``."""
    where = {TopicPartition(lake.orders, n): offset for n in range(lake.partitions)}
    with KafkaAdminClient(**lake.broker.client_config) as admin:
        admin.delete_records(where)
    for number in range(lake.partitions):
        for gone in range(offset):
            lake.expected.pop((lake.orders, number, gone), None)


@pytest.mark.contract("S2")
@pytest.mark.parametrize("limit", [None, "7"])
def test_spark_23685_offsets_without_records_do_not_count_as_loss(
    lake, controller, limit
):
    """Aborted records and markers are at the start, middle and end of batches."""
    options = {"kafka_isolation_level": "read_committed"}
    if limit is not None:
        options["maxOffsetsPerTrigger"] = limit
    transactions(lake, lake.orders, "abort", "commit", "abort", "commit", "abort")
    controller.pause(f"{lake.orders}:1")
    lake.run(**options)
    transactions(lake, lake.orders, "abort", "abort", "commit")
    controller.resume(f"{lake.orders}:1")
    lake.run(**options)
    assert lake.rows() == lake.produced()


@pytest.mark.contract("S3")
def test_apache_spark_31089_deleted_offsets_are_not_skipped_silently(lake, controller):
    """After the lift the query fails; it skips the offsets if ``failOnDataLoss`` is false."""
    lake.produce(lake.orders, 10)
    controller.pause(lake.orders)
    lake.run()
    delete_below(lake, 6)
    (batch, *_) = metrics(lake.run())
    assert "the 6 records from offset 0 on are deleted already" in batch["heldLost"]
    controller.resume(lake.orders)
    with pytest.raises(Exception, match="failOnDataLoss"):
        lake.run()
    lake.run(failOnDataLoss="false")
    assert lake.rows() == lake.produced()


@pytest.mark.contract("S2")
def test_spark_25214_records_after_deleted_offsets_are_delivered_once(lake, controller):
    """The source does not deliver the next records once for each deleted offset."""
    options = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "8"}
    lake.produce(lake.orders, 20)
    controller.pause(f"{lake.orders}:2")
    query = lake.start(trigger=EVERY, **options)
    flowing = {row for row in lake.produced() if row[1] != 2}
    until(lambda: set(lake.rows()) == flowing, query)
    delete_below(lake, 11)
    controller.resume(f"{lake.orders}:2")
    lake.produce(lake.orders, 5)
    wanted = flowing | set(lake.produced())
    until(lambda: set(lake.rows()) == wanted, query)
    assert max(lake.rows().values()) == 1
    query.stop()


@pytest.mark.contract("S2")
def test_spark_22956_union_restarts_while_one_side_has_no_new_records(lake, controller):
    """A side that is held or has no new records does not lose any record in a restart."""

    def run():
        sides = [
            lake.stream({"subscribe": one}).select("topic", "partition", "offset")
            for one in (lake.orders, lake.returns)
        ]
        lake.write(sides[0].union(sides[1])).awaitTermination(LIMIT)

    lake.produce_both(5)
    run()
    lake.produce(lake.orders, 5)
    run()
    lake.produce_both(5)
    controller.pause(lake.orders)
    run()
    assert lake.rows(lake.returns) == lake.produced(lake.returns)
    run()
    controller.resume(lake.orders)
    run()
    assert lake.rows() == lake.produced()


@pytest.mark.contract("S2")
def test_spark_41387_partitions_added_during_a_run_are_left_to_the_next_run(
    lake, controller
):
    """The end of a run is fixed when the run starts, and a hold does not change it."""
    lake.produce(lake.orders, 20)
    controller.pause(f"{lake.orders}:0")
    query = lake.start(maxOffsetsPerTrigger="6")
    until(lambda: lake.rows() != {}, query)
    lake.broker.add_partitions(lake.orders, 6)
    lake.partitions = 6
    lake.produce(lake.orders, 5)
    assert query.awaitTermination(LIMIT)
    assert not [row for row in lake.rows() if row[1] in {0, 4, 5} or row[2] > 19]
    controller.resume(f"{lake.orders}:0")
    lake.run(kafka_metadata_max_age_ms="100")
    assert lake.rows() == lake.produced()


@pytest.mark.contract("S1")
def test_spark_35312_minimum_number_of_rows_ignores_held_partitions(lake, controller):
    """The limiter waits for 30 rows from partitions without a hold; then it delivers all."""
    options = {"minOffsetsPerTrigger": "30", "maxTriggerDelay": "1h"}
    lake.produce_both(4)
    controller.pause(lake.returns)
    query = lake.start(trigger=EVERY, **options)
    until(lambda: lake.rows() == lake.produced(lake.orders), query)  # the first batch
    lake.produce(lake.orders, 4)
    before = len(query.recentProgress)
    until(lambda: len(query.recentProgress) > before + 5, query)
    assert sum(lake.rows().values()) == 16
    lake.produce(lake.orders, 4)  # now 32 records are waiting
    until(lambda: lake.rows() == lake.produced(lake.orders), query)
    controller.resume(lake.returns)
    lake.produce(lake.returns, 4)
    until(lambda: lake.rows() == lake.produced(), query)
    assert progress(query)
    query.stop()
