"""Progress where Spark people look: a listener, and the batch's description in the UI."""

from typing import Any, ClassVar
from uuid import uuid4

import pytest

from safeconsumer import spark as safe
from safeconsumer.events.consumer import Event
from safeconsumer.holds import scope as scopes
from safeconsumer.spark import left
from safeconsumer.spark.controller import ledger
from safeconsumer.spark.listening import Progress
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.stream import Stream
from tests.harness.spark.lake import LIMIT, Lake
from tests.harness.spark.waiting import until


def progress(rows: int, **metrics: str) -> dict[str, Any]:
    return {
        "id": "1-2",
        "runId": "3-4",
        "name": "nightly",
        "numInputRows": rows,
        "sources": [{"metrics": metrics}],
    }


def test_it_counts_and_tells_of_changes() -> None:
    """Once per change, and at the end what was left behind."""
    told: list[Event] = []
    kept = Progress((told.append,))
    kept.take(progress(5, heldPartitions="0", heldLag="0"))
    kept.take(progress(3, heldPartitions="2", heldLag="7"))
    kept.take(progress(0, heldPartitions="2", heldLag="9"))
    (one,) = kept.queries()
    assert (one.query, one.batches, one.rows) == ("nightly", 2, 8)
    assert (one.held, one.lag) == (2, 9)
    assert [event.name for event in told] == ["spark_query_held"]
    kept.end("3-4")
    assert told[-1].name == "spark_query_ended_held"
    assert kept.queries() == ()


def test_other_partitions_are_told_though_they_are_as_many() -> None:
    """By their names."""
    told: list[Event] = []
    kept = Progress((told.append,))
    for held in ("orders:0-1", "returns:0-1"):
        kept.take(progress(0, heldPartitions="2", heldLag="7", held=held))
    assert [event.as_dict()["partitions"] for event in told] == [
        "orders:0-1",
        "returns:0-1",
    ]


def test_another_source_is_none_of_its_business() -> None:
    kept = Progress(())
    kept.take(progress(5))
    assert kept.queries() == ()


def test_where_nothing_is_decided_everything_counts_as_held() -> None:
    """The shim names all and counts none; what the source reads stands in its offsets."""
    told: list[Event] = []
    kept = Progress((told.append,))
    one = progress(0, held="@all", heldBecause="no decision within 10000 ms")
    one["sources"][0]["endOffset"] = {"orders": {"0": 5, "1": 7}, "returns": {"0": 3}}
    kept.take(one)
    (event,) = (event.as_dict() for event in told)
    assert (event["held"], event["partitions"]) == (3, "@all")


def test_a_query_that_ends_in_its_first_batch_is_told_of_too() -> None:
    """Spark posts no progress of it; its plan is known, and its name from its start."""
    told: list[Event] = []
    kept = Progress((told.append,))
    metrics = {"held": "orders:0", "heldPartitions": "1", "heldLag": "4"}
    for name, run in (("nightly", uuid4().hex), ("", uuid4().hex)):
        if name:
            kept.begin(run, name)
        batch = f"{name}\nid = 1-2\nrunId = {run}\nbatch = 0"
        left.note(batch, "a stream", metrics)
        kept.end(run, "1-2")
    kept.begin("another's", "other")
    kept.end("another's", "5-6")
    found = [event.as_dict() for event in told]
    assert [event.name for event in told] == ["spark_query_ended_held"] * 2
    assert [(one["query"], one["held"]) for one in found] == [
        ("nightly", 1),
        ("1-2", 1),
    ]
    assert kept.heard() == ((), ())


def test_what_the_last_plan_left_is_told_at_the_end() -> None:
    """Spark posts no progress for a plan without data soon after a batch."""
    run = uuid4().hex
    own = ledger(())
    stream = Stream("1", SourceOptions(), ledgers=(own,))
    facts = {"batch": f"nightly\nid = 1\nrunId = {run}\nbatch = 1", "ends": "yes"}
    facts |= {"start": '{"orders":{"0":5}}', "end": '{"orders":{"0":9}}'}
    facts["latest"] = facts["end"]
    told: list[Event] = []
    kept = Progress((told.append,))
    kept.take({**progress(5, heldPartitions="0"), "runId": run})
    stream.plan(facts)
    assert left.by(run) is None
    own.place((scopes.Everything(),), owner="app")
    stream.freeze(facts)
    kept.end(run)
    found = [event.as_dict() for event in told]
    assert [event.name for event in told] == ["spark_query_ended_held"]
    assert [(one["held"], one["lag"]) for one in found] == [(1, 4)]


class TestOnSpark:
    """A running query."""

    pytestmark: ClassVar = [
        pytest.mark.spark,
        pytest.mark.real_broker,
        pytest.mark.timeout(400),
    ]

    def test_a_query_that_ends_with_something_held(self, lake: Lake) -> None:
        """Counted by Spark's own events."""
        told: list[Event] = []
        made = safe.listener((told.append,))
        lake.spark.streams.addListener(made)
        try:
            lake.produce(lake.orders, 5)
            lake.produce(lake.returns, 5)
            lake.run(holds=lake.orders)
            until(lambda: "spark_query_ended_held" in [one.name for one in told])
        finally:
            lake.spark.streams.removeListener(made)
        assert (told[-1].held, told[-1].lag) == (4, 20)  # type: ignore[attr-defined]  # by its name

    def test_the_description_of_a_batch_says_what_is_held(self, lake: Lake) -> None:
        """As Spark's UI shows it, behind what Spark says of the batch."""
        lake.produce(lake.orders, 5)
        lake.produce(lake.returns, 5)
        (
            lake.stream({"holds": lake.orders})
            .writeStream.format("parquet")
            .queryName("described")
            .option("path", str(lake.data))
            .option("checkpointLocation", str(lake.checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination(LIMIT)
        )
        context = lake.spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty()  # the store hears of jobs through it
        store = context.statusStore()
        jobs = store.jobsList(None)
        descriptions = [
            jobs.apply(number).description() for number in range(jobs.size())
        ]  # a job of another test in this session may have none
        said = {one.get() for one in descriptions if one.isDefined()}
        (ours,) = {one for one in said if one.startswith("described")}
        assert ours.endswith(f"\nheld: {lake.orders}:0-3, 20 behind")
