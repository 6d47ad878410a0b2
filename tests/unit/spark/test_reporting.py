"""Tests the reports of a stream, without Spark or Kafka."""

from types import SimpleNamespace

import pytest

from safeconsumer.group.report_wire import decode_report, encode_report
from safeconsumer.group.reports import ControlStatus
from safeconsumer.holds.view import Holds
from safeconsumer.spark import reporting
from safeconsumer.spark.activity import ActivityTracker, query_name
from safeconsumer.spark.reporting import StreamReport, reports
from tests.harness.holds.lab import Clock

ZERO, ONE = ("orders", 0), ("orders", 1)
BATCH = "nightly\nid = 1-2\nrunId = 3-4\nbatch = 7"


@pytest.mark.parametrize(
    ("description", "name"),
    [(BATCH, "nightly"), (BATCH.removeprefix("nightly"), ""), ("", "")],
)
def test_query_name_is_taken_from_the_description_of_its_batch(description, name):
    assert query_name(description) == name


class Reported:
    """A stream report with a fake follower, without Spark and Kafka."""

    def __init__(self):
        self.activity = ActivityTracker()
        self.held = set()
        self.seen_state = "ready"
        self.fails = False
        self.made = StreamReport(
            group="g",
            activity=self.activity,
            follower=self,
            covers=self.held.__contains__,
            skew=1.0,
        )

    def status(self):
        assert not self.fails
        return ControlStatus(state=self.seen_state, skipped=0, applied={})

    def known_holds(self):
        return Holds()

    def refresh(self):
        """Read nothing."""

    def reported(self):
        report = self.made.report()
        return report.state, dict(report.quiet), dict(report.busy)


@pytest.fixture
def lab():
    return Reported()


def test_state_of_a_stream_is_unknown_before_its_first_plan():
    """After a restart, the last batch from before may run again."""
    assert Reported().reported() == ("starting", {}, {})


def test_held_partition_is_quiet_as_soon_as_no_batch_reads_it(lab):
    """No partition is quiet while a batch is planned: the plan may not know a new hold."""
    lab.activity.begin("q", [ZERO, ONE])
    assert lab.reported() == ("starting", {}, {})
    lab.activity.planned({ZERO: 0, ONE: 0}, {ZERO: 0, ONE: 0})
    lab.activity.begin("q", [ZERO, ONE])
    lab.held.add(ZERO)
    assert lab.reported() == ("deciding", {}, {})
    lab.activity.planned({ZERO: 0, ONE: 0}, {ZERO: 5, ONE: 0})
    assert lab.reported() == ("ready", {}, {"orders": ((0, 0),)})
    assert not lab.made.has_changed()
    lab.activity.ended()
    assert lab.made.has_changed()
    assert lab.reported() == ("ready", {"orders": ((0, 0),)}, {})
    assert not lab.made.has_changed()


def test_stream_that_stops_in_a_batch_reports_the_batch_as_busy(lab):
    """The unfinished batch runs again when its query restarts."""
    lab.activity.begin("q", [ZERO])
    lab.activity.planned({ZERO: 0}, {ZERO: 5})
    assert lab.made.report("stopped").busy == {"orders": ((0, 0),)}
    lab.activity.ended()
    assert lab.made.report("stopped").busy == {}


@pytest.mark.parametrize("name", ["nightly\tload", "a\nb", "a\u00a0b"])
def test_reports_can_be_decoded_whatever_the_name_of_the_query(lab, name):
    """If its report could not be decoded, commands would not wait for the query's batches."""
    lab.activity.begin(query_name(BATCH.replace("nightly", name)), [ZERO])
    lab.activity.planned({ZERO: 0}, {ZERO: 5})
    read = decode_report(encode_report(lab.made.report()))
    assert read is not None
    assert dict(read.busy) == {"orders": ((0, 0),)}


def test_stream_that_cannot_read_the_control_topics_reports_unavailable(lab):
    """The stream plans no more records, but an earlier batch may still be reading."""
    lab.activity.begin("q", [ZERO])
    lab.activity.planned({ZERO: 0}, {ZERO: 0})
    lab.held.add(ZERO)
    lab.seen_state = "unavailable"
    assert lab.reported()[0] == "unavailable"


def test_many_running_plans_do_not_delay_reports(monkeypatch):
    """A report is valid for 15 s, so all streams share one waiting time."""
    labs = [Reported() for _ in range(40)]
    for lab in labs:
        lab.activity.begin("q", [ZERO])
    clock, waits = Clock(), []
    report = StreamReport.report

    def waited(one, state, patience):
        waits.append(patience)
        clock.now += patience
        return report(one, state, 0.0)

    monkeypatch.setattr(StreamReport, "report", waited)
    played = SimpleNamespace(monotonic=clock, time=clock)
    monkeypatch.setattr(reporting, "time", played)
    made = list(reports([lab.made for lab in labs], None))
    assert (len(made), sum(waits)) == (40, reporting._DECISION_SECONDS)


def test_failed_report_of_one_stream_does_not_delay_the_others():
    """The reports before and after the failed report are still returned."""
    first, bad, last = Reported(), Reported(), Reported()
    bad.fails = True
    making = reports([first.made, bad.made, last.made], None)
    assert next(making).member == first.made.member
    assert [one.member for one in making] == [last.made.member]
