"""A topic was made again: its partitions have new ownerships, and keep their holds."""

import pytest

from safeconsumer.holds.hold import Lifetime
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.scope import Partition
from tests.harness.holds.lab import AUDIT, ORDERS, A, B, C, LedgerLab

pytestmark = pytest.mark.contract("P21")


def renew(ledger, *partitions):
    """Begin ownerships anew of partitions whose topics were recreated."""
    again = {tp: object() for tp in partitions}
    ledger.assign({**ledger.owned(), **again}, Cause.ANEW)


@pytest.mark.parametrize("lifetime", [Lifetime.UNTIL_RESUMED, Lifetime.WHILE_ASSIGNED])
def test_holds_stay(lifetime):
    lab = LedgerLab(owns=[A, B, C])
    lab.hold(ORDERS, lifetime=lifetime)
    lab.pause(AUDIT)
    before, names = lab.ledger.view().holds, lab.told.names()
    renew(lab.ledger, A, C)
    lab.ledger.deliver()
    assert (lab.ledger.view().holds, lab.told.names()) == (before, names)
    assert lab.quiet() == {A, B, C}


def test_a_journal_and_the_control_topics_hear_of_it():
    """It is as if it was revoked and gained: gates close."""
    lab = LedgerLab(owns=[A, B])
    heard, watched = [], []
    lab.ledger.on_reassigned = heard.append
    lab.ledger.watch(watched.append)
    renew(lab.ledger, A)
    (what,) = heard
    assert (what.gained, what.departed, what.kept) == ({A}, {A}, {B})
    assert watched == [{A: lab.ledger.owned()[A]}]
    assert lab.quiet() == {A}


def test_nothing_is_decided_of_what_a_join_has_given_up():
    """A plain pause of it lasts until the join has completed."""
    lab = LedgerLab(owns=[A, B])
    lab.pause(Partition(*A))
    lab.assign(B, cause=Cause.PASSING)
    renew(lab.ledger, B)
    lab.assign(A, B)
    assert lab.quiet() == {A}
