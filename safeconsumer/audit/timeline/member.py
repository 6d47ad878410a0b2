"""
One journal, followed for a picture: what was owned, held and delivered, and when.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from attrs import define, evolve, field, frozen

from safeconsumer.audit.journal import Entry, Journal
from safeconsumer.audit.reading import tp_of
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.scope import Everything, Partition, Pattern, TopicPartition

# What JournalWriter adds to a member's name: its process, and a part by chance.
_OF_A_PROCESS = re.compile(r"-\d+-[0-9a-f]{8}$")


class Level(Enum):
    """
    What a hold was placed on; the value names it for people.
    """

    PARTITION = "partition"
    TOPIC = "topic"
    PATTERN = "pattern"
    CONSUMER = "consumer"
    GROUP = "group"


@frozen(kw_only=True)
class Held:
    """
    A hold, while it was in force.
    """

    scope: scopes.Scope
    owner: str
    level: Level
    start: float
    end: float

    def within(self, start: float, end: float) -> "Held":
        """
        Return the part of it that lies between two moments.
        """
        return evolve(self, start=max(self.start, start), end=min(self.end, end))

    def until(self, end: float) -> "Held":
        """
        Return it with another end.
        """
        return evolve(self, end=end)


@frozen(kw_only=True)
class Owned:
    """
    One ownership of one partition.
    """

    member: str
    start: float
    end: float
    is_lost: bool = False


@frozen(kw_only=True)
class Run:
    """
    Records delivered at once.
    """

    at: float
    count: int
    first: int
    last: int


@frozen(kw_only=True)
class Point:
    """
    What happened at one moment.

    Attributes:
        at: seconds since the epoch.
        kind: assigned, revoked, lost, parked or purged.
        count: of partitions, of parked bytes, of purged records.
        said: more about it.
    """

    at: float
    kind: str
    count: int
    said: str = ""


@frozen(kw_only=True)
class Fault:
    """
    Something that was done to the fleet.
    """

    kind: str
    targets: tuple[str, ...]
    start: float
    end: float


@define(kw_only=True)
class Followed:
    """
    What one journal tells.

    Attributes:
        process: as the journal names it.
        member: its name for people.
        began: its first entry.
        ended: its last entry; a killed process is seen until then.
        is_consumer: whether it is one; producers and operators are not.
    """

    process: str
    member: str
    began: float
    ended: float
    is_consumer: bool = False
    owned: dict[TopicPartition, list[Owned]] = field(factory=dict)
    held: list[Held] = field(factory=list)
    runs: dict[TopicPartition, list[Run]] = field(factory=dict)
    rebalances: list[Point] = field(factory=list)
    points: dict[tuple[str, TopicPartition], list[Point]] = field(
        factory=lambda: defaultdict(list)
    )
    faults: dict[object, Fault] = field(factory=dict)

    def partitions(self) -> set[TopicPartition]:
        """
        Return those that it owned or delivered.
        """
        return {*self.owned, *self.runs}


def followed(journal: Journal) -> Followed:
    """
    Follow a journal from its first entry to its last.
    """
    times = [one.at for one in journal.entries[:1] + journal.entries[-1:]] or [0.0, 0.0]
    into = Followed(
        process=journal.member,
        member=_OF_A_PROCESS.sub("", journal.member),
        began=times[0],
        ended=times[-1],
    )
    follower = _Follower(into)
    for entry in journal.entries:
        follower.take(entry)
    follower.finish()
    return into


class _Follower:
    """
    Keeps what has begun and not ended yet.
    """

    def __init__(self, into: Followed) -> None:
        self._into = into
        self._held: dict[tuple[str, str], Held] = {}
        self._owned: dict[TopicPartition, float] = {}
        self._events: dict[str, Callable[[Entry], None]] = {
            "call": self._call,
            "return": self._return,
            "hold": self._remote_hold,
            "lift": self._lift,
            "group-hold": self._remote_hold,
            "group-lift": self._lift,
            "assigned": self._assigned,
            "revoked": self._revoked,
            "lost": self._revoked,
            "deliver": self._deliver,
            "parked": self._parked,
            "purged": self._purged,
            "fault": self._fault,
            "heal": self._heal,
        }

    def take(self, entry: Entry) -> None:
        known = self._events.get(entry.event)
        if known is not None:
            known(entry)

    def finish(self) -> None:
        for key in list(self._held):
            self._let_go(key, self._into.ended)
        for tp in list(self._owned):
            self._give_up(tp, self._into.ended, is_lost=False)

    # ------------------------------------------------------------ holds

    def _call(self, entry: Entry) -> None:
        self._into.is_consumer = True
        if entry["op"] == "resume":
            for key in _keys(entry):
                self._let_go(key, entry.at)

    def _return(self, entry: Entry) -> None:
        if entry["op"] == "pause" and entry["ok"] is not False:
            for scope, owner in _keys(entry):
                self._hold(entry, scopes.parse(scope), owner)

    def _remote_hold(self, entry: Entry) -> None:
        owner = entry["owner"] or ""
        self._hold(entry, scopes.parse(entry["scope"]), owner, Level.GROUP)

    def _lift(self, entry: Entry) -> None:
        key = entry["scope"], entry["owner"] or ""
        self._let_go(key, min(entry.at, entry["since"] or math.inf))

    def _hold(
        self, entry: Entry, scope: scopes.Scope, owner: str, level: Level | None = None
    ) -> None:
        key = str(scope), owner
        self._let_go(key, entry.at)
        self._held[key] = Held(
            scope=scope,
            owner=owner,
            level=level or level_of(scope),
            start=entry.at,
            end=entry["until"] or math.inf,
        )

    def _let_go(self, key: tuple[str, str], at: float) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._into.held.append(held.until(min(held.end, at)))

    # ------------------------------------------------------------ ownership, records

    def _assigned(self, entry: Entry) -> None:
        self._moved(entry)
        for tp in map(tp_of, entry["partitions"]):
            self._owned.setdefault(tp, entry.at)

    def _revoked(self, entry: Entry) -> None:
        self._moved(entry)
        for tp in map(tp_of, entry["partitions"]):
            self._give_up(tp, entry.at, is_lost=entry.event == "lost")

    def _moved(self, entry: Entry) -> None:
        self._into.is_consumer = True
        names = entry["partitions"]
        self._into.rebalances.append(
            Point(
                at=entry.at,
                kind=entry.event,
                count=len(names),
                said=", ".join(names),
            )
        )

    def _give_up(self, tp: TopicPartition, at: float, *, is_lost: bool) -> None:
        start = self._owned.pop(tp, None)
        if start is not None:
            own = self._into.owned.setdefault(tp, [])
            own.append(
                Owned(member=self._into.member, start=start, end=at, is_lost=is_lost)
            )

    def _deliver(self, entry: Entry) -> None:
        run = Run(
            at=entry.at,
            count=entry["count"],
            first=entry["first"],
            last=entry["last"],
        )
        self._into.runs.setdefault(tp_of(entry["tp"]), []).append(run)

    def _parked(self, entry: Entry) -> None:
        self._point(entry, entry["bytes"])

    def _purged(self, entry: Entry) -> None:
        self._point(entry, entry["count"] or 0, entry["why"] or "")

    def _point(self, entry: Entry, count: int, said: str = "") -> None:
        point = Point(at=entry.at, kind=entry.event, count=count, said=said)
        self._into.points[entry.event, tp_of(entry["tp"])].append(point)

    # ------------------------------------------------------------ faults

    def _fault(self, entry: Entry) -> None:
        self._into.faults[entry["id"]] = Fault(
            kind=entry["kind"],
            targets=tuple(entry["targets"]),
            start=entry.at,
            end=entry.at + max(0.0, entry["seconds"]),
        )

    def _heal(self, entry: Entry) -> None:
        known = self._into.faults.get(entry["id"])
        if known is not None:
            self._into.faults[entry["id"]] = evolve(known, end=entry.at)


def level_of(scope: scopes.Scope) -> Level:
    """
    Return the level of a hold that a program placed itself.
    """
    match scope:
        case Partition():
            return Level.PARTITION
        case Pattern():
            return Level.PATTERN
        case Everything():
            return Level.CONSUMER
    return Level.TOPIC


def _keys(entry: Entry) -> Iterator[tuple[str, Any]]:
    for scope in entry["scopes"] or ():
        yield scope, entry["owner"] or ""
