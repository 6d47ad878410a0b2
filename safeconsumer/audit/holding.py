"""
Follows which holds a member has, and when each ended.

Both the checks and the timeline use this module. It reads calls, their returns, and the
entries about holds that were placed elsewhere, never what the consumer reports of its
own state:

- a hold that the process placed itself is in force from the return of ``pause`` to the
  call of ``resume``, or to the moment that its call named (``until``); from the return
  of a failed ``resume`` it is in force again;
- an entry that such a hold ended with an ownership is accepted if the hold was placed
  for as long as something is owned, or may move with its partition (hand-over), and if
  an ownership that it covers has really ended since the hold was asked for; of a plain
  pause it is accepted, since a resume of anything ends it while it is not owned;
- a hold that was placed elsewhere is in force from the entry that reports it to the
  moment at which, by a later entry, it was lifted or expired.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import evolve, field, frozen

from safeconsumer.audit.clocks import Lags
from safeconsumer.audit.entries import Call, Hold, Lift, Ownership, Return, Running
from safeconsumer.audit.reading import (
    TopicPartition,
    covering,
    is_partition,
    partition_of,
    tp_of,
)
from safeconsumer.journal.format import EXPIRED

# The owner of holds by plain calls, which may move with a partition (hand-over).
_APP = "app"
_UNTIL_RESUMED, _PLAIN = "until_resumed", "plain"

# How many times a hold may be placed again in one poll, and each be known apart.
_AGAIN = 16

Key = tuple[str, str]
"""
A hold's scope and owner.
"""


@frozen
class Departure:
    """The entry with which an ownership ended."""

    number: int
    at: float


@frozen(kw_only=True)
class Placed:
    """
    A hold of the member.

    Attributes:
        scope: its scope, as it was written.
        owner: its owner.
        asked: the entry in which it was asked for, or reported.
        number: the number of the entry from which on it is in force.
        at: the time of the entry ``number``, seconds since the epoch, by the member's
            clock.
        until: when it ends at the latest.
        is_for_good: whether no end of an ownership ends it.
        is_plain: whether a join that leaves it out ends it, and, while it is not owned,
            any resume of the application.
        is_remote: whether it was placed elsewhere.
        running: offsets, by partition, that handlers were working on when it came into
            force.
    """

    scope: str
    owner: str
    asked: int
    number: int
    at: float
    until: float = math.inf
    is_for_good: bool = False
    is_plain: bool = False
    is_remote: bool = False
    running: Mapping[str, Sequence[int]] = field(factory=dict)

    @property
    def key(self) -> Key:
        """Its scope and owner."""
        return self.scope, self.owner

    def covers(self, tp: TopicPartition) -> bool:
        """
        Return whether it covers a partition.

        Raises:
            JournalError: its scope cannot be read here.
        """
        return covering(self.scope)(tp)

    def is_ended_by(self, lift: Lift, gone: Departure | None) -> bool:
        """
        Return whether an entry about an end concerns this hold, and is plausible.

        Args:
            lift: the entry.
            gone: the last end of an ownership that the hold covers.
        """
        if self.is_remote:
            return True
        if lift.why == EXPIRED or self.is_for_good:  # when it expires is known
            return False
        if self.is_plain:  # any resume may end it, and the join that leaves it out
            return ended_at(lift) >= self.at
        return gone is not None and gone.number > self.asked

    def is_over(
        self, lift: Lift, gone: Departure | None, number: int, at: float
    ) -> bool:
        """Return whether an earlier entry comes after the end that is reported now."""
        if not self.is_ended_by(lift, gone):
            return False
        if self.is_remote or gone is None:
            return at >= ended_at(lift)
        return number > gone.number


@frozen(kw_only=True)
class Change:
    """
    The holds that an entry changed.

    Attributes:
        placed: holds that are in force from now on; each replaces an earlier one with
            the same scope and owner.
        ended: holds that are over; ``until`` is when they ended.
    """

    placed: tuple[Placed, ...] = ()
    ended: tuple[Placed, ...] = ()


class Holds:
    """
    Follows the holds of one member.

    Attributes:
        heard: the holds from elsewhere that it read, and when.
        lags: how long after their append it read holds and lifts.
    """

    def __init__(self) -> None:
        # What stands, after what it was placed for before without a break: a poll that
        # was on its way by then must obey that.
        self._standing: dict[Key, list[Placed]] = {}
        self.heard: dict[Key, list[float]] = {}
        self.lags = Lags()
        self._asked: dict[object, int] = {}
        self._resuming: dict[object, list[list[Placed]]] = {}
        self._departed: dict[TopicPartition, Departure] = {}
        self._running: Mapping[str, Sequence[int]] = {}
        self._over: dict[TopicPartition, list[list[Placed]]] = {}

    def __bool__(self) -> bool:
        """Return whether anything is held."""
        return bool(self._standing)

    @property
    def placed(self) -> Sequence[Placed]:
        """The holds that stand, expired or not."""
        return [own[-1] for own in self._standing.values()]

    # ------------------------------------------------------------ entries

    def runs(self, entry: Running) -> None:
        """Note the records that handlers are working on, for the hold that follows."""
        self._running = entry.records

    def departed(self, entry: Ownership) -> None:
        """Note that ownerships ended."""
        for name in entry.partitions:
            self._departed[tp_of(name)] = Departure(entry.n, entry.at)

    def departure(self, scope: str) -> Departure | None:
        """
        Return the last end of an ownership that a scope covers.

        Raises:
            JournalError: the scope cannot be read here.
        """
        covers = covering(scope)
        gone = (one for tp, one in self._departed.items() if covers(tp))
        return max(gone, key=lambda one: one.number, default=None)

    def called(self, entry: Call) -> Change:
        """Follow the call of pause or resume."""
        if entry.op == "pause":
            self._asked[entry.id] = entry.n
            return Change()
        own = list(_keys(entry))
        self._resuming[entry.id] = [
            self._standing[key] for key in own if key in self._standing
        ]
        return self._end(own, entry.at)

    def returned(self, entry: Return) -> Change:
        """Follow the return of pause or resume."""
        if entry.op == "pause":
            asked = self._asked.pop(entry.id, entry.n)
            return Change() if entry.ok is False else self._place(entry, asked)
        over = self._resuming.pop(entry.id, ())
        if entry.ok is not False:
            return Change()
        # Meanwhile it may have ended, or another thread may have placed it again.
        again = [own for own in over if own[-1].key not in self._standing]
        for own in again:
            self._stand([evolve(own[-1], number=entry.n, at=entry.at)])
        return Change(placed=tuple(self._standing[own[-1].key][-1] for own in again))

    def hears(self, entry: Hold) -> Change:
        """Follow a hold from elsewhere."""
        self.heard.setdefault((entry.scope, entry.owner or ""), []).append(entry.at)
        if entry.written is not None:
            self.lags.add(entry.at, entry.written, entry.n)
        return self._place(entry, entry.n)

    def lifted(self, entry: Lift) -> tuple[Change, Departure | None]:
        """
        Follow the end of a hold that no call lifted, with the departure that may be why.

        The entry may be written late: until then :meth:`over` includes the hold.
        """
        gone = self.departure(entry.scope)
        key = entry.scope, entry.owner or ""
        own = self._standing.get(key)
        if own is None:
            return Change(), gone
        own[:] = [one for one in own if not one.is_ended_by(entry, gone)] or own
        if not own[-1].is_ended_by(entry, gone):
            return Change(), gone
        end = ended_at(entry)
        if gone is not None and not own[-1].is_remote:
            end = gone.at
        return self._end([key], end), gone

    # ------------------------------------------------------------ questions

    def standing(
        self, tp: TopicPartition, at: float, before: float = math.inf
    ) -> list[Placed]:
        """Return the holds over a partition at a moment, if placed before an entry."""
        found = []
        for own in self._covering(tp):
            earlier = [one for one in own if one.number < before]
            if at < own[-1].until and earlier:
                found.append(earlier[-1])
        return found

    def _covering(self, tp: TopicPartition) -> Sequence[list[Placed]]:
        known = self._over.get(tp)
        if known is None:
            every = self._standing.values()
            known = self._over[tp] = [own for own in every if own[-1].covers(tp)]
        return known

    # ------------------------------------------------------------ inside

    def _place(self, entry: Return | Hold, asked: int) -> Change:
        placed = [_placed(entry, key, asked, self._running) for key in _keys(entry)]
        before = [self._standing.get(one.key, []) for one in placed]
        for one, own in zip(placed, before, strict=True):
            goes_on = own and entry.at < own[-1].until
            self._stand([*own, one] if goes_on else [one])
        ended = [
            evolve(own[-1], until=min(own[-1].until, entry.at)) for own in before if own
        ]
        return Change(placed=tuple(placed), ended=tuple(ended))

    def _stand(self, own: list[Placed]) -> None:
        if len(own) > _AGAIN:
            del own[1]  # the first one tells since when it stands
        covering(own[-1].scope)  # one that cannot be read is an error at once
        self._standing[own[-1].key] = own
        self._forget(own[-1].scope)

    def _end(self, over: Iterable[Key], at: float) -> Change:
        ended = []
        for key in over:
            own = self._standing.pop(key, None)
            if own is not None:
                self._forget(own[-1].scope)
                ended.append(evolve(own[-1], until=min(own[-1].until, at)))
        return Change(ended=tuple(ended))

    def _forget(self, scope: str) -> None:
        # Which holds cover which partition is found out again when it is asked for.
        if is_partition(scope):
            self._over.pop(partition_of(scope), None)
        else:
            self._over.clear()


def ended_at(lift: Lift) -> float:
    """Return when a hold from elsewhere ended, by the entry that reports it."""
    return min(lift.at, lift.since or lift.at)


def _keys(entry: Call | Hold) -> Iterator[Key]:
    scopes = [entry.scope] if isinstance(entry, Hold) else entry.scopes or ()
    return ((scope, entry.owner or "") for scope in scopes)


def _placed(
    entry: Return | Hold, key: Key, asked: int, running: Mapping[str, Sequence[int]]
) -> Placed:
    scope, owner = key
    lifetime, until = None, None
    if isinstance(entry, Return):
        lifetime, until = entry.lifetime, entry.until
    is_carried = owner == _APP and is_partition(scope)
    is_plain = lifetime == _PLAIN and is_partition(scope)
    is_strict = lifetime in {_UNTIL_RESUMED, _PLAIN} and not is_plain
    return Placed(
        scope=scope,
        owner=owner,
        asked=asked,
        number=entry.n,
        at=entry.at,
        until=until or math.inf,
        is_for_good=is_strict and not is_carried,
        is_plain=is_plain,
        is_remote=isinstance(entry, Hold),
        running=running,
    )
