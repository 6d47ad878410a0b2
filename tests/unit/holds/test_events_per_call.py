import re

import pytest

from safeconsumer import events
from safeconsumer.holds import scope as scopes
from tests.harness.holds.lab import ALL, AUDIT, ORDERS, A, B, C, LedgerLab

ORD = scopes.pattern(re.compile("ord.*"))


@pytest.mark.contract("P14")
def test_placing_several_holds_is_one_event() -> None:
    """One per call, naming what became quiet by it."""
    lab = LedgerLab(owns=[A, B, C])
    lab.hold(ORDERS)
    lab.told.events.clear()
    lab.hold(ORDERS, AUDIT, ALL, owner="ops", reason="deploy")
    (placed,) = lab.told.events
    assert isinstance(placed, events.HoldsPlaced)
    assert [hold.scope for hold in placed.holds] == [ORDERS, AUDIT, ALL]
    assert placed.quiet == (C,)
    assert (placed.client_id, placed.group_id, placed.at) == ("c", "g", 1.0)


def test_an_unchanged_hold_emits_nothing() -> None:
    """A loop that pauses again and again is not heard."""
    lab = LedgerLab(owns=[A])
    lab.hold(ORDERS, reason="full")
    lab.told.events.clear()
    view = lab.ledger.view()
    lab.hold(ORDERS, reason="full")
    assert lab.told.events == []
    assert lab.ledger.view() is view


def test_lifting_several_holds_is_one_event() -> None:
    """It names what flows by it and what still holds."""
    lab = LedgerLab(owns=[A, C])
    lab.hold(ORDERS, AUDIT)
    lab.hold(ORDERS, owner="ops")
    lab.told.events.clear()
    lab.lift(ORDERS, AUDIT)
    (removed,) = lab.told.events
    assert isinstance(removed, events.HoldsRemoved)
    assert [hold.scope for hold in removed.holds] == [ORDERS, AUDIT]
    assert removed.flowing == (C,)
    assert [hold.owner for hold in removed.remaining] == ["ops"]


def test_lifting_what_is_not_held_changes_nothing() -> None:
    """It is silent; but where another's hold keeps it quiet, that is told."""
    lab = LedgerLab(owns=[A])
    view = lab.ledger.view()
    lab.lift(ORDERS)
    assert lab.told.names() == []
    assert lab.ledger.view() is view
    lab.hold(ALL, owner="ops")
    lab.lift(ORDERS)
    (told,) = lab.told.of(events.HoldsRemoved)
    assert (told.holds, told.flowing) == ((), ())
    assert [hold.owner for hold in told.remaining] == ["ops"]


def test_a_surviving_hold_is_told_when_its_partition_returns() -> None:
    """A warning, so that nobody wonders why nothing arrives."""
    lab = LedgerLab(owns=[A, C])
    lab.hold(ORDERS, reason="full")
    lab.assign(C)
    assert lab.told.of(events.HoldsBit) == []
    lab.assign(A, C)
    (bit,) = lab.told.of(events.HoldsBit)
    assert bit.level == "warning"
    assert bit.partitions == (A,)
    assert [hold.reason for hold in bit.holds] == ["full"]


def test_a_hold_that_bites_for_the_first_time_is_no_warning() -> None:
    """Paused before it was assigned: that is what was asked for."""
    lab = LedgerLab()
    lab.hold(ORDERS)
    lab.assign(A, C)
    assert lab.told.of(events.HoldsBit) == []


def test_a_hold_placed_while_away_is_no_warning() -> None:
    """Only what was quiet when it left, and still is, surprises anybody."""
    lab = LedgerLab(owns=[A, C])
    lab.assign(C)
    lab.hold(ORDERS)
    lab.assign(A, C)
    assert lab.told.of(events.HoldsBit) == []


def test_whoever_places_a_pattern_is_told_what_it_covers() -> None:
    """Among the assigned and the known topics; none is a warning."""
    lab = LedgerLab(owns=[A])
    lab.hold(ORD, known_topics=lambda: ["ordinary", "audit"])
    (placed,) = lab.told.of(events.HoldsPlaced)
    assert placed.topics == ("orders", "ordinary")
    assert lab.told.of(events.PatternCoversNothing) == []
    lab.hold(scopes.pattern(re.compile("nothing")), known_topics=lambda: ["ordinary"])
    (nothing,) = lab.told.of(events.PatternCoversNothing)
    assert nothing.level == "warning"


def test_nothing_is_delivered_under_the_lock() -> None:
    """A hook may ask, place and lift."""
    lab = LedgerLab()

    def hook(event: events.Event) -> None:
        if isinstance(event, events.HoldsPlaced) and event.holds[0].scope == ORDERS:
            lab.hold(AUDIT, owner="hook")
            lab.lift(ORDERS)

    lab = LedgerLab(hook, owns=[A, C])
    lab.hold(ORDERS)
    assert lab.quiet() == {C}
    assert len(lab.told.of(events.HoldsPlaced) + lab.told.of(events.HoldsRemoved)) == 3


def test_a_call_makes_no_view() -> None:
    """Ten thousand partitions are resumed one by one: what is quiet is found by a look."""
    lab = LedgerLab(owns=[A, B, C])
    lab.hold(ORDERS, AUDIT)
    lab.ledger.lookers.clear()
    made = lab.ledger._view
    lab.lift(ORDERS)
    lab.resume(AUDIT)
    lab.ledger.remove_owner("app")
    assert lab.ledger._view is made
    assert lab.quiet() == set()
