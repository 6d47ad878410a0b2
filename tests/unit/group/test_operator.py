"""How an operator looks, with the answers and the time given to it."""

from types import SimpleNamespace

from safeconsumer.cli import waiting
from safeconsumer.group import operator as module
from safeconsumer.group import report_wire
from safeconsumer.group.facts import GroupFacts
from safeconsumer.group.known import Seen
from safeconsumer.group.log_clock import LogClock
from safeconsumer.group.operator import Operator
from safeconsumer.group.settings import Control
from safeconsumer.holds.scope import Everything
from tests.unit.group.test_judging import report
from tests.unit.group.test_known import Record

SETTINGS = Control(trust_topic=True)


class Silent(Operator):
    """The topics are read at once: one report of long ago; and no more come."""

    passed = 0.0

    def __init__(self, *_):
        wall = LogClock(lambda: 1000.0 + self.passed, lambda: self.passed)
        super().__init__({}, SETTINGS, wall)
        self._reader = SimpleNamespace(turn=self._turn, positions={}, close=int)

    def group(self, group):
        assert group == "g"
        return GroupFacts(state="Empty", members=(), committed={})

    def _read(self, _, *, is_strict):
        assert not is_strict
        value = report_wire.encode_report(report("a", 0))
        last = Record(b"a", value, 0, 900_000)
        self._known.take({"reports": [last]}, {})
        return Seen(ends={}, is_heard=True)

    def _turn(self, wait_ms):
        Silent.passed += wait_ms / 1000
        return {}


def test_that_nobody_reports_is_not_the_brokers_fault(monkeypatch):
    """A short wait ended as an outage while the last reporter was gone for a minute."""
    monkeypatch.setattr(Silent, "passed", 0.0)
    clock = SimpleNamespace(monotonic=lambda: Silent.passed)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "Operator", Silent)
    operator = Silent()
    seen = operator.look("g", has_lags=False, timeout=3.0)
    assert Silent.passed < 3.0
    assert waiting.is_quiet(seen, [Everything()]) == (
        False,
        "it is unknown who is quiet: no report has come yet: give it more time",
    )
    Silent.passed += 5.0
    later = operator.look("g", has_lags=False, timeout=3.0)
    assert (later.ends, later.is_heard, later.unread) == ({}, True, ())
