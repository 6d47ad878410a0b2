"""
Determines whole pauses, and how a pause is placed over another hold.

A plain pause is a pause of single partitions by the application, without an explicit
lifetime. It lasts until a completed join leaves its partition out. If a plain pause
names all partitions of a topic that a single call to ``assignment()`` returned, a whole
pause of the topic is placed in addition: a hold with the owner ``WHOLE``, which lasts
until the application's next resume (P3, P7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from attrs import evolve

from safeconsumer.holds.hold import APP, WHOLE, Hold, HoldKey, Lifetime, end_of
from safeconsumer.holds.scope import Partition, Scope, Topic, TopicPartition
from safeconsumer.holds.view import Holds

Snapshot = Mapping[str, frozenset[TopicPartition]]
"""
The result of a single call to ``assignment()``, by topic; compared by identity.
"""


class NamedPartitions:
    """The partitions that the program has paused by name since the last ``poll`` started."""

    def __init__(self) -> None:
        # The keys are the ids of the snapshots. The snapshots are kept, so that the ids
        # stay unique.
        self._pauses: dict[int, tuple[Snapshot, dict[str, _Pauses]]] = {}

    def whole(
        self,
        named: Iterable[tuple[Scope, Snapshot]],
        placed: Iterable[Hold],
        now: float,
        holds: Holds,
    ) -> list[Hold]:
        """
        Record which partitions a pause names; return the whole pauses it completes.

        A whole pause expires together with the first of the pauses that make it up, so
        that no partition is quiet for longer than the program has requested. A whole
        pause that is already in force is replaced only if this call names all of the
        partitions.

        Args:
            named: the partitions, each with its snapshot.
            placed: the holds that the call places.
            now: the current time on the monotonic clock; expired pauses do not count.
            holds: the holds before the call.
        """
        plain = next(one for one in placed if one.lifetime is Lifetime.PLAIN)
        topics: dict[str, set[TopicPartition]] = {}
        for scope, snapshot in named:
            assert isinstance(scope, Partition)  # noqa: S101 - nothing else is assigned
            tp = scope.topic, scope.partition
            _, pauses = self._pauses.setdefault(id(snapshot), (snapshot, {}))
            if scope.topic not in pauses:
                pauses[scope.topic] = _Pauses()
            pauses[scope.topic].note(tp, plain)
            topics.setdefault(scope.topic, set()).add(tp)
        found = []
        for topic, tps in topics.items():
            for everything, first in self._complete(topic, now):
                whole = evolve(first, scope=Topic(topic), owner=WHOLE)
                if everything <= tps or holds.get(whole.key) is None:
                    found.append(whole)
        return found

    def forget(self, keys: Collection[HoldKey]) -> None:
        """Forget the partitions that a resume names; or all, if the resume names nothing."""
        if not keys:
            self._pauses.clear()
        for scope, _ in keys if self._pauses else ():
            if isinstance(scope, Partition):
                for _, pauses in self._pauses.values():
                    if scope.topic in pauses:
                        pauses[scope.topic].forget((scope.topic, scope.partition))

    def _complete(
        self, topic: str, now: float
    ) -> list[tuple[frozenset[TopicPartition], Hold]]:
        # Returns the topic's partitions in the first snapshot in which all of them are
        # paused, with the pause that expires first.
        for snapshot, pauses in self._pauses.values():
            if topic in pauses and len(pauses[topic].by_name) == len(snapshot[topic]):
                first = pauses[topic].first_to_end()
                if end_of(first) > now:
                    return [(snapshot[topic], first)]
        return []


class _Pauses:
    # The pauses of the partitions that a single call to assignment() returned for one
    # topic. The pauses that expire are also kept separately, because a program may
    # pause thousands of partitions one by one.

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


def placed_over(known: Hold | None, hold: Hold) -> Hold | None:
    """
    Return the hold that results if a hold is placed over one with the same key.

    A plain pause never weakens an ``until_resumed`` hold. If that hold would end earlier
    than the pause, the pause keeps it as its ``beneath``.

    Returns:
        The resulting hold; None if nothing would change.
    """
    if known is None:
        return hold
    if hold.lifetime is Lifetime.PLAIN and known.lifetime is not Lifetime.PLAIN:
        is_longer = end_of(hold) > end_of(known)
        if known.lifetime is Lifetime.WHILE_ASSIGNED:  # ends with the membership
            return hold if is_longer else evolve(known, lifetime=hold.lifetime)
        return evolve(hold, beneath=known) if is_longer else None
    if hold.requests_the_same_as(known):
        return None
    is_over = hold.lifetime is Lifetime.PLAIN and known.beneath is not None
    return evolve(hold, beneath=known.beneath) if is_over else hold


def is_handed_over(holds: Holds, tp: TopicPartition) -> bool:
    """Return whether a partition's pause is to be handed over; a whole pause prevents it."""
    hold = holds.get((Partition(tp[0], tp[1]), APP))
    is_under_whole = holds.get((Topic(tp[0]), WHOLE)) is not None
    return hold is not None and can_be_handed_over(hold) and not is_under_whole


def can_be_handed_over(hold: Hold) -> bool:
    """Return whether a hold of a partition can be handed over to the next owner."""
    return (
        hold.owner == APP
        and hold.lifetime is not Lifetime.WHILE_ASSIGNED
        and hold.expires_at is None
    )
