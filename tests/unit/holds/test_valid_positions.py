"""Which partitions were held since a broker last had their position (P16)."""

import pytest

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.table import MOST_LEFT
from tests.harness.holds.lab import ALL, ORDERS, A, B, C, LedgerLab


def held(lab):
    """Return the partitions that were held since their last valid position."""
    return {tp for tp in (A, B, C) if lab.ledger.was_held(tp)}


@pytest.fixture
def lab():
    """Return one that has A, B and C assigned."""
    lab = LedgerLab()
    lab.assign(A, B, C)
    return lab


def test_a_hold_that_nobody_looked_at_counts(lab):
    """It was placed and lifted between two looks; others were never held."""
    assert held(lab) == set()
    lab.hold(ORDERS)
    lab.lift(ORDERS)
    assert held(lab) == {A, B}


def test_a_valid_position_ends_it_if_it_was_asked_for_afterwards(lab):
    """What was asked before the resume says nothing of the time since."""
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


def test_what_is_held_again_meanwhile_stays_held(lab):
    """The answer is about the time before."""
    lab.hold(ORDERS)
    lab.lift(ORDERS)
    asked = lab.ledger.moves
    lab.hold(ORDERS)
    lab.ledger.confirm({A, B}, asked)
    assert held(lab) == {A, B}
    lab.lift(ORDERS)
    lab.ledger.confirm({A, B}, asked)
    assert held(lab) == {A, B}


def test_one_that_expires(lab):
    lab.hold(ORDERS, for_=5.0)
    lab.clock.now += 5
    assert lab.quiet() == set()
    assert held(lab) == {A, B}


def test_a_gate(lab):
    """Of a poll that began with everything held."""
    lab.assign(A)
    lab.hold(scopes.partition(*A))
    lab.poll([A, C])
    assert lab.quiet() == {A}
    assert held(lab) == {A, C}


@pytest.mark.parametrize("cause", [Cause.JOINED, Cause.PASSING, Cause.LOST])
def test_what_leaves_while_it_is_held(lab, cause):
    """It comes back without a hold: its position has not been valid since."""
    lab.hold(ALL, owner="ops")
    lab.assign(A, cause=cause)
    lab.ledger.remove_owner("ops")
    lab.assign(A, B, C)
    assert held(lab) == {A, B, C}


def test_what_leaves_and_was_not_held(lab):
    """Another ownership is no hold."""
    lab.assign(A)
    lab.assign(A, B, C)
    assert held(lab) == set()


def test_what_left_while_it_was_held_is_forgotten_after_ten_thousand_others(lab):
    """Topics with ever new names under a hold of everything would fill the memory."""
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
