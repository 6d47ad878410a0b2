"""
Decides whether a cause outside the library may have ended a member's hold.

A ``lift`` entry in a journal is the library's own claim, so it counts only if something
outside the library can have ended the hold. ``design/audit.md`` lists these causes for
each :class:`Kind` of hold. A rebalance gives a partition back in the same generation or
the next one. After a lost membership it is unknown whether the first join omitted a
partition, because the journal does not contain joins that assigned no partition. The
holds topic shows when an operator's hold ended, so the rules G2 and W10 judge these
holds.
"""

import math
from collections.abc import Iterable, Iterator
from enum import Enum, StrEnum, auto

from attrs import define, frozen

from safeconsumer.audit.entries import Assigned, Call, Hold, Lost, Ownership, Return
from safeconsumer.audit.reading import (
    TopicPartition,
    covering,
    is_partition,
    partition_of,
    place_of,
    tp_of,
)

# The owner of holds that calls without ``owner=`` place.
_APP = "app"

# Tolerated rounding error of ``since`` in an entry, in seconds.
_ROUNDING = 0.001

# Seconds that may pass between the start of a pause and the entry that reports it.
_ENTRY_DELAY = 1.0


class Kind(StrEnum):
    """The kinds of holds, distinguished by the events that end them."""

    ELSEWHERE = "of an operator or a group"
    STRICT = "until its owner resumes it"
    OWNED = "while a partition that it covers is owned"
    PARTITION = "a plain pause, or one that was handed over"
    WHOLE = "a plain pause of all of a topic"


class Answer(Enum):
    """Whether a cause outside the library has ended a hold."""

    YES = auto()
    NO = auto()
    UNKNOWN = auto()


def gives_back(before: int | None, now: int | None) -> bool:
    """
    Return whether no other member can have owned a partition between two generations.

    That is certain if the two generations are the same, or if the second directly
    follows the first. They can be the same because a follower that rejoins may be
    answered with the generation that it already knows.
    """
    if before is None or now is None:
        return False
    return now == before >= 0 or now == before + 1


@frozen(kw_only=True)
class Departure:
    """
    The end of an ownership.

    Attributes:
        number: the number of the entry that reports the end.
        at: the time of that entry.
        generation: the generation in which the ownership began, if it is known.
        is_lost: whether the membership was lost.
        joins: the number of earlier entries about gained partitions.
        is_partial: whether the member kept other partitions, which happens only in a
            cooperative rebalance.
        is_by_unsubscribe: whether a call to ``unsubscribe`` was in progress.
    """

    number: int
    at: float
    generation: int | None = None
    is_lost: bool = False
    joins: int = 0
    is_partial: bool = False
    is_by_unsubscribe: bool = False

    def comes_back_by(self, entry: Assigned, joins: int) -> Answer:
        """Return whether an assignment returns the partition, unowned in the meantime."""
        if self.is_lost:
            return Answer.UNKNOWN if joins == self.joins else Answer.NO
        is_back = gives_back(self.generation, entry.generation)
        return Answer.YES if is_back else Answer.NO


@define
class _PauseEnds:
    """
    The state that decides whether a partition's pause has ended, by entry numbers.

    Attributes:
        is_owned: whether the member owns the partition.
        generation: the generation in which the member gained the partition.
        departure: the most recent end of an ownership of the partition.
        ended: every pause that was requested before this entry has ended.
        perhaps: every pause that was requested before this entry may have ended.
    """

    is_owned: bool = False
    generation: int | None = None
    departure: Departure | None = None
    ended: int = -1
    perhaps: int = -1


@define(eq=False)
class _OwnedEnds:
    """
    The state that decides the end of a hold that lasts while its scope is owned.

    Attributes:
        owned: the partitions of the scope that the member owns.
        left: the end of the last of these ownerships; None while the member owns any of
            the partitions.
        ended: the most recent ``left`` after which the member gained partitions that
            another member may have owned in between.
    """

    owned: set[TopicPartition]
    left: Departure | None = None
    ended: Departure | None = None

    def note_departure(self, tp: TopicPartition, departure: Departure) -> None:
        self.owned.discard(tp)
        if not self.owned:
            self.left = departure

    def note_gain(self, tps: Iterable[TopicPartition], *, is_back: bool) -> None:
        if self.left is not None and not is_back:
            self.ended = self.left
        self.left = None
        self.owned.update(tps)

    def end_after(self, asked: int) -> Departure | None:
        ends = (self.left, self.ended)
        return next((one for one in ends if one and one.number > asked), None)


