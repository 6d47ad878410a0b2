"""Shows what is held, and which assigned partitions are quiet by it, at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen

from safeconsumer.holds.hold import Hold, HoldKey
from safeconsumer.holds.scope import (
    Everything,
    Partition,
    Pattern,
    Scope,
    Topic,
    TopicPartition,
)

Assigned = Mapping[str, Mapping[TopicPartition, TopicPartition]]
ByOwner = Mapping[str, Hold]
_NONE: ByOwner = {}


class Holds:
    """
    Holds, found by what they cover; two of one scope and one owner are the same hold.

    They never change; any thread reads them.
    """

    __slots__ = ("_others", "_partitions", "_topics")

    def __init__(self, holds: Iterable[Hold] = ()) -> None:
        self._partitions: dict[TopicPartition, ByOwner] = {}
        self._topics: dict[str, ByOwner] = {}
        self._others: dict[Scope, ByOwner] = {}
        for hold in holds:
            self._put(hold)

    # ------------------------------------------------------------ reading

    def covers(self, tp: TopicPartition) -> bool:
        """Tell whether any hold covers the partition."""
        return (
            tp in self._partitions
            or tp[0] in self._topics
            or (bool(self._others) and any(one.covers(tp) for one in self._others))
        )

    def covered(self, assigned: Assigned) -> set[TopicPartition]:
        """Return those of the assigned partitions that a hold covers."""
        single, topics, others = self._partitions, self._topics, self._others
        found: set[TopicPartition] = set()
        for topic, partitions in assigned.items():
            if topic in topics or any(one.covers((topic, 0)) for one in others):
                found.update(partitions)
            else:
                found.update(filter(single.__contains__, partitions))
        return found

    def covering(self, tp: TopicPartition) -> tuple[Hold, ...]:
        """Return the holds that cover the partition, narrowest first."""
        found = (
            *self._partitions.get(tp, _NONE).values(),
            *self._topics.get(tp[0], _NONE).values(),
        )
        if not self._others:
            return found
        wide = sorted(self._others.items(), key=_is_everything)
        more = (one for scope, by in wide if scope.covers(tp) for one in by.values())
        return (*found, *more)

    def of(self, scope: Scope) -> tuple[Hold, ...]:
        """Return the holds placed on exactly this scope, one per owner."""
        return tuple(self._by_owner(scope).values())

    def get(self, key: HoldKey) -> Hold | None:
        """Return an owner's hold of exactly this scope; None if there is none."""
        scope, owner = key
        return self._by_owner(scope).get(owner)

    def overlapping(self, scope: Scope) -> Iterator[Hold]:
        """
        Yield the holds that cover something of the scope, as far as is known.

        Holds of parts of the scope are among them: after the hold of a topic is lifted,
        one of its partitions may still be held. Two patterns overlap if their texts are
        equal: whether any name matches both cannot be computed.
        """
        match scope:
            case Partition():
                yield from self.covering((scope.topic, scope.partition))
            case Topic():
                yield from self._within(scope)
                for wide, by in tuple(self._others.items()):
                    if wide.covers((scope.topic, 0)):
                        yield from by.values()
            case Pattern():
                yield from self._within(scope)
                yield from self.of(scope)
                yield from self.of(Everything())
            case Everything():
                yield from self

    def patterns(self) -> list[Pattern]:
        """Return the patterns among the scopes."""
        return [one for one in tuple(self._others) if isinstance(one, Pattern)]

    def _within(self, scope: Topic | Pattern) -> Iterator[Hold]:
        for tp, by in tuple(self._partitions.items()):
            if scope.covers(tp):
                yield from by.values()
        for topic, by in tuple(self._topics.items()):
            if scope.covers((topic, 0)):
                yield from by.values()

    def __iter__(self) -> Iterator[Hold]:
        index: Mapping[object, ByOwner]
        for index in (self._partitions, self._topics, self._others):  # type: ignore[assignment]  # keys of any kind
            for by in tuple(index.values()):
                yield from by.values()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self._partitions or self._topics or self._others)

    def _by_owner(self, scope: Scope) -> ByOwner:
        match scope:
            case Partition():
                return self._partitions.get((scope.topic, scope.partition), _NONE)
            case Topic():
                return self._topics.get(scope.topic, _NONE)
        return self._others.get(scope, _NONE)

    # ------------------------------------------------------------ others

    def including(self, holds: Iterable[Hold]) -> Holds:
        """Return these and others, which replace those of their scope and owner."""
        made = self._copy()
        for hold in holds:
            made._put(hold)  # noqa: SLF001 - of this class
        return made

    def without(self, keys: Iterable[HoldKey]) -> Holds:
        """Return what is left without some; those that are not there are no error."""
        made = self._copy()
        for key in keys:
            made._drop(key)  # noqa: SLF001 - of this class
        return made

    def _copy(self) -> Holds:
        made = Holds()
        made._partitions = dict(self._partitions)
        made._topics, made._others = dict(self._topics), dict(self._others)
        return made

    def _put(self, hold: Hold) -> None:
        scope, owner = hold.scope, hold.owner
        match scope:
            case Partition():
                tp = scope.topic, scope.partition
                self._partitions[tp] = {**self._partitions.get(tp, _NONE), owner: hold}
            case Topic():
                at = scope.topic
                self._topics[at] = {**self._topics.get(at, _NONE), owner: hold}
            case _:
                known = self._others.get(scope, _NONE)
                self._others[scope] = {**known, owner: hold}

    def _drop(self, key: HoldKey) -> None:
        scope, owner = key
        left = {
            name: one for name, one in self._by_owner(scope).items() if name != owner
        }
        index: dict[object, ByOwner]
        match scope:
            case Partition():
                index, at = self._partitions, (scope.topic, scope.partition)  # type: ignore[assignment]  # one of three
            case Topic():
                index, at = self._topics, scope.topic  # type: ignore[assignment]  # as above
            case _:
                index, at = self._others, scope  # type: ignore[assignment]  # as above
        if left:
            index[at] = left
        else:
            index.pop(at, None)


