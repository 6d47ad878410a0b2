"""What a completed join has changed is the difference of two tables (P14)."""

import pytest

from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.scope import Partition
from safeconsumer.holds.table import rebalanced
from tests.harness.holds.lab import ORDERS, A, B, C, LedgerLab

pytestmark = pytest.mark.contract("P14")

PASSING, LOST, UNSUBSCRIBED = Cause.PASSING, Cause.LOST, Cause.UNSUBSCRIBED

# Of a member that owned A and B: what the join gave up first, what it has assigned, and
# what is kept, gained, revoked and lost.
JOINS = {
    "takes one": ([], [A], ({A}, set(), {B}, set())),
    "gives one": ([], [A, B, C], ({A, B}, {C}, set(), set())),
    "exchanges all": ([], [C], (set(), {C}, {A, B}, set())),
    "given up and back": ([(PASSING, [B])], [A, B], ({B}, {A}, set(), set())),
    "given up for good": ([(PASSING, [B])], [B], ({B}, set(), {A}, set())),
    "lost and back": ([(LOST, [])], [A, B], (set(), {A, B}, set(), {A, B})),
    "lost for good": ([(LOST, [])], [C], (set(), {C}, set(), {A, B})),
    "given up, and then lost": (
        [(PASSING, [B]), (LOST, [B])],
        [B],
        ({B}, set(), set(), {A}),
    ),
    "prepared twice": (
        [(PASSING, [B]), (PASSING, [])],
        [],
        (set(), set(), {A, B}, set()),
    ),
    "unsubscribed before": (
        [(LOST, []), (UNSUBSCRIBED, [])],
        [C],
        (set(), {C}, set(), set()),
    ),
}


def joined(lab, *assigned):
    """Complete a join; return what it has changed."""
    before = lab.ledger.table()
    lab.assign(*assigned)
    return rebalanced(before, lab.ledger.table())


@pytest.mark.parametrize(("given_up", "assigned", "changed"), JOINS.values(), ids=JOINS)
def test_what_is_kept_gained_revoked_and_lost(given_up, assigned, changed):
    lab = LedgerLab(owns=[A, B])
    for cause, partitions in given_up:
        lab.assign(*partitions, cause=cause)
    told = joined(lab, *assigned)
    names = "kept", "gained", "revoked", "lost"
    assert tuple(set(told[name]) for name in names) == changed


def test_a_join_that_is_over_counts_in_no_later_one():
    lab = LedgerLab(owns=[A, B])
    lab.assign(cause=LOST)
    joined(lab, A)
    told = joined(lab, A, C)
    assert (told["kept"], told["gained"], told["lost"]) == ((A,), (C,), ())


def test_holds_that_keep_what_is_gained_quiet_took_effect():
    """Those of what was kept were in effect before; what is gained may flow."""
    lab = LedgerLab(owns=[A, B])
    lab.hold(Partition(*B))
    lab.hold(Partition(*C))
    told = joined(lab, B, C, ("audit", 1))
    assert [str(one.scope) for one in told["holds_on_gained"]] == ["audit:0"]
    assert told["quiet"] == (C, B)


def test_what_a_listener_has_paused_by_then_counts():
    lab = LedgerLab(owns=[A])
    before = lab.ledger.table()
    lab.assign(A, B)
    lab.hold(ORDERS)
    told = rebalanced(before, lab.ledger.table())
    assert ([str(one.scope) for one in told["holds_on_gained"]], told["quiet"]) == (
        ["orders"],
        (A, B),
    )
