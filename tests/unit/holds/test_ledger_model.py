"""The indexed ledger against one that scans all holds, over random operations."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.holds import state as ledger
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import Scope, TopicPartition
from safeconsumer.holds.state import LedgerState
from tests.unit.holds.naive import NaiveLedger
from tests.unit.holds.strategies import (
    PARTITIONS,
    assignments,
    holds,
    keys,
    known_scopes,
    moments,
    owners,
    quick,
)

_RANK = ("Partition", "Topic", "Pattern", "Everything")

Step = Callable[["Both"], None]


class Both:
    """The ledger and its naive twin, after the same operations."""

    def __init__(self) -> None:
        self.state = LedgerState()
        self.naive = NaiveLedger()
        self.timed: list[Hold] = []

    def place(self, several: list[Hold]) -> None:
        self.timed.extend(one for one in several if one.deadline is not None)
        self._settle(ledger.place(self.state, several), self.naive.place(several))

    def remove(self, several: list[tuple[Scope, str]]) -> None:
        self._settle(ledger.remove(self.state, several), self.naive.remove(several))

    def expire(self, now: float) -> None:
        self._settle(ledger.expire(self.state, self.timed, now), self.naive.expire(now))

    def end_assignment(
        self, departed: list[TopicPartition], assigned: list[TopicPartition]
    ) -> None:
        gone = frozenset(departed).difference(assigned)
        self._settle(
            ledger.end_assignment(self.state, gone, assigned),
            self.naive.end_assignment(gone, assigned),
        )

    def _settle(
        self, result: tuple[LedgerState, tuple[Hold, ...]], expected: list[Hold]
    ) -> None:
        before, (self.state, changed) = self.state, result
        assert _sorted(changed) == _sorted(expected)
        assert (self.state is before) == (not expected)
        assert (self.state.version > before.version) == bool(expected)


def _sorted(several: object) -> list[str]:
    return sorted(map(repr, several))  # type: ignore[call-overload]  # any iterable of holds


steps: st.SearchStrategy[Step] = st.one_of(
    st.lists(holds, max_size=4).map(lambda some: lambda both: both.place(some)),
    st.lists(keys, max_size=3).map(lambda some: lambda both: both.remove(some)),
    moments.map(lambda now: lambda both: both.expire(now)),
    st.tuples(assignments, assignments).map(
        lambda two: lambda both: both.end_assignment(*two)
    ),
)


def _after(several: list[Step]) -> Both:
    both = Both()
    for step in several:
        step(both)
    return both


@quick
@given(st.lists(steps, max_size=12))
def test_every_answer_equals_a_scan_of_all_holds(several: list[Step]) -> None:
    """The indexes are never out of step with what was placed."""
    both = _after(several)
    assert _sorted(both.naive.holds.values()) == _sorted(both.state)
    for tp in PARTITIONS:
        expected = both.naive.covering(tp)
        assert both.state.covers(tp) == bool(expected)
        assert _sorted(both.state.covering(tp)) == _sorted(expected)


@quick
@given(st.lists(steps, max_size=12), known_scopes)
def test_holds_of_exactly_one_scope(several: list[Step], scope: Scope) -> None:
    """``of`` names those placed on this very scope, one per owner."""
    both = _after(several)
    expected = [one for one in both.naive.holds.values() if one.scope == scope]
    assert _sorted(both.state.of(scope)) == _sorted(expected)


@quick
@given(st.lists(steps, max_size=12))
def test_covering_holds_come_narrowest_first(several: list[Step]) -> None:
    """A partition's own, its topic's, patterns', the whole consumer's."""
    state = _after(several).state
    for tp in PARTITIONS:
        ranks = [_RANK.index(type(one.scope).__name__) for one in state.covering(tp)]
        assert sorted(ranks) == ranks


@quick
@given(st.lists(holds, max_size=12), st.lists(keys, max_size=12), owners)
def test_an_owner_never_touches_anothers_holds(
    placed: list[Hold], removed: list[tuple[Scope, str]], owner: str
) -> None:
    """Placing and removing under other names leaves an owner's holds as they are."""
    own = [one for one in placed if one.owner == owner]
    others = [one for one in placed if one.owner != owner]
    state, _ = ledger.place(LedgerState(), own)
    before = [one for one in state if one.owner == owner]
    state, _ = ledger.place(state, others)
    state, _ = ledger.remove(state, [key for key in removed if key[1] != owner])
    after = [one for one in state if one.owner == owner]
    assert _sorted(before) == _sorted(after)


@quick
@given(st.lists(holds, max_size=12))
def test_what_was_removed_leaves_nothing_behind(several: list[Hold]) -> None:
    """After all is lifted the state equals an empty one, but for its version."""
    state, _ = ledger.place(LedgerState(), several)
    state, _ = ledger.remove(state, [one.key for one in several])
    assert LedgerState(version=state.version) == state


@quick
@given(st.lists(steps, max_size=12))
def test_an_old_state_never_changes(several: list[Step]) -> None:
    """A reader may keep it as long as it likes."""
    both = Both()
    kept = []
    for step in several:
        kept.append((both.state, _sorted(both.state)))
        step(both)
    for state, then in kept:
        assert _sorted(state) == then
