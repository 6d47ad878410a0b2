"""
Resolves holds, gates and the assignment to one immutable set of quiet partitions.

Changes are applied as deltas: a pause of one partition costs the same with ten
partitions assigned as with ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from attrs import field, frozen
from rpds import HashTrieMap

from safeconsumer.holds.hold import APP
from safeconsumer.holds.scope import (
    Everything,
    Partition,
    Pattern,
    Scope,
    Topic,
    TopicPartition,
)
from safeconsumer.holds.state import LedgerState

PartitionSet: TypeAlias = "HashTrieMap[TopicPartition, None]"


def _nothing() -> PartitionSet:
    return HashTrieMap()


@frozen
class PauseView:
    """
    What is quiet here and now.

    Attributes:
        state: the holds.
        assigned: partitions owned here, by topic.
        gates: partitions closed by no hold, with the reason for people.
        quiet: the assigned partitions that a hold or a gate covers.
        away: the partitions that the application itself has paused one by one and that
            are not owned here.
    """

    state: LedgerState = field(factory=LedgerState)
    assigned: Mapping[str, Mapping[TopicPartition, TopicPartition]] = field(
        factory=dict
    )
    gates: HashTrieMap[TopicPartition, str] = field(factory=HashTrieMap)
    quiet: PartitionSet = field(factory=_nothing)
    away: PartitionSet = field(factory=_nothing)

    def paused(self) -> set[TopicPartition]:
        """
        Return what ``resume(*paused())`` must name to leave no such pause behind.

        That is what is quiet here, and what is :attr:`away`.
        """
        return {*self.quiet, *self.away}

    def partitions(self) -> Iterable[TopicPartition]:
        """Yield every assigned partition."""
        for partitions in self.assigned.values():
            yield from partitions

    def owns(self, tp: TopicPartition) -> bool:
        """Tell whether a partition is assigned here."""
        return tp in self.assigned.get(tp[0], {})

    def is_quiet_throughout(self) -> bool:
        """Tell whether something is assigned and all of it is quiet."""
        count = sum(map(len, self.assigned.values()))
        return count > 0 and count == len(self.quiet)

    def affected_by(self, scope: Scope) -> Iterable[TopicPartition]:
        """Yield the assigned partitions that the scope covers."""
        match scope:
            case Partition():
                # the object that the assignment holds: Kafka's named tuple
                here = self.assigned.get(scope.topic, {})
                tp = here.get((scope.topic, scope.partition))
                return () if tp is None else (tp,)
            case Topic():
                return self.assigned.get(scope.topic, ())
            case Pattern():
                return (
                    tp
                    for name, partitions in self.assigned.items()
                    if scope.matches(name)
                    for tp in partitions
                )
            case Everything():
                return self.partitions()


@frozen
class Shift:
    """Which partitions became quiet and which began to flow by one change."""

    quiet: tuple[TopicPartition, ...] = ()
    flowing: tuple[TopicPartition, ...] = ()


def with_state(
    view: PauseView, state: LedgerState, touched: Iterable[Scope]
) -> tuple[PauseView, Shift]:
    """Apply a changed ledger, looking only at what the touched scopes cover."""
    if state is view.state:
        return view, Shift()
    affected: dict[TopicPartition, None] = {}
    away = view.away
    for scope in touched:
        here = view.affected_by(scope)
        if isinstance(scope, Partition) and not here:
            away = _moved(away, (scope.topic, scope.partition), state)
        affected.update(dict.fromkeys(here))
    return _settled(view, state, view.gates, affected, away)


def with_gates(
    view: PauseView, gates: HashTrieMap[TopicPartition, str]
) -> tuple[PauseView, Shift]:
    """Apply changed gates."""
    touched = {*gates, *view.gates}
    here = [tp for tp in view.partitions() if tp in touched] if touched else []
    return _settled(view, view.state, gates, here, view.away)


def with_assignment(
    view: PauseView,
    assignment: Iterable[TopicPartition],
    gates: HashTrieMap[TopicPartition, str],
) -> tuple[PauseView, Shift]:
    """
    Resolve everything again for a new assignment.

    The shift names only partitions that were assigned before and still are: the
    rebalance's own event reports which were gained or lost quiet.
    """
    assigned: dict[str, dict[TopicPartition, TopicPartition]] = {}
    quiet: dict[TopicPartition, None] = {}
    for tp in assignment:
        assigned.setdefault(tp[0], {})[tp] = tp
        if tp in gates or view.state.covers(tp):
            quiet[tp] = None
    kept, away = [], view.away
    for tp in view.partitions():
        if tp in assigned.get(tp[0], ()):
            kept.append(tp)
        else:
            away = _moved(away, tp, view.state)
    if len(away):
        for partitions in assigned.values():
            for tp in partitions:
                away = away.discard(tp)
    fresh = PauseView(
        state=view.state,
        assigned=assigned,
        gates=gates,
        quiet=HashTrieMap.convert(quiet),
        away=away,
    )
    return fresh, Shift(
        quiet=tuple(tp for tp in kept if tp in quiet and tp not in view.quiet),
        flowing=tuple(tp for tp in kept if tp not in quiet and tp in view.quiet),
    )


def _settled(
    view: PauseView,
    state: LedgerState,
    gates: HashTrieMap[TopicPartition, str],
    affected: Iterable[TopicPartition],
    away: PartitionSet,
) -> tuple[PauseView, Shift]:
    quiet = view.quiet
    quieted, flowing = [], []
    for tp in affected:
        is_quiet = tp in gates or state.covers(tp)
        if is_quiet and tp not in quiet:
            quiet = quiet.insert(tp, None)
            quieted.append(tp)
        elif not is_quiet and tp in quiet:
            quiet = quiet.remove(tp)
            flowing.append(tp)
    shift = Shift(tuple(quieted), tuple(flowing))
    return PauseView(state, view.assigned, gates, quiet, away), shift


def _moved(away: PartitionSet, tp: TopicPartition, state: LedgerState) -> PartitionSet:
    # A partition that is not assigned here: whether the application has paused it.
    if any(hold.owner == APP for hold in state.partitions.get(tp, ())):
        return away.insert(tp, None)
    return away.discard(tp)
