"""Pauses that previous owners left, and were handed over."""

import pytest

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import APP
from safeconsumer.holds.ledger import PauseLedger

A, B = ("orders", 0), ("orders", 1)
A_SCOPE = scopes.partition(*A)
LEFT = "paused by its previous owner"


@pytest.fixture
def ledger():
    """Make a ledger whose pauses are handed over, with both partitions."""
    made = PauseLedger()
    made.is_carried = lambda _: True
    made.assign([A, B])
    return made


def taken(ledger):
    """Take pauses of all partitions over; return the reasons of the holds there are."""
    ledger.take_over(ledger.ownership().epochs, LEFT)
    return {str(hold.scope): hold.reason for hold in ledger.view().holds}


def test_a_pause_of_the_applications_own_stays(ledger):
    """With its reason: it is what the application has asked for here."""
    ledger.place([A_SCOPE], owner=APP, reason="own")
    assert taken(ledger) == {"orders:0": "own", "orders:1": LEFT}


def test_an_ownership_that_has_ended_takes_nothing_over(ledger):
    """What was heard in it comes too late."""
    before = ledger.ownership().epochs
    ledger.assign([B])
    ledger.assign([A, B])
    ledger.take_over(before, LEFT)
    assert [str(hold.scope) for hold in ledger.view().holds] == ["orders:1"]
