"""The view kept by deltas against a full resolution, over random operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hypothesis import given
from hypothesis import strategies as st
from rpds import HashTrieMap

from safeconsumer.holds import scope as scopes
from safeconsumer.holds import state as ledger
from safeconsumer.holds.hold import APP, Hold
from safeconsumer.holds.scope import Partition, Scope, TopicPartition
from safeconsumer.holds.view import (
    PauseView,
    Shift,
    with_assignment,
    with_gates,
    with_state,
)
from tests.unit.holds.strategies import assignments, holds, keys, known_scopes, quick

ORDERS_0, ORDERS_1, AUDIT_0 = ("orders", 0), ("orders", 1), ("audit", 0)

Step = Callable[[PauseView], tuple[PauseView, Shift]]


def _gates(partitions: Iterable[TopicPartition]) -> HashTrieMap[TopicPartition, str]:
    return HashTrieMap.convert(dict.fromkeys(partitions, "test"))


def _place(several: list[Hold]) -> Step:
    def step(view: PauseView) -> tuple[PauseView, Shift]:
        state, placed = ledger.place(view.state, several)
        return with_state(view, state, (hold.scope for hold in placed))

    return step


def _remove(several: list[tuple[Scope, str]]) -> Step:
    def step(view: PauseView) -> tuple[PauseView, Shift]:
        state, removed = ledger.remove(view.state, several)
        return with_state(view, state, (hold.scope for hold in removed))

    return step


def _assign(two: tuple[list[TopicPartition], list[TopicPartition]]) -> Step:
    assignment, gated = two
    return lambda view: with_assignment(view, assignment, _gates(gated))


def _gate(gated: list[TopicPartition]) -> Step:
    return lambda view: with_gates(view, _gates(gated))


steps: st.SearchStrategy[Step] = st.one_of(
    st.lists(holds, max_size=3).map(_place),
    st.lists(keys, max_size=3).map(_remove),
    st.tuples(assignments, assignments).map(_assign),
    assignments.map(_gate),
)


def _resolved(view: PauseView) -> set[TopicPartition]:
    return {tp for tp in view.partitions() if tp in view.gates or view.state.covers(tp)}


def _away(view: PauseView) -> set[TopicPartition]:
    paused = {
        (hold.scope.topic, hold.scope.partition)
        for hold in view.state
        if hold.owner == APP and isinstance(hold.scope, Partition)
    }
    return paused.difference(view.partitions())


@quick
@given(st.lists(steps, max_size=15))
def test_deltas_equal_a_full_resolution(several: list[Step]) -> None:
    """After any operations the sets are what holds, gates and assignment say."""
    view = PauseView()
    for step in several:
        view, _ = step(view)
        assert _resolved(view) == set(view.quiet)
        assert _away(view) == set(view.away)
        assert view.paused() == set(view.quiet) | set(view.away)


@quick
@given(st.lists(steps, max_size=15))
def test_a_shift_is_the_difference_of_what_stayed_assigned(
    several: list[Step],
) -> None:
    """It names each partition that changed, once, and no other."""
    view = PauseView()
    for step in several:
        before = view
        view, shift = step(view)
        stayed = set(before.partitions()) & set(view.partitions())
        then, now = set(before.quiet) & stayed, set(view.quiet) & stayed
        assert sorted(shift.quiet) == sorted(now - then)
        assert sorted(shift.flowing) == sorted(then - now)


@quick
@given(assignments, known_scopes)
def test_what_a_scope_affects_here(
    assignment: list[TopicPartition], scope: Scope
) -> None:
    """The assigned partitions that it covers, and the very objects of the assignment."""
    view, _ = with_assignment(PauseView(), assignment, _gates(()))
    affected = list(view.affected_by(scope))
    assert sorted(tp for tp in assignment if scope.covers(tp)) == sorted(affected)
    assert all(any(one is tp for tp in assignment) for one in affected)


def test_an_unchanged_ledger_is_the_same_view() -> None:
    """Nothing is looked at, nothing is told."""
    view, _ = with_assignment(PauseView(), [ORDERS_0], _gates(()))
    after, shift = with_state(view, view.state, [scopes.Everything()])
    assert after is view
    assert shift == Shift()


def test_a_gate_closes_what_no_hold_covers() -> None:
    """And opens it again, without touching holds."""
    view, _ = with_assignment(PauseView(), [ORDERS_0, ORDERS_1], _gates(()))
    view, shift = with_gates(view, _gates([ORDERS_0]))
    assert shift == Shift(quiet=(ORDERS_0,))
    view, shift = with_gates(view, _gates(()))
    assert shift == Shift(flowing=(ORDERS_0,))
    assert not len(view.quiet)


def test_a_hold_outlasts_an_opened_gate() -> None:
    """A partition flows only if neither covers it."""
    view, _ = with_assignment(PauseView(), [ORDERS_0], _gates([ORDERS_0]))
    state, _ = ledger.place(view.state, [Hold(scope=scopes.topic("orders"))])
    view, shift = with_state(view, state, [scopes.topic("orders")])
    assert shift == Shift()
    view, shift = with_gates(view, _gates(()))
    assert shift == Shift()
    assert set(view.quiet) == {ORDERS_0}


def test_quiet_throughout_needs_an_assignment() -> None:
    """An empty assignment is not "all paused": ``pause(*assignment())`` did nothing."""
    view, _ = with_gates(PauseView(), _gates([ORDERS_0]))
    assert not view.is_quiet_throughout()
    view, _ = with_assignment(view, [ORDERS_0], _gates([ORDERS_0]))
    assert view.is_quiet_throughout()
    view, _ = with_assignment(view, [ORDERS_0, AUDIT_0], _gates([ORDERS_0]))
    assert not view.is_quiet_throughout()


def test_what_is_gained_quiet_is_no_shift() -> None:
    """A rebalance tells it in its own event."""
    view, shift = with_assignment(PauseView(), [ORDERS_0], _gates([ORDERS_0]))
    assert shift == Shift()
    assert set(view.quiet) == {ORDERS_0}
