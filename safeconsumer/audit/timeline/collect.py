"""
Collects a timeline's data while the judge reads journals.

When a partition is owned or held is never worked out here: these times are read from
the judge's own replay after each entry, so that timeline and verdict cannot disagree.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from attrs import evolve, frozen

from safeconsumer.audit.checker import Checker
from safeconsumer.audit.entries import Call, Deliver, Entry, Heal, Other, Ownership
from safeconsumer.audit.entries import Fault as FaultEntry
from safeconsumer.audit.findings import Address, Finding
from safeconsumer.audit.holding import Placed
from safeconsumer.audit.members import Member
from safeconsumer.audit.reading import is_partition
from safeconsumer.audit.results import Result, Settings
from safeconsumer.audit.seen import Seen
from safeconsumer.audit.stream import Source
from safeconsumer.audit.timeline.data import (
    Fault,
    Held,
    Lane,
    Level,
    Owned,
    Process,
    Run,
    Timeline,
)
from safeconsumer.audit.tracks import Track
from safeconsumer.errors import JournalError
from safeconsumer.journal.format import tp_text

# 1900-01-01 and 9000-01-01, well within what calendars can represent.
_FIRST_MOMENT, _LAST_MOMENT = -2_208_988_800, 221_845_392_000


@frozen(kw_only=True)
class Part:
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

    def unknown(self, cases: Iterable[Address]) -> list[str]:
        """Return which of its names are not those of a case."""
        groups, topics, partitions = (
            set(self.groups),
            set(self.topics),
            set(self.partitions),
        )
        for one in cases:
            groups.discard(one.group or "")
            topics.discard(one.topic)
            partitions.discard((one.topic, one.partition))
        return [
            *(f"the group {one}" for one in sorted(groups)),
            *(f"the topic {one}" for one in sorted(topics)),
            *map(tp_text, sorted(partitions)),
        ]


def _level_of(placed: Placed) -> Level:
    if placed.is_remote:
        return Level.GROUP
    if placed.scope == "@all":
        return Level.CONSUMER
    if is_partition(placed.scope):
        return Level.PARTITION
    return Level.PATTERN if placed.scope.startswith("re:") else Level.TOPIC


class Collector(Seen):
    """
    Reads journals with the judge, and collects what the judge saw.

    Args:
        settings: the assumptions of the judge.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._checker = Checker(settings, watch=self)
        self._processes: dict[str, Process] = {}
        self._consumers: set[str] = set()
        self._faults: dict[object, Fault] = {}

    def read(self, journal: Source) -> None:
        """
        Read a whole journal.

        Raises:
            JournalError: it is broken somewhere.
        """
        self._checker.read(journal)

    def entry(self, member: Member, entry: Entry | Other) -> None:
        """See an entry that need not be about a partition: processes live, and fail."""
        super().entry(member, entry)
        name, group = member.name, member.group
        known = self._processes.get(name)
        if known is None:
            known = Process(group=group, name=name, start=entry.at, end=entry.at)
        self._processes[name] = evolve(
            known,
            group=known.group or group,
            start=min(known.start, entry.at),
            end=max(known.end, entry.at),
        )
        match entry:
            case Call() | Ownership():
                self._consumers.add(name)
            case FaultEntry():
                self._faults[name, entry.id] = Fault(
                    kind=entry.kind,
                    targets=tuple(entry.targets),
                    start=entry.at,
                    end=entry.at + max(0.0, entry.seconds),
                )
            case Heal() if (name, entry.id) in self._faults:
                fault = self._faults[name, entry.id]
                self._faults[name, entry.id] = evolve(fault, end=entry.at)

    def timeline(self, part: Part | None = None) -> Timeline:
        """
        Return the timeline, once all journals were read.

        Raises:
            JournalError: they have no entries about the part, or not about all of it.
        """
        part = part or Part()
        origin, until = self._moments()
        window = _window(origin, until, part)
        results = self._checker.results()
        if unknown := part.unknown(results):
            known = _named(results)
            message = f"no journal names {', '.join(unknown)}; they name {known}"
            raise JournalError(message)
        chosen = [case for case in sorted(results, key=_order) if part.covers(case)]
        if not chosen:
            message = (
                f"no such partition in such a group; journals name {_named(results)}"
            )
            raise JournalError(message)
        lanes = [self._lane(results[case], window) for case in chosen]
        found = sum(len(one.findings) for one in results.values())
        groups = {case.group for case in chosen}
        members = [
            one
            for name, one in self._processes.items()
            if name in self._consumers and one.group in groups
        ]
        return Timeline(
            start=window.start,
            end=window.end,
            origin=origin,
            until=until,
            lanes=lanes,
            members=window.clipped(sorted(members, key=_by_name)),
            faults=window.clipped(self._faults.values()),
            left_out=len(results) - len(chosen),
            elsewhere=found - sum(len(lane.findings) for lane in lanes),
        )

    def _moments(self) -> tuple[float, float]:
        processes = self._processes.values()
        if not processes:
            message = "nothing to draw: the journals have no entries"
            raise JournalError(message)
        origin = min(one.start for one in processes)
        until = max(one.end for one in processes)
        if origin < _FIRST_MOMENT or until > _LAST_MOMENT:
            message = "nothing to draw: times lie outside the years 1900 to 9000"
            raise JournalError(message)
        return origin, until

    def _lane(self, result: Result, window: "_Window") -> Lane:
        tracks = self.tracks(result.case)
        owned = [
            Owned(member=name, start=epoch.at, end=epoch.over, is_lost=epoch.was_lost)
            for name, track in tracks.items()
            for epoch in track.epochs
        ]
        held = [_held(name, placed) for name, placed in self.held(result.case)]
        held += _of_the_group(result, tracks)
        came = {name: self.runs(one) for name, one in tracks.items()}
        wrong = {
            (one.member, one.entry) for one in result.findings if one.check == "A1"
        }
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
            case=result.case,
            owned=window.clipped(sorted(owned, key=lambda one: one.start)),
            held=window.clipped(_merged(held)),
            runs=window.inside(runs),
            findings=window.inside(result.findings),
            unjudged=result.unjudged,
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


