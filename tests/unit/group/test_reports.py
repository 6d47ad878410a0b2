"""Tests a member's reports about itself and the client that sends them."""

import time

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError

from safeconsumer._kafka.of_group.producers import UntracedProducer
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.report_wire import decode_report, encode_report
from safeconsumer.group.reports import ControlStatus, MemberReports, Reporter
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import ALL
from tests.harness.holds.lab import assign_to

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Member:
    """A member that owns no partition and processes no record."""

    def __init__(self):
        self.ledger = PauseLedger()
        self.view = self.ledger.view
        self.busy = self.busy_elsewhere = self.recreated = tuple

    def membership(self):
        return "", -1


def reports(client, client_id="c"):
    seen = ControlStatus(state="ready", skipped=0, applied={})
    return MemberReports(
        group="g",
        client_id=client_id,
        read_status=lambda: seen,
        client=client,
        skew=0.0,
    )


def test_partition_with_a_running_handler_is_not_reported_as_quiet():
    client, busy = Member(), {ZERO}
    client.busy = lambda: busy
    assign_to(client.ledger, [ZERO, ONE])
    client.ledger.place((ALL,), owner="app")
    made = reports(client)
    report = made.report()
    assert (report.client_id, report.state) == ("c", "ready")
    assert (report.quiet, report.busy) == ({"orders": ((1, 1),)}, {"orders": ((0, 0),)})
    busy.clear()
    report = made.report()
    assert (report.quiet, report.busy) == ({"orders": ((0, 1),)}, {})


def test_stopped_member_does_not_report_partitions():
    """Otherwise the partitions would count as quiet until the next owner reports."""
    client = Member()
    assign_to(client.ledger, [ZERO, ONE])
    client.ledger.place((ALL,), owner="app")
    made = reports(client)
    for state, owned in (("stopped", {}), (None, {"orders": ((0, 1),)})):
        report = made.report(state)
        assert (report.assigned, report.quiet) == (owned, owned)


def busy_elsewhere(answer):
    client = Member()
    client.busy_elsewhere = answer
    assign_to(client.ledger, [ZERO, ONE])
    client.ledger.place((ALL,), owner="app")
    return reports(client)


def test_partition_with_a_running_thread_is_not_reported_as_quiet():
    gone = TopicPartition("orders", 7)
    report = busy_elsewhere(lambda: [ZERO, gone]).report()
    assert report.quiet == {"orders": ((1, 1),)}
    assert report.busy == {"orders": ((0, 0), (7, 7))}


def failing():
    raise SystemExit(1)


@pytest.mark.parametrize(
    "answer",
    [failing, lambda: 1 / 0, lambda: None, lambda: [[]], lambda: ["orders:0"]],
    ids=["exits", "raises", "no partitions", "an empty list", "a string"],
)
def test_no_partition_is_quiet_if_the_busy_function_fails(answer, caplog):
    made = busy_elsewhere(answer)
    for _ in range(3):
        report = made.report()
        assert (report.quiet, report.busy) == ({}, {"orders": ((0, 1),)})
    assert len(caplog.records) == 1
    assert "consumer.busy" in caplog.text


@pytest.mark.parametrize("name", ["nightly\tload", "a\nb", "a\u00a0b", "x" * 2000])
def test_report_of_a_member_with_any_client_id_can_be_read(name):
    """Readers limit the length of member names and print them."""
    made = reports(Member(), name)
    read = decode_report(encode_report(made.report()))
    assert read is not None
    assert read.member == made.member
    assert made.member.isprintable()
    assert reports(Member(), name).member != made.member


class Acknowledging:
    """A status topic that acknowledges each report with the report's time plus an offset."""

    def __init__(self, offset_ms):
        self._offset_ms = offset_ms

    def send(self, _key, _value, at_ms):
        return at_ms + self._offset_ms, time.monotonic()


@pytest.mark.contract("G6")
@pytest.mark.parametrize("offset_ms", [0, 5000], ids=["CreateTime", "LogAppendTime"])
def test_timestamp_set_by_the_member_is_not_used_as_the_brokers_time(offset_ms):
    """Otherwise journals would compare the member's clock with itself."""
    measured, made = [], reports(Member())
    clock = BrokerClock(is_reporting=True, on_measure=lambda *one: measured.append(one))
    topic = Acknowledging(offset_ms)
    reporter = Reporter(topic=topic, interval=60.0, report=made.report, clock=clock)
    reporter.start()
    reporter.stop(time.monotonic() + 60)
    assert clock.is_settled
    assert bool(measured) is bool(offset_ms)


def test_dropped_producer_with_an_unanswered_report_does_not_raise(monkeypatch):
    """The garbage collector would print such an error on any thread and at any time."""

    def close(_self, **_):
        raise KafkaTimeoutError

    monkeypatch.setattr(KafkaProducer, "close", close)
    UntracedProducer.__new__(UntracedProducer).__del__()
