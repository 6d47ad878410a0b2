"""What a stream's reports say, without Spark and Kafka."""

from types import SimpleNamespace

import pytest

from safeconsumer.group.report_wire import decode_report, encode_report
from safeconsumer.group.reports import ControlStatus
from safeconsumer.holds.view import Holds
from safeconsumer.spark import reporting
from safeconsumer.spark.activity import Watched, query_name
from safeconsumer.spark.reporting import StreamReport, reports
from tests.harness.holds.lab import Clock

ZERO, ONE = ("orders", 0), ("orders", 1)
BATCH = "nightly\nid = 1-2\nrunId = 3-4\nbatch = 7"


@pytest.mark.parametrize(
    ("description", "name"),
    [(BATCH, "nightly"), (BATCH.removeprefix("nightly"), ""), ("", "")],
)
def test_a_query_is_named_by_what_spark_says_of_its_batch(description, name):
    assert query_name(description) == name


class Reported:
    """A stream's reports, without Spark and Kafka."""

    def __init__(self):
        self.watched = Watched()
        self.held = set()
        self.seen_state = "ready"
        self.fails = False
        self.made = StreamReport(
            group="g",
            watched=self.watched,
            follower=self,
            covers=self.held.__contains__,
            skew=1.0,
        )

    def seen(self):
        assert not self.fails
        return ControlStatus(state=self.seen_state, skipped=0, applied={})

    def state(self):
        return Holds()

    def look(self):
        """Read nothing."""

    def told(self):
        report = self.made.report()
        return report.state, dict(report.quiet), dict(report.busy)


@pytest.fixture
def lab():
    return Reported()


def test_before_its_first_plan_nothing_is_known_of_a_stream():
    """A batch from before a restart may be run again, in full."""
    assert Reported().told() == ("starting", {}, {})


def test_a_held_partition_is_quiet_when_no_batch_reads_it_any_more(lab):
    """Not while a plan is made, which may not have seen the hold."""
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


def test_what_stops_in_the_middle_of_a_batch_says_so(lab):
    """That batch is run again when its query is started again."""
    lab.watched.begin("q", [ZERO])
    lab.watched.planned({ZERO: 0}, {ZERO: 5})
    assert lab.made.report("stopped").busy == {"orders": ((0, 0),)}
    lab.watched.ended()
    assert lab.made.report("stopped").busy == {}


@pytest.mark.parametrize("name", ["nightly\tload", "a\nb", "a\u00a0b"])
def test_a_query_of_any_name_is_heard(lab, name):
    """Or its batches would not be waited for."""
    lab.watched.begin(query_name(BATCH.replace("nightly", name)), [ZERO])
    lab.watched.planned({ZERO: 0}, {ZERO: 5})
    read = decode_report(encode_report(lab.made.report()))
    assert read is not None
    assert dict(read.busy) == {"orders": ((0, 0),)}


def test_who_cannot_read_the_control_topics_says_so(lab):
    """It plans nothing, but what it has read may be old."""
    lab.watched.begin("q", [ZERO])
    lab.watched.planned({ZERO: 0}, {ZERO: 0})
    lab.held.add(ZERO)
    lab.seen_state = "unavailable"
    assert lab.told()[0] == "unavailable"


def test_many_plans_that_are_made_do_not_make_reports_late(monkeypatch):
    """A report counts for fifteen seconds: all streams together get what one would get."""
    labs = [Reported() for _ in range(40)]
    for lab in labs:
        lab.watched.begin("q", [ZERO])
    clock, waits = Clock(), []
    report = StreamReport.report

    def waited(one, state, patience):
        waits.append(patience)
        clock.now += patience
        return report(one, state, 0.0)

    monkeypatch.setattr(StreamReport, "report", waited)
    played = SimpleNamespace(monotonic=clock, time=clock)
    monkeypatch.setattr(reporting, "time", played)
    told = list(reports([lab.made for lab in labs], None))
    assert (len(told), sum(waits)) == (40, reporting._DECISION_SECONDS)


def test_a_stream_whose_report_is_not_made_keeps_back_no_other():
    """What was made before is sent by then, and what fails is left out."""
    first, bad, last = Reported(), Reported(), Reported()
    bad.fails = True
    making = reports([first.made, bad.made, last.made], None)
    assert next(making).member == first.made.member
    assert [one.member for one in making] == [last.made.member]
