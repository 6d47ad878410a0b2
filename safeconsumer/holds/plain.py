"""
Decides which pauses are whole ones, and which holds end without being lifted.

A plain pause is one of single partitions by the application, without a lifetime of its
own; it lasts until a completed join leaves its partition out. If it names everything of
a topic that one call of ``assignment()`` returned, it is a whole pause of the topic
besides: a hold of its own, by the owner ``WHOLE``, that lasts until the application's
next resume (P3, P7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from attrs import evolve

from safeconsumer.holds.hold import APP, WHOLE, Hold, HoldKey, Lifetime
from safeconsumer.holds.ownership import Cause
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


def bared(ended: Iterable[Hold], now: float) -> tuple[Hold, ...]:
    """Return the strict holds that were beneath pauses which have ended by themselves."""
    found = (hold.beneath for hold in ended)
    return tuple(one for one in found if one is not None and end_of(one) > now)


def ended_by_resume(
    holds: Iterable[Hold], owned: Collection[TopicPartition]
) -> tuple[Hold, ...]:
    """Return what any resume of the application ends, whatever it names."""
    return tuple(hold for hold in holds if hold.owner == WHOLE or _is_away(hold, owned))


def ended_besides(
    ended: Iterable[Hold],
    keys: Collection[HoldKey],
    flowing: Collection[TopicPartition],
) -> tuple[Hold, ...]:
    """
    Return the whole pauses that a resume ends, though it is one of something else.

    It names nothing of their topic, or more of that flows than it names. A resume that
    names nothing at all means all of them.
    """
    names = {
        (one.topic, one.partition) for one, _ in keys if isinstance(one, Partition)
    }
    wide = [one for one, _ in keys if not isinstance(one, Partition)]
    topics = {topic for topic, _ in names}
    more = {tp[0] for tp in flowing if tp not in names}
    return tuple(
        hold
        for hold in ended
        if hold.owner == WHOLE
        and isinstance(hold.scope, Topic)
        and keys
        and (hold.scope.topic not in topics or hold.scope.topic in more)
        and not any(one.covers((hold.scope.topic, 0)) for one in wide)
    )


def ended_unnamed(aside: Iterable[Hold], keys: Collection[HoldKey]) -> tuple[Hold, ...]:
    """
    Return the pauses by name, of what is not assigned, that a resume of others ends.

    ``aside`` is what any resume ends. A resume that names nothing means all of it, and
    that of a whole pause all that was paused under it.
    """
    named = {scope for scope, _ in keys}
    wide = [scope for scope in named if not isinstance(scope, Partition)]
    aside = tuple(aside)
    whole = {_topic_of(hold) for hold in aside if hold.owner == WHOLE}
    return tuple(
        hold
        for hold in aside
        if isinstance(hold.scope, Partition)
        and keys
        and hold.scope not in named
        and hold.scope.topic not in whole
        and not any(
            one.covers((hold.scope.topic, hold.scope.partition)) for one in wide
        )
    )


def ended_by_expiry(
    holds: Holds, here: Collection[TopicPartition], expired: Iterable[Hold]
) -> tuple[Hold, ...]:
    """
    Return the pauses by name that end because a whole pause of their topic has expired.

    They outlived the absence of their partitions under it only. What may be given back
    by the next join is ``here`` as well.
    """
    over = {_topic_of(hold) for hold in expired if hold.owner == WHOLE}
    return tuple(
        hold for hold in holds if _topic_of(hold) in over and _is_away(hold, here)
    )


def ended_by_assignment(  # noqa: PLR0913 - what a change of the assignment has
    holds: Holds,
    cause: Cause,
    *,
    owned: Collection[TopicPartition],
    departed: Collection[TopicPartition],
    undecided: Collection[TopicPartition],
    is_carried: Callable[[TopicPartition], bool] | None,
) -> tuple[Hold, ...]:
    """
    Return the holds that end as an assignment changes.

    ``undecided`` has departed before, while no join was completed; ``is_carried`` tells
    whether the application's pause of a partition goes to its next owner.
    """
    if cause is Cause.CLOSED:
        return tuple(hold for hold in holds if not hold.is_remote)
    by_hand = cause.is_called
    whole = {_topic_of(hold) for hold in holds if hold.owner == WHOLE and not by_hand}

    def ends_by_name(hold: Hold, scope: Partition) -> bool:
        tp = scope.topic, scope.partition
        if tp in owned or scope.topic in whole:
            return False
        # Only lost, or about to join: nothing is decided yet.
        if cause.is_passing:
            return False
        if (tp in departed or tp in undecided) and travels(hold, scope, is_carried):
            return True
        if hold.lifetime is not Lifetime.PLAIN:
            return False
        # A join that assigns nothing decides nothing for what has never been here: the
        # first one of a leader without metadata is such.
        return by_hand or bool(owned) or tp in departed or tp in undecided

    def ends(hold: Hold) -> bool:
        scope = hold.scope
        if hold.owner == WHOLE:
            return by_hand
        if hold.lifetime is Lifetime.WHILE_ASSIGNED:
            is_here = any(map(scope.covers, owned))
            return not is_here and any(map(scope.covers, departed))
        return isinstance(scope, Partition) and ends_by_name(hold, scope)

    return tuple(filter(ends, holds))


def travels(
    hold: Hold,
    scope: Partition,
    is_carried: Callable[[TopicPartition], bool] | None,
) -> bool:
    """Tell whether a hold of a departed partition goes to the next owner."""
    return (
        is_carried is not None
        and may_travel(hold)
        and is_carried((scope.topic, scope.partition))
    )


def may_travel(hold: Hold) -> bool:
    """Tell whether a hold of a partition is one that can be handed over."""
    return (
        hold.owner == APP
        and hold.lifetime is not Lifetime.WHILE_ASSIGNED
        and hold.expires_at is None
    )


def _topic_of(hold: Hold) -> str | None:
    scope = hold.scope
    return scope.topic if isinstance(scope, Partition | Topic) else None


def _is_away(hold: Hold, owned: Collection[TopicPartition]) -> bool:
    scope = hold.scope
    return (
        hold.lifetime is Lifetime.PLAIN
        and isinstance(scope, Partition)
        and (scope.topic, scope.partition) not in owned
    )
