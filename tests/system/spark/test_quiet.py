"""Whether a stream is quiet: told to operators by its reports, and to its own program."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from safeconsumer.cli import waiting
from safeconsumer.errors import NotQuietError
from safeconsumer.group.operator import Operator as Desk
from safeconsumer.group.report_wire import STREAM, decode_report, encode_report
from safeconsumer.group.reports import Seen
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.view import Holds
from safeconsumer.spark import Controller
from safeconsumer.spark import reporting as reports
from safeconsumer.spark.activity import Watched, query_name
from safeconsumer.spark.hold_file import HoldFile
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.reporting import StreamReport, StreamReports, _reports
from safeconsumer.spark.stream import Stream
from tests.harness.holds.lab import Clock
from tests.harness.spark.lake import LIMIT, Lake
from tests.harness.spark.waiting import until
from tests.system.spark.driver import Pausing
from tests.system.spark.test_control import Operator

ZERO, ONE = ("orders", 0), ("orders", 1)
BATCH = "nightly\nid = 1-2\nrunId = 3-4\nbatch = 7"


@pytest.mark.parametrize(
    ("description", "name"),
    [(BATCH, "nightly"), (BATCH.removeprefix("nightly"), ""), ("", "")],
)
def test_a_query_is_named_by_what_spark_says_of_its_batch(
    description: str, name: str
) -> None:
    assert query_name(description) == name


class Reported:
    """A stream's reports, without Spark and Kafka."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.held: set[tuple[str, int]] = set()
        self.seen_state = "ready"
        self.fails = False
        self.made = StreamReport(
            group="g",
            watched=self.watched,
            follower=self,
            covers=self.held.__contains__,
            skew=1.0,
        )

    def seen(self) -> Seen:
        assert not self.fails
        return Seen(state=self.seen_state, skipped=0, applied={})

    def state(self) -> Holds:
        return Holds()

    def told(self) -> tuple[str, object, object]:
        report = self.made.report()
        return report.state, dict(report.quiet), dict(report.busy)


def test_before_its_first_plan_nothing_is_known_of_a_stream() -> None:
    """A batch from before a restart may be run again, in full."""
    assert Reported().told() == ("starting", {}, {})


def test_a_held_partition_is_quiet_when_no_batch_reads_it_any_more() -> None:
    """Not while a plan is made, which may not have seen the hold."""
    lab = Reported()
    lab.watched.begin("q", [ZERO, ONE])
    assert lab.told() == ("starting", {}, {})
    lab.watched.planned({ZERO: 0, ONE: 0}, {ZERO: 0, ONE: 0})
    lab.watched.begin("q", [ZERO, ONE])
    lab.held.add(ZERO)
    assert lab.told() == ("deciding", {}, {})
    lab.watched.planned({ZERO: 0, ONE: 0}, {ZERO: 5, ONE: 0})
    assert lab.told() == ("ready", {}, {"orders": ((0, 0),)})
    assert not lab.made.is_news()
    lab.watched.ended()
    assert lab.made.is_news()
    assert lab.told() == ("ready", {"orders": ((0, 0),)}, {})
    assert not lab.made.is_news()


def test_what_stops_in_the_middle_of_a_batch_says_so() -> None:
    """That batch is run again when its query is started again."""
    lab = Reported()
    lab.watched.begin("q", [ZERO])
    lab.watched.planned({ZERO: 0}, {ZERO: 5})
    assert lab.made.report("stopped").busy == {"orders": ((0, 0),)}
    lab.watched.ended()
    assert lab.made.report("stopped").busy == {}


@pytest.mark.parametrize("name", ["nightly\tload", "a\nb", "a\u00a0b"])
def test_a_query_of_any_name_is_heard(name: str) -> None:
    """Or its batches would not be waited for."""
    lab = Reported()
    lab.watched.begin(query_name(BATCH.replace("nightly", name)), [ZERO])
    lab.watched.planned({ZERO: 0}, {ZERO: 5})
    read = decode_report(encode_report(lab.made.report()))
    assert read is not None
    assert dict(read.busy) == {"orders": ((0, 0),)}


def test_who_cannot_read_the_control_topics_says_so() -> None:
    """It plans nothing, but what it has read may be old."""
    lab = Reported()
    lab.watched.begin("q", [ZERO])
    lab.watched.planned({ZERO: 0}, {ZERO: 0})
    lab.held.add(ZERO)
    lab.seen_state = "unavailable"
    assert lab.told()[0] == "unavailable"


