"""
Reported ways in which Spark's Kafka source loses, repeats or stalls, under holds.

Each is played with a hold in the middle, which must not make it worse.
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
    """For each transaction, write five records to each partition; commit or abort it."""
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
    """Let every partition of orders begin at an offset."""
    where = {TopicPartition(lake.orders, n): offset for n in range(lake.partitions)}
    with KafkaAdminClient(**lake.broker.client_config) as admin:
        admin.delete_records(where)
    for number in range(lake.partitions):
        for gone in range(offset):
            lake.expected.pop((lake.orders, number, gone), None)


@pytest.mark.contract("S2")
@pytest.mark.parametrize("limit", [None, "7"])
def test_spark_23685_offsets_without_records_are_not_a_loss(lake, controller, limit):
    """Batches have aborted records and markers at the start, in the middle, at the end."""
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
    """The query fails when the hold ends, or passes over them (`failOnDataLoss`)."""
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
def test_spark_25214_records_after_a_loss_come_once(lake, controller):
    """The records are not delivered again for each of the deleted offsets."""
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
def test_spark_22956_a_union_is_restarted_while_one_side_has_nothing_new(
    lake, controller
):
    """A held side has no new records either."""

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
def test_spark_41387_a_run_leaves_partitions_added_meanwhile_to_the_next(
    lake, controller
):
    """The end of the run was fixed before; a hold, and a skip, do not go past it."""
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
def test_spark_35312_a_minimum_of_rows_counts_flowing_partitions(lake, controller):
    """The limiter waits for enough rows, or until its delay is over; then all come."""
    options = {"minOffsetsPerTrigger": "30", "maxTriggerDelay": "1h"}
    lake.produce_both(4)
    controller.pause(lake.returns)
    query = lake.start(trigger=EVERY, **options)
    until(lambda: lake.rows() == lake.produced(lake.orders), query)  # the first batch
    lake.produce(lake.orders, 4)
    before = len(query.recentProgress)
    until(lambda: len(query.recentProgress) > before + 5, query)
    assert sum(lake.rows().values()) == 16
    lake.produce(lake.orders, 4)  # 32 by now
    until(lambda: lake.rows() == lake.produced(lake.orders), query)
    controller.resume(lake.returns)
    lake.produce(lake.returns, 4)
    until(lambda: lake.rows() == lake.produced(), query)
    assert progress(query)
    query.stop()
