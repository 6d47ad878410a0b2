import re

import pytest

from safeconsumer.errors import HoldSettingError
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.explain import explain_lines, hold_line
from safeconsumer.holds.hold import (
    RESET,
    WHOLE,
    Hold,
    Lifetime,
    WorkerOwner,
    checked_owner,
    checked_placer,
    checked_reason,
)
from tests.harness.holds.lab import ALL, ORDERS, A, C, LedgerLab, assign_to
from tests.harness.listing import short


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


# 2024-05-06 07:08:09 UTC
AT = 1714979289.0


@pytest.mark.parametrize(
    ("hold", "line"),
    [
        (
            Hold(scope=ORDERS, placed_at=AT),
            "orders held by app, since 2024-05-06 07:08:09Z, until resumed",
        ),
        (
            Hold(scope=scopes.partition("orders", 3), owner="ops", reason="deploy"),
            (
                "orders:3 held by ops, since 1970-01-01 00:00:00Z, because deploy, "
                "until resumed"
            ),
        ),
        (
            Hold(scope=ALL, placed_at=AT, lifetime=Lifetime.WHILE_ASSIGNED),
            "@all held by app, since 2024-05-06 07:08:09Z, while assigned here",
        ),
        (
            Hold(scope=ORDERS, owner=WHOLE, lifetime=Lifetime.PLAIN),
            (
                "orders held by app (all), since 1970-01-01 00:00:00Z, until the "
                "application's next resume"
            ),
        ),
        (
            Hold(scope=scopes.partition("orders", 3), lifetime=Lifetime.PLAIN),
            (
                "orders:3 held by app, since 1970-01-01 00:00:00Z, until a join leaves "
                "it out"
            ),
        ),
        (
            Hold(
                scope=scopes.pattern(re.compile("ord.*")),
                placed_at=AT,
                expires_at=AT + 60,
            ),
            (
                "re:ord.* held by app, since 2024-05-06 07:08:09Z, "
                "until 2024-05-06 07:09:09Z"
            ),
        ),
    ],
    ids=short,
)
def test_one_line_about_one_hold(hold, line):
    """Who, why, since when, until when."""
    assert hold_line(hold) == line


def test_a_time_that_no_calendar_knows():
    """``for_`` may be any number of seconds; asking about it must not raise."""
    hold = Hold(scope=ORDERS, placed_at=AT, expires_at=AT + 1e300)
    assert hold_line(hold).startswith("orders held by app")


def test_a_closed_gate_has_a_line():
    """It is no hold, but it keeps the partition quiet."""
    lab = LedgerLab(owns=[A])
    lab.hold(ORDERS)
    lab.ledger.begin_call()
    assign_to(lab.ledger, [A, C])
    (line,) = explain_lines(lab.ledger.view(), C)
    assert line.startswith("gate: ")


def test_what_is_not_assigned_has_a_line():
    """It does not flow; a hold of it is the better answer."""
    lab = LedgerLab(owns=[A])
    (line,) = explain_lines(lab.ledger.view(), C)
    assert line == "audit:0 is not assigned to this consumer"
    assert explain_lines(lab.ledger.view(), A) == ()
    lab.hold(ALL)
    (line,) = explain_lines(lab.ledger.view(), C)
    assert line.startswith("@all held by app")


def test_the_hold_of_a_reset_is_no_programs_to_lift():
    """A record of the old place would come before the partition is moved."""
    hold = Hold(scope=scopes.parse("orders:3"), owner=RESET)
    assert hold.lifted_by("g").startswith("nothing: it ends once")
    with pytest.raises(HoldSettingError, match="is reserved: what it holds flows once"):
        checked_owner(RESET)
