"""Tests the batches that the Python source plans, without Spark."""

import logging

import pytest
from kafka import KafkaProducer
from kafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)

from safeconsumer.errors import (
    DataLostError,
    HeldDataLostError,
    HoldsUnreadableError,
    SparkSettingError,
)
from safeconsumer.group import topics
from safeconsumer.spark import offsets as wire
from safeconsumer.spark import retention
from tests.harness.spark.planned import Planned, close, counted, offsets
from tests.harness.waiting import retried, wait_for

pytestmark = pytest.mark.any_broker


@pytest.fixture
def planned(kafka_broker):
    with Planned(kafka_broker, partitions=2) as made:
        yield made


# ------------------------------------------------------------ holds


@pytest.mark.contract("S9")
def test_hold_keeps_the_position_of_its_partition_until_the_lift(planned, operator):
    planned.produce(20, 20)
    planned.start(**operator.options())
    assert counted(planned.batch()) == {0: 20, 1: 20}
    operator.hold(f"{planned.topic}:0")
    planned.produce(10, 10)
    assert counted(planned.batch()) == {1: 10}
    planned.start(**operator.options())
    planned.produce(5, 5)
    assert counted(planned.batch()) == {1: 5}
    operator.lift(f"{planned.topic}:0")
    assert offsets(planned.batch()) == [*range(20, 35)]


@pytest.mark.contract("S9")
def test_interrupted_batch_is_read_again_in_full(planned, operator, kept):
    """A new process reads the batch to its logged end, even if the topic is now held."""
    planned.produce(20, 20)
    planned.start(**operator.options())
    start, end = planned.plan(most=30)
    first = [planned.read(task) for task in planned.tasks(start, end)]
    assert sum(map(len, first)) == 30
    operator.hold(planned.topic)
    planned.produce(5, 5)
    close(kept)
    planned.start(**operator.options())
    again = [planned.read(task) for task in planned.tasks(start, end)]
    assert list(map(offsets, again)) == list(map(offsets, first))
    planned.at = end
    assert planned.batch() == []
    operator.lift(planned.topic)
    assert counted(planned.batch()) == {0: 10, 1: 10}


@pytest.mark.contract("S9")
def test_next_plan_obeys_every_hold_and_lift(planned, operator):
    planned.start(**operator.options())
    for _ in range(5):
        planned.produce(1, 1)
        operator.hold(planned.topic)
        assert planned.batch() == []
        operator.lift(planned.topic)
        assert counted(planned.batch()) == {0: 1, 1: 1}


def test_held_partition_does_not_count_towards_the_offset_limit(planned, operator):
    planned.produce(100, 100)
    operator.hold(f"{planned.topic}:0")
    planned.start(**operator.options())
    assert counted(planned.batch(most=40)) == {1: 40}


def test_partitions_in_the_option_holds_are_not_read(planned):
    planned.produce(3, 3)
    planned.start(holds=f"{planned.topic}:1")
    assert counted(planned.batch()) == {0: 3}


@pytest.mark.contract("S9")
def test_stream_without_its_holds_topic_reads_nothing(planned, operator):
    """An endless run waits for its holds topic, but a finite run fails without the topic."""
    planned.produce(5, 5)
    late = f"late-{operator.topic}"
    options = {**operator.options(), "holds.topic": late}
    planner = planned.start(**options)
    assert planned.batch() == []
    planner.prepare()
    with pytest.raises(HoldsUnreadableError, match=f"no topic {late}"):
        planned.batch()
    operator.team.create(late, {"cleanup.policy": "compact"})
    retried(lambda: read_all(planned), HoldsUnreadableError)


@pytest.mark.contract("S9", "S4")
def test_recreated_holds_topic_keeps_its_earlier_holds(planned, operator):
    """Without the topic all partitions are held; earlier holds then stay until a lift."""
    planned.start(**operator.options(), **{"holds.controlTimeoutMs": "500"})
    operator.hold(f"{planned.topic}:0")
    planned.produce(10, 10)
    wait_for(lambda: counted(planned.batch()) == {1: 10}, "the hold is read")
    operator.team.broker.delete_topic(operator.topic)
    planned.produce(5, 5)
    assert planned.batch() == []
    retried(
        lambda: operator.team.create(operator.topic, topics.HOLDS_SETTINGS),
        KafkaError,
    )
    wait_for(lambda: counted(planned.batch()) == {1: 5}, "the holds topic is read")
    operator.lift(f"{planned.topic}:0")
    wait_for(lambda: counted(planned.batch()) == {0: 15}, "the lift is read")


def read_all(planned):
    assert counted(planned.batch()) == {0: 5, 1: 5}


def test_holds_topic_with_the_cleanup_policy_delete_is_refused(planned, operator):
    unfit = f"unfit-{operator.topic}"
    operator.team.create(unfit, {"cleanup.policy": "delete"})
    planned.start(**{**operator.options(), "holds.topic": unfit})
    with pytest.raises(Exception, match="holds would be deleted with time"):
        planned.batch()


