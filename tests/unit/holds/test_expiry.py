import math

import pytest

from safeconsumer.holds.hold import Hold
from tests.harness.holds.lab import ALL, AUDIT, ORDERS, A, LedgerLab


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
def test_every_look_up_lifts_what_is_due(look):
    """Whichever way the ledger is asked."""
    lab = LedgerLab(owns=[A])
    lab.hold(ORDERS, for_=5.0)
    lab.clock.now += 5.0
    assert not len(look(lab.ledger))


def test_with_the_last_hold_its_deadline_is_forgotten():
    """A step of an iteration asks no clock then."""
    lab = LedgerLab(owns=[A])
    lab.hold(ORDERS, for_=5.0)
    assert (lab.quiet(), lab.ledger.settled) == ({A}, None)
    lab.lift(ORDERS)
    assert lab.quiet() == lab.ledger.settled == frozenset()
    assert lab.ledger.seconds_to_next_expiry() == math.inf


def test_the_next_expiry_is_that_of_the_hold_that_ends_first():
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
    lab.hold(AUDIT, for_=2.0)
    lab.lift(AUDIT)
    lab.clock.now += 5.0
    lab.quiet()
    assert lab.ledger.seconds_to_next_expiry() == math.inf


@pytest.mark.parametrize("then", ["assigned", "paused plainly", "lifted"])
def test_what_expired_counts_for_no_later_change(then):
    """Though nobody has looked in between: it is reported as expired, and holds nothing."""
    lab = LedgerLab(owns=[A])
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


def test_a_deadline_that_moves():
    """As the broker's clock is known better; not that of a hold placed again since."""
    lab = LedgerLab(owns=[A])
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
