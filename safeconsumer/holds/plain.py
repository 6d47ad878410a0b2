"""
Decides which pauses are whole ones, and what a pause is placed over.

A plain pause is one of single partitions by the application, without a lifetime of its
own; it lasts until a completed join leaves its partition out. If it names everything of
a topic that one call of ``assignment()`` returned, it is a whole pause of the topic
besides: a hold of its own, by the owner ``WHOLE``, that lasts until the application's
next resume (P3, P7).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from attrs import evolve

from safeconsumer.holds.hold import APP, WHOLE, Hold, HoldKey, Lifetime
from safeconsumer.holds.scope import Partition, Scope, Topic, TopicPartition
from safeconsumer.holds.view import Holds

Edition = Mapping[str, frozenset[TopicPartition]]
"""
All that one call of ``assignment()`` returned, by topic; it is known by identity.
"""


class Named:
    """What was named since the last ``poll`` began, of all that ``assignment()`` returned."""

    def __init__(self) -> None:
        self._said: dict[int, tuple[Edition, dict[str, _Pauses]]] = {}

    def whole(
        self, named: Iterable[tuple[Scope, Edition]], plain: Hold, now: float
    ) -> list[tuple[Hold, bool]]:
        """
        Note what a pause names; return the whole pauses that it makes.

        A whole pause ends with the first of the pauses that make it: no partition is
        quiet for longer than it was asked for by name.

        Args:
            named: the partitions, each with all that was returned with it.
            plain: how they are paused: the reason and the end of the call.
            now: on the monotonic clock; what is over by then is named no more.

        Returns:
            The holds, and whether this call alone names everything of its topic; one
            that others have begun takes the place of no whole pause that is there.
        """
        topics: dict[str, set[TopicPartition]] = {}
        for scope, edition in named:
            assert isinstance(scope, Partition)  # noqa: S101 - nothing else is assigned
            tp = scope.topic, scope.partition
            _, said = self._said.setdefault(id(edition), (edition, {}))
            if scope.topic not in said:
                said[scope.topic] = _Pauses()
            said[scope.topic].note(tp, plain)
            topics.setdefault(scope.topic, set()).add(tp)
        return [
            (evolve(first, scope=Topic(topic), owner=WHOLE), everything <= tps)
            for topic, tps in topics.items()
            for everything, first in self._complete(topic, now)
        ]

    def take_back(self, keys: Collection[HoldKey]) -> None:
        """Forget what a resume names; all of it, if it names nothing."""
        if not keys:
            self._said.clear()
        for scope, _ in keys:
            if isinstance(scope, Partition):
                for _, said in self._said.values():
                    if scope.topic in said:
                        said[scope.topic].forget((scope.topic, scope.partition))

    def _complete(
        self, topic: str, now: float
    ) -> list[tuple[frozenset[TopicPartition], Hold]]:
        # One of those that are named whole, with the pause of it that ends first.
        for edition, said in self._said.values():
            if topic in said and len(said[topic].by_name) == len(edition[topic]):
                first = said[topic].first_to_end()
                if end_of(first) > now:
                    return [(edition[topic], first)]
        return []


class _Pauses:
    # Pauses by name of one topic's partitions, all out of one call of assignment(); and
    # those of them that expire. A program may name thousands one by one.

    def __init__(self) -> None:
        self.by_name: dict[TopicPartition, Hold] = {}
        self.expiring: dict[TopicPartition, Hold] = {}

    def note(self, tp: TopicPartition, hold: Hold) -> None:
        self.forget(tp)
        self.by_name[tp] = hold
        if hold.deadline is not None:
            self.expiring[tp] = hold

    def forget(self, tp: TopicPartition) -> None:
        self.by_name.pop(tp, None)
        self.expiring.pop(tp, None)

    def first_to_end(self) -> Hold:
        if self.expiring:
            return min(self.expiring.values(), key=end_of)
        return next(iter(self.by_name.values()))


def end_of(hold: Hold) -> float:
    """Return when a hold expires, on the monotonic clock; infinite if it does not."""
    return math.inf if hold.deadline is None else hold.deadline


def placed_over(known: Hold | None, hold: Hold) -> Hold | None:
    """
    Return a hold as it is to be placed over one of its scope and owner.

    A plain pause never weakens what was asked for by name, which may end before it.

    Returns:
        The hold; None if that would change nothing.
    """
    if known is None:
        return hold
    if hold.lifetime is Lifetime.PLAIN and known.lifetime is not Lifetime.PLAIN:
        is_longer = end_of(hold) > end_of(known)
        if known.lifetime is Lifetime.WHILE_ASSIGNED:  # a lost membership ends it
            return hold if is_longer else evolve(known, lifetime=hold.lifetime)
        return evolve(hold, beneath=known) if is_longer else None
    if hold.asks_the_same_as(known):
        return None
    is_over = hold.lifetime is Lifetime.PLAIN and known.beneath is not None
    return evolve(hold, beneath=known.beneath) if is_over else hold


def travels(holds: Holds, tp: TopicPartition) -> bool:
    """Tell whether the pause of a partition is handed over: not under a whole pause."""
    hold = holds.get((Partition(tp[0], tp[1]), APP))
    is_under_whole = holds.get((Topic(tp[0]), WHOLE)) is not None
    return hold is not None and may_travel(hold) and not is_under_whole


def may_travel(hold: Hold) -> bool:
    """Tell whether a hold of a partition is one that can be handed over."""
    return (
        hold.owner == APP
        and hold.lifetime is not Lifetime.WHILE_ASSIGNED
        and hold.expires_at is None
    )
