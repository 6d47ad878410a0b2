"""Control records become holds in the ledger."""

import sys

import pytest
from attrs import evolve

from safeconsumer.group import events as control_events
from safeconsumer.group import patterns
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.fold import NO_TIME_MS, Fold, RawRecord
from safeconsumer.group.state import ControlState
from safeconsumer.holds.resets import Resets
from tests.harness.group.lab import HOLDS, SKEW, ControlLab, control_record
from tests.harness.holds.lab import A, C
from tests.harness.listing import short


@pytest.mark.contract("G4")
def test_control_record_places_a_hold_and_a_tombstone_lifts_the_hold():
    lab = ControlLab()
    lab.assign(A, C)
    lab.hear(control_record("orders", 0, reason="migration"))
    assert (lab.held(), lab.quiet()) == ({("orders", "operator:alice")}, {A})
    lab.hear(control_record("orders", 1, held=False))
    assert (lab.held(), lab.quiet()) == (set(), set())


def test_record_may_name_a_partition_of_a_topic_named_re():
    lab = ControlLab()
    mine, three = ("re", 3), ("3", 0)
    lab.assign(mine, three, ("re", 4))
    lab.hear(control_record(str(patterns.target(mine)), 0))
    assert (lab.held(), lab.quiet()) == ({("re:re:3", "operator:alice")}, {mine})
    lab.hear(control_record("re:re:3", 1, held=False), control_record("re:3", 2))
    assert (lab.held(), lab.quiet()) == ({("re:3", "operator:alice")}, {three})


def test_extended_hold_keeps_its_placement_time():
    lab = ControlLab()
    lab.hear(control_record("orders", 0, ttl=600.0, at=1.0))
    lab.hear(control_record("orders", 1, ttl=600.0, at=301.0, since=1.0))
    (hold,) = lab.ledger.view().holds
    assert (hold.placed_at, hold.expires_at) == (1.0, 901.0)
    assert hold.record == (301.0, 1)


def test_holds_of_other_groups_are_ignored():
    lab = ControlLab()
    lab.hear(
        control_record("@all", 0, group="other"),
        control_record("orders", 1, group="g2"),
    )
    assert lab.held() == set()


@pytest.mark.contract("P2")
def test_lift_leaves_the_holds_of_other_owners():
    lab = ControlLab()
    lab.hear(control_record("orders", 0), control_record("orders", 1, owner="bob"))
    lab.hear(control_record("orders", 2, held=False))
    assert lab.held() == {("orders", "operator:bob")}


@pytest.mark.contract("G6")
@pytest.mark.parametrize(
    ("at_ms", "skip"), [(1000, 0.0), (-2000, 3.0), (NO_TIME_MS, 0.0)], ids=short
)
def test_hold_expires_at_its_end_by_the_brokers_clock_plus_the_skew(at_ms, skip):
    """A hold without a timestamp starts at 1.0 by the wall clock, and the skew is 5 s."""
    lab = ControlLab()
    lab.assign(A)
    lab.hear(evolve(control_record("orders", 0, ttl=10.0), at_ms=at_ms))
    lab.clock.now += 14.9 - skip
    assert lab.quiet() == {A}
    lab.clock.now += 0.2
    assert lab.quiet() == set()


@pytest.mark.contract("G6")
@pytest.mark.parametrize(
    ("at_ms", "is_over"), [(NO_TIME_MS, True), (1_000_000, False)], ids=short
)
def test_new_estimate_of_the_brokers_clock_moves_the_end_of_holds_with_a_timestamp(
    at_ms, is_over
):
    """A hold without a timestamp starts when the member reads it."""
    clock = BrokerClock(is_reporting=True)
    lab = ControlLab(clock)
    lab.assign(A)
    clock.acknowledged(1000.0, lab.clock.now, lab.clock.now)
    lab.hear(evolve(control_record("orders", 0, ttl=10.0), at_ms=at_ms))
    lab.clock.now += 10.0
    clock.acknowledged(1000.0, lab.clock.now, lab.clock.now)
    lab.clock.now += SKEW + 0.1
    assert lab.quiet() == (set() if is_over else {A})
    lab.clock.now += 10.0
    assert lab.quiet() == set()


def test_expired_hold_lifts_the_hold_that_it_replaced():
    lab = ControlLab()
    lab.hear(control_record("orders", 0))
    lab.hear(control_record("orders", 1, ttl=1.0, at=-100.0))
    assert lab.held() == set()


def kept(lab):
    """Return the scopes of the records that a member keeps."""
    return [one.key.scope for one in lab.state._fold.holds()]


@pytest.mark.contract("G6")
def test_expired_holds_are_dropped_an_hour_after_their_end():
    """No operator lifts expired holds, and a program may use a new owner for each job."""
    lab = ControlLab()
    long_ago = -3600.0 - SKEW
    lab.hear(
        control_record("longer", 0, ttl=1.0, at=long_ago - 1.0),
        control_record("shorter", 1, ttl=1.1, at=long_ago + 0.1),
        control_record("endless", 2, at=long_ago - 99.0),
    )
    assert kept(lab) == ["shorter", "endless"]
    assert lab.held() == {("endless", "operator:alice")}
    lab.hear(control_record("longer", 3, held=False))
    lab.hear(control_record("longer", 4, ttl=60.0))
    assert lab.held() >= {("longer", "operator:alice")}


