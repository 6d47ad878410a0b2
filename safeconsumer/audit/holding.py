"""
Tracks which holds a member has, and when each hold ended.

Both the checks and the trace use this module. The module reads calls, their returns,
and the entries about holds that were placed or ended without a call of the process. It
does not rely on the consumer's reports about its own state:

- a hold that the process placed itself is in force from the return of ``pause`` to the
  call of ``resume``, or to the expiry time that the ``pause`` named (``until``); if the
  ``resume`` fails, the hold is in force again when it returns;
- the order of calls that overlap on several threads is unknown: a hold is in doubt if a
  ``resume`` of it overlapped with its ``pause``; if several pauses of it with different
  ends overlapped, it is in doubt after the earliest end;
- an entry which says that such a hold ended in another way counts only if a cause
  outside the library can have ended it (:mod:`safeconsumer.audit.hold_ends`);
- a hold of an operator or a group is in force from the entry that reports it until the
  time at which it was lifted or expired according to a later entry.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from attrs import evolve, field, frozen
from msgspec.structs import replace

from safeconsumer.audit.entries import (
    Assigned,
    Call,
    Entry,
    Hold,
    Lift,
    Ownership,
    Return,
    Running,
)
from safeconsumer.audit.hold_ends import Answer, Departure, HoldEnds, Kind
from safeconsumer.audit.reading import (
    TopicPartition,
    covering,
    is_partition,
    partition_of,
    place_of,
    tp_of,
)
from safeconsumer.journal.format import EXPIRED

# The owner of holds that calls without ``owner=`` place, and of whole pauses.
_APP, _WHOLE = "app", "app (all)"
_UNTIL_RESUMED, _PLAIN = "until_resumed", "plain"

_PERHAPS = (
    "it may have ended: no journal shows whether the first join after a lost "
    "membership left the partition out"
)

_OVERLAPS = (
    "it may have ended: another thread's call about it was under way at the same time, "
    "and either may have come last"
)

# The maximum number of placements of one hold that are tracked separately.
_AGAIN = 16

Key = tuple[str, str]
"""
A hold's scope and owner.
"""


@frozen(kw_only=True)
class Placed:
    """
    A hold of the member.

    Attributes:
        scope: the scope, as the journal writes it.
        owner: the owner.
        asked: the number of the entry that requested or reported the hold.
        number: the number of the entry at which the hold came into force.
        at: the time of the entry ``number``, seconds since the epoch, by the member's
            clock.
        since: when the hold was placed; earlier than ``at`` if the entry was written
            late.
        until: the latest time at which the hold ends.
        kind: the kind of the hold, which determines the events that end it.
        doubt: the reason why the hold may have ended although no entry proves that; ""
            if no entry suggests it.
        doubt_from: the earliest time at which the hold may have ended for that reason.
        running: offsets, by partition, that handlers were working on when the hold came
            into force.
        lifetime: the ``lifetime=`` of the call, if a call placed the hold.
        how: how the hold ended: ``resume``, ``lift``, or the reason if no call ended
            it.
        beneath: the strict hold with the same scope and owner that was in force when
            this plain pause was placed; the two may expire at different times, and a
            resume ends both.
    """

    scope: str
    owner: str
    asked: int
    number: int
    at: float
    since: float
    until: float = math.inf
    kind: Kind
    doubt: str = ""
    doubt_from: float = -math.inf
    running: Mapping[str, Sequence[int]] = field(factory=dict)
    lifetime: str | None = None
    how: str | None = None
    beneath: "Placed | None" = None

    @property
    def over_at(self) -> float:
        """The latest time at which this hold and ``beneath`` have both ended."""
        return (
            self.until if self.beneath is None else max(self.until, self.beneath.until)
        )

    def in_force(self, at: float) -> "Iterator[Placed]":
        """Yield those of this hold and ``beneath`` that have not expired."""
        for one in (self, self.beneath):
            if one is not None and at < one.until:
                yield evolve(one, doubt="") if at < one.doubt_from else one

    def doubted(self, overlap: "_Overlap") -> "Placed":
        """Return this hold, marked as doubtful because calls overlapped."""
        until, doubt_from = max(self.until, overlap.last), overlap.first
        if self.doubt:
            doubt_from = min(doubt_from, self.doubt_from)
        doubt = self.doubt or _OVERLAPS
        return evolve(self, until=until, doubt=doubt, doubt_from=doubt_from)

    def from_entry(self, entry: Entry, doubt: str) -> "Placed":
        """Return this hold and ``beneath``, as if they came into force at an entry."""
        beneath = self.beneath
        if beneath is not None:
            beneath = evolve(beneath, number=entry.n, at=entry.at)
        return evolve(self, number=entry.n, at=entry.at, doubt=doubt, beneath=beneath)

    @property
    def key(self) -> Key:
        """The scope and the owner."""
        return self.scope, self.owner

    @property
    def is_plain(self) -> bool:
        """Whether a call placed the hold as a plain pause."""
        return self.lifetime == _PLAIN and self.kind is Kind.PARTITION

    def covers(self, tp: TopicPartition) -> bool:
        """
        Return whether the hold covers a partition.

        Raises:
            JournalError: the scope cannot be read here.
        """
        return covering(self.scope)(tp)


@frozen
class _Overlap:
    # The earliest and the latest end of a hold that are possible after overlapping
    # calls.
    first: float
    last: float

    def with_(self, other: "_Overlap | None") -> "_Overlap":
        if other is None:
            return self
        return _Overlap(min(self.first, other.first), max(self.last, other.last))


# If the overlapping resume took effect last, the hold is not in force at all.
_RESUMED = _Overlap(-math.inf, -math.inf)


@frozen
class _Pausing:
    # A pause that has not returned, and for each of its holds the overlap with other
    # calls.
    call: Call
    keys: frozenset[Key] = frozenset()
    overlaps: dict[Key, _Overlap] = field(factory=dict)

    def note(self, key: Key, overlap: _Overlap) -> None:
        self.overlaps[key] = overlap.with_(self.overlaps.get(key))


@frozen
class _Resuming:
    # A resume that has not returned, and the holds that it ended. A resume names the
    # keys of holds, or all holds of an owner.
    keys: frozenset[Key]
    every_of: str | None
    ended: list[list[Placed]] = field(factory=list)

    def names(self, key: Key) -> bool:
        return key in self.keys or key[1] == self.every_of


class Holds:
    """
    Tracks the holds of one member.

    Args:
        placed: called with each hold that comes into force; it replaces any earlier
            hold with the same scope and owner.
        ended: called with each hold that has ended and the time of its end; the hold
            has the number and the time of the first entry that placed it.
    """

    def __init__(
        self,
        placed: Callable[[Placed], object],
        ended: Callable[[Placed, float], object],
    ) -> None:
        self._on_placed, self._on_ended = placed, ended
        # Holds in force, each preceded by the holds that it replaced without a gap: a
        # poll that had begun before the replacement must obey the replaced holds.
        self._standing: dict[Key, list[Placed]] = {}
        self._pausing: dict[object, _Pausing] = {}
        self._resuming: dict[object, _Resuming] = {}
        self._hold_ends = HoldEnds()
        # Maps the topic or partition of a scope to the holds that an entry ended while
        # the member owned none of their partitions.
        self._away: dict[TopicPartition | str | None, dict[Key, Placed]] = {}
        self._running: Mapping[str, Sequence[int]] = {}
        self._over: dict[TopicPartition, list[list[Placed]]] = {}

    def __bool__(self) -> bool:
        """Return whether any hold is in force."""
        return bool(self._standing)

    @property
    def placed(self) -> Sequence[Placed]:
        """The holds that no entry has ended, each with the entry that first placed it."""
        return [_since_first(own) for own in self._standing.values()]

    # ------------------------------------------------------------ entries

    def note_running(self, entry: Running) -> None:
        """Record which records handlers are working on, for the next hold."""
        self._running = entry.records

    def note_gain(self, entry: Assigned) -> frozenset[TopicPartition]:
        """
        Process the start of ownerships, which may show that a pause has not ended.

        Returns:
            The partitions that no other member can have owned since they were revoked.
        """
        back = self._hold_ends.note_gain(entry)
        tps = [tp_of(name) for name in entry.partitions]
        for place in (*tps, *dict.fromkeys(topic for topic, _ in tps), None):
            for one in [*self._away.get(place, {}).values()]:
                if any(map(one.covers, tps)):
                    del self._away[place][one.key]
                    self._come_back(one, entry)
        return back

    def _come_back(self, one: Placed, entry: Assigned) -> None:
        answer = self._answer(one)
        if answer is not Answer.YES and one.key not in self._standing:
            doubt = _PERHAPS if answer is Answer.UNKNOWN else one.doubt
            self._stand([one.from_entry(entry, doubt)])

    def note_departure(self, entry: Ownership) -> None:
        """Process the end of ownerships."""
        self._hold_ends.note_departure(entry)

    def note_call(self, entry: Call) -> None:
        """Process a call to pause, resume, assign or unsubscribe."""
        self._hold_ends.note_call(entry)
        if entry.op == "pause":
            self._follow_owned(entry)
            self._pause_begins(entry)
        if entry.op == "resume":
            self._resume_begins(entry)

    def _pause_begins(self, entry: Call) -> None:
        new = _Pausing(entry, frozenset(_keys(entry)))
        for key in new.keys:
            if any(one.names(key) for one in self._resuming.values()):
                new.note(key, _RESUMED)
            for other in self._pausing.values():
                overlap = _overlap(entry, other.call)
                if overlap is not None and key in other.keys:
                    new.note(key, overlap)
                    other.note(key, overlap)
            self._may_end(key, entry)
        self._pausing[entry.id] = new

    def _may_end(self, key: Key, entry: Call) -> None:
        # The pause in progress may already have replaced a hold that lasts longer. A
        # plain pause does not replace a strict hold.
        own = self._standing.get(key)
        if own is None or (entry.lifetime == _PLAIN and not own[-1].is_plain):
            return
        if _until(entry) < own[-1].until:
            own[-1] = own[-1].doubted(_Overlap(_until(entry), own[-1].until))

    def _resume_begins(self, entry: Call) -> None:
        owner = entry.owner or ""
        new = _Resuming(frozenset(_keys(entry)), owner if entry.every else None)
        for one in self._pausing.values():
            for key in filter(new.names, one.keys):
                one.note(key, _RESUMED)
        among = self._standing if entry.every else dict.fromkeys(_keys(entry))
        for key in [one for one in among if one in self._standing and new.names(one)]:
            new.ended.append(self._standing[key])
            self._end(key, entry.at, "resume")
        self._resuming[entry.id] = new

    def _follow_owned(self, entry: Call) -> None:
        for scope, owner in _keys(entry):
            if _kind(entry, scope, owner) is Kind.OWNED:
                self._hold_ends.follow(scope)

    def note_return(self, entry: Return) -> None:
        """Process the return of pause, resume, assign or unsubscribe."""
        self._hold_ends.note_return(entry)
        if entry.op == "pause":
            pausing = self._pausing.pop(entry.id, _Pausing(entry))
            if entry.ok is not False:
                self._paused(entry, pausing)
            return
        resuming = self._resuming.pop(entry.id, None)
        for *_, last in resuming.ended if resuming and entry.ok is False else ():
            # Another thread may have placed the hold again in between.
            if last.key not in self._standing:
                self._stand([last.from_entry(entry, last.doubt)])

    def _paused(self, entry: Return, pausing: _Pausing) -> None:
        # The call's fields are used, not those of the return: the program made the
        # call, but the library wrote the return.
        call = pausing.call
        asked = replace(
            entry,
            scopes=call.scopes,
            owner=call.owner,
            until=call.until,
            lifetime=call.lifetime,
        )
        self._place(asked, call.n, call.until, pausing.overlaps)

    def note_report(self, entry: Hold) -> None:
        """Process an entry which reports that a hold is in force."""
        self._place(entry, entry.n, self._end_of(entry))

    def note_lift(self, entry: Lift) -> None:
        """
        Process an entry which reports that a hold has ended.

        The entry may be written late: until it is read, :meth:`standing` includes the
        hold.
        """
        key = entry.scope, entry.owner or ""
        own = self._standing.get(key)
        if own is None:
            return
        own[:] = self._left(own, entry) or own
        last = own[-1]
        if not self.is_ended(last, entry):
            if entry.why != EXPIRED and self._answer(last) is Answer.UNKNOWN:
                own[-1] = evolve(last, doubt=_PERHAPS, doubt_from=-math.inf)
            return
        gone = self._departure(last)
        end = ended_at(entry) if gone is None else gone.at
        if last.kind in {Kind.PARTITION, Kind.OWNED}:
            self._away.setdefault(place_of(last.scope), {})[key] = last
        self._end(key, end, entry.why or "lift")

    def _left(self, own: Sequence[Placed], lift: Lift) -> list[Placed]:
        # Return the placements that an entry has not ended. The last ended placement
        # had replaced those before it, but the strict hold in its ``beneath`` remains
        # in force.
        ended = [at for at, one in enumerate(own) if self.is_ended(one, lift)]
        left = [*own[ended[-1] + 1 :]] if ended else [*own]
        if ended:
            beneath = self._without_ended(own[ended[-1]], lift).beneath
            left[:0] = [] if beneath is None else [beneath]
        return [self._without_ended(one, lift) for one in left]

    def _without_ended(self, one: Placed, lift: Lift) -> Placed:
        beneath = one.beneath
        is_over = beneath is not None and self.is_ended(beneath, lift)
        return evolve(one, beneath=None) if is_over else one

    def _departure(self, hold: Placed) -> Departure | None:
        # Return the end of the ownership that may have ended a hold.
        if hold.kind is Kind.ELSEWHERE:
            return None
        if hold.kind is Kind.OWNED:
            return self._hold_ends.end_of_owned(hold.scope, hold.asked)
        return self._hold_ends.departure(hold.scope)

    def is_ended(self, hold: Placed, lift: Lift) -> bool:
        """Return whether a lift entry concerns a hold and has a cause that can end it."""
        if hold.kind is Kind.ELSEWHERE:  # the holds topic shows when it ended
            return True
        if lift.why == EXPIRED:  # the call that placed the hold shows when it expires
            return False
        if ended_at(lift) < hold.since and hold.kind is Kind.PARTITION:
            return False  # the entry concerns an earlier pause of the same partition
        return self._answer(hold) is Answer.YES

    def is_over(self, hold: Placed, lift: Lift, number: int, at: float) -> bool:
        """Return whether a lift entry shows that a hold had ended by an earlier entry."""
        if not self.is_ended(hold, lift):
            return False
        gone = self._departure(hold)
        return at >= ended_at(lift) if gone is None else number > gone.number

    def _answer(self, hold: Placed) -> Answer:
        match hold.kind:
            case Kind.PARTITION:
                return self._hold_ends.of_partition(
                    partition_of(hold.scope), hold.asked
                )
            case Kind.WHOLE:
                return self._hold_ends.of_whole(hold.since)
            case Kind.OWNED:
                return self._hold_ends.of_owned(hold.scope, hold.asked)
        return Answer.NO

    # ------------------------------------------------------------ queries

    def standing(
        self, tp: TopicPartition, at: float, before: float = math.inf
    ) -> list[Placed]:
        """Return the holds in force on a partition that were placed before an entry."""
        found = []
        for own in self._covering(tp):
            earlier = [one for one in own if one.number < before]
            present = [*own[-1].in_force(at)]
            if present and earlier:
                found += [one for one in present if one.number < before] or earlier[-1:]
        return found

    def is_left(self, hold: Placed) -> bool:
        """Return whether no entry has ended this placement of a hold."""
        own = self._standing.get(hold.key, ())
        return any(one.number == hold.number for one in own)

    def _covering(self, tp: TopicPartition) -> Sequence[list[Placed]]:
        known = self._over.get(tp)
        if known is None:
            every = self._standing.values()
            known = self._over[tp] = [own for own in every if own[-1].covers(tp)]
        return known

    # ------------------------------------------------------------ inside

    def _place(
        self,
        entry: Return | Hold,
        asked: int,
        until: float | None,
        overlaps: Mapping[Key, _Overlap] = MappingProxyType({}),
    ) -> None:
        for key in _keys(entry):
            own = self._standing.get(key, [])
            if own and entry.at >= own[-1].over_at:
                self._report_end(own, entry.at, EXPIRED)
                own = []
            new = _placed(entry, key, asked, until, self._running)
            if key in overlaps:
                new = new.doubted(overlaps[key])
            if new.kind is Kind.OWNED:
                self._hold_ends.follow(new.scope)
            if own and new.is_plain:
                new = evolve(new, beneath=_strict_of(own[-1], entry.at))
            self._stand([*own, new])

    def _end_of(self, entry: Hold) -> float | None:
        match _kind(entry, entry.scope, entry.owner or ""):
            case Kind.WHOLE:
                return self._hold_ends.end_of_whole(entry)
            case Kind.PARTITION:  # only pauses without a limit are handed over
                return None
        return entry.until

    def _stand(self, own: list[Placed]) -> None:
        if len(own) > _AGAIN:
            del own[1]  # keep the first placement, which has the start
        covering(own[-1].scope)  # a scope that cannot be read raises here
        self._standing[own[-1].key] = own
        self._forget(own[-1].scope)
        self._on_placed(own[-1])

    def _end(self, key: Key, at: float, how: str) -> None:
        own = self._standing.pop(key)
        self._forget(own[-1].scope)
        self._report_end(own, at, how)

    def _report_end(self, own: Sequence[Placed], at: float, how: str) -> None:
        over_at = own[-1].over_at
        one = evolve(_since_first(own), how=EXPIRED if over_at < at else how)
        self._on_ended(one, min(over_at, at))

    def _forget(self, scope: str) -> None:
        # The next query recomputes the holds that cover a partition.
        if is_partition(scope):
            self._over.pop(partition_of(scope), None)
        else:
            self._over.clear()


def _overlap(one: Call, other: Call) -> _Overlap | None:
    # Return the overlap of two pauses of a hold; None if their order does not matter.
    if (one.lifetime, one.moves) != (other.lifetime, other.moves):
        return _Overlap(-math.inf, max(_until(one), _until(other)))
    first, last = sorted([_until(one), _until(other)])
    return None if first == last else _Overlap(first, last)


def _until(pause: Call) -> float:
    return pause.until or math.inf


def _since_first(own: Sequence[Placed]) -> Placed:
    return evolve(own[-1], number=own[0].number, at=own[0].at)


def _strict_of(last: Placed, at: float) -> Placed | None:
    # Return the strict hold that stays in force when a plain pause replaces ``last``.
    strict = last.beneath if last.is_plain else last
    return strict if strict is not None and at < strict.until else None


def ended_at(lift: Lift) -> float:
    """Return when a hold ended, according to the entry that reports its end."""
    return min(lift.at, lift.since or lift.at)


def _keys(entry: Call | Hold) -> Iterator[Key]:
    scopes = [entry.scope] if isinstance(entry, Hold) else entry.scopes or ()
    return ((scope, entry.owner or "") for scope in scopes)


def _placed(
    entry: Return | Hold,
    key: Key,
    asked: int,
    until: float | None,
    running: Mapping[str, Sequence[int]],
) -> Placed:
    scope, owner = key
    since = entry.since if isinstance(entry, Hold) else None
    return Placed(
        scope=scope,
        owner=owner,
        asked=asked,
        number=entry.n,
        at=entry.at,
        since=min(entry.at, since or entry.at),
        until=until or math.inf,
        kind=_kind(entry, scope, owner),
        running=running,
        lifetime=None if isinstance(entry, Hold) else entry.lifetime,
    )


def _kind(entry: Call | Hold, scope: str, owner: str) -> Kind:
    if isinstance(entry, Hold):
        if owner == _WHOLE:
            return Kind.WHOLE
        is_handed_over = owner == _APP and is_partition(scope)
        return Kind.PARTITION if is_handed_over else Kind.ELSEWHERE
    if entry.lifetime == _PLAIN and is_partition(scope):
        return Kind.PARTITION
    if entry.lifetime not in {_UNTIL_RESUMED, _PLAIN}:
        return Kind.OWNED
    moves = entry.moves and owner == _APP and is_partition(scope)
    return Kind.OWNED if moves else Kind.STRICT
