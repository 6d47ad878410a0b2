"""
Defines the content of a picture: lanes of partitions and of members, in time.

This module never works out when a partition is owned or held: these times are read from
the judge's own replay after each entry, so that picture and verdict cannot disagree.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from attrs import field, frozen

from safeconsumer.audit.findings import Finding

# The number of columns: a still picture has as many places for bars.
COLUMNS = 380

Place = tuple[str, str, int]
"""
A consumer group, a topic, and the number of one of its partitions.
"""


class Level(Enum):
    """The level at which a hold was placed; the value names it for people."""

    PARTITION = "partition"
    TOPIC = "topic"
    PATTERN = "pattern"
    CONSUMER = "consumer"
    GROUP = "group"


@frozen(kw_only=True)
class Held:
    """A hold, while it was in force for the member that had the partition."""

    member: str
    scope: str
    owner: str
    level: Level
    start: float
    end: float


@frozen(kw_only=True)
class Owned:
    """One ownership of one partition."""

    member: str
    start: float
    end: float
    is_lost: bool = False


@frozen(kw_only=True)
class Run:
    """Records delivered at once; ``is_wrong`` if they were held, by A1 or by G2."""

    at: float
    count: int
    first: int
    last: int
    is_wrong: bool = False


@frozen(kw_only=True)
class Point:
    """
    An event at one moment.

    Attributes:
        at: seconds since the epoch.
        kind: assigned, revoked, lost, parked or purged.
        count: the number of partitions, parked bytes or purged records.
        said: further details.
    """

    at: float
    kind: str
    count: int
    said: str = ""


@frozen(kw_only=True)
class Fault:
    """A fault that a test caused in the fleet."""

    kind: str
    targets: tuple[str, ...]
    start: float
    end: float


@frozen(kw_only=True)
class Bar:
    """
    The records of one partition in one column of the picture.

    Attributes:
        at: the middle of the column.
        count: how many were delivered.
        wrong: how many of them were delivered while held.
        first: the lowest offset.
        last: the highest offset.
    """

    at: float
    count: int
    wrong: int
    first: int
    last: int


@frozen(kw_only=True)
class Lane:
    """One partition in one group; ``unjudged`` has checks and why they were not judged."""

    place: Place
    owned: Sequence[Owned]
    held: Sequence[Held]
    runs: Sequence[Run]
    parked: Sequence[Point]
    purged: Sequence[Point]
    findings: Sequence[Finding]
    unjudged: Mapping[str, str] = field(factory=dict)

    @property
    def records(self) -> int:
        """How many records were delivered."""
        return sum(run.count for run in self.runs)

    @property
    def violations(self) -> dict[str, int]:
        """How often each promise was broken."""
        return dict(sorted(Counter(one.check for one in self.findings).items()))

    def bars(self, start: float, width: float, columns: int) -> list[Bar]:
        """Return the records, counted in columns; empty columns are left out."""
        found: dict[int, list[Run]] = {}
        for run in self.runs:
            column = min(columns - 1, int((run.at - start) / width))
            found.setdefault(column, []).append(run)
        return [
            Bar(
                at=start + (column + 0.5) * width,
                count=sum(run.count for run in own),
                wrong=sum(run.count for run in own if run.is_wrong),
                first=min(run.first for run in own),
                last=max(run.last for run in own),
            )
            for column, own in sorted(found.items())
        ]

    def shade(self) -> list[tuple[float, float]]:
        """
        Return the times when its owner must not deliver; holds that touch are joined.

        Holds of a frozen member that does not know yet that it lost the partition do
        not bind the next owner.
        """
        spans = []
        for one in self.held:
            nexts = (
                own.start
                for own in self.owned
                if own.member != one.member and own.start > one.start
            )
            spans.append((one.start, min(one.end, *nexts, one.end)))
        return united(span for span in spans if span[0] < span[1])


@frozen(kw_only=True)
class MemberLane:
    """
    One member; a restarted member continues in its lane.

    Processes with the same name that live at the same time are separate members.

    Attributes:
        group: its consumer group.
        name: its name, without the suffix that distinguishes its processes.
        processes: the names of its processes in journals.
        lives: the times of the first and the last entry of each process.
        points: its rebalances: assigned, revoked, lost.
    """

    group: str
    name: str
    processes: frozenset[str]
    lives: Sequence[tuple[float, float]]
    points: Sequence[Point]


@frozen(kw_only=True)
class Timeline:
    """
    Everything a picture shows; times are seconds since the epoch.

    Attributes:
        start: its begin.
        end: its end.
        origin: the time of the first entry of all journals.
        until: the time of the last entry.
        lanes: the lanes of partitions, by group and topic.
        members: the members.
        faults: the faults that a test caused.
        left_out: how many partitions were not asked for.
        elsewhere: how many violations are outside the part that was asked for.
    """

    start: float
    end: float
    origin: float
    until: float
    lanes: Sequence[Lane]
    members: Sequence[MemberLane]
    faults: Sequence[Fault]
    left_out: int = 0
    elsewhere: int = 0

    @property
    def groups(self) -> list[str]:
        """Return the groups whose partitions are shown."""
        return sorted({lane.place[0] for lane in self.lanes})

    @property
    def violations(self) -> dict[str, int]:
        """How often each promise was broken."""
        found = Counter(one.check for lane in self.lanes for one in lane.findings)
        return dict(sorted(found.items()))

    @property
    def unjudged(self) -> dict[str, list[str]]:
        """Return the checks that could not be judged for each partition, with the reason."""
        found: dict[str, list[str]] = {}
        for lane in self.lanes:
            for check, why in lane.unjudged.items():
                found.setdefault(check, []).append(why)
        return found

    @property
    def is_whole(self) -> bool:
        """Whether everything in the journals is shown."""
        in_time = self.start <= self.origin and self.until <= self.end
        return in_time and not self.left_out

    @property
    def letters(self) -> dict[str, int]:
        """Return the number of each process's member, which gives its letter."""
        return {
            process: number
            for number, member in enumerate(self.members)
            for process in member.processes
        }


def united(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the union of spans, in order and without overlaps."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def letter(number: int) -> str:
    """Return A to Z, then AA and so on."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text