def _order(case: Address) -> tuple[str, str, int]:
    return case.group or "", case.topic, case.partition


def _by_name(one: Process) -> list[str | int]:
    # Natural order, with text and numbers by turns: m2 comes before m10.
    parts = re.split("([0-9]{1,9})", one.name)
    return [one.group, *(int(part) if n % 2 else part for n, part in enumerate(parts))]


def _named(cases: Iterable[Address]) -> str:
    names = sorted(
        f"{tp_text((one.topic, one.partition))} of group {one.group}" for one in cases
    )
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""  # noqa: PLR2004 - as many as fit
    return (", ".join(names[:5]) or "none") + more


def _window(origin: float, until: float, part: Part) -> "_Window":
    start = origin + part.start
    end = until if part.end is None else min(until, origin + part.end)
    if start > until or end < start:
        asked = "the end" if part.end is None else f"{part.end:.1f} s"
        message = (
            f"nothing to draw: the journals last {until - origin:.1f} s, "
            f"from {part.start:.1f} s to {asked} is asked for"
        )
        raise JournalError(message)
    return _Window(start, max(end, start + 0.001))


_Spanned = TypeVar("_Spanned", Held, Owned, Fault, Process)
_Dated = TypeVar("_Dated", Run, Finding)


@frozen
class _Window:
    """The period of time that is shown."""

    start: float
    end: float

    def clipped(self, spans: Iterable[_Spanned]) -> list[_Spanned]:
        found = []
        for one in spans:
            start, end = max(one.start, self.start), min(one.end, self.end)
            if start <= end:
                found.append(evolve(one, start=start, end=end))
        return found

    def inside(self, dated: Iterable[_Dated]) -> list[_Dated]:
        """Return what is in the window, or has no moment, in the order of time."""
        found = [one for one in dated if one.at is None or self._has(one.at)]
        return sorted(found, key=lambda one: one.at or 0.0)

    def _has(self, at: float) -> bool:
        return self.start <= at <= self.end
