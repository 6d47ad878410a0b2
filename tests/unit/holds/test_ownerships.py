"""Tests completed joins (P14), recreated topics (P21) and valid positions (P16)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.holds.hold import Lifetime
from safeconsumer.holds.ownership import Cause, Reassignment, difference
from safeconsumer.holds.scope import Partition
from safeconsumer.holds.table import MOST_LEFT, rebalanced
from tests.harness.holds.lab import ALL, AUDIT, ORDERS, A, B, C, LedgerLab, assign_to
from tests.unit.holds.strategies import assignments, quick

RENEWED, PASSING, LOST = Cause.RENEWED, Cause.PASSING, Cause.LOST
UNSUBSCRIBED = Cause.UNSUBSCRIBED


@quick
@given(st.lists(assignments, max_size=10))
def test_partitions_are_kept_gained_or_departed(several):
    before = {}
    for assignment in several:
        after = {tp: before.get(tp, object()) for tp in assignment}
        change = difference(before, after)
        assert change.kept == after.keys() & before.keys()
        assert change.gained == after.keys() - before.keys()
        assert change.departed == before.keys() - after.keys()
        before = after


def test_renewed_ownership_of_a_partition_counts_as_departed_and_gained():
    """The ledger compares ownerships by identity, even if they are equal."""
    before, after = {A: [], B: []}, {A: [], C: []}
    after[B] = before[B]
    assert difference(before, after) == Reassignment(
        kept=frozenset({B}), gained=frozenset({A, C}), departed=frozenset({A})
    )


def test_assignment_in_another_order_does_not_create_a_new_mapping():
    lab = LedgerLab(owns=[A, B])
    before = lab.ledger.owned()
    assign_to(lab.ledger, [B, A])
    assert lab.ledger.owned() is before


# ------------------------------------------------------------ completed joins

# The member owns A and B. Each row has the changes before the join, the new assignment,
# and the partitions that are kept, gained, revoked and lost.
JOINS = {
    "revokes one": ([], [A], ({A}, set(), {B}, set())),
    "adds one": ([], [A, B, C], ({A, B}, {C}, set(), set())),
    "replaces all": ([], [C], (set(), {C}, {A, B}, set())),
    "given up and back": ([(PASSING, [B])], [A, B], ({B}, {A}, set(), set())),
    "given up for good": ([(PASSING, [B])], [B], ({B}, set(), {A}, set())),
    "lost and back": ([(LOST, [])], [A, B], (set(), {A, B}, set(), {A, B})),
    "lost for good": ([(LOST, [])], [C], (set(), {C}, set(), {A, B})),
    "given up, then lost": (
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
    """Complete a join and return the fields of its event."""
    before = lab.ledger.table()
    lab.assign(*assigned)
    return rebalanced(before, lab.ledger.table())


@pytest.mark.contract("P14")
@pytest.mark.parametrize(("given_up", "assigned", "changed"), JOINS.values(), ids=JOINS)
def test_join_reports_kept_gained_revoked_and_lost_partitions(
    given_up, assigned, changed
):
    lab = LedgerLab(owns=[A, B])
    for cause, partitions in given_up:
        lab.assign(*partitions, cause=cause)
    found = joined(lab, *assigned)
    names = "kept", "gained", "revoked", "lost"
    assert tuple(set(found[name]) for name in names) == changed


@pytest.mark.contract("P14")
def test_join_does_not_report_changes_before_the_previous_join():
    lab = LedgerLab(owns=[A, B])
    lab.assign(cause=LOST)
    joined(lab, A)
    found = joined(lab, A, C)
    assert (found["kept"], found["gained"], found["lost"]) == ((A,), (C,), ())


@pytest.mark.contract("P14")
def test_join_reports_the_holds_that_keep_gained_partitions_quiet():
    """A listener's pause counts, but not the earlier hold of the kept partition B."""
    lab = LedgerLab(owns=[A, B])
    lab.hold(Partition(*B))
    lab.hold(Partition(*C))
    before = lab.ledger.table()
    lab.assign(B, C, ("audit", 1), ("new", 0))
    lab.hold(Partition("new", 0))
    found = rebalanced(before, lab.ledger.table())
    scopes = [str(one.scope) for one in found["holds_on_gained"]]
    assert (scopes, found["quiet"]) == (["audit:0", "new:0"], (C, ("new", 0), B))


# ------------------------------------------------------------ recreated topics


def recreate(ledger, *partitions):
    """Renew the ownership of partitions whose topics were recreated."""
    again = {tp: object() for tp in partitions}
    ledger.assign({**ledger.owned(), **again}, RENEWED)


@pytest.mark.contract("P21")
@pytest.mark.parametrize("lifetime", [Lifetime.UNTIL_RESUMED, Lifetime.WHILE_ASSIGNED])
def test_recreated_topic_keeps_its_holds(lifetime):
    lab = LedgerLab(owns=[A, B, C])
    lab.hold(ORDERS, lifetime=lifetime)
    lab.pause(AUDIT)
    before, names = lab.ledger.view().holds, lab.log.names()
    recreate(lab.ledger, A, C)
    lab.ledger.deliver()
    assert (lab.ledger.view().holds, lab.log.names()) == (before, names)
    assert lab.quiet() == {A, B, C}


