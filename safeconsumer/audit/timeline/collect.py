"""
Collects a timeline's data while the judge reads journals.

When a partition is owned or held is never worked out here: these times are read from
the judge's own state after each entry, so that timeline and verdict cannot disagree.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from attrs import define, evolve, field, frozen

from safeconsumer.audit.checker import Checker
from safeconsumer.audit.entries import Call, Deliver, Entry, Other, Ownership
from safeconsumer.audit.findings import Address, Finding
from safeconsumer.audit.holding import Change, Placed
from safeconsumer.audit.members import Member
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.results import Result, Settings
from safeconsumer.audit.stream import Source
from safeconsumer.audit.timeline.data import Held, Lane, Run, Time, Timeline
from safeconsumer.audit.tracks import Track
from safeconsumer.errors.base import JournalError
from safeconsumer.journal.format import tp_text

# 1900-01-01 and 9000-01-01, well within what calendars can represent.
_FIRST_MOMENT, _LAST_MOMENT = -2_208_988_800, 221_845_392_000


@frozen(kw_only=True)
class Part:
    """
    The part of the journals that is shown.

    Attributes:
        groups: these; none means all.
        partitions: these, by topic and number, or all of a topic where the number is
            None; none means all.
        start: seconds after the first entry.
        end: the same; None means to the last one.
    """

    groups: frozenset[str] = frozenset()
    partitions: frozenset[tuple[str, int | None]] = frozenset()
    start: float = 0.0
    end: float | None = None

    def covers(self, case: Address) -> bool:
        """Return whether a partition of a group is wanted."""
        if self.groups and case.group not in self.groups:
            return False
        names = {(case.topic, None), case.tp}
        return not self.partitions or bool(self.partitions & names)

    def unknown(self, cases: Iterable[Address]) -> list[str]:
        """Return which of its names are not those of a case."""
        known = list(cases)
        groups = self.groups - {one.group for one in known}
        names = {(one.topic, None) for one in known} | {one.tp for one in known}
        return [
            *(f"the group {one}" for one in sorted(groups)),
            *(
                f"the topic {topic}" if number is None else tp_text((topic, number))
                for topic, number in sorted(self.partitions - names, key=str)
            ),
        ]


@define(kw_only=True, eq=False)
class _Seen:
    """What was seen of one member, beside what the judge keeps of it."""

    member: Member
    start: float = math.inf
    end: float = -math.inf
    is_consumer: bool = False
    runs: dict[str, list[Deliver]] = field(factory=dict)
    ended: list[Placed] = field(factory=list)

    def held(self, track: Track) -> Iterator[Held]:
        """Yield the holds over a partition, while the member owned it."""
        every = [*self.ended, *self.member.holds.placed]
        own = [one for one in every if one.covers(track.case.tp)]
        for epoch in track.epochs:
            for one in own:
                start, end = max(one.at, epoch.at), min(one.until, epoch.over)
                if start < end:
                    yield Held(
                        member=self.member.name,
                        scope=one.scope,
                        owner=one.owner,
                        start=start,
                        end=end,
                    )


class Collector:
    """
    Reads journals with the judge, and collects what the judge saw.

    Args:
        settings: the assumptions of the judge.
    """

    def __init__(self, settings: Settings) -> None:
        self._checker = Checker(settings, watch=self)
        self._seen: dict[Member, _Seen] = {}

    def read(self, journal: Source) -> None:
        """
        Read a whole journal.

        Raises:
            JournalError: it is broken somewhere.
        """
        self._checker.read(journal)

    def entry(self, member: Member, entry: Entry | Other) -> None:
        """See an entry that the judge followed; the judge calls it."""
        seen = self._of(member)
        seen.start, seen.end = min(seen.start, entry.at), max(seen.end, entry.at)
        if isinstance(entry, Deliver):
            seen.runs.setdefault(entry.tp, []).append(entry)
        if isinstance(entry, Call | Deliver | Ownership):
            seen.is_consumer = True

    def holds(self, member: Member, change: Change) -> None:
        """See holds that were placed or ended; the judge calls it."""
        self._of(member).ended.extend(change.ended)

    def _of(self, member: Member) -> _Seen:
        return self._seen.setdefault(member, _Seen(member=member))

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
        chosen = [case for case in sorted(results) if part.covers(case)]
        unknown = part.unknown(results)
        if unknown or not chosen:
            what = ", ".join(unknown) or "such a partition of such a group"
            message = f"no journal names {what}; they name {_named(results)}"
            raise JournalError(message)
        lanes = [self._lane(results[case], window) for case in chosen]
        found = sum(1 for one in results.values() for _ in one.every)
        groups = {case.group for case in chosen}
        members = [
            Time(member=one.member.name, start=one.start, end=one.end)
            for one in self._seen.values()
            if one.is_consumer and one.member.group in groups
        ]
        members.sort(key=lambda one: (one.start, one.member))
        return Timeline(
            start=window.start,
            end=window.end,
            lanes=lanes,
            members=window.clipped(members),
            is_whole=len(chosen) == len(results)
            and window.start <= origin
            and until <= window.end,
            elsewhere=found - sum(len(lane.findings) for lane in lanes),
        )

    def _moments(self) -> tuple[float, float]:
        if not self._seen:
            message = "nothing to draw: the journals have no entries"
            raise JournalError(message)
        origin = min(one.start for one in self._seen.values())
        until = max(one.end for one in self._seen.values())
        if origin < _FIRST_MOMENT or until > _LAST_MOMENT:
            message = "nothing to draw: times lie outside the years 1900 to 9000"
            raise JournalError(message)
        return origin, until

    def _lane(self, result: Result, window: "_Window") -> Lane:
        case = result.case
        tracks = [
            (seen, seen.member.tracks[case.tp])
            for seen in self._seen.values()
            if seen.member.group == case.group and case.tp in seen.member.tracks
        ]
        epochs = [epoch for _, track in tracks for epoch in track.epochs]
        bound = [*_bound(result, epochs)]
        findings = [*result.every]
        is_wrong = _wrong(findings, bound)
        held = [one for seen, track in tracks for one in seen.held(track)]
        return Lane(
            case=case,
            owned=window.clipped(
                Time(
                    member=one.member,
                    start=one.at,
                    end=one.over,
                    is_lost=one.was_lost and one.over <= window.end,
                )
                for one in sorted(epochs, key=lambda one: one.at)
            ),
            held=window.clipped(_merged([*held, *bound])),
            runs=window.inside(
                Run(
                    at=run.at,
                    count=run.count,
                    wrong=run.count if is_wrong(track.member, run) else 0,
                    first=run.first,
                    last=run.last,
                )
                for seen, track in tracks
                for run in seen.runs.get(tp_text(case.tp), ())
            ),
            findings=window.inside(findings),
            unjudged=result.unjudged,
        )


def _bound(result: Result, epochs: Iterable[Epoch]) -> Iterator[Held]:
    # A member that had the partition before the hold obeys as soon as it has read the
    # hold, which its own journal shows.
    for epoch in epochs:
        for bounds in result.group_holds:
            start, end = bounds.begins(epoch), min(epoch.over, bounds.end)
            if start < end:
                yield Held(
                    member=epoch.member,
                    scope=bounds.span.scope,
                    owner=bounds.span.holder,
                    start=start,
                    end=end,
                )


def _wrong(
    findings: Sequence[Finding], bound: Iterable[Held]
) -> Callable[[str, Deliver], bool]:
    # G2 reports only the first delivery of an ownership.
    broken = {(one.member, one.entry) for one in findings if one.check == "A1"}
    names = {one.member for one in findings if one.check == "G2"}
    spans = [one for one in bound if one.member in names]

    def is_wrong(member: str, run: Deliver) -> bool:
        return (member, run.n) in broken or any(
            one.member == member and one.start <= run.at <= one.end for one in spans
        )

    return is_wrong


def _merged(held: Iterable[Held]) -> list[Held]:
    # A hold that is placed again while in force continues; the control topics and a
    # member's journal may both have the same hold.
    found: dict[tuple[str, str, str], list[Held]] = {}
    for one in sorted(held, key=lambda one: one.start):
        own = found.setdefault((one.member, one.scope, one.owner), [])
        if own and one.start <= own[-1].end:
            own[-1] = evolve(own[-1], end=max(own[-1].end, one.end))
        else:
            own.append(one)
    every = (one for own in found.values() for one in own)
    return sorted(every, key=lambda one: (one.start, one.scope, one.owner))


def _named(cases: Iterable[Address]) -> str:
    names = sorted(f"{tp_text(one.tp)} of group {one.group}" for one in cases)
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


_Spanned = TypeVar("_Spanned", Held, Time)
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
        return sorted(
            (
                one
                for one in dated
                if one.at is None or self.start <= one.at <= self.end
            ),
            key=lambda one: one.at or 0.0,
        )