def test_many_plans_that_are_made_do_not_make_reports_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report counts for fifteen seconds: all streams together get what one would get."""
    labs = [Reported() for _ in range(40)]
    for lab in labs:
        lab.watched.begin("q", [ZERO])
    clock, waits = Clock(), []
    report = StreamReport.report

    def waited(one: StreamReport, state: str | None, patience: float) -> Any:  # noqa: ANN401 - a report
        waits.append(patience)
        clock.now += patience
        return report(one, state, 0.0)

    monkeypatch.setattr(StreamReport, "report", waited)
    played = SimpleNamespace(monotonic=clock, time=clock)
    monkeypatch.setattr(reports, "time", played)
    told = list(_reports([lab.made for lab in labs], None))
    assert (len(told), sum(waits)) == (40, reports._DECISION_SECONDS)


def test_a_stream_whose_report_is_not_made_keeps_back_no_other() -> None:
    """What was made before is sent by then, and what fails is left out."""
    first, bad, last = Reported(), Reported(), Reported()
    bad.fails = True
    making = _reports([first.made, bad.made, last.made], None)
    assert next(making).member == first.made._member
    assert [one.member for one in making] == [last.made._member]


def test_a_file_of_holds_that_hangs_hangs_no_report(tmp_path: Path) -> None:
    """What the last plan has read of it counts."""
    path = tmp_path / "holds.json"
    path.write_text('{"version": 1, "holds": [{"scope": "orders"}]}')
    file = HoldFile(str(path))
    stream = Stream("1", SourceOptions(), ledgers=(), followers=(file,))
    assert not stream.covers(ZERO)
    file.fresh()
    path.unlink()
    os.mkfifo(path)
    found: list[bool] = []
    asking = threading.Thread(
        target=lambda: found.append(stream.covers(ZERO)), daemon=True
    )
    asking.start()
    asking.join(10)
    assert found == [True]


def test_streams_of_one_login_share_a_reporter() -> None:
    """However often it is carried over: a configuration for TLS is a new object each time."""
    reports, labs = StreamReports(), [Reported() for _ in range(3)]
    try:
        for lab in labs:
            reports.add("status", "a login", connect_nowhere, lab.made)
        assert len(reports._running) == 1
    finally:
        reports.close()


def connect_nowhere() -> dict[str, object]:
    return {"bootstrap_servers": ["127.0.0.1:1"], "ssl_context": object()}


class TestOnSpark:
    """Running streams."""

    pytestmark: ClassVar = [
        pytest.mark.spark,
        pytest.mark.real_broker,
        pytest.mark.timeout(400),
    ]

    def slow(self, lake: Lake, name: str, **options: str) -> Any:  # noqa: ANN401 - a query
        """Start a stream whose tasks stop in the middle until they are let go."""
        from pyspark.sql import functions  # noqa: PLC0415  if installed

        folder = lake.data.parent
        paused = functions.udf(Pausing(folder), "long", useArrow=False)
        named = {key.replace("_", "."): one for key, one in options.items()}
        frame = lake.stream(named).select(
            "topic", "partition", paused("offset").alias("offset")
        )
        return (
            frame.writeStream.format("parquet")
            .queryName(name)
            .option("path", str(lake.data))
            .option("checkpointLocation", str(lake.checkpoint))
            .trigger(processingTime="1 hour")  # the next plan does not come to help
            .start()
        )

    def test_the_program_waits_for_the_batch_that_was_planned_before(
        self, lake: Lake, controller: Controller
    ) -> None:
        """Placing a hold is not yet quiet; what says so is the end of the batch."""
        lake.produce(lake.orders, 20)
        query = self.slow(lake, "slow")
        middle = lake.data.parent / "in-the-middle"
        until(middle.exists, query)
        with pytest.raises(NotQuietError, match="it is not held"):
            controller.wait_quiet(lake.orders, timeout=0.2)
        controller.pause(lake.orders)
        with pytest.raises(NotQuietError, match=rf"slow: {lake.orders}:0-3, a batch"):
            controller.wait_quiet(timeout=0.5)
        (lake.data.parent / "go").touch()
        controller.wait_quiet(lake.orders, timeout=LIMIT)
        rows = lake.rows()
        lake.produce(lake.orders, 5)
        assert query.isActive
        assert lake.rows() == rows
        query.stop()

    def test_a_stream_that_starts_is_waited_for_from_the_first_moment(
        self, lake: Lake, controller: Controller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It runs the batch again in which it was ended, held since or not."""
        story: list[str] = []
        go, real = threading.Event(), controller.bridge._answer

        def take(frame: Any, number: int) -> None:  # noqa: ANN401 - a DataFrame
            story.append(f"batch {number} reads {frame.count()} rows")
            if len(story) == 1:
                message = "the job is ended in the middle"
                raise RuntimeError(message)

        def late(question: str, facts: Any) -> Any:  # noqa: ANN401 - facts
            if question == "open":
                go.wait(LIMIT)
            return real(question, facts)

        def start() -> Any:  # noqa: ANN401 - a query
            written = (
                lake.stream({}).writeStream.queryName("nightly").foreachBatch(take)
            )
            written = written.option("checkpointLocation", str(lake.checkpoint))
            return written.trigger(availableNow=True).start()

        lake.produce(lake.orders, 5)
        with pytest.raises(Exception, match="ended in the middle"):
            start().awaitTermination(LIMIT)
        controller.pause("@all")
        monkeypatch.setattr(controller.bridge, "_answer", late)
        query = start()
        for _ in range(2):  # before it is made, and before it is opened
            with pytest.raises(NotQuietError, match="nightly: it is starting"):
                controller.wait_quiet(lake.orders, timeout=0.0)
            until(lambda: len(controller.bridge.made()) == 1, query)
        go.set()
        controller.wait_quiet(lake.orders, timeout=LIMIT)
        assert story == ["batch 0 reads 20 rows"] * 2
        assert query.awaitTermination(LIMIT)
        assert controller.bridge.made() == ()

    def test_a_query_that_reads_no_kafka_is_not_waited_for(
        self, lake: Lake, controller: Controller
    ) -> None:
        """Only while it starts."""
        rows = lake.spark.readStream.format("rate").load()
        query = rows.writeStream.format("noop").start()
        controller.wait_quiet(timeout=LIMIT)
        assert query.isActive
        query.stop()

    def test_an_operator_waits_for_it_too(self, lake: Lake, kafka_broker: Any) -> None:  # noqa: ANN401 - any kind
        """G8: the stream is a seat of its own, and says when its batch has ended."""
        operator = Operator(kafka_broker)
        with operator.team, desk(operator) as look:
            lake.produce(lake.orders, 20)
            query = self.slow(lake, "nightly", **reporting(operator))
            until((lake.data.parent / "in-the-middle").exists, query)
            operator.hold(lake.orders)
            until(lambda: "a batch that was planned" in look(lake.orders)[1], query)
            assert not look(lake.orders)[0]
            (lake.data.parent / "go").touch()
            until(lambda: look(lake.orders)[0], query)
            assert look(lake.orders)[1] == "1 of 1 members quiet"
            query.stop()
            until(lambda: "no members" in look(lake.orders)[1])

    def test_a_hold_for_one_query_is_not_for_others(
        self, lake: Lake, controller: Controller, tmp_path: Path
    ) -> None:
        """By the name that Spark knows it by."""
        other = Lake(lake.spark, lake.broker, tmp_path / "other")
        lake.produce(lake.orders, 10)
        controller.pause("@all", reason="reload", query="first")
        for name, where in (("first", lake), ("second", other)):
            query = (
                lake.stream({})
                .writeStream.format("parquet")
                .queryName(name)
                .option("path", str(where.data))
                .option("checkpointLocation", str(where.checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(LIMIT)
        assert not lake.rows()
        assert other.rows() == lake.produced()
        assert controller.resume("@all", query="first") == ()


def reporting(operator: Operator) -> dict[str, str]:
    """Return options of a stream that obeys an operator, and reports."""
    status = operator.team.settings.status_topic
    topics = ",".join((*operator.topics, str(status)))
    return {**operator.options(), "holds.control": topics}


class desk:  # noqa: N801 - reads as a function
    """Look at a group as ``wait quiet`` does."""

    def __init__(self, operator: Operator) -> None:
        team = operator.team
        self._desk = Desk(team.broker.client_config, team.settings)
        self._group = operator.group

    def __enter__(self) -> Callable[[str], tuple[bool, str]]:
        return self._look

    def _look(self, topic: str) -> tuple[bool, str]:
        picture = self._desk.look(self._group)
        assert all(one.kind == STREAM for one in picture.reports)
        return waiting.is_quiet(picture, [scopes.topic(topic)])

    def __exit__(self, *_: object) -> None:
        self._desk.close()
