"""Holds that rule a real stream, on a real broker."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from safeconsumer.spark import Controller
from tests.harness.spark.lake import LIMIT, Lake, metrics, progress
from tests.harness.spark.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(900)]


def test_everything_held_ends_an_available_now_run(lake: Lake) -> None:
    """It writes nothing, and ends by itself."""
    lake.produce(lake.orders, 10)
    lake.run(holds="@all")
    assert sum(one["numInputRows"] for one in lake.run(holds="@all")) == 0
    lake.run()
    assert lake.rows() == lake.produced()


@pytest.mark.contract("S1")
def test_a_live_stream_is_held_and_let_go_by_hand(
    lake: Lake, controller: Controller
) -> None:
    """S1: after pause() returned no batch that is planned later moves what is held."""
    lake.produce(lake.orders, 20)
    query = lake.start(trigger={"processingTime": "200 milliseconds"})
    until(lambda: lake.rows() == lake.produced(), query)
    controller.pause(lake.orders, reason="migration")
    before = lake.rows(lake.orders)
    lake.produce(lake.orders, 20)
    lake.produce(lake.returns, 20)
    until(lambda: lake.rows(lake.returns) == lake.produced(lake.returns), query)
    until(lambda: controller.lag().get((lake.orders, 0)) == 20, query)
    assert lake.rows(lake.orders) == before
    held = f"{lake.orders}:0-3"
    until(lambda: metrics(progress(query))[-1]["held"] == held, query)
    assert "migration" in controller.explain(f"{lake.orders}:0")[0]
    controller.resume(lake.orders)
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()


@pytest.mark.parametrize("limit", [None, "1000"])
def test_a_pattern_that_matches_nothing_yet_waits(
    lake: Lake, controller: Controller, limit: str | None
) -> None:
    """As the official source does; and what comes is held."""
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


def test_the_rate_limit_is_used_by_those_that_flow(lake: Lake) -> None:
    """Held partitions take no share of maxOffsetsPerTrigger."""
    lake.produce(lake.orders, 100)
    lake.produce(lake.returns, 100)
    batches = lake.run(holds=lake.orders, maxOffsetsPerTrigger="200")
    assert [one["numInputRows"] for one in batches if one["numInputRows"]] == [200, 200]


def test_a_partition_that_is_added_under_a_hold_comes_whole(lake: Lake) -> None:
    """It is recorded at its beginning."""
    lake.produce(lake.orders, 5)
    lake.run()
    lake.broker.add_partitions(lake.orders, 6)
    lake.partitions = 6
    lake.produce(lake.orders, 5)
    lake.run(holds=lake.orders, kafka_metadata_max_age_ms="100")
    assert sum(lake.rows().values()) == 20
    lake.run(kafka_metadata_max_age_ms="100")
    assert lake.rows() == lake.produced()


def test_a_file_of_holds_rules_from_batch_to_batch(lake: Lake, tmp_path: Path) -> None:
    """S4: and while it cannot be read everything is held, and the query lives."""
    file = tmp_path / "holds.json"

    def write(*scopes: str) -> None:
        entries = [{"scope": one, "reason": "by file"} for one in scopes]
        beside = file.with_suffix(".new")
        beside.write_text(json.dumps({"version": 1, "holds": entries}))
        beside.rename(file)

    write(lake.orders)
    lake.produce(lake.orders, 10)
    lake.produce(lake.returns, 10)
    options = {"holds.file": str(file)}
    query = lake.start(trigger={"processingTime": "200 milliseconds"}, **options)
    until(lambda: lake.rows() == lake.produced(lake.returns), query)
    file.write_text("{")
    lake.produce(lake.returns, 10)
    until(lambda: "holds.json" in str(metrics(progress(query))[-1:]), query)
    assert sum(lake.rows(lake.returns).values()) == 40
    write()
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()


@pytest.mark.contract("S4")
def test_a_decision_that_fails_or_hangs_holds_everything(
    lake: Lake, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4: held, said so, query alive; it goes on once there are decisions again."""
    import threading  # noqa: PLC0415

    from safeconsumer.spark.stream import Stream  # noqa: PLC0415

    go = threading.Event()
    real = Stream.plan

    def fails(_self: Stream, _facts: Any) -> str:  # noqa: ANN401 - py4j's map
        message = "planted"
        raise RuntimeError(message)

    def hangs(self: Stream, facts: Any) -> str:  # noqa: ANN401 - py4j's map
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