def _is_everything(item: tuple[Scope, ByOwner]) -> bool:
    return isinstance(item[0], Everything)


@frozen(eq=False)
class View:
    """
    What is held, gated and quiet at one moment. It never changes.

    Attributes:
        holds: the holds.
        assigned: the partitions owned here, by topic; another object after each change
            of the assignment.
        gates: partitions closed by no hold, with the reason for people.
        quiet: the assigned partitions that a hold or a gate covers.
    """

    holds: Holds = field(factory=Holds)
    assigned: Assigned = field(factory=dict)
    gates: Mapping[TopicPartition, str] = field(factory=dict)
    quiet: frozenset[TopicPartition] = frozenset()

    def partitions(self) -> Iterator[TopicPartition]:
        """Yield every assigned partition."""
        for partitions in self.assigned.values():
            yield from partitions

    def owns(self, tp: TopicPartition) -> bool:
        """Tell whether a partition is assigned here."""
        return tp in self.assigned.get(tp[0], ())

    def is_quiet_throughout(self) -> bool:
        """Tell whether something is assigned and all of it is quiet."""
        count = sum(map(len, self.assigned.values()))
        return count > 0 and count == len(self.quiet)

    def affected_by(self, scope: Scope) -> Iterable[TopicPartition]:
        """Return the assigned partitions that the scope covers."""
        return affected_by(self.assigned, scope)


def affected_by(assigned: Assigned, scope: Scope) -> Iterable[TopicPartition]:
    """Return the assigned partitions that the scope covers."""
    match scope:
        case Partition():
            # the object that the assignment holds: Kafka's named tuple
            tp = assigned.get(scope.topic, {}).get((scope.topic, scope.partition))
            return () if tp is None else (tp,)
        case Topic():
            return assigned.get(scope.topic, ())
    return [
        tp
        for name, partitions in assigned.items()
        if scope.covers((name, 0))
        for tp in partitions
    ]
