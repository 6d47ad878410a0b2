"""Reads journals for a picture from the judge's replay, after each entry."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from attrs import define, evolve, field, frozen

from safeconsumer.audit.checker import Checker
from safeconsumer.audit.entries import (
    Call,
    Deliver,
    Entry,
    Group,
    Heal,
    Other,
    Ownership,
)
from safeconsumer.audit.entries import (
    Fault as FaultEntry,
)
from safeconsumer.audit.findings import Address
from safeconsumer.audit.holding import Placed
from safeconsumer.audit.reading import is_partition
from safeconsumer.audit.results import Result, Settings
from safeconsumer.audit.seen import Seen
from safeconsumer.audit.stream import Source
from safeconsumer.audit.timeline.story import (
    Fault,
    Held,
    Lane,
    Level,
    MemberLane,
    Owned,
    Point,
    Run,
    Timeline,
)
from safeconsumer.audit.tracks import Track
from safeconsumer.errors import JournalError
from safeconsumer.journal.format import tp_text

# JournalWriter adds this to a member's name: its process id, and a random part.
_OF_A_PROCESS = re.compile(r"-\d+-[0-9a-f]{8}$")
_BY_CHANCE = re.compile(r"-[0-9a-f]{8}$")

# 1900-01-01 and 9000-01-01, well within what calendars can represent.
_FIRST_MOMENT, _LAST_MOMENT = -2_208_988_800, 221_845_392_000


@frozen(kw_only=True)
class Wanted:
    """
    The part of the journals that is shown.

    Attributes:
        groups: these; none means all.
        topics: these; none means all.
        partitions: these, too; none means all.
        start: seconds after the first entry.
        end: the same; None means to the last one.
    """

    groups: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    partitions: frozenset[tuple[str, int]] = frozenset()
    start: float = 0.0
    end: float | None = None

    def covers(self, case: Address) -> bool:
        """Return whether a partition of a group is wanted."""
        if self.groups and case.group not in self.groups:
            return False
        if not self.topics and not self.partitions:
            return True
        return case.topic in self.topics or (
            (case.topic, case.partition) in self.partitions
        )


def _level_of(placed: Placed) -> Level:
    if placed.is_remote:
        return Level.GROUP
    if placed.scope == "@all":
        return Level.CONSUMER
    if is_partition(placed.scope):
        return Level.PARTITION
    return Level.PATTERN if placed.scope.startswith("re:") else Level.TOPIC


@define(kw_only=True)
class _Process:
    """The entries of one journal about its process as a whole."""

    group: str | None
    began: float = math.inf
    ended: float = -math.inf
    is_consumer: bool = False
    moves: dict[int, Point] = field(factory=dict)

    def move(self, entry: Ownership) -> None:
        """Note that it got or gave up partitions."""
        self.is_consumer = True
        said = ", ".join(entry.partitions)
        count = len(entry.partitions)
        self.moves[entry.n] = Point(
            at=entry.at, kind=entry.event, count=count, said=said
        )


class Watching:
    """
    Reads journals with the judge, and collects for a picture what the judge saw.

    Args:
        settings: the assumptions of the judge.
    """

    def __init__(self, settings: Settings) -> None:
        self._seen = Seen()
        self._checker = Checker(settings, watch=self._seen)
        self._cases: tuple[Address, ...] = ()  # those of the picture told last
        self._processes: dict[str, _Process] = {}
        self._faults: dict[object, Fault] = {}

    def hear(self, journal: Source) -> None:
        """
        Take a whole journal.

        Raises:
            JournalError: it is broken somewhere.
        """
        self._checker.read(_Noted(journal, self._note))

    def _note(self, member: str, group: str, entry: Entry | Other) -> None:
        process = self._processes.get(member)
        if process is None:
            process = self._processes[member] = _Process(group=group)
        process.group = process.group or group
        process.began = min(process.began, entry.at)
        process.ended = max(process.ended, entry.at)
        match entry:
            case Ownership():
                process.move(entry)
            case Call():
                process.is_consumer = True
            case FaultEntry():
                self._faults[member, entry.id] = _fault(entry)
            case Heal() if (member, entry.id) in self._faults:
                fault = self._faults[member, entry.id]
                self._faults[member, entry.id] = evolve(fault, end=entry.at)

    # ------------------------------------------------------------ telling

    def told(self, wanted: Wanted | None = None) -> Timeline:
        """
        Return the timeline, once all journals were taken.

        Raises:
            JournalError: they have no entries about the wanted part.
        """
        wanted = wanted or Wanted()
        origin, until = self._moments()
        start, end = _window(origin, until, wanted)
        results = self._checker.results()
        self._cases = tuple(results)
        chosen = [case for case in sorted(results, key=_order) if wanted.covers(case)]
        if not chosen:
            raise _nothing(results)
        window = _Window(start, end)
        lanes = [self._lane(results[case], window) for case in chosen]
        found = sum(len(one.findings) for one in results.values())
        return Timeline(
            start=start,
            end=end,
            origin=origin,
            until=until,
            lanes=lanes,
            members=self._members({case.group for case in chosen}, window),
            faults=window.clipped(self._faults.values()),
            left_out=len(results) - len(chosen),
            elsewhere=found - sum(len(lane.findings) for lane in lanes),
        )

    def unnamed(self, wanted: Wanted) -> str:
        """
        Return which of the wanted names no journal has, beside those that one has; "".

        Call it after :meth:`told`, which finds out which there are.
        """
        cases = self._cases
        unknown = [
            *(
                f"the group {name}"
                for name in sorted(wanted.groups - {case.group for case in cases})
            ),
            *(
                f"the topic {name}"
                for name in sorted(wanted.topics - {case.topic for case in cases})
            ),
            *map(
                tp_text,
                sorted(
                    wanted.partitions - {(case.topic, case.partition) for case in cases}
                ),
            ),
        ]
        if not unknown:
            return ""
        return f"no journal names {', '.join(unknown)}; they name {_named(cases)}"

    def _moments(self) -> tuple[float, float]:
        processes = self._processes.values()
        if not processes:
            message = "nothing to draw: the journals have no entries"
            raise JournalError(message)
        origin = min(one.began for one in processes)
        until = max(one.ended for one in processes)
        if origin < _FIRST_MOMENT or until > _LAST_MOMENT:
            message = "nothing to draw: times lie outside the years 1900 to 9000"
            raise JournalError(message)
        return origin, until

    def _lane(self, result: Result, window: "_Window") -> Lane:
        case = result.case
        tracks = self._seen.of(case)
        owned = [
            Owned(member=name, start=epoch.at, end=epoch.over, is_lost=epoch.was_lost)
            for name, track in tracks.items()
            for epoch in track.epochs
        ]
        held = [_held(name, placed) for name, placed in self._seen.held(case)]
        held += _of_the_group(result, tracks)
        wrong = {
            (one.member, one.entry) for one in result.findings if one.check == "A1"
        }
        came = {name: self._seen.runs.get(one, []) for name, one in tracks.items()}
        wrong.update(_against_the_group(result, tracks, came))
        runs = [
            Run(
                at=one.at,
                count=one.count,
                first=one.first,
                last=one.last,
                is_wrong=(name, one.n) in wrong,
            )
            for name, several in came.items()
            for one in several
        ]
        return Lane(
            place=(case.group or "", case.topic, case.partition),
            owned=window.clipped(sorted(owned, key=lambda one: one.start)),
            held=window.clipped(_merged(held)),
            runs=window.inside(runs),
            parked=(),
            purged=(),
            findings=[one for one in result.findings if window.is_inside(one.at)],
            unjudged=result.unjudged,
        )

    def _members(self, groups: set[str | None], window: "_Window") -> list[MemberLane]:
        found: dict[tuple[str, str], dict[str, _Process]] = {}
        for name, one in self._processes.items():
            is_there = one.began <= window.end and one.ended >= window.start
            if one.is_consumer and one.group in groups and is_there:
                key = one.group or "", _OF_A_PROCESS.sub("", name)
                found.setdefault(key, {})[name] = one
        return [
            MemberLane(
                group=group,
                name=name,
                processes=frozenset(own),
                lives=[window.of(one.began, one.ended) for one in own.values()],
                points=window.inside(
                    point for one in own.values() for point in one.moves.values()
                ),
            )
            for (group, _), known in sorted(
                found.items(), key=lambda item: (item[0][0], _counted(item[0][1]))
            )
            for name, own in _one_after_the_other(known)
        ]


@define
class _Noted:
    source: Source
    note: Callable[[str, str, Entry | Other], None]

    @property
    def member(self) -> str:
        return self.source.member

    @property
    def group(self) -> str:
        return self.source.group

    @property
    def entries(self) -> Iterator[Entry | Other]:
        group = self.source.group
        for entry in self.source.entries:
            if isinstance(entry, Group):
                group = entry.group
            self.note(self.member, group, entry)
            yield entry


def _fault(entry: FaultEntry) -> Fault:
    return Fault(
        kind=entry.kind,
        targets=tuple(entry.targets),
        start=entry.at,
        end=entry.at + max(0.0, entry.seconds),
    )


def _held(member: str, placed: Placed) -> Held:
    return Held(
        member=member,
        scope=placed.scope,
        owner=placed.owner,
        level=_level_of(placed),
        start=placed.at,
        end=placed.until,
    )


def _of_the_group(result: Result, tracks: Mapping[str, Track]) -> Iterator[Held]:
    # A member that had the partition before the hold obeys as soon as it has read the
    # hold, which its own journal shows.
    for bounds in result.group_holds:
        for name, track in tracks.items():
            for epoch in track.epochs:
                start, until = bounds.begins(epoch), min(epoch.over, bounds.end)
                if start < until:
                    yield Held(
                        member=name,
                        scope=bounds.span.scope,
                        owner=bounds.span.holder,
                        level=Level.GROUP,
                        start=start,
                        end=until,
                    )


def _against_the_group(
    result: Result,
    tracks: Mapping[str, Track],
    came: Mapping[str, Iterable[Deliver]],
) -> Iterator[tuple[str, int]]:
    # The deliveries that G2 is about: it reports only the first one of an ownership.
    names = {one.member for one in result.findings if one.check == "G2"}
    for name in names & tracks.keys():
        bound = [
            (bounds.begins(epoch), min(epoch.over, bounds.end))
            for bounds in result.group_holds
            for epoch in tracks[name].epochs
        ]
        for run in came[name]:
            if any(start <= run.at <= end for start, end in bound):
                yield name, run.n


def _merged(held: Iterable[Held]) -> list[Held]:
    # A hold that is placed again while in force continues; an operator's journal and a
    # member's may both have the same hold.
    found: dict[tuple[str, str, str], list[Held]] = {}
    for one in sorted(held, key=lambda one: one.start):
        own = found.setdefault((one.member, one.scope, one.owner), [])
        if own and one.start <= own[-1].end:
            own[-1] = evolve(own[-1], end=max(own[-1].end, one.end))
        else:
            own.append(one)
    every = (one for own in found.values() for one in own)
    return sorted(every, key=lambda one: (one.start, one.scope, one.owner))


def _one_after_the_other(
    processes: Mapping[str, _Process],
) -> Iterator[tuple[str, dict[str, _Process]]]:
    # A member that was restarted has one lane; members that live at the same time have
    # separate lanes, even with the same name, as kafka-python names clients.
    lanes: list[dict[str, _Process]] = []
    for name, one in sorted(processes.items(), key=lambda item: item[1].began):
        free = (
            lane
            for lane in lanes
            if all(other.ended <= one.began for other in lane.values())
        )
        lane = next(free, None)
        if lane is None:
            lanes.append(lane := {})
        lane[name] = one
    short = _OF_A_PROCESS if len(lanes) == 1 else _BY_CHANCE
    for own in lanes:
        yield short.sub("", next(iter(own))), own


def _order(case: Address) -> tuple[str, str, int]:
    return case.group or "", case.topic, case.partition


def _counted(name: str) -> list[str | int]:
    # Natural order, with text and numbers by turns: m2 comes before m10.
    parts = re.split("([0-9]{1,9})", name)
    return [int(part) if n % 2 else part for n, part in enumerate(parts)]


def _nothing(cases: Iterable[Address]) -> JournalError:
    return JournalError(
        f"nothing to draw: no such partition; the journals name {_named(cases)}"
    )


def _named(cases: Iterable[Address]) -> str:
    names = [f"{one.topic}:{one.partition} of group {one.group}" for one in cases]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""  # noqa: PLR2004 - as many as fit
    return (", ".join(sorted(names)[:5]) or "none") + more


def _window(origin: float, until: float, wanted: Wanted) -> tuple[float, float]:
    start = origin + wanted.start
    end = until if wanted.end is None else min(until, origin + wanted.end)
    if start > until or end < start:
        asked = "the end" if wanted.end is None else f"{wanted.end:.1f} s"
        message = (
            f"nothing to draw: the journals last {until - origin:.1f} s, "
            f"from {wanted.start:.1f} s to {asked} is asked for"
        )
        raise JournalError(message)
    return start, max(end, start + 0.001)


_Spanned = TypeVar("_Spanned", Held, Owned, Fault)
_Dated = TypeVar("_Dated", Run, Point)


@frozen
class _Window:
    """The period of time that is drawn."""

    start: float
    end: float

    def of(self, start: float, end: float) -> tuple[float, float]:
        return max(start, self.start), min(end, self.end)

    def clipped(self, spans: Iterable[_Spanned]) -> list[_Spanned]:
        found = []
        for one in spans:
            start, end = self.of(one.start, one.end)
            if start <= end:
                found.append(evolve(one, start=start, end=end))
        return found

    def inside(self, dated: Iterable[_Dated]) -> list[_Dated]:
        found = [one for one in dated if self.is_inside(one.at)]
        return sorted(found, key=lambda one: one.at)

    def is_inside(self, at: float | None) -> bool:
        return at is None or self.start <= at <= self.end