def test_member_checks_for_expired_holds_once_a_minute():
    lab = ControlLab()
    expired = control_record("orders", 1, ttl=1.0, at=-7200.0)
    lab.hear(control_record("audit", 0))
    lab.clock.now += 59.9
    lab.hear(expired)
    assert kept(lab) == ["audit", "orders"]
    lab.clock.now += 0.2
    lab.hear(control_record("audit", 2))
    assert kept(lab) == ["audit"]


def test_record_is_applied_without_a_scan_of_other_holds(monkeypatch):
    """With 6,000 holds, a scan for each record took milliseconds under the state's lock."""
    lab = ControlLab()
    lab.state = ControlState("g", lab.ledger, SKEW, resets=Resets(lab.ledger))
    lab.hear(control_record("orders", 0))
    monkeypatch.setattr(Fold, "holds", pytest.fail)
    lab.hear(control_record("audit", 1))
    assert lab.held() == {(one, "operator:alice") for one in ("orders", "audit")}


def test_unreadable_records_are_counted_and_skipped():
    lab = ControlLab()
    good = control_record("orders", 9)
    lab.hear(
        RawRecord(None, b"x", 0, 0),
        RawRecord(b"\xff", b"x", 1, 0),
        RawRecord(good.key, b"garbage", 2, 0),
        control_record("not a scope", 3),
        good,
    )
    lab.hear(*(RawRecord(b"x", b"x", n, 0) for n in range(10, 1000)))
    assert lab.held() == {("orders", "operator:alice")}
    assert lab.state.skipped == 4 + 990
    emitted = lab.log.of(control_events.ControlRecordsSkipped)
    assert [(one.topic, one.records) for one in emitted] == [(HOLDS, 4)]
    lab.clock.now += 11
    lab.hear(RawRecord(b"x", b"x", 1001, 0))
    emitted = lab.log.of(control_events.ControlRecordsSkipped)
    assert [one.records for one in emitted] == [4, 991]


def test_scope_of_a_later_version_holds_all_partitions():
    lab = ControlLab()
    lab.assign(A, C)
    lab.hear(RawRecord(b"2\0g\0alice\0some:new:kind", b'{"v":2}', 0, 0))
    assert lab.quiet() == {A, C}
    lab.hear(control_record("@all", 1, held=False))
    assert lab.quiet() == {A, C}
    lab.hear(RawRecord(b"2\0g\0alice\0some:new:kind", None, 2, 0))
    assert lab.quiet() == set()
    assert len(lab.log.of(control_events.ControlNotUnderstood)) == 1


@pytest.mark.parametrize("key", [b"2\0g\0alice\0orders:0", b"1\0g\0alice\0orders:00"])
def test_two_keys_of_one_scope_are_two_holds(key):
    """Each hold stays until its own tombstone, as after a restart."""
    lab = ControlLab()
    lab.assign(A, C)
    lab.hear(RawRecord(key, b'{"v":2}', 0, 0))
    lab.hear(
        control_record("orders:0", 1, ttl=1.0),
        control_record("orders:0", 2, held=False),
    )
    assert lab.quiet() == {A}
    lab.hear(RawRecord(key, None, 3, 0))
    assert lab.quiet() == set()


def test_pattern_uses_re2_syntax_and_matches_whole_names():
    lab = ControlLab()
    lab.assign(A, C)
    lab.hear(control_record("re:ord.*", 0))
    assert lab.quiet() == {A}
    lab.hear(control_record("re:rder", 1, owner="bob"))
    assert lab.quiet() == {A}


@pytest.mark.parametrize("text", ["re:(", r"re:(a)\1", "re:(?=x)"])
def test_pattern_that_cannot_be_compiled_holds_all_partitions(text):
    lab = ControlLab()
    lab.assign(A, C)
    lab.hear(control_record(text, 0))
    assert lab.quiet() == {A, C}
    assert len(lab.log.of(control_events.ControlNotUnderstood)) == 1
    lab.hear(control_record(text, 1, held=False))
    assert lab.quiet() == set()


def test_pattern_without_google_re2_holds_all_partitions(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    patterns.read.cache_clear()
    lab = ControlLab()
    lab.assign(A, C)
    lab.hear(control_record("re:ord.*", 0))
    patterns.read.cache_clear()
    assert lab.quiet() == {A, C}
    emitted = lab.log.only(control_events.ControlNotUnderstood)
    assert "pip install 'safeconsumer[group]'" in emitted.why


@pytest.mark.contract("G5")
def test_recreated_topic_does_not_lift_any_hold():
    """A hold stays in force until the new topic contains a tombstone for that hold."""
    lab = ControlLab()
    lab.hear(control_record("orders", 900), control_record("audit", 901))
    lab.state.topic_recreated()
    lab.hear(control_record("audit", 0, held=False))
    assert lab.held() == {("orders", "operator:alice")}
    lab.hear(control_record("orders", 1, held=False))
    assert lab.held() == set()
