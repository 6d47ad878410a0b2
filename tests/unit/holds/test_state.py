"""The functions that change the state of holds, each by itself."""

import re

import pytest
from attrs import evolve

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold, Lifetime
from safeconsumer.holds.scope import ALL, Scope
from safeconsumer.holds.state import (
    LedgerState,
    end_assignment,
    move,
    place,
)
from tests.harness.listing import each

ZERO, ONE, OTHER = ("orders", 0), ("orders", 1), ("audit", 0)
ORDERS, AUDIT = scopes.topic("orders"), scopes.topic("audit")
ORD = scopes.pattern(re.compile("ord.*"))
SCOPES: tuple[Scope, ...] = (scopes.of(ZERO), ORDERS, ORD, ALL)


def state_of(*holds: Hold) -> LedgerState:
    return place(LedgerState(), holds)[0]


@each("scope", SCOPES)
def test_a_better_known_deadline_is_given_to_the_hold_there(scope: Scope) -> None:
    """All else of the hold, other owners' holds and other scopes stay as they were."""
    hold = Hold(scope=scope, owner="a", reason="r", deadline=5.0)
    beside = Hold(scope=scope, owner="b", deadline=6.0)
    before = state_of(hold, beside, Hold(scope=AUDIT))
    after, moved = move(before, [evolve(hold, deadline=9.0)])
    assert [(one, one.deadline) for one in moved] == [(hold, 9.0)]
    assert {one.owner: one.deadline for one in after.of(scope)} == {"a": 9.0, "b": 6.0}
    assert set(after) == set(before)
    assert after.version == before.version + 1
    assert {one.owner: one.deadline for one in before.of(scope)} == {"a": 5.0, "b": 6.0}


@pytest.mark.parametrize("deadline", [None, 1.0])
def test_a_deadline_may_come_earlier_or_go(deadline: float | None) -> None:
    hold = Hold(scope=ORDERS, deadline=5.0)
    after, moved = move(state_of(hold), [evolve(hold, deadline=deadline)])
    assert [one.deadline for one in moved] == [deadline]
    assert [one.deadline for one in after.of(ORDERS)] == [deadline]


def test_what_cannot_be_moved_is_left_alone_and_the_rest_is_moved() -> None:
    """A hold that was lifted, one that was placed again, one whose deadline is the same."""
    placed_again = Hold(scope=ORDERS, owner="again", placed_at=2.0, deadline=5.0)
    same = Hold(scope=ORDERS, owner="same", deadline=5.0)
    last = Hold(scope=AUDIT, owner="last", deadline=5.0)
    before = state_of(placed_again, same, last)
    after, moved = move(
        before,
        [
            Hold(scope=ORDERS, owner="lifted", deadline=9.0),
            evolve(placed_again, placed_at=1.0, deadline=9.0),
            same,
            evolve(last, deadline=9.0),
        ],
    )
    assert moved == (last,)
    assert [one.deadline for one in after.of(ORDERS)] == [5.0, 5.0]
    assert [one.deadline for one in after.of(AUDIT)] == [9.0]
    unchanged, nothing = move(before, [same])
    assert unchanged is before
    assert nothing == ()


def test_a_hold_that_is_placed_without_the_bond_loses_it() -> None:
    """The last ``pause`` of an owner says when its hold ends."""
    bound = Hold(scope=ORDERS, lifetime=Lifetime.WHILE_ASSIGNED)
    state, _ = place(state_of(bound), [evolve(bound, lifetime=Lifetime.UNTIL_RESUMED)])
    assert end_assignment(state, frozenset({ZERO}), []) == (state, ())
    state, _ = place(state, [bound])
    assert end_assignment(state, frozenset({ZERO}), [])[1] == (bound,)


def test_what_still_covers_a_part_of_a_scope() -> None:
    """Narrow and wide holds, but no pattern that has not been asked about the name."""
    narrow = Hold(scope=scopes.of(ZERO))
    topic, everything = Hold(scope=ORDERS), Hold(scope=ALL)
    matching, other = Hold(scope=ORD), Hold(scope=AUDIT)
    foreign = Hold(scope=scopes.pattern(re.compile("aud.*")))
    state = state_of(narrow, topic, everything, matching, other, foreign)
    assert set(state.overlapping(scopes.of(ZERO))) == {
        narrow,
        topic,
        matching,
        everything,
    }
    assert set(state.overlapping(scopes.of(ONE))) == {topic, matching, everything}
    assert set(state.overlapping(ORDERS)) == {narrow, topic, matching, everything}
    assert set(state.overlapping(ALL)) == set(state)
    fresh = scopes.pattern(re.compile("ord.*"))
    assert set(state.overlapping(fresh)) == {matching, everything}
    assert fresh.matches("orders")
    assert not fresh.matches("audit")
    assert set(state.overlapping(fresh)) == {narrow, topic, matching, everything}
