"""Tests an operator's requests to brokers and their time limits."""

import itertools
import threading
from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli import waiting
from safeconsumer.group import operator as module
from safeconsumer.group import report_wire, survey, timed_call
from safeconsumer.group.board import Readable
from safeconsumer.group.facts import GroupFacts
from safeconsumer.group.log_clock import LogClock
from safeconsumer.group.operator import Operator
from safeconsumer.group.settings import Control
from safeconsumer.group.timed_call import TimedCall
from safeconsumer.holds.scope import Everything
from safeconsumer.testing import make_record
from tests.harness.group.views import report
from tests.harness.signals import Interrupts
from tests.harness.waiting import wait_for

SETTINGS = Control(trust_topic=True)


class Silent(Operator):
    """An operator that reads one old report and then receives no record."""

    passed = 0.0

    def __init__(self, *_):
        wall = LogClock(lambda: 1000.0 + self.passed, lambda: self.passed)
        super().__init__({}, SETTINGS, wall)
        self._reader = SimpleNamespace(turn=self._turn, positions={}, close=int)

    def group(self, group, _until):
        assert group == "g"
        return GroupFacts(state="Empty", members=(), committed={})

    def _read(self, _, *, is_strict):
        assert not is_strict
        value = report_wire.encode_report(report("a", 0))
        last = make_record(value, b"a", offset=0, timestamp=900_000)._replace(
            timestamp_type=1
        )
        self.board.feed({"reports": [last]}, {})
        return Readable(ends={}, reports_are_read=True)

    def _turn(self, wait_ms):
        Silent.passed += wait_ms / 1000
        return {}


class Writing(Operator):
    """An operator that sees no holds, and stores changes instead of writing them."""

    def __init__(self):
        super().__init__({}, SETTINGS)
        self.written = []

    def holds(self, group):
        assert group == "g"
        return ()

    def write(self, wanted):
        self.written.append([one.key.scope for one in wanted])


def test_operator_writes_a_hold_for_each_partition_of_a_range():
    operator = Writing()
    operator.pause("g", "orders:0-1,5", "orders:1", owner="alice")
    operator.resume("g", "orders:0-1,5", owner="alice")
    assert operator.written == [["orders:0", "orders:1", "orders:5"]] * 2


def test_view_without_reports_returns_within_its_timeout_and_is_marked(monkeypatch):
    monkeypatch.setattr(Silent, "passed", 0.0)
    clock = SimpleNamespace(monotonic=lambda: Silent.passed)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "Operator", Silent)
    operator = Silent()
    seen = operator.look("g", has_lags=False, timeout=3.0)
    assert Silent.passed < 3.0
    assert waiting.is_quiet(seen, [Everything()]) == (
        False,
        "which members are quiet is unknown: no report has come yet: give it more time",
    )
    Silent.passed += 5.0
    later = operator.look("g", has_lags=False, timeout=3.0)
    assert (later.ends, later.reports_are_read, later.unread) == ({}, True, ())


def test_end_offsets_cover_only_partitions_with_a_leader():
    leaders = {"there": 1, "gone": 1, "leaderless": -1}
    there, *others = (TopicPartition(name, 0) for name in leaders)

    def describe_topics(names):
        return [
            {
                "name": one,
                "partitions": [{"partition_index": 0, "leader_id": leaders[one]}],
                "error_code": 3 * (one == "gone"),
            }
            for one in names
        ]

    def end_offsets(tps, **_):
        if answers:
            return dict.fromkeys(tps, 9)
        raise KafkaTimeoutError

    answers = True
    admin = SimpleNamespace(describe_topics=describe_topics)
    consumer = SimpleNamespace(end_offsets=end_offsets)
    queries = SimpleNamespace(admin=admin, consumer=consumer)
    assert survey.ends_of([there, *others], queries) == {there: 9}
    answers = False
    with pytest.raises(KafkaTimeoutError):
        survey.ends_of([there, *others], queries)


# A timeout in seconds that no wait reaches, because another thread ends each wait.
LONG = 1e6


def test_interrupt_at_any_point_of_a_wait_does_not_lose_an_answer():
    interrupts = Interrupts((timed_call.__file__, threading.__file__))
    for at in itertools.count():
        go_on = threading.Lock()
        go_on.acquire()
        asked = TimedCall(go_on.acquire)
        opened = threading.Timer(0.002, go_on.release)
        opened.start()
        has_come = interrupts.at(at, lambda: asked.result(LONG))  # noqa: B023
        opened.join()
        again = threading.Thread(target=asked.result, args=(LONG,), daemon=True)
        again.start()
        wait_for(lambda: not again.is_alive(), interrupts.place)  # noqa: B023
        if not has_come:
            break
    assert at > 1
