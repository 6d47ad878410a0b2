"""
Keeps all holds as one immutable value, with the functions that change it.

Every function takes a state and returns a new one. States share only structure, so a
reader may keep an old state as long as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from attrs import evolve, field, frozen
from rpds import HashTrieMap

from safeconsumer.holds.hold import Hold, HoldKey, Lifetime
from safeconsumer.holds.scope import (
    Everything,
    Partition,
    Pattern,
    Scope,
    Topic,
    TopicPartition,
)

K = TypeVar("K")
Holds = tuple[Hold, ...]


def _no_holds() -> HashTrieMap[K, Holds]:
    return HashTrieMap()


@frozen
class LedgerState:
    """
    All holds, indexed by what they cover; several owners may hold one scope.

    Attributes:
        version: counts changes; equal versions of one ledger are equal states.
        partitions: holds of single partitions.
        topics: holds of topics, by name.
        patterns: holds of patterns, by the expression's text.
        everything: holds of the whole consumer.
        bound: the holds with :attr:`Lifetime.WHILE_ASSIGNED`.
    """

    version: int = 0
    partitions: HashTrieMap[TopicPartition, Holds] = field(factory=_no_holds)
    topics: HashTrieMap[str, Holds] = field(factory=_no_holds)
    patterns: HashTrieMap[str, Holds] = field(factory=_no_holds)
    everything: Holds = ()
    bound: HashTrieMap[HoldKey, Holds] = field(factory=_no_holds)

    def covers(self, tp: TopicPartition) -> bool:
        """Tell whether any hold covers the partition."""
        return bool(
            self.everything
            or tp in self.partitions
            or tp[0] in self.topics
            or any(_scope_of(holds).covers(tp) for holds in self.patterns.values())
        )

    def covering(self, tp: TopicPartition) -> Holds:
        """Return the holds that cover the partition, narrowest first."""
        found = [*self.partitions.get(tp, ()), *self.topics.get(tp[0], ())]
        for holds in self.patterns.values():
            if _scope_of(holds).covers(tp):
                found.extend(holds)
        return (*found, *self.everything)

    def of(self, scope: Scope) -> Holds:
        """Return the holds placed on exactly this scope, one per owner."""
        match scope:
            case Partition():
                return self.partitions.get((scope.topic, scope.partition), ())
            case Topic():
                return self.topics.get(scope.topic, ())
            case Pattern():
                return self.patterns.get(scope.text, ())
            case Everything():
                return self.everything

    def overlapping(self, scope: Scope) -> Iterator[Hold]:
        """
        Yield the holds that cover something of the scope, as far as is known.

        Holds of parts of the scope are among them: after the hold of a topic is lifted,
        one of its partitions may still be held. Two patterns overlap if their texts are
        equal: whether any name matches both cannot be computed. A name that a pattern
        was never asked about is left out.
        """
        match scope:
            case Partition():
                yield from self.covering((scope.topic, scope.partition))
            case Topic():
                yield from self._within(lambda topic: topic == scope.topic)
                for holds in self.patterns.values():
                    if _scope_of(holds).covers((scope.topic, 0)):
                        yield from holds
                yield from self.everything
            case Pattern():
                yield from self._within(
                    lambda topic: scope.knows(topic) and scope.matches(topic)
                )
                yield from self.patterns.get(scope.text, ())
                yield from self.everything
            case Everything():
                yield from self

    def named_topics(self) -> set[str]:
        """Return the topics that a hold of a partition or of a topic names."""
        return {tp[0] for tp in self.partitions} | set(self.topics)

    def _within(self, is_meant: Callable[[str], bool]) -> Iterator[Hold]:
        for tp, holds in self.partitions.items():
            if is_meant(tp[0]):
                yield from holds
        for topic, holds in self.topics.items():
            if is_meant(topic):
                yield from holds

    def __iter__(self) -> Iterator[Hold]:
        for index in (self.partitions, self.topics, self.patterns):
            for holds in index.values():
                yield from holds
        yield from self.everything


def place(state: LedgerState, holds: Iterable[Hold]) -> tuple[LedgerState, Holds]:
    """
    Add holds, each replacing one of the same scope and owner.

    Returns:
        The new state and the holds that were really new or different; the very same
        state and an empty result if all of them existed already.
    """
    placed = []
    for hold in holds:
        others = state.of(hold.scope)
        before = next((one for one in others if one.owner == hold.owner), None)
        if before is not None:
            if hold.asks_the_same_as(before):
                continue
            others = tuple(one for one in others if one is not before)
        state = _with(state, hold.scope, (*others, hold))
        if hold.lifetime is Lifetime.WHILE_ASSIGNED:
            state = evolve(state, bound=state.bound.insert(hold.key, (hold,)))
        elif before is not None and before.lifetime is Lifetime.WHILE_ASSIGNED:
            state = evolve(state, bound=state.bound.discard(hold.key))
        placed.append(hold)
    return state, tuple(placed)


def move(state: LedgerState, holds: Iterable[Hold]) -> tuple[LedgerState, Holds]:
    """
    Give existing holds new deadlines, when their expiry is known better than before.

    Returns:
        The new state, and the moved holds as they are in it; holds that do not exist
        any more, or were placed again meanwhile, are left alone.
    """
    moved = []
    for hold in holds:
        others = state.of(hold.scope)
        before = next((one for one in others if one.owner == hold.owner), None)
        if before is None or before != hold or before.deadline == hold.deadline:
            continue
        after = evolve(before, deadline=hold.deadline)
        others = tuple(one for one in others if one is not before)
        state = _with(state, before.scope, (*others, after))
        moved.append(after)
    return state, tuple(moved)


def remove(
    state: LedgerState, keys: Iterable[tuple[Scope, str]]
) -> tuple[LedgerState, Holds]:
    """
    Remove the named holds; naming one that does not exist is no error.

    Returns:
        The new state and the holds that were taken out.
    """
    removed = []
    for scope, owner in keys:
        there = state.of(scope)
        gone = next((hold for hold in there if hold.owner == owner), None)
        if gone is None:
            continue
        state = _with(state, scope, tuple(hold for hold in there if hold is not gone))
        if gone.lifetime is Lifetime.WHILE_ASSIGNED:
            state = evolve(state, bound=state.bound.discard(gone.key))
        removed.append(gone)
    return state, tuple(removed)


def expire(
    state: LedgerState, candidates: Iterable[Hold], now: float
) -> tuple[LedgerState, Holds]:
    """
    Take out those candidates that are still in force and whose time is over.

    Args:
        state: the state before.
        candidates: holds that had a deadline when they were placed; some may
            have been removed or replaced since.
        now: seconds on the monotonic clock.
    """
    due = [
        hold.key
        for hold in candidates
        if hold.deadline is not None
        and hold.deadline <= now
        and any(one is hold for one in state.of(hold.scope))
    ]
    return remove(state, due)


def end_assignment(
    state: LedgerState,
    departed: frozenset[TopicPartition],
    assigned: Iterable[TopicPartition],
) -> tuple[LedgerState, Holds]:
    """
    End the holds that live only while something they cover is assigned here.

    Args:
        state: the state before.
        departed: partitions that were really revoked or lost just now.
        assigned: partitions that are assigned from now on.

    Returns:
        The new state and the holds that ended: those that covered a departed
        partition and cover no assigned one.
    """
    if not departed or not state.bound:
        return state, ()
    staying = tuple(assigned)
    ended = [
        hold.key
        for (hold,) in state.bound.values()
        if any(hold.scope.covers(tp) for tp in departed)
        and not any(hold.scope.covers(tp) for tp in staying)
    ]
    return remove(state, ended)


def _scope_of(holds: Holds) -> Scope:
    return holds[0].scope


def _with(state: LedgerState, scope: Scope, holds: Holds) -> LedgerState:
    # Written out: evolve() costs more than all the rest of placing a hold.
    partitions, topics, patterns = state.partitions, state.topics, state.patterns
    everything = state.everything
    match scope:
        case Partition():
            partitions = _set(partitions, (scope.topic, scope.partition), holds)
        case Topic():
            topics = _set(topics, scope.topic, holds)
        case Pattern():
            patterns = _set(patterns, scope.text, holds)
        case Everything():
            everything = holds
    return LedgerState(
        state.version + 1, partitions, topics, patterns, everything, state.bound
    )


def _set(index: HashTrieMap[K, Holds], key: K, holds: Holds) -> HashTrieMap[K, Holds]:
    return index.insert(key, holds) if holds else index.discard(key)
