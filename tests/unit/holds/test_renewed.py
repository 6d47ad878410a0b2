"""A topic was made again: its partitions have new ownerships, and keep their holds."""

import pytest

from safeconsumer.holds.hold import Lifetime
from safeconsumer.holds.ledger import REST
from safeconsumer.holds.ownership import Ownership, Reassignment, renew
from tests.harness.holds.lab import AUDIT, ORDERS, A, B, C, LedgerLab

pytestmark = pytest.mark.contract("P21")


def test_new_epochs_are_given_to_what_is_owned():
    before = Ownership({A: 1, B: 1, C: 2}, 3)
    after, what = renew(before, [A, ("gone", 0)])
    assert after == Ownership({A: 3, B: 1, C: 2}, 4)
    assert what == Reassignment(frozenset({B, C}), frozenset({A}), frozenset({A}))


def test_nothing_is_given_for_what_is_not_owned():
    before = Ownership({A: 1}, 2)
    after, what = renew(before, [B])
    assert (after, what) == (before, Reassignment(kept=frozenset({A})))


@pytest.mark.parametrize("lifetime", [Lifetime.UNTIL_RESUMED, Lifetime.WHILE_ASSIGNED])
def test_holds_stay(lifetime):
    lab = LedgerLab(owns=[A, B, C])
    lab.hold(ORDERS, lifetime=lifetime)
    lab.pause(AUDIT)
    before, names = lab.ledger.view().holds, lab.told.names()
    lab.ledger.renew([A, C])
    lab.ledger.deliver()
    assert (lab.ledger.view().holds, lab.told.names()) == (before, names)
    assert lab.quiet() == {A, B, C}


def test_a_journal_and_the_control_topics_hear_of_it():
    """It is as if it was revoked and gained: gates close."""
    lab = LedgerLab(owns=[A, B])
    heard, watched = [], []
    lab.ledger.on_reassigned = heard.append
    lab.ledger.watch(watched.append)
    lab.ledger.renew([A])
    (what,) = heard
    assert (what.gained, what.departed, what.kept) == ({A}, {A}, {B})
    assert watched == [{A: lab.ledger.ownership().epochs[A]}]
    assert lab.quiet() == {A}


def test_it_rests_from_a_tenth_of_a_second_on():
    lab = LedgerLab(owns=[A])
    began = lab.clock.now
    for seconds, is_rested in ((REST / 2, False), (REST * 1.01, True)):
        lab.hold(ORDERS)
        lab.clock.now += seconds
        assert lab.ledger.has_rested(A, began) == is_rested
        lab.lift(ORDERS)
        assert lab.ledger.has_rested(A, began) == is_rested
    assert not lab.ledger.has_rested(A, lab.clock.now - REST / 2)


def test_a_rest_is_forgotten_with_its_partition():
    lab = LedgerLab(owns=[A])
    lab.hold(ORDERS)
    lab.clock.now += 1
    lab.lift(ORDERS)
    lab.assign(B)
    lab.assign(A)
    assert not lab.ledger.has_rested(A, 0.0)
