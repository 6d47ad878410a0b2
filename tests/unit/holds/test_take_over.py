"""Pauses that previous owners left: what the application says itself goes before them."""

from collections.abc import Callable

import pytest

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import APP
from safeconsumer.holds.ledger import PauseLedger

A, B = ("orders", 0), ("orders", 1)
A_SCOPE = scopes.partition(*A)
LEFT = "paused by its previous owner"


@pytest.fixture
def ledger() -> PauseLedger:
    """Make a ledger whose pauses are handed over, with both partitions."""
    made = PauseLedger()
    made.is_carried = lambda _: True
    made.assign([A, B])
    return made


def taken(ledger: PauseLedger) -> dict[str, str | None]:
    """Take pauses of all partitions over; return the reasons of the holds there are."""
    ledger.take_over(ledger.ownership().epochs, LEFT)
    return {str(hold.scope): hold.reason for hold in ledger.view().holds}


def test_they_are_the_applications_own(ledger: PauseLedger) -> None:
    """So that its plain resume lifts them."""
    assert taken(ledger) == {"orders:0": LEFT, "orders:1": LEFT}
    ledger.remove([(A_SCOPE, APP)])
    assert set(ledger.quiet()) == {B}


@pytest.mark.parametrize(
    ("say", "there"),
    [
        (lambda it: it.remove([(A_SCOPE, APP)]), {"orders:1": LEFT}),
        (lambda it: it.remove_owner(APP), {}),
        (
            lambda it: it.place([A_SCOPE], owner=APP, reason="own"),
            {"orders:0": "own", "orders:1": LEFT},
        ),
        # Of others, and of wider scopes: it says nothing of the partition itself.
        (
            lambda it: it.remove([(A_SCOPE, "other")]),
            {"orders:0": LEFT, "orders:1": LEFT},
        ),
        (
            lambda it: it.remove([(scopes.topic("orders"), APP)]),
            {"orders:0": LEFT, "orders:1": LEFT},
        ),
        (lambda it: it.remove_owner("other"), {"orders:0": LEFT, "orders:1": LEFT}),
    ],
    ids=["resume", "resume_all", "pause", "another's", "the topic's", "all another's"],
)
def test_what_was_said_since_the_assignment_goes_before_them(
    ledger: PauseLedger, say: Callable[[PauseLedger], object], there: dict[str, str]
) -> None:
    """A pause keeps its reason, a resume leaves the partition flowing."""
    say(ledger)
    assert taken(ledger) == there


def test_what_was_said_in_an_earlier_ownership_does_not_count(
    ledger: PauseLedger,
) -> None:
    """Somebody else may have paused it since."""
    ledger.remove([(A_SCOPE, APP)])
    ledger.assign([B])
    ledger.assign([A, B])
    assert taken(ledger) == {"orders:0": LEFT, "orders:1": LEFT}


def test_an_ownership_that_has_ended_takes_nothing_over(ledger: PauseLedger) -> None:
    """What was heard in it comes too late."""
    before = ledger.ownership().epochs
    ledger.assign([B])
    ledger.assign([A, B])
    ledger.take_over(before, LEFT)
    assert [str(hold.scope) for hold in ledger.view().holds] == ["orders:1"]
