"""Provides snapshots of the holds, and of the assigned partitions that they keep quiet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from safeconsumer.holds.hold import APP, WHOLE, Hold, HoldKey
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
NOTHING: Assigned = {}
_NONE: ByOwner = {}
_NOTHING_HERE: Mapping[TopicPartition, TopicPartition] = {}
_NOTHING: Mapping[int | None, ByOwner] = {}


class Holds:
    """
    An immutable set of holds, indexed by scope and owner.

    Any thread may read it.
    """

    __slots__ = ("_narrow", "_wide")

    def __init__(self, holds: Iterable[Hold] = ()) -> None:
        # Holds of topics and partitions, by topic and partition number; the key None
        # stands for the whole topic.
        self._narrow: dict[str, dict[int | None, ByOwner]] = {}
        # Holds of patterns and of everything; each lookup has to check all of these.
        self._wide: dict[Scope, ByOwner] = {}
        if holds:
            self._change((), holds)

    # ------------------------------------------------------------ reading

    def covers(self, tp: TopicPartition) -> bool:
        """Return whether any hold covers the partition."""
        narrow = self._narrow.get(tp[0])
        if narrow is not None and (tp[1] in narrow or None in narrow):
            return True
        return bool(self._wide) and any(one.covers(tp) for one in self._wide)

    def covered(self, assigned: Assigned) -> set[TopicPartition]:
        """Return the assigned partitions that any hold covers."""
        return _covered(assigned, self._narrow, self._wide)

    def cover_any(self, assigned: Assigned) -> bool:
        """Return whether any hold covers an assigned partition."""
        if any(one.covers((topic, 0)) for one in self._wide for topic in assigned):
            return True
        fewer = min(self._narrow, assigned, key=len)
        return any(
            None in held or any((topic, at) in here for at in held)
            for topic in fewer
            if (held := self._narrow.get(topic)) and (here := assigned.get(topic))
        )

    def covered_by(
        self, owners: Collection[str], assigned: Assigned
    ) -> set[TopicPartition]:
        """Return the assigned partitions that a hold of any of the owners covers."""

        def are_theirs(by: ByOwner) -> bool:
            return any(owner in by for owner in owners)

        narrow = {
            topic: {at for at, by in held.items() if are_theirs(by)}
            for topic, held in self._narrow.items()
        }
        wide = [scope for scope, by in self._wide.items() if are_theirs(by)]
        return _covered(assigned, narrow, wide)

    def covering(self, tp: TopicPartition) -> tuple[Hold, ...]:
        """Return the holds that cover the partition, narrowest first."""
        narrow = self._narrow.get(tp[0], {})
        found = (
            *narrow.get(tp[1], _NONE).values(),
            *narrow.get(None, _NONE).values(),
        )
        if not self._wide:
            return found
        wide = sorted(self._wide.items(), key=_is_everything)
        more = (one for scope, by in wide if scope.covers(tp) for one in by.values())
        return (*found, *more)

    def of(self, scope: Scope) -> tuple[Hold, ...]:
        return tuple(self._by_owner(scope).values())

    def get(self, key: HoldKey) -> Hold | None:
        scope, owner = key
        if isinstance(scope, Partition):  # the usual case
            narrow = self._narrow.get(scope.topic, _NOTHING)
            return narrow.get(scope.partition, _NONE).get(owner)
        return self._by_owner(scope).get(owner)

    def overlapping(self, scope: Scope) -> tuple[Hold, ...]:
        """
        Return the holds that are known to cover the scope, or a part of it.

        For example, after the hold of a topic is lifted, one of its partitions may
        still be held. Two patterns count as overlapping only if their texts are equal,
        because it cannot be computed whether some name matches both.
        """
        match scope:
            case Partition():
                return self.covering((scope.topic, scope.partition))
            case Topic():
                near = [self._narrow.get(scope.topic, {})]
            case _:
                near = [
                    held
                    for topic, held in self._narrow.items()
                    if scope.covers((topic, 0))
                ]
        # A scope may have holds of thousands of owners, so each scope is compared only
        # once.
        wide = {one: by for one, by in self._wide.items() if _overlap(scope, one)}
        return tuple(_each((*near, wide)))

    def __iter__(self) -> Iterator[Hold]:
        return _each((*self._narrow.values(), self._wide))

    def __bool__(self) -> bool:
        return bool(self._narrow or self._wide)

    def _by_owner(self, scope: Scope) -> ByOwner:
        if not isinstance(scope, Partition | Topic):
            return self._wide.get(scope, _NONE)
        at = scope.partition if isinstance(scope, Partition) else None
        return self._narrow.get(scope.topic, _NOTHING).get(at, _NONE)

    # ------------------------------------------------------------ changed copies

    def including(self, holds: Iterable[Hold]) -> Holds:
        """Return a copy with additional holds, which replace holds with the same keys."""
        return self.without((), holds)

    def without(self, keys: Iterable[HoldKey], instead: Iterable[Hold] = ()) -> Holds:
        """
        Return a copy without some holds; unknown keys are ignored.

        The copy shares the indexes of topics that do not change.

        Args:
            keys: the keys of the holds to leave out.
            instead: holds to add afterwards.
        """
        made = Holds()
        made._narrow, made._wide = self._narrow.copy(), self._wide.copy()
        made._change(keys, instead)
        return made

    def _change(self, keys: Iterable[HoldKey], instead: Iterable[Hold]) -> None:
        # Changes a copy that no reader has seen yet. The holds of a scope are copied
        # once, however many of them change.
        own: set[str] = set()
        copies: dict[Scope, dict[str, Hold]] = {}
        for scope, owner in keys:
            index, at = self._place_of(scope, own)
            by = index.get(at, _NONE)
            if owner not in by:
                continue
            if len(by) == 1:
                del index[at]
                copies.pop(scope, None)
                continue
            if scope not in copies:
                index[at] = copies[scope] = dict(by)
            del copies[scope][owner]
        for hold in instead:
            scope = hold.scope
            index, at = self._place_of(scope, own)
            if scope not in copies:
                index[at] = copies[scope] = dict(index.get(at, _NONE))
            copies[scope][hold.owner] = hold
        for topic in own:
            if not self._narrow[topic]:
                del self._narrow[topic]

    def _place_of(
        self, scope: Scope, own: set[str]
    ) -> tuple[dict[Any, ByOwner], int | Scope | None]:
        # Returns the index that contains the scope's holds, and the scope's key in that
        # index. If the topic is in ``own``, the index has been copied already.
        at: int | None = None
        if isinstance(scope, Partition):
            at = scope.partition
        elif not isinstance(scope, Topic):
            return self._wide, scope
        topic, narrow = scope.topic, self._narrow
        if topic not in own:
            own.add(topic)
            narrow[topic] = narrow[topic].copy() if topic in narrow else {}
        return narrow[topic], at


def _each(indexes: Iterable[Mapping[Any, ByOwner]]) -> Iterator[Hold]:
    for index in indexes:
        for by in index.values():
            yield from by.values()


def _covered(
    assigned: Assigned,
    narrow: Mapping[str, Collection[int | None]],
    wide: Collection[Scope],
) -> set[TopicPartition]:
    found: set[TopicPartition] = set()
    for topic, partitions in assigned.items():
        held = narrow.get(topic, ())
        if None in held or any(one.covers((topic, 0)) for one in wide):
            found.update(partitions)
        elif len(held) < len(partitions):
            # return the assignment's own objects, which are Kafka's named tuples
            several = (partitions.get((topic, at)) for at in held)  # type: ignore[arg-type]  # None is asked above
            found.update(tp for tp in several if tp is not None)
        else:
            found.update(tp for tp in partitions if tp[1] in held)
    return found


def _overlap(asked: Scope, held: Scope) -> bool:
    # ``held`` is always a pattern or everything.
    if isinstance(held, Pattern):
        is_named = isinstance(asked, Topic) and held.matches(asked.topic)
        return is_named or asked == held or isinstance(asked, Everything)
    return True


def _is_everything(item: tuple[Scope, ByOwner]) -> bool:
    return isinstance(item[0], Everything)


class View(NamedTuple):
    """
    The holds, gates and quiet partitions at one point in time; immutable.

    Attributes:
        holds: the holds.
        assigned: the assigned partitions, by topic; each change of the assignment
            creates a new object.
        gates: maps the gated partitions to the reason, as text for people.
        quiet: the assigned partitions that a hold or a gate covers.
    """

    holds: Holds = Holds()
    assigned: Assigned = NOTHING
    gates: Mapping[TopicPartition, str] = {}
    quiet: frozenset[TopicPartition] = frozenset()

    def partitions(self) -> Iterator[TopicPartition]:
        for partitions in self.assigned.values():
            yield from partitions

    def owns(self, tp: TopicPartition) -> bool:
        return tp in self.assigned.get(tp[0], ())

    def held_by(self, owner: str) -> set[TopicPartition]:
        """
        Return the assigned partitions that a hold of this owner covers.

        For the owner ``app``, whole pauses count, too.
        """
        owners = (APP, WHOLE) if owner == APP else (owner,)
        return self.holds.covered_by(owners, self.assigned)

    def is_all_quiet(self) -> bool:
        """Return whether all assigned partitions are quiet."""
        return len(self.quiet) == sum(map(len, self.assigned.values()))


def covers(view: View, tp: TopicPartition) -> bool:
    """
    Return whether a gate, or a hold other than a worker's routine ones, covers ``tp``.

    A partition that is no longer assigned counts as covered, because another member has
    it.
    """
    if tp not in view.quiet:  # the usual case
        return not view.owns(tp)
    return tp in view.gates or not all(
        hold.is_routine for hold in view.holds.covering(tp)
    )


def affected_by(assigned: Assigned, scope: Scope) -> Iterable[TopicPartition]:
    """Return the assigned partitions that a scope covers."""
    if isinstance(scope, Partition):
        here = assigned.get(scope.topic, _NOTHING_HERE)
        # return the assignment's own object, which is Kafka's named tuple
        tp = here.get((scope.topic, scope.partition))
        return () if tp is None else (tp,)
    if isinstance(scope, Topic):
        return assigned.get(scope.topic, _NOTHING_HERE)
    return [
        tp
        for name, partitions in assigned.items()
        if scope.covers((name, 0))
        for tp in partitions
    ]
