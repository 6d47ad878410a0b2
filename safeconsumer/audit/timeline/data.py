"""Defines what a timeline shows: lanes of partitions, and the members, in time."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from attrs import field, frozen

from safeconsumer.audit.findings import Address, Finding


@frozen(kw_only=True)
class Held:
    """A hold, while it was in force for the member that had the partition."""

    member: str
    scope: str
    owner: str
    start: float
    end: float


@frozen(kw_only=True)
class Time:
    """A time of one member: an ownership of a partition, or the life of its process."""

    member: str
    start: float
    end: float
    is_lost: bool = False


@frozen(kw_only=True)
class Run:
    """
    Records that were delivered at once, or within one column of the picture.

    Attributes:
        at: when they were, or the middle of the column.
        count: how many were delivered.
        wrong: how many of them were delivered while held, by A1 or by G2.
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

    case: Address
    owned: Sequence[Time]
    held: Sequence[Held]
    runs: Sequence[Run]
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

    def bars(self, start: float, width: float, columns: int) -> list[Run]:
        """Return the records, counted in columns; empty columns are left out."""
        found: dict[int, list[Run]] = {}
        for run in self.runs:
            column = min(columns - 1, int((run.at - start) / width))
            found.setdefault(column, []).append(run)
        return [
            Run(
                at=start + (column + 0.5) * width,
                count=sum(run.count for run in own),
                wrong=sum(run.wrong for run in own),
                first=min(run.first for run in own),
                last=max(run.last for run in own),
            )
            for column, own in sorted(found.items())
        ]

    def shade(self) -> Iterator[tuple[float, float]]:
        """
        Yield the times when its owner must not deliver.

        Holds of a frozen member that does not know yet that it lost the partition do
        not bind the next owner.
        """
        for one in self.held:
            nexts = (
                own.start
                for own in self.owned
                if own.member != one.member and own.start > one.start
            )
            yield one.start, min(one.end, *nexts, one.end)


@frozen(kw_only=True)
class Timeline:
    """
    Everything that is shown; times are seconds since the epoch.

    Attributes:
        start: its begin.
        end: its end.
        lanes: the lanes of partitions, by group and topic.
        members: the processes of members, from their first entries to their last ones.
        is_whole: whether everything in the journals is shown.
        elsewhere: how many violations are outside the part that is shown.
    """

    start: float
    end: float
    lanes: Sequence[Lane]
    members: Sequence[Time]
    is_whole: bool = True
    elsewhere: int = 0

    @property
    def violations(self) -> dict[str, int]:
        """How often each promise was broken."""
        found = Counter(one.check for lane in self.lanes for one in lane.findings)
        return dict(sorted(found.items()))

    @property
    def unjudged(self) -> dict[str, list[str]]:
        """The checks that could not be judged, with the reason of each partition."""
        found: dict[str, list[str]] = {}
        for lane in self.lanes:
            for check, why in lane.unjudged.items():
                found.setdefault(check, []).append(why)
        return found
