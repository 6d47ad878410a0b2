"""
What a member had of a partition: ownerships, what came in them, what was committed.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator

from attrs import Factory, define, field, frozen

from safeconsumer.audit.spans import Spans


@frozen(kw_only=True)
class Delivered:
    """
    Runs of delivered records without a gap between; ``at`` is when the first came.
    """

    start: int
    end: int
    at: float


@define
class Moments:
    """
    When something happened, and on which offset; sixteen bytes each.
    """

    at: "array[float]" = field(factory=lambda: array("d"))
    offset: "array[int]" = field(factory=lambda: array("q"))

    def add(self, at: float, offset: int) -> None:
        """
        Take note of one.
        """
        self.at.append(at)
        self.offset.append(offset)

    def between(self, start: float, end: float) -> Iterator[tuple[float, int]]:
        """
        Yield what happened after the one and before the other.
        """
        for number in range(bisect_right(self.at, start), len(self.at)):
            if self.at[number] >= end:
                return
            yield self.at[number], self.offset[number]


@define
class Commits:
    """
    What was asked for, and what was answered, in order; seventeen bytes each.
    """

    at: "array[float]" = field(factory=lambda: array("d"))
    offset: "array[int]" = field(factory=lambda: array("q"))
    is_sure: bytearray = field(factory=bytearray)

    def add(self, at: float, offset: int, *, is_sure: bool) -> None:
        """
        Take note of one: without an answer it may have been done all the same.
        """
        self.at.append(at)
        self.offset.append(offset)
        self.is_sure.append(is_sure)

    def __iter__(self) -> Iterator[tuple[float, int, bool]]:
        """
        Yield each one's time, offset, and whether it was answered.
        """
        return zip(self.at, self.offset, map(bool, self.is_sure), strict=True)

    def until(self, at: float) -> "Commits":
        """
        Return those up to a moment.
        """
        if not self.at or self.at[-1] <= at:
            return self
        end = bisect_right(self.at, at)
        return Commits(self.at[:end], self.offset[:end], self.is_sure[:end])

    @property
    def last(self) -> int | None:
        """
        What was committed last, for sure; None: nothing was.
        """
        found = self.is_sure.rfind(1)
        return None if found < 0 else self.offset[found]

    @property
    def least(self) -> int | None:
        """
        The lowest offset that was committed for sure.
        """
        return min((offset for _, offset, sure in self if sure), default=None)

    @property
    def most(self) -> int:
        """
        The highest offset that may have been committed; -1: none.
        """
        return max(self.offset, default=-1)


@frozen(kw_only=True)
class Dated:
    """
    A record, and the time that it has.

    Attributes:
        offset: its place.
        at: its time, seconds since the epoch.
        is_brokers: whether that is the broker's, of when it was appended; else its
            producer's.
        seen: when it was delivered.
    """

    offset: int
    at: float
    is_brokers: bool
    seen: float


@define(kw_only=True, eq=False)
class Epoch:
    """
    One ownership: from assigned to revoked or lost.

    Attributes:
        member: whose.
        at: when it began.
        over: when the last was heard of it.
        runs: how its position went.
        first: when the first record came, which may be to come again, and its offset;
            None: none did.
        came: the offsets of its records, without what the position passed over.
        dated: the records with which it went on where it had not been, as far as their
            times are told, and the last one with a time.
        commits: what was asked to be committed in it, or soon after.
        was_assigned: whether somebody said that it began; else records just came.
        seeks: how many seeks came before its first record, and did not fail.
        was_lost: whether it ended without the member's doing.
        has_committed: whether a commit of it was acknowledged.
        sure: of what was committed before any seek, the lowest and the highest offset;
            None: nothing was acknowledged.
        generation: of the group, if it is known; -1 is none.
        owned_since: when it began, or the one before it if the very next generation
            gave the partition back: nobody else can have owned it between.
    """

    member: str
    at: float
    over: float = field(default=Factory(lambda self: self.at, takes_self=True))
    runs: list[Delivered] = field(factory=list)
    first: tuple[float, int] | None = None
    came: Spans = field(factory=Spans)
    dated: list[Dated] = field(factory=list)
    commits: Commits = field(factory=Commits)
    was_assigned: bool = True
    seeks: int = 0
    was_lost: bool = False
    has_committed: bool = False
    sure: tuple[int, int] | None = None
    generation: int | None = None
    owned_since: float = field(default=Factory(lambda self: self.at, takes_self=True))

    def is_followed_by(self, generation: int | None) -> bool:
        """
        Tell whether an ownership of that generation is this one given back.
        """
        known = self.generation is not None and not self.was_lost
        return known and generation == self.generation + 1  # type: ignore[operator]  # known

    @property
    def end(self) -> int:
        """
        The highest position that it reached; -1: nothing came.
        """
        return max((run.end for run in self.runs), default=-1)

    @property
    def was_sought(self) -> bool:
        """
        Whether somebody chose where it begins.
        """
        return self.seeks > 0

    @property
    def is_numbered(self) -> bool:
        """
        Tell whether the group's generation of its begin is known.
        """
        return self.generation is not None and self.generation >= 0

    @property
    def delivered_at(self) -> float:
        """
        When its first record came, or when it began.
        """
        return self.runs[0].at if self.runs and self.runs[0].at < math.inf else self.at
