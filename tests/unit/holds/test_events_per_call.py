import gc
import re
import sys

import pytest

from safeconsumer import events
from safeconsumer.holds import scope as scopes
from tests.harness.holds.lab import ALL, AUDIT, ORDERS, A, B, C, LedgerLab

ORD = scopes.pattern(re.compile("ord.*"))


@pytest.mark.contract("P14")
def test_pause_of_several_targets_emits_one_event():
    """The event names the partitions that became quiet."""
    lab = LedgerLab(owns=[A, B, C])
    lab.hold(ORDERS)
    lab.log.events.clear()
    lab.hold(ORDERS, AUDIT, ALL, owner="ops", reason="deploy")
    (placed,) = lab.log.events
    assert isinstance(placed, events.HoldsPlaced)
    assert [hold.scope for hold in placed.holds] == [ORDERS, AUDIT, ALL]
    assert placed.quiet == (C,)
    assert (placed.client_id, placed.group_id, placed.at) == ("c", "g", 1.0)


def test_pause_that_does_not_change_a_hold_does_not_emit_an_event():
    """A program may pause in a loop, and a plain pause does not change a strict hold."""
    lab = LedgerLab(owns=[A])
    one = scopes.partition(*A)
    lab.hold(one, reason="full")
    lab.log.events.clear()
    view = lab.ledger.view()
    lab.hold(one, reason="full")
    lab.pause(one)
    assert lab.log.events == []
    assert lab.ledger.view() is view


def test_resume_of_several_targets_emits_one_event():
    """The event names the partitions that are no longer quiet, and the remaining holds."""
    lab = LedgerLab(owns=[A, C])
    lab.hold(ORDERS, AUDIT)
    lab.hold(ORDERS, owner="ops")
    lab.log.events.clear()
    lab.lift(ORDERS, AUDIT)
    (removed,) = lab.log.events
    assert isinstance(removed, events.HoldsRemoved)
    assert [hold.scope for hold in removed.holds] == [ORDERS, AUDIT]
    assert removed.flowing == (C,)
    assert [hold.owner for hold in removed.remaining] == ["ops"]


def test_resume_of_an_unheld_target_reports_only_holds_of_other_owners():
    lab = LedgerLab(owns=[A])
    view = lab.ledger.view()
    lab.lift(ORDERS)
    assert lab.log.names() == []
    assert lab.ledger.view() is view
    lab.hold(ALL, owner="ops")
    lab.lift(ORDERS)
    assert lab.log.of(events.HoldsRemoved) == []
    held = lab.log.only(events.StillHeld)
    assert [hold.owner for hold in held.holds] == ["ops"]
    assert (held.severity, held.advice) == (
        "info",
        "lift with resume('@all', owner='ops')",
    )


def test_events_sort_partitions_by_topic_and_number():
    many = [("orders", number) for number in (11, 3, 7, 0)]
    lab = LedgerLab(owns=[C])
    lab.hold(AUDIT)
    lab.poll([C, *many])
    lab.lift(AUDIT)
    lab.hold(ORDERS, AUDIT)
    lab.lift(ORDERS, AUDIT)
    lab.hold(ALL, for_=5.0)
    lab.clock.now = 2000.0
    lab.ledger.view()
    lab.ledger.deliver()
    found = [(one.name, getattr(one, "flowing", ())) for one in lab.log.events]
    gained, everything = tuple(sorted(many)), tuple(sorted([*many, C]))
    assert ("gate_changed", gained) in found
    assert ("hold_removed", everything) in found
    assert ("hold_expired", everything) in found
    placed = [one.quiet for one in lab.log.of(events.HoldsPlaced)]
    assert placed == [(C,), everything, everything]


def test_held_partition_that_is_assigned_again_causes_a_warning():
    lab = LedgerLab(owns=[A, C])
    lab.hold(ORDERS, reason="full")
    lab.assign(C)
    assert lab.log.of(events.AssignedWhileHeld) == []
    lab.assign(A, C)
    event = lab.log.only(events.AssignedWhileHeld)
    assert event.level == "warning"
    assert event.partitions == (A,)
    assert [hold.reason for hold in event.holds] == ["full"]


def test_hold_placed_on_an_unassigned_partition_does_not_cause_a_warning():
    """The partition may be assigned for the first time or come back from another member."""
    lab = LedgerLab()
    lab.hold(ORDERS)
    lab.assign(A, C)
    lab.lift(ORDERS)
    lab.assign(C)
    lab.hold(ORDERS)
    lab.assign(A, C)
    assert lab.log.of(events.AssignedWhileHeld) == []


def test_hold_on_a_pattern_names_its_topics_and_warns_if_no_topic_matches():
    """The ledger matches the pattern against the assigned and the known topics."""
    lab = LedgerLab(owns=[A])
    lab.hold(ORD, known_topics=lambda: ["ordinary", "audit"])
    placed = lab.log.only(events.HoldsPlaced)
    assert placed.topics == ("orders", "ordinary")
    assert lab.log.of(events.PatternCoversNothing) == []
    lab.hold(scopes.pattern(re.compile("nothing")), known_topics=lambda: ["ordinary"])
    nothing = lab.log.only(events.PatternCoversNothing)
    assert nothing.level == "warning"


def _steps(call):
    """Count the function calls within a call, including those in its loops over holds."""
    count = 0

    def step(_frame, event, _arg):
        nonlocal count
        count += event == "call"

    gc.disable()  # otherwise the garbage collector's callbacks would be counted, too
    sys.setprofile(step)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def _loop(held):
    tps = [("orders", number) for number in range(held)]
    lab = LedgerLab(owns=tps)
    snapshot = lab.assignment()
    singles = [scopes.partition(*tp) for tp in tps]
    lab.pause(*singles, snapshot=snapshot)
    lab.poll()  # a gate replaces the holds
    steps = [_steps(lambda one=one: lab.resume(one)) for one in singles[:10]]
    lab.poll()
    steps += [_steps(lambda one=one: lab.pause(one)) for one in singles[:10]]
    assert len(lab.quiet()) == held
    return steps[1:]  # the first resume ends the whole pause


def test_cost_of_a_call_does_not_grow_with_the_number_of_held_partitions():
    """A loop over 5,000 partitions takes linear time."""
    assert _loop(held=20) == _loop(held=400)


def test_pause_and_resume_call_few_functions():
    """Previously, a pause and a resume together made two hundred function calls."""
    lab = LedgerLab(owns=[A, B, C])
    one = scopes.partition(*A)
    lab.pause(one)
    lab.resume(one)  # both calls fill the caches
    pair = _steps(lambda: lab.pause(one)) + _steps(lambda: lab.resume(one))
    assert pair < 140
