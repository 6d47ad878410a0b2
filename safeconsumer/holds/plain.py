"""
Decides which pauses are whole ones, and which holds end without being lifted.

A plain pause is one of single partitions by the application, without a lifetime of its
own; it lasts as long as its partition is assigned. If it names everything of a topic that
one call of ``assignment()`` returned, it is a whole pause of the topic besides: a hold of
its own, by the owner ``WHOLE``, that lasts until the application's next resume (P3, P7).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from safeconsumer.holds.hold import WHOLE, Hold, HoldKey, Lifetime
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
        self._said: dict[int, tuple[Edition, set[TopicPartition]]] = {}

    def whole_topics(self, named: Iterable[tuple[Scope, Edition]]) -> list[str]:
        """Note what a pause names; return those of its topics that are named whole now."""
        topics: dict[str, None] = {}
        for scope, edition in named:
            assert isinstance(scope, Partition)  # noqa: S101 - nothing else is assigned
            _, said = self._said.setdefault(id(edition), (edition, set()))
            said.add((scope.topic, scope.partition))
            topics[scope.topic] = None
        return [topic for topic in topics if self._is_whole(topic)]

    def take_back(self, keys: Iterable[HoldKey]) -> None:
        """Forget what a resume names."""
        for scope, _ in keys:
            if isinstance(scope, Partition):
                for _, said in self._said.values():
                    said.discard((scope.topic, scope.partition))

    def _is_whole(self, topic: str) -> bool:
        return any(
            topic in edition and edition[topic] <= said
            for edition, said in self._said.values()
        )


def ended_by_resume(
    holds: Holds, owned: Collection[TopicPartition]
) -> tuple[HoldKey, ...]:
    """Return what any resume of the application ends, whatever it names."""
    return tuple(
        hold.key for hold in holds if hold.owner == WHOLE or _is_away(hold, owned)
    )


def ended_by_expiry(
    holds: Holds, owned: Collection[TopicPartition], expired: Iterable[Hold]
) -> tuple[Hold, ...]:
    """
    Return the pauses by name that end because a whole pause of their topic has expired.

    They outlived the absence of their partitions under it only.
    """
    over = {_topic_of(hold) for hold in expired if hold.owner == WHOLE}
    return tuple(
        hold for hold in holds if _topic_of(hold) in over and _is_away(hold, owned)
    )


def ended_by_assignment(  # noqa: PLR0913 - what a change of the assignment has
    holds: Holds,
    cause: Cause,
    *,
    owned: Collection[TopicPartition],
    departed: Collection[TopicPartition],
    undecided: Collection[TopicPartition],
    travels: Callable[[Hold, TopicPartition], bool],
) -> tuple[Hold, ...]:
    """
    Return the holds that end as an assignment changes.

    Args:
        holds: all there are.
        cause: why it changes.
        owned: what is assigned from now on.
        departed: what is not any more.
        undecided: what departed before, while no join was completed.
        travels: whether a hold of a departed partition goes to the next owner.
    """
    by_hand = cause in {Cause.ASSIGNED, Cause.UNSUBSCRIBED}
    whole = {_topic_of(hold) for hold in holds if hold.owner == WHOLE and not by_hand}

    def ends_by_name(hold: Hold, scope: Partition) -> bool:
        tp = scope.topic, scope.partition
        if tp in owned or scope.topic in whole:
            return False
        if tp in departed and travels(hold, tp):
            return True
        if hold.lifetime is not Lifetime.PLAIN or cause is Cause.PASSING:
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