def test_stream_reports_until_it_stops(planned, operator):
    planned.produce(3, 3)
    planned.start(**operator.reporting())
    planned.batch()
    wait_for(lambda: "ready" in operator.states(), "a report")
    planned.end()
    wait_for(lambda: operator.states()[-1] == "stopped", "the last report")


def test_batch_counts_as_running_until_the_next_plan(planned, operator):
    """Spark commits a batch only after the next plan, so its commit does not mark its end."""
    planner = planned.start(**operator.options())
    planned.produce(5, 5)
    planned.batch()
    planned.produce(0, 5)
    planned.batch()
    activity = planner._stream.activity
    assert activity.now().reading == {(planned.topic, 1)}
    planned.batch()
    assert activity.now().reading == frozenset()


def test_new_partition_whose_records_were_all_deleted_is_a_loss(planned):
    planned.produce(1, 1)
    planner = planned.start()
    planned.batch()
    with planned.admin() as admin:
        admin.create_partitions({planned.topic: 3})
    planned.produce(0, 0, 9)
    start, end = planned.plan()
    planned.delete_before(9, partition=2)
    with pytest.raises(DataLostError, match="begins at 9 instead of 0"):
        planner.tasks(start, {**end, (planned.topic, 2): 4})


# ------------------------------------------------------------ starting offsets


def test_stream_starts_at_its_starting_offsets(planned):
    planned.produce(10, 10)
    topic = planned.topic
    assert planned.start(startingOffsets="latest").initial() == {
        (topic, 0): 10,
        (topic, 1): 10,
    }
    named = wire.render({(topic, 0): 3, (topic, 1): -2})
    assert planned.start(startingOffsets=named).initial() == {
        (topic, 0): 3,
        (topic, 1): 0,
    }


def test_leading_zeros_of_a_partition_number_are_ignored(planned):
    planned.produce(5, 5)
    named = f'{{"{planned.topic}":{{"00":3,"01":-1}}}}'
    assert wire.render(planned.start(startingOffsets=named).initial()) == (
        f'{{"{planned.topic}":{{"0":3,"1":5}}}}'
    )


@pytest.mark.parametrize("numbers", [[0], [0, 1, 2]], ids=["too few", "too many"])
def test_starting_offsets_for_too_few_or_too_many_partitions_are_refused(
    planned, numbers
):
    topic = planned.topic
    named = wire.render({(topic, number): 0 for number in numbers})
    with pytest.raises(SparkSettingError, match=f"differ: {topic}:"):
        planned.start(startingOffsets=named)


def test_stream_reads_only_its_assigned_partitions(planned):
    planned.produce(5, 5)
    planned.start(assign=f'{{"{planned.topic}":[1]}}')
    assert counted(planned.batch()) == {1: 5}


def test_assigned_partition_that_does_not_exist_is_refused(planned):
    with pytest.raises(SparkSettingError, match="do not exist"):
        planned.start(assign=f'{{"{planned.topic}":[7]}}')


def test_pattern_matches_parts_of_topic_names_as_in_the_official_source(planned):
    """The pattern does not match internal topics."""
    planned.produce(4, 4)
    part = planned.topic[2:]
    planned.start(subscribePattern=f"{part}|consumer_off")
    assert counted(planned.batch()) == {0: 4, 1: 4}


def test_topics_and_partitions_added_during_a_hold_are_read_from_their_start(
    planned, operator
):
    held = f"re:{planned.topic}.*"
    options = {**operator.options(), "subscribePattern": planned.topic}
    planned.produce(2, 2)
    planned.start(**options)
    planned.batch()
    operator.hold(held)
    planned.create(f"{planned.topic}-more")
    planned.produce(7, topic=f"{planned.topic}-more")
    with planned.admin() as admin:
        admin.create_partitions({planned.topic: 3})
    planned.produce(0, 0, 6)
    assert planned.batch() == []
    assert planned.at[f"{planned.topic}-more", 0] == 0
    operator.lift(held)
    rows = planned.batch()
    assert {(one.topic, one.partition): 0 for one in rows} == {
        (planned.topic, 2): 0,
        (f"{planned.topic}-more", 0): 0,
    }
    assert len(rows) == 13


# ------------------------------------------------------------ ends of batches


@pytest.mark.contract("S9")
def test_read_committed_stream_reads_only_committed_records(planned):
    """A batch ends at the last stable offset, which may follow an aborted transaction."""
    producer = KafkaProducer(
        **planned.broker.client_config, transactional_id=planned.topic
    )
    producer.init_transactions()

    def write(count):
        for _ in range(count):
            producer.send(planned.topic, b"x", partition=0)
        producer.flush()

    producer.begin_transaction()
    write(3)
    producer.abort_transaction()
    producer.begin_transaction()
    write(2)
    producer.commit_transaction()
    producer.begin_transaction()
    write(4)
    planned.start(kafka_isolation_level="read_committed")
    assert offsets(planned.batch()) == [4, 5]
    assert planned.batch() == []
    producer.abort_transaction()
    producer.close()
    assert planned.batch() == []
    planned.at = None
    planned.start()
    assert len(planned.batch()) == 9


