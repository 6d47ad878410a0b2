"""
What journals tell, as a picture needs it: lanes of partitions and of members, in time.

When a partition is owned and when it is held is never worked out here: it is read off
the judge's own replay after each entry, so that picture and verdict cannot disagree.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from attrs import field, frozen

from safeconsumer.audit.findings import Finding

# As many columns as a still picture has places for bars.
COLUMNS = 380

Place = tuple[str, str, int]
"""
A consumer group, a topic, and the number of one of its partitions.
"""


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
    A hold, while it was in force for the member that had the partition.
    """

    member: str
    scope: str
    owner: str
    level: Level
    start: float
    end: float


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
    Records delivered at once; ``is_wrong`` if they were held, by A1 or by G2.
    """

    at: float
    count: int
    first: int
    last: int
    is_wrong: bool = False


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


@frozen(kw_only=True)
class Bar:
    """
    The records of one partition in one column of the picture.

    Attributes:
        at: the middle of the column.
        count: how many were delivered.
        wrong: how many of them while held.
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
    """
    What happened to one partition in one group; ``unjudged`` names checks and why.
    """

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
        """
        How many records were delivered.
        """
        return sum(run.count for run in self.runs)

    @property
    def violations(self) -> dict[str, int]:
        """
        How often each promise was broken.
        """
        return dict(sorted(Counter(one.check for one in self.findings).items()))

    def bars(self, start: float, width: float, columns: int) -> list[Bar]:
        """
        Return the records, counted in columns; of empty ones there is none.
        """
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
        Return when its owner might deliver nothing; holds that touch are one stretch.

        What a frozen member holds, which does not know yet that it lost the partition,
        does not bind the next owner.
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
    What happened to one member; a restarted one goes on in its lane.

    Processes of one name that live at one time are members each.

    Attributes:
        group: its consumer group.
        name: without what only distinguishes its processes.
        processes: their names, as journals have them.
        lives: from the first to the last entry of each process.
        points: rebalances as it saw them: assigned, revoked, lost.
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
        start: where it begins.
        end: where it ends.
        origin: the first entry of all journals.
        until: the last one.
        lanes: of partitions, by group and topic.
        members: of consumers.
        faults: what a test did to them.
        left_out: how many partitions were not asked for.
        elsewhere: how many violations stand where it was not asked for.
        is_packed: whether some of it is from packs, which know nothing of faults.
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
    is_packed: bool = False

    @property
    def groups(self) -> list[str]:
        """
        Return the groups whose partitions are shown.
        """
        return sorted({lane.place[0] for lane in self.lanes})

    @property
    def violations(self) -> dict[str, int]:
        """
        How often each promise was broken.
        """
        found = Counter(one.check for lane in self.lanes for one in lane.findings)
        return dict(sorted(found.items()))

    @property
    def unjudged(self) -> dict[str, list[str]]:
        """
        Return checks that could not be judged, with why, of each partition.
        """
        found: dict[str, list[str]] = {}
        for lane in self.lanes:
            for check, why in lane.unjudged.items():
                found.setdefault(check, []).append(why)
        return found

    @property
    def is_whole(self) -> bool:
        """
        Whether everything is shown that the journals tell.
        """
        in_time = self.start <= self.origin and self.until <= self.end
        return in_time and not self.left_out

    @property
    def letters(self) -> dict[str, int]:
        """
        Return the number of each process's member, which has its letter.
        """
        return {
            process: number
            for number, member in enumerate(self.members)
            for process in member.processes
        }


def united(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """
    Return what spans cover together, in order and without overlaps.
    """
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def letter(number: int) -> str:
    """
    Return A to Z, then AA and so on.
    """
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text
