"""A topic was made again: its partitions have new ownerships, and keep their holds."""

import pytest

from safeconsumer.holds.hold import Lifetime
from safeconsumer.holds.ownership import Ownership, Reassignment, reassign
from tests.harness.holds.lab import AUDIT, ORDERS, A, B, C, LedgerLab

pytestmark = pytest.mark.contract("P21")


def test_new_epochs_are_given_to_what_is_owned():
    before = Ownership({A: 1, B: 1, C: 2}, 3)
    after, what = reassign(before, before.epochs, {A})
    assert after == Ownership({A: 3, B: 1, C: 2}, 4)
    assert what == Reassignment(frozenset({B, C}), frozenset({A}), frozenset({A}))


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
