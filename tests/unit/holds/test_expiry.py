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
def test_every_method_of_the_ledger_first_ends_expired_holds(look):
    lab = LedgerLab(owns=[A])
    lab.hold(ORDERS, for_=5.0)
    lab.clock.now += 5.0
    assert not len(look(lab.ledger))


def test_no_deadline_remains_after_the_last_hold_is_lifted():
    """Without a deadline, ``__next__`` does not have to read a clock."""
    lab = LedgerLab(owns=[A])
    lab.hold(ORDERS, for_=5.0)
    assert (lab.quiet(), lab.ledger.settled) == ({A}, None)
    lab.lift(ORDERS)
    assert lab.quiet() == lab.ledger.settled == frozenset()
    assert lab.ledger.seconds_to_next_expiry() == math.inf


def test_next_expiry_is_the_earliest_deadline():
    """A waiting fetch returns at the earliest deadline."""
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
def test_hold_that_expired_unnoticed_does_not_affect_the_next_change(then):
    """The next change first reports the hold as expired."""
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
    assert lab.log.names() == names + ["hold_placed"] * (then == "paused plainly")


def test_changed_deadline_applies_unless_the_hold_was_placed_again():
    """Deadlines change when the estimate of the broker's clock improves."""
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