class HoldEnds:
    """Tracks the events that may end the holds of one member."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _PauseEnds] = {}
        self._joins = 0
        # Holds that last as long as their scope is owned; place_of() returns the keys.
        self._owned: dict[TopicPartition | str | None, dict[str, _OwnedEnds]] = {}
        self._ending: set[object] = set()  # calls in progress that end pauses
        self._unsubscribing: set[object] = set()  # calls to ``unsubscribe`` in progress
        self._freed, self._freed_at = -1, -1.0  # the last return of an ``_ending`` call
        # The expiry times that pauses named, each with the time of its call, by topic.
        self._named: dict[str, dict[float, float]] = {}

    # ------------------------------------------------------------ entries

    def note_gain(self, entry: Assigned) -> frozenset[TopicPartition]:
        """Record new ownerships; return the partitions that had no other owner in between."""
        answers = {
            tp: self._comes_back(tp, entry) for tp in map(tp_of, entry.partitions)
        }
        back = frozenset(tp for tp, one in answers.items() if one is Answer.YES)
        kept = {tp for tp in back if not self._has_really_left(tp)}
        for scope, ends in self._scopes_of(answers):
            covered = [*filter(covering(scope), answers)]
            ends.note_gain(covered, is_back=not kept.isdisjoint(covered))
        for tp, answer in answers.items():
            one = self._partitions.setdefault(tp, _PauseEnds())
            if not one.is_owned:
                self._come_back(one, answer, entry)
            one.is_owned, one.generation = True, entry.generation
        self._joins += 1
        return back

    def _has_really_left(self, tp: TopicPartition) -> bool:
        # A cooperative rebalance, or ``unsubscribe``, ends an ownership when the
        # partition is revoked, even if the next generation returns the partition.
        departure = self._partitions[tp].departure
        if departure is None:
            return False
        return departure.is_partial or departure.is_by_unsubscribe

    def _comes_back(self, tp: TopicPartition, entry: Assigned) -> Answer:
        one = self._partitions.get(tp)
        if one is None or one.departure is None:
            return Answer.NO
        return one.departure.comes_back_by(entry, self._joins)

    def _scopes_of(
        self, tps: Iterable[TopicPartition]
    ) -> Iterator[tuple[str, _OwnedEnds]]:
        # Yield the tracked scopes that cover any of these partitions.
        tps = [*tps]
        places: list[TopicPartition | str] = [*tps]
        for place in dict.fromkeys([*places, *(topic for topic, _ in tps)]):
            yield from self._owned.get(place, {}).items()
        for scope, ends in self._owned.get(None, {}).items():
            if any(map(covering(scope), tps)):
                yield scope, ends

    def _come_back(self, one: _PauseEnds, back: Answer, entry: Assigned) -> None:
        left = -1 if one.departure is None else one.departure.number
        # a join did not assign the partition, perhaps a join that assigned no partition
        if back is Answer.NO:
            one.ended, one.perhaps = max(one.ended, left), entry.n
        elif back is Answer.UNKNOWN:
            one.perhaps = entry.n
        if self._ending:
            one.ended = entry.n
        elif self._freed > left:
            one.ended = max(one.ended, self._freed)

    def note_departure(self, entry: Ownership) -> None:
        """Record that ownerships have ended."""
        is_lost = isinstance(entry, Lost)
        left = dict.fromkeys(map(tp_of, entry.partitions))
        owned = (tp for tp, one in self._partitions.items() if one.is_owned)
        is_partial = any(tp not in left for tp in owned)
        for tp in left:
            one = self._partitions.setdefault(tp, _PauseEnds())
            one.departure = Departure(
                number=entry.n,
                at=entry.at,
                generation=one.generation,
                is_lost=is_lost,
                joins=self._joins,
                is_partial=is_partial,
                is_by_unsubscribe=bool(self._unsubscribing),
            )
            one.is_owned = False
            for _, ends in self._scopes_of([tp]):
                ends.note_departure(tp, one.departure)

    def follow(self, scope: str) -> None:
        """
        Start to track the end of a hold that lasts as long as its scope is owned.

        Raises:
            JournalError: the scope cannot be read here.
        """
        known = self._owned.setdefault(place_of(scope), {})
        if scope not in known:
            known[scope] = _OwnedEnds(
                {*filter(covering(scope), self._owned_tps(scope))}
            )

    def _owned_tps(self, scope: str) -> Iterator[TopicPartition]:
        several = [partition_of(scope)] if is_partition(scope) else self._partitions
        for tp in several:
            if tp in self._partitions and self._partitions[tp].is_owned:
                yield tp

    def note_call(self, entry: Call) -> None:
        """Record a call to ``pause``, ``resume``, ``assign`` or ``unsubscribe``."""
        if _ends_pauses(entry):
            self._ending.add(entry.id)
        if entry.op == "unsubscribe":
            self._unsubscribing.add(entry.id)
        if entry.op == "pause" and (entry.owner or _APP) == _APP:
            self._note_end(entry)

    def _note_end(self, entry: Call) -> None:
        if entry.until is None:
            return
        scopes = filter(is_partition, entry.scopes or ())
        for topic in {partition_of(scope)[0] for scope in scopes}:
            named = self._named.get(topic, {})
            running = {end: at for end, at in named.items() if end > entry.at}
            self._named[topic] = {**running, entry.until: entry.at}

    def note_return(self, entry: Return) -> None:
        """Record that such a call returned; a failed call did not end any pause."""
        self._unsubscribing.discard(entry.id)
        if entry.id in self._ending:
            self._ending.discard(entry.id)
            if entry.ok is not False:
                self._freed, self._freed_at = entry.n, entry.at

    # ------------------------------------------------------------ queries

    def departure(self, scope: str) -> Departure | None:
        """
        Return the most recent end of an ownership of a partition that the scope covers.

        Raises:
            JournalError: the scope cannot be read here.
        """
        covers = covering(scope)
        known = (one.departure for tp, one in self._partitions.items() if covers(tp))
        return max(filter(None, known), key=lambda one: one.number, default=None)

    def of_partition(self, tp: TopicPartition, asked: int) -> Answer:
        """Return whether the pause that was requested by entry ``asked`` may have ended."""
        one = self._partitions.get(tp)
        if one is None or not one.is_owned or asked < one.ended:
            return Answer.YES
        return Answer.UNKNOWN if asked < one.perhaps else Answer.NO

    def end_of_whole(self, entry: Hold) -> float:
        """
        Return when a whole pause expires; ``inf`` if it does not expire.

        A whole pause ends when the first of the pauses that form it ends. The entry
        about a whole pause is written shortly after the calls that placed these pauses.
        Only expiry times that those calls named are used.
        """
        if entry.until is None:
            return math.inf
        named = self._named.get(entry.scope, {})
        ends = (
            end
            for end, at in named.items()
            if end + (entry.at - at) + _ENTRY_DELAY >= entry.until
        )
        return max(entry.until, min(ends, default=math.inf))

    def of_whole(self, since: float) -> Answer:
        """Return whether a whole pause may have ended by now."""
        is_over = bool(self._ending) or self._freed_at >= since - _ROUNDING
        return Answer.YES if is_over else Answer.NO

    def end_of_owned(self, scope: str, asked: int) -> Departure | None:
        """Return the end of the last ownership of a partition that a tracked scope covers."""
        ends = self._owned.get(place_of(scope), {}).get(scope)
        return None if ends is None else ends.end_after(asked)

    def of_owned(self, scope: str, asked: int) -> Answer:
        """Return whether all ownerships of a scope's partitions have ended since an entry."""
        is_over = self.end_of_owned(scope, asked) is not None
        return Answer.YES if is_over else Answer.NO


def _ends_pauses(entry: Call) -> bool:
    if entry.op == "resume":
        return (entry.owner or _APP) == _APP
    return entry.op in {"assign", "unsubscribe"}
