"""
What journals tell, as a picture needs it: lanes of partitions and of members, in time.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field, frozen

from safeconsumer.audit.findings import Finding
from safeconsumer.audit.journal import Journal
from safeconsumer.audit.timeline.member import (
    Fault,
    Followed,
    Held,
    Owned,
    Point,
    followed,
)
from safeconsumer.errors import JournalError
from safeconsumer.holds.scope import TopicPartition

# As many columns as a picture has places for bars.
COLUMNS = 380


@frozen(kw_only=True)
class Wanted:
    """
    What of the journals is told.

    Attributes:
        topics: these; none means all.
        partitions: these, too; none means all.
        start: seconds after the first entry.
        end: the same; None means to the last one.
    """

    topics: frozenset[str] = frozenset()
    partitions: frozenset[TopicPartition] = frozenset()
    start: float = 0.0
    end: float | None = None

    def covers(self, tp: TopicPartition) -> bool:
        """
        Tell whether a partition is wanted.
        """
        if not self.topics and not self.partitions:
            return True
        return tp[0] in self.topics or tp in self.partitions


@define(kw_only=True)
class Bar:
    """
    The records of one partition in one column of the picture.

    Attributes:
        count: how many were delivered.
        wrong: how many of them while held.
        first: the lowest offset.
        last: the highest offset.
    """

    count: int = 0
    wrong: int = 0
    first: int
    last: int


@frozen(kw_only=True)
class Lane:
    """
    What happened to one partition.
    """

    tp: TopicPartition
    owned: Sequence[Owned]
    held: Sequence[Held]
    bars: Mapping[int, Bar]
    parked: Sequence[Point]
    purged: Sequence[Point]
    findings: Sequence[Finding]

    @property
    def records(self) -> int:
        """
        How many records were delivered.
        """
        return sum(bar.count for bar in self.bars.values())

    @property
    def violations(self) -> dict[str, int]:
        """
        How often each promise was broken.
        """
        return dict(sorted(Counter(one.check for one in self.findings).items()))


@frozen(kw_only=True)
class MemberLane:
    """
    What happened to one member; a restarted one goes on in its lane.

    Attributes:
        name: without what only distinguishes its processes.
        lives: from the first to the last entry of each process.
        points: rebalances as it saw them: assigned, revoked, lost.
    """

    name: str
    lives: Sequence[tuple[float, float]]
    points: Sequence[Point]


@frozen(kw_only=True)
class Timeline:
    """
    Everything a picture shows; times are seconds since the epoch.
    """

    start: float
    end: float
    origin: float
    lanes: Sequence[Lane]
    members: Sequence[MemberLane]
    faults: Sequence[Fault]
    groups: Sequence[str]

    @property
    def column(self) -> float:
        """
        The seconds of one column.
        """
        return (self.end - self.start) / COLUMNS

    @property
    def violations(self) -> dict[str, int]:
        """
        How often each promise was broken.
        """
        found = Counter(one.check for lane in self.lanes for one in lane.findings)
        return dict(sorted(found.items()))


def told(
    journals: Sequence[Journal],
    findings: Mapping[TopicPartition, Sequence[Finding]],
    wanted: Wanted | None = None,
) -> Timeline:
    """
    Tell what journals say, and what the checker says of them.

    Raises:
        JournalError: they say nothing of what is wanted.
    """
    wanted = wanted or Wanted()
    origin, start, end = _window(journals, wanted)
    parts = [followed(journal) for journal in journals]
    names = sorted({tp for part in parts for tp in part.partitions() | set(findings)})
    chosen = [tp for tp in names if wanted.covers(tp)]
    if not chosen:
        known = ", ".join(f"{tp[0]}:{tp[1]}" for tp in names[:5]) or "none"
        message = f"nothing to draw: no such partition; the journals name {known}"
        raise JournalError(message)
    lanes = _Lanes(start, end, parts)
    return Timeline(
        start=start,
        end=end,
        origin=origin,
        lanes=[lanes.lane(tp, findings.get(tp, ())) for tp in chosen],
        members=_members(parts, start, end),
        faults=[
            fault
            for part in parts
            for fault in part.faults.values()
            if fault.end >= start and fault.start <= end
        ],
        groups=sorted({journal.group for journal in journals} - {""}),
    )


def _window(journals: Iterable[Journal], wanted: Wanted) -> tuple[float, float, float]:
    times = [one.entries[i].at for one in journals if one.entries for i in (0, -1)]
    if not times:
        message = "nothing to draw: the journals have no entries"
        raise JournalError(message)
    origin = min(times)
    start = origin + wanted.start
    end = max(times) if wanted.end is None else origin + wanted.end
    if start > max(times) or end < start:
        message = (
            f"nothing to draw: the journals last {max(times) - origin:.1f} s, "
            f"from {start - origin:.1f} s to {end - origin:.1f} s is asked for"
        )
        raise JournalError(message)
    return origin, start, max(end, start + 0.001)


@define
class _Lanes:
    """
    Makes lanes of what all members tell, within a window of time.
    """

    start: float
    end: float
    parts: Sequence[Followed]
    _owners: dict[TopicPartition, list[Owned]] = field(factory=dict, init=False)

    def lane(self, tp: TopicPartition, findings: Sequence[Finding]) -> Lane:
        owned = sorted(
            (one for part in self.parts for one in part.owned.get(tp, ())),
            key=lambda one: one.start,
        )
        inside = [one for one in findings if one.at is None or self._is_inside(one.at)]
        return Lane(
            tp=tp,
            owned=[one for one in owned if self._overlaps(one)],
            held=[one for one in self._held(tp, owned) if self._overlaps(one)],
            bars=self._bars(tp, inside),
            parked=self._points("parked", tp),
            purged=self._points("purged", tp),
            findings=inside,
        )

    def _is_inside(self, at: float) -> bool:
        return self.start <= at <= self.end

    def _overlaps(self, span: Owned | Held) -> bool:
        return span.end >= self.start and span.start <= self.end

    def _points(self, kind: str, tp: TopicPartition) -> list[Point]:
        found = (point for part in self.parts for point in part.points[kind, tp])
        return [point for point in found if self._is_inside(point.at)]

    def _held(self, tp: TopicPartition, owned: Sequence[Owned]) -> list[Held]:
        tenures = _tenures(owned)
        found = []
        for part in self.parts:
            for one in part.held:
                if not one.scope.covers(tp):
                    continue
                stretches = tenures.get(part.member, ())
                if not part.is_consumer:
                    # An operator's: it binds who got the partition after it; others
                    # as soon as they hear of it, which their own journals tell.
                    stretches = [
                        (own.start, own.end) for own in owned if own.start > one.start
                    ]
                for start, end in stretches:
                    if one.start < end and one.end > start:
                        found.append(one.within(start, end))
        return _united(found)

    def _bars(self, tp: TopicPartition, findings: Iterable[Finding]) -> dict[int, Bar]:
        wrong = {(one.member, one.at) for one in findings if one.check == "S1"}
        width = (self.end - self.start) / COLUMNS
        bars: dict[int, Bar] = {}
        for part in self.parts:
            for run in part.runs.get(tp, ()):
                if not self._is_inside(run.at):
                    continue
                column = min(COLUMNS - 1, int((run.at - self.start) / width))
                bar = bars.setdefault(column, Bar(first=run.first, last=run.last))
                bar.count += run.count
                bar.first = min(bar.first, run.first)
                bar.last = max(bar.last, run.last)
                if (part.process, run.at) in wrong:
                    bar.wrong += run.count
        return bars


def _tenures(owned: Sequence[Owned]) -> dict[str, list[tuple[float, float]]]:
    # A hold is drawn where its member has the partition. Away for a rebalance and back
    # again, with nobody in between, is one stretch; a frozen member, which does not
    # know yet that it has lost it, has it until the next one gets it.
    found: dict[str, list[tuple[float, float]]] = {}
    before = ""
    for one in owned:
        stretches = found.setdefault(one.member, [])
        if before == one.member:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], one.end)
        else:
            if before:
                start, end = found[before][-1]
                found[before][-1] = start, min(end, one.start)
            stretches.append((one.start, one.end))
        before = one.member
    return found


def _united(held: Iterable[Held]) -> list[Held]:
    # Members that hold the same, and what they know of one hold, overlap.
    united: dict[tuple[str, str], list[Held]] = {}
    for one in sorted(held, key=lambda one: one.start):
        own = united.setdefault((str(one.scope), one.owner), [])
        if own and one.start <= own[-1].end:
            own[-1] = own[-1].until(max(own[-1].end, one.end))
        else:
            own.append(one)
    return [one for several in united.values() for one in several]


def _members(parts: Iterable[Followed], start: float, end: float) -> list[MemberLane]:
    found: dict[str, list[Followed]] = {}
    for part in parts:
        if part.is_consumer and part.began <= end and part.ended >= start:
            found.setdefault(part.member, []).append(part)
    return [
        MemberLane(
            name=name,
            lives=[(max(start, one.began), min(end, one.ended)) for one in own],
            points=sorted(
                (
                    point
                    for one in own
                    for point in one.rebalances
                    if start <= point.at <= end
                ),
                key=lambda point: point.at,
            ),
        )
        for name, own in sorted(
            found.items(), key=lambda item: _as_people_count(item[0])
        )
    ]


def _as_people_count(name: str) -> list[str | int]:
    # Text and numbers by turns: m2 stands before m10.
    parts = re.split("([0-9]{1,9})", name)
    return [int(part) if n % 2 else part for n, part in enumerate(parts)]
