"""Tests holds on a real stream with a real broker."""

from collections import Counter

import pytest

from tests.harness.spark.lake import LIMIT, metrics, progress, until

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(900)]


@pytest.mark.contract("S1")
def test_calls_hold_and_resume_a_running_stream(lake, controller):
    """S1: no batch that is planned after pause() has returned reads held partitions."""
    lake.produce(lake.orders, 20)
    query = lake.start(trigger={"processingTime": "200 milliseconds"})
    until(lambda: lake.rows() == lake.produced(), query)
    controller.pause(lake.orders, reason="migration")
    before = lake.rows(lake.orders)
    lake.produce_both(20)
    until(lambda: lake.rows(lake.returns) == lake.produced(lake.returns), query)
    until(lambda: controller.lag().get((lake.orders, 0)) == 20, query)
    assert lake.rows(lake.orders) == before
    held = f"{lake.orders}:0-3"
    until(lambda: metrics(progress(query))[-1]["held"] == held, query)
    assert f"\nheld: {held}, " in "".join(descriptions(lake.spark))
    assert "migration" in controller.explain(f"{lake.orders}:0")[0]
    controller.resume(lake.orders)
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()


@pytest.mark.nightly
@pytest.mark.parametrize("limit", [None, "1000"])
def test_stream_with_an_unmatched_pattern_waits_and_holds_a_new_topic(
    lake, controller, limit
):
    """The hold is placed before the topic exists."""
    name = f"later-{lake.orders}"
    options = {"subscribePattern": f"{name}.*", "startingOffsets": "earliest"}
    if limit is not None:
        options["maxOffsetsPerTrigger"] = limit
    controller.pause(name)
    table = name.replace("-", "_")
    query = (
        lake.spark.readStream.format("safekafka")
        .option("kafka.bootstrap.servers", lake.broker.bootstrap)
        .options(**options)
        .load()
        .writeStream.format("memory")
        .queryName(table)
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    until(lambda: len(query.recentProgress) > 2, query)
    lake.broker.create_topic(name, lake.partitions)
    lake.produce(name, 5)
    until(lambda: controller.lag().get((name, 0)) == 5, query)
    assert lake.spark.table(table).count() == 0
    controller.resume(name)
    until(lambda: lake.spark.table(table).count() == 5 * lake.partitions, query)
    query.stop()


def test_partitions_that_are_not_held_share_the_whole_rate_limit(lake):
    lake.produce_both(100)
    batches = lake.run(holds=lake.orders, maxOffsetsPerTrigger="200")
    assert [one["numInputRows"] for one in batches if one["numInputRows"]] == [200, 200]


@pytest.mark.contract("S2")
@pytest.mark.nightly
def test_partition_that_is_added_during_a_hold_is_read_completely(lake):
    lake.produce(lake.orders, 5)
    lake.run()
    lake.broker.add_partitions(lake.orders, 6)
    lake.partitions = 6
    lake.produce(lake.orders, 5)
    lake.run(holds=lake.orders, kafka_metadata_max_age_ms="100")
    assert sum(lake.rows().values()) == 20
    lake.run(kafka_metadata_max_age_ms="100")
    assert lake.rows() == lake.produced()


@pytest.mark.contract("S4")
def test_failing_or_hanging_decision_holds_all_partitions(
    lake, controller, monkeypatch
):
    """S4: the query keeps running, reports the reason, and reads after the next decision."""
    import threading  # noqa: PLC0415

    from safeconsumer.spark.stream import Stream  # noqa: PLC0415

    go = threading.Event()
    real = Stream.plan

    def fails(_self, _facts):
        message = "planted"
        raise RuntimeError(message)

    def hangs(self, facts):
        go.wait(LIMIT)
        return real(self, facts)

    monkeypatch.setattr(Stream, "plan", fails)
    lake.produce(lake.orders, 10)
    query = lake.start(
        trigger={"processingTime": "200 milliseconds"},
        holds_decisionTimeoutMs="300",
    )
    until(lambda: "decision failed" in str(metrics(progress(query))), query)
    monkeypatch.setattr(Stream, "plan", hangs)
    until(lambda: "within 300 ms" in str(metrics(progress(query))), query)
    until(lambda: "not returned yet" in str(metrics(progress(query))), query)
    assert lake.rows() == Counter()
    monkeypatch.setattr(Stream, "plan", real)
    go.set()
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()
    assert controller.lag() == {}


@pytest.mark.contract("S3")
def test_safekafka_and_the_official_source_can_share_a_checkpoint(lake, controller):
    """Both sources share a schema and a checkpoint, and do not lose or repeat any record."""
    for include in ("true", "false"):
        options = {"includeHeaders": include}
        assert lake.stream(options).schema == lake.stream(options, "kafka").schema
    for step, source in enumerate(["kafka", "safekafka", "safekafka", "kafka"]):
        lake.produce_both(20)
        if step == 1:
            controller.pause(lake.orders)
        before = lake.rows(lake.orders) if step == 1 else None
        lake.run(format_=source)
        if before is not None:
            assert lake.rows(lake.orders) == before
            controller.resume(lake.orders)
    assert lake.rows() == lake.produced()


def descriptions(spark):
    """Return the descriptions of all jobs in Spark's UI."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()  # the listener bus fills the status store
    jobs = context.statusStore().jobsList(None)
    found = (jobs.apply(number).description() for number in range(jobs.size()))
    return {one.get() for one in found if one.isDefined()}
