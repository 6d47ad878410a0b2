import re

import pytest

from safeconsumer import Hold, Lifetime
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.explain import explain_lines, hold_line
from safeconsumer.holds.hold import WHOLE
from tests.harness.holds.lab import ALL, ORDERS, A, C, LedgerLab
from tests.harness.listing import short

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
    lab.ledger.assign([A, C])
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