@pytest.mark.contract("P21")
def test_recreated_topic_is_announced_as_revoked_and_gained():
    lab = LedgerLab(owns=[A, B])
    announced, watched = [], []
    lab.ledger.on_reassigned = announced.append
    lab.ledger.watch(watched.append)
    recreate(lab.ledger, A)
    (change,) = announced
    assert (change.gained, change.departed, change.kept) == ({A}, {A}, {B})
    assert watched == [{A: lab.ledger.owned()[A]}]
    assert lab.quiet() == {A}


def test_watcher_is_called_only_for_gained_partitions():
    """For each call, the watcher requests the control topics' end offsets from brokers."""
    lab, watched = LedgerLab(owns=[A, B]), []
    lab.ledger.watch(watched.append)
    lab.assign(A)
    assert watched == []


@pytest.mark.contract("P21")
def test_recreated_topic_does_not_affect_pauses_during_a_join():
    """A plain pause of a partition of that topic lasts until the join has completed."""
    lab = LedgerLab(owns=[A, B])
    lab.pause(Partition(*A))
    lab.assign(B, cause=PASSING)
    recreate(lab.ledger, B)
    lab.assign(A, B)
    assert lab.quiet() == {A}


# ------------------------------------------------------------ valid positions


def held(lab):
    """Return the partitions that have been held since their position was last valid."""
    return {tp for tp in (A, B, C) if lab.ledger.was_held(tp)}


def hold_and_lift(lab):
    lab.hold(ORDERS)
    lab.lift(ORDERS)


def expire(lab):
    lab.hold(ORDERS, for_=5.0)
    lab.clock.now += 5
    assert lab.quiet() == set()


def gate(lab):
    lab.assign(A)
    lab.hold(Partition(*A))
    lab.poll([A, C])
    assert lab.quiet() == {A}


def leave(cause):
    def leaving(lab):
        lab.hold(ALL, owner="ops")
        lab.assign(A, cause=cause)
        lab.ledger.remove_owner("ops")
        lab.assign(A, B, C)

    return leaving


def leave_unheld(lab):
    lab.assign(A)
    lab.assign(A, B, C)


MARKED = {
    "nothing": (lambda _: None, set()),
    "held between two reads": (hold_and_lift, {A, B}),
    "held until an expiry": (expire, {A, B}),
    "gated": (gate, {A, C}),
    "left while held": (leave(Cause.JOINED), {A, B, C}),
    "left as a join began": (leave(PASSING), {A, B, C}),
    "lost while held": (leave(LOST), {A, B, C}),
    "left and not held": (leave_unheld, set()),
}


@pytest.mark.parametrize(("do", "marked"), MARKED.values(), ids=MARKED)
def test_partition_that_was_quiet_is_marked_until_its_position_is_confirmed(do, marked):
    lab = LedgerLab(owns=[A, B, C])
    do(lab)
    assert held(lab) == marked


def test_partition_counts_as_held_until_a_position_is_confirmed_after_the_resume():
    """A response to a request sent before the resume does not count."""
    lab = LedgerLab(owns=[A, B, C])
    asked = lab.ledger.moves
    lab.hold(ORDERS)
    before = lab.ledger.moves
    lab.lift(ORDERS)
    for moves in (asked, before):
        assert lab.ledger.unconfirmed(moves) == []
        lab.ledger.confirm({A, B}, moves)
    assert held(lab) == {A, B}
    after = lab.ledger.moves
    assert sorted(lab.ledger.unconfirmed(after)) == [A, B]
    lab.ledger.confirm({A}, after)
    assert held(lab) == {B}


def test_confirming_a_position_requested_before_the_hold_does_not_count():
    """The position was requested after an earlier hold, but before the latest one."""
    lab = LedgerLab(owns=[A, B, C])
    hold_and_lift(lab)
    asked = lab.ledger.moves
    lab.hold(ORDERS)
    for _ in range(2):
        lab.ledger.confirm({A, B}, asked)
        assert held(lab) == {A, B}
        lab.lift(ORDERS)


def test_number_of_departed_partitions_that_count_as_held_is_bounded():
    """Under a hold on all partitions, an endless series of topics could fill the memory."""
    lab = LedgerLab(owns=[A, B, C])
    lab.hold(ALL, owner="ops")
    lab.assign(A)
    others = [(f"topic-{day}", 0) for day in range(MOST_LEFT)]
    for few in (others[: MOST_LEFT // 2], others[MOST_LEFT // 2 :], [A]):
        lab.assign(A, *few)
    lab.ledger.remove_owner("ops")
    lab.assign(A, B, C, others[-1])
    known = lab.ledger.unconfirmed(lab.ledger.moves)
    assert len(known) <= MOST_LEFT
    assert {A, others[-1]} <= set(known)
    assert held(lab) == {A}
