import math

import pytest

from safeconsumer import Lifetime
from safeconsumer.events.consumer import HoldsExpired
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.expiry import Deadlines
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import Scope
from safeconsumer.holds.state import LedgerState, place
from tests.harness.holds.lab import ALL, AUDIT, ORDERS, A, B, C, LedgerLab
from tests.harness.listing import each


@pytest.mark.contract("P3")
@each("before", [0.0, 4.0, 4.999])
def test_a_hold_is_never_lifted_early(before: float) -> None:
    """``for_`` is a promise."""
    lab = LedgerLab()
    lab.assign(A, B)
    lab.hold(ORDERS, for_=5.0)
    lab.clock.now += before
    assert lab.quiet() == {A, B}


@pytest.mark.contract("P3")
def test_a_hold_is_lifted_by_the_first_look_after_its_time() -> None:
    """No timer thread: late by one look-up."""
    lab = LedgerLab()
    lab.assign(A, B)
    lab.hold(ORDERS, for_=5.0)
    lab.clock.now += 5.0
    assert lab.quiet() == set()
    lab.ledger.deliver()
    (expired,) = lab.told.of(HoldsExpired)
    assert [hold.scope for hold in expired.holds] == [ORDERS]
    assert expired.flowing == (A, B)


@pytest.mark.parametrize(
    "look",
    [
        lambda ledger: ledger.quiet(),
        lambda ledger: ledger.view().quiet,
        lambda ledger: ledger.place((AUDIT,), owner="x") or ledger.quiet(),
        lambda ledger: ledger.remove([(AUDIT, "x")]) or ledger.quiet(),
    ],
    ids=["quiet", "view", "place", "remove"],
)
def test_every_look_up_lifts_what_is_due(look: object) -> None:
    """Whichever way the ledger is asked."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(ORDERS, for_=5.0)
    lab.clock.now += 5.0
    assert not len(look(lab.ledger))  # type: ignore[operator]  # one of the above


def test_the_next_expiry_is_that_of_the_hold_that_ends_first() -> None:
    """It caps the wait of a fetch."""
    lab = LedgerLab()
    assert lab.ledger.seconds_to_next_expiry() == math.inf
    lab.hold(ORDERS, for_=9.0)
    lab.hold(AUDIT, for_=3.0)
    lab.hold(ALL)
    assert lab.ledger.seconds_to_next_expiry() == pytest.approx(3.0)
    lab.clock.now += 4.0
    lab.quiet()
    assert lab.ledger.seconds_to_next_expiry() == pytest.approx(5.0)
    lab.clock.now += 5.0
    lab.quiet()
    assert lab.ledger.seconds_to_next_expiry() == math.inf


def test_a_hold_that_is_placed_again_expires_by_its_new_limit() -> None:
    """Longer, shorter, and none at all."""
    lab = LedgerLab()
    lab.assign(A, C)
    lab.hold(ORDERS, AUDIT, for_=5.0)
    lab.hold(ORDERS, for_=50.0)
    lab.hold(AUDIT)
    lab.clock.now += 10.0
    assert lab.quiet() == {A, C}
    lab.clock.now += 40.0
    assert lab.quiet() == {C}


def test_an_expiry_leaves_other_holds_of_the_partition() -> None:
    """What still covers it keeps it quiet, so nothing begins to flow."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(ORDERS, for_=5.0)
    lab.hold(ORDERS, owner="ops")
    lab.clock.now += 5.0
    assert lab.quiet() == {A}
    lab.ledger.deliver()
    assert [event.flowing for event in lab.told.of(HoldsExpired)] == [()]


def test_a_hold_expires_also_while_it_covers_nothing_here() -> None:
    """Its owner may be dead, its partition elsewhere."""
    lab = LedgerLab()
    lab.hold(ORDERS, for_=5.0, lifetime=Lifetime.WHILE_ASSIGNED)
    lab.clock.now += 5.0
    assert not list(lab.ledger.view().state)
    lab.assign(A)
    assert lab.quiet() == set()


def test_an_expired_hold_does_not_bite_at_assignment() -> None:
    """The assignment is a look-up too."""
    lab = LedgerLab()
    lab.hold(ORDERS, for_=5.0)
    lab.clock.now += 5.0
    lab.ledger.assign([A])
    assert not len(lab.ledger.view().quiet)


def test_a_hold_that_is_renewed_all_the_time_takes_no_more_room() -> None:
    """Backpressure renews its hold at every turn of its loop, for days."""
    lab = LedgerLab()
    lab.assign(A)
    for _ in range(2000):
        lab.hold(ORDERS, for_=86_400.0)
        lab.clock.now += 1.0
    assert len(lab.ledger._deadlines) < 100


def test_a_thousand_limits_that_were_lifted_take_no_room() -> None:
    """Also if nothing at all is left in force."""
    lab = LedgerLab()
    for round_ in range(200):
        lab.hold(ORDERS, AUDIT, ALL, for_=60.0, owner=f"deploy-{round_}")
        lab.lift(ORDERS, AUDIT, ALL, owner=f"deploy-{round_}")
    assert len(lab.ledger._deadlines) < 100
    lab.hold(ORDERS, for_=5.0)
    assert lab.ledger.seconds_to_next_expiry() == pytest.approx(5.0)


def test_limits_that_stand_are_looked_through_only_when_they_have_doubled() -> None:
    """Ten thousand partitions are paused one by one, each for an hour."""
    looks: list[object] = []

    class Seen(LedgerState):
        def of(self, scope: Scope) -> tuple[Hold, ...]:
            looks.append(scope)
            return super().of(scope)

    deadlines, state = Deadlines(), LedgerState()
    for number in range(1000):
        hold = Hold(scope=scopes.partition("orders", number), deadline=float(number))
        state, _ = place(state, [hold])
        seen = Seen(state.version, state.partitions)
        deadlines.add([hold], seen)
    assert len(deadlines) == 1000
    assert len(looks) < 2 * 1000


def test_a_hold_that_was_lifted_leaves_no_expiry() -> None:
    """Nobody is woken for it."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(ORDERS, for_=5.0)
    lab.lift(ORDERS)
    lab.clock.now += 5.0
    assert lab.quiet() == set()
    assert lab.ledger.seconds_to_next_expiry() == math.inf
    assert lab.told.of(HoldsExpired) == []
