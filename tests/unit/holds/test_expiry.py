import math

import pytest

from safeconsumer import Lifetime
from safeconsumer.events.consumer import HoldsExpired
from safeconsumer.holds.hold import Hold
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
    assert not list(lab.ledger.view().holds)
    lab.assign(A)
    assert lab.quiet() == set()


@pytest.mark.parametrize("then", ["assigned", "paused plainly", "lifted"])
def test_what_expired_counts_for_no_later_change(then: str) -> None:
    """Though nobody has looked in between: it is told as expired, and bites nobody."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(ORDERS, for_=5.0)
    lab.assign()
    lab.clock.now += 5.0
    if then == "assigned":
        lab.assign(A)
    elif then == "lifted":
        lab.lift(ORDERS)
    else:
        lab.hold(ORDERS)
    names = ["hold_placed", "hold_expired"]
    assert lab.told.names() == names + ["hold_placed"] * (then == "paused plainly")


def test_a_deadline_that_moves() -> None:
    """As the broker's clock is known better; not that of a hold placed again since."""
    lab = LedgerLab()
    lab.assign(A)
    early, late = (
        Hold(scope=ORDERS, owner="operator:jo", deadline=at) for at in (1005.0, 1050.0)
    )
    lab.ledger.follow([late], ())
    lab.ledger.move([early, Hold(scope=AUDIT, deadline=1.0)])
    assert lab.ledger.seconds_to_next_expiry() == pytest.approx(5.0)
    lab.ledger.follow([Hold(scope=ORDERS, owner="operator:jo", reason="again")], ())
    lab.ledger.move([early])
    lab.clock.now += 100.0
    assert lab.quiet() == {A}


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
