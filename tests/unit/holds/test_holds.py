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
from safeconsumer.holds.scope import Partition
from tests.harness.holds.lab import ALL, ORDERS, A, C, LedgerLab
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
def test_hold_placed_again_differs_if_its_reason_lifetime_or_limit_differs(
    change, *, same
):
    """A pause with a time limit always differs, because its limit starts again."""
    before = Hold(scope=ORDERS, reason="full")
    again = Hold(**{"scope": ORDERS, "reason": "full", **change})
    assert same is again.requests_the_same_as(before)


def test_hold_as_dict_is_plain_json_without_the_deadline():
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
def test_application_may_lift_a_workers_hold_but_not_place_one(owner):
    assert checked_owner(owner) == owner
    with pytest.raises(HoldSettingError, match="Worker"):
        checked_placer(owner)
    assert checked_placer(WorkerOwner(owner)) == owner
    assert checked_placer("workers") == "workers"


@pytest.mark.parametrize("owner", ["", " ", "a\nb", "x" * 250, 5, None])
def test_owner_that_is_not_a_short_printable_string_is_refused(owner):
    with pytest.raises(HoldSettingError, match="1 to 249 printable characters"):
        checked_owner(owner)


def test_owner_of_whole_pauses_cannot_be_used_to_place_a_hold():
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
def test_reason_of_several_lines_becomes_one_line(reason, shown):
    """The reason may come from a ticket or a commit message."""
    assert checked_reason(reason) == shown


@pytest.mark.parametrize("reason", [5, b"deploy", ["deploy"], "bell\a"])
def test_reason_that_is_not_a_printable_text_is_refused(reason):
    with pytest.raises(HoldSettingError, match="reason must be text"):
        checked_reason(reason)


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("re:re:3", "safeconsumer resume --group g --owner jo re:re:3 "),
        ("-x", "safeconsumer resume --group g --owner jo --bootstrap HOST:PORT -- -x"),
    ],
)
def test_command_that_lifts_a_hold_quotes_its_topic(scope, expected):
    """A topic name may look like a pattern or like an option."""
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
            Hold(scope=ALL, expires_at=60.0, lifetime=Lifetime.WHILE_ASSIGNED),
            (
                "@all held by app, since 1970-01-01 00:00:00Z, while assigned here, "
                "at most until 1970-01-01 00:01:00Z"
            ),
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
        (
            Hold(scope=ORDERS, placed_at=AT, expires_at=AT + 1e300),
            (
                "orders held by app, since 2024-05-06 07:08:09Z, "
                "until a time beyond the year 9999"
            ),
        ),
    ],
    ids=short,
)
def test_hold_line_names_owner_reason_start_and_end(hold, line):
    assert hold_line(hold) == line


def explained(lab, tp):
    return explain_lines(lab.ledger.view(), tp, lab.ledger.now()[0])


def test_explain_has_a_line_for_an_unassigned_partition():
    """If a hold covers the partition, the line names the hold."""
    lab = LedgerLab(owns=[A])
    (line,) = explained(lab, C)
    assert line == "audit:0 is not assigned to this consumer"
    assert explained(lab, A) == ()
    lab.hold(ALL)
    (line,) = explained(lab, C)
    assert line.startswith("@all held by app")


def test_strict_hold_beneath_a_plain_pause_is_listed_until_it_expires():
    lab, scope = LedgerLab(owns=[A]), Partition(*A)
    lab.hold(scope, reason="DB-4211", for_=600)
    lab.hold(ORDERS, owner="db")
    lab.pause(scope)
    lines = explained(lab, A)
    assert [one.split(", ")[0] for one in lines] == [
        "orders:0 held by app",
        "orders:0 held by app",
        "orders held by db",
    ]
    assert ["DB-4211" in one for one in lines] == [False, True, False]
    listed = [(str(one.scope), one.reason) for one in lab.ledger.every_hold()]
    assert listed == [("orders", None), ("orders:0", None), ("orders:0", "DB-4211")]
    lab.clock.now += 600
    assert len(explained(lab, A)) == len(lab.ledger.every_hold()) == 2


def test_hold_that_waits_for_a_reset_cannot_be_lifted_by_a_program():
    """Otherwise records from the old position would be delivered before the reset."""
    hold = Hold(scope=scopes.parse("orders:3"), owner=RESET)
    assert hold.lifted_by("g").startswith("nothing: the hold ends once")
    with pytest.raises(HoldSettingError, match="is reserved: its partitions flow once"):
        checked_owner(RESET)