def test_finite_run_reads_up_to_the_end_offsets_at_its_start(planned):
    planned.produce(5, 5)
    planned.start().prepare()
    planned.produce(5, 5)
    assert counted(planned.batch()) == {0: 5, 1: 5}
    assert planned.batch() == []


def test_batch_is_split_into_ranges_which_are_grouped_into_tasks(planned):
    planned.produce(100, 20)
    planned.start(minPartitions=6)
    start, end = planned.plan()
    cut = [one for (one,) in planned.tasks(start, end)]
    assert [one.end - one.start for one in cut] == [20, 20, 20, 20, 20, 20]
    planned.start(minPartitions=6, minRecordsPerTask=50)
    grouped = planned.tasks(start, end)
    assert [sum(one.end - one.start for one in task) for task in grouped] == [60, 60]
    rows = [row for task in grouped for row in planned.read(task)]
    assert counted(rows) == {0: 100, 1: 20}


# ------------------------------------------------------------ losses


@pytest.mark.contract("S9")
def test_held_records_deleted_by_retention_are_reported_before_the_lift(
    planned, operator, caplog, monkeypatch
):
    """After the lift the query fails, unless ``failOnDataLoss`` is false."""
    monkeypatch.setattr(retention, "_EVERY", 0.0)
    planned.start(**operator.options())
    operator.hold(planned.topic)
    planned.produce(60, 0)
    planned.batch()
    planned.delete_before(30)
    with caplog.at_level(logging.ERROR, "safeconsumer"):
        for _ in range(3):
            assert planned.batch() == []
    lost = f"{planned.topic}:0: the 30 records from offset 0 on are deleted already"
    assert sum(lost in one.getMessage() for one in caplog.records) == 1
    operator.lift(planned.topic)
    with pytest.raises(DataLostError, match="records 0 to 29 are deleted"):
        planned.batch()
    planned.start(**{**operator.options(), "failOnDataLoss": "false"})
    assert offsets(planned.batch()) == [*range(30, 60)]


def test_new_partition_that_lost_its_first_records_is_a_loss(planned):
    planned.produce(1, 1)
    planned.start()
    planned.batch()
    with planned.admin() as admin:
        admin.create_partitions({planned.topic: 3})
    planned.produce(0, 0, 9)
    planned.delete_before(4, partition=2)
    with pytest.raises(DataLostError, match="begins at 4 instead of 0"):
        planned.batch()


@pytest.mark.contract("S9")
@pytest.mark.parametrize("count", [5, 50], ids=["shorter", "longer"])
def test_recreated_topic_is_a_loss_and_no_old_record_is_read(
    planned, kafka_broker, count
):
    """The reader that the source keeps has already fetched records from the old topic."""
    planned.produce(40, 0)
    planned.start(failOnDataLoss="false")
    planned.at = {(planned.topic, 0): 0, (planned.topic, 1): 0}
    assert offsets(planned.batch(most=20)) == [*range(20)]
    made_again(planned, kafka_broker)
    planned.produce(count, 0, prefix=b"new ")
    values = [one.value for one in planned.batch()]
    assert values == [b"new %d" % number for number in range(20, count)]
    assert planned.at[planned.topic, 0] == count


def test_new_topic_id_fails_the_query(planned, kafka_broker):
    planned.produce(10, 0)
    planned.start()
    planned.batch()
    made_again(planned, kafka_broker)
    planned.produce(50, 0)
    with pytest.raises(DataLostError, match="deleted and recreated"):
        planned.batch()


def made_again(planned, broker):
    broker.delete_topic(planned.topic)
    retried(lambda: planned.create(planned.topic, 2), Exception)


@pytest.mark.contract("S9")
def test_recreated_held_topic_is_a_loss(planned, operator, kafka_broker):
    planned.produce(10, 10)
    planned.start(**operator.options())
    planned.batch()
    operator.hold(planned.topic)
    planned.batch()
    made_again(planned, kafka_broker)
    with pytest.raises((DataLostError, HeldDataLostError)):
        planned.batch()


def test_missing_topic_is_refused_with_its_name(planned):
    with pytest.raises(UnknownTopicOrPartitionError, match="none-such"):
        planned.start(subscribe="none-such-topic")


def test_missing_partition_is_a_loss(planned):
    planned.produce(1, 1)
    planned.start()
    planned.batch()
    planned.at = {**planned.at, (planned.topic, 7): 3}
    with pytest.raises(DataLostError, match=f"{planned.topic}:7: gone"):
        planned.batch()


@pytest.mark.embedded_broker
def test_topic_metadata_with_an_error_is_requested_again(planned, kafka_broker):
    """Without a second request the source would silently skip the topic's partitions."""
    planned.produce(3, 3)
    planned.start()
    kafka_broker.fail("Metadata", "LEADER_NOT_AVAILABLE", times=1)
    assert counted(planned.batch()) == {0: 3, 1: 3}
    kafka_broker.fail("Metadata", "LEADER_NOT_AVAILABLE", times=50)
    try:
        with pytest.raises(LeaderNotAvailableError):
            planned.batch()
    finally:
        kafka_broker.heal()
