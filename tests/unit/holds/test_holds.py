import pytest

from safeconsumer.errors import HoldSettingError
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import (
    WHOLE,
    Hold,
    Lifetime,
    WorkerOwner,
    checked_owner,
    checked_placer,
    checked_reason,
)
from tests.harness.listing import short

ORDERS = scopes.topic("orders")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"placed_at": 9.0}, True),
        ({"reason": "other"}, False),
        ({"lifetime": Lifetime.WHILE_ASSIGNED}, False),
        ({"deadline": 5.0}, False),
    ],
    ids=short,
)
def test_whether_placing_again_asks_for_something_else(change, *, same):
    """Only reason, lifetime and time limit do; a time limit always starts anew."""
    before = Hold(scope=ORDERS, reason="full")
    again = Hold(**{"scope": ORDERS, "reason": "full", **change})
    assert same is again.asks_the_same_as(before)


def test_a_hold_as_plain_values():
    """Ready for JSON; the monotonic deadline, of no use elsewhere, is left out."""
    hold = Hold(
        scope=scopes.partition("orders", 3),
        owner="ops",
        reason="deploy",
        placed_at=10.0,
        expires_at=12.5,
        lifetime=Lifetime.WHILE_ASSIGNED,
        deadline=99.0,
    )
    assert hold.as_dict() == {
        "scope": "orders:3",
        "owner": "ops",
        "reason": "deploy",
        "placed_at": 10.0,
        "expires_at": 12.5,
        "lifetime": "while_assigned",
    }


@pytest.mark.parametrize("owner", ["worker:", "worker:drain", "worker:mine"])
def test_a_workers_owners_are_its_own(owner):
    """An application lifts such holds, and places none; the worker says so of its own."""
    assert checked_owner(owner) == owner
    with pytest.raises(HoldSettingError, match="Worker"):
        checked_placer(owner)
    assert checked_placer(WorkerOwner(owner)) == owner
    assert checked_placer("workers") == "workers"


def test_nobody_places_whole_pauses_by_their_owner():
    """An application lifts them, as any hold that ``holds()`` lists."""
    assert checked_owner(WHOLE) == WHOLE
    with pytest.raises(HoldSettingError, match="reserved"):
        checked_placer(WHOLE)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("two\nlines", "two lines"),
        ("  two \r\n\r\n  lines\n", "two lines"),
        ("a\ttab", "a tab"),
        ("a\u2028b\x85c\x0bd", "a b c d"),
        ("two  spaces stay", "two  spaces stay"),
        ("\n", ""),
    ],
    ids=short,
)
def test_a_reason_of_several_lines_is_shown_on_one(reason, shown):
    """Text out of a ticket or a commit; each break becomes a space."""
    assert checked_reason(reason) == shown


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("re:re:3", "safeconsumer resume --group g --owner jo re:re:3 "),
        ("-x", "safeconsumer resume --group g --owner jo --bootstrap HOST:PORT -- -x"),
    ],
)
def test_the_command_that_lifts_it_names_any_topic(scope, expected):
    """Also one whose name looks like a pattern, or like an option."""
    hold = Hold(scope=scopes.parse(scope), owner="operator:jo")
    assert hold.lifted_by("g").startswith(expected)
