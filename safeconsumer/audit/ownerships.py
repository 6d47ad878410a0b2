"""Records a member's ownerships of a partition, their deliveries and commits."""

import math
from array import array
from collections.abc import Iterator
from itertools import compress

from attrs import Factory, define, field

from safeconsumer.audit.moments import Moments as Moments

from safeconsumer.audit.spans import Spans


@define
class Delivered:
    """
    Runs of records without a gap between.

    Attributes:
        start: the position before them.
        end: the position after them.
        at: when the first record came; ``inf`` if the position moved without one.
    """

    start: int
    end: int
    at: float


@define
class Commits:
    """Requested commits and their answers, in order; each takes nine bytes."""

    offset: "array[int]" = field(factory=lambda: array("q"))
    is_sure: bytearray = field(factory=bytearray)

    def add(self, offset: int, *, is_sure: bool) -> None:
        """Add a commit; without an answer it may still have been done."""
        self.offset.append(offset)
        self.is_sure.append(is_sure)

    def lowest(self, before: int | None) -> int | None:
        """
        Return the lowest offset that may be the committed one after these.

        One that failed may have been done all the same: its answer was lost.

        Args:
            before: the lowest one before these; None if none is known.
        """
        found = self.is_sure.rfind(1)
        sure = before if found < 0 else self.offset[found]
        return None if sure is None else min((sure, *self.offset[found + 1 :]))

    @property
    def least(self) -> int | None:
        """The lowest offset that was certainly committed."""
        return min(compress(self.offset, self.is_sure), default=None)

    @property
    def most(self) -> int:
        """The highest offset that may have been committed; -1 if there is none."""
        return max(self.offset, default=-1)


@define(kw_only=True, eq=False)
class Epoch:
    """
    One ownership: from assigned to revoked or lost.

    Attributes:
        member: the member that owned the partition.
        at: when it began.
        over: when it ended, or the journal.
        runs: the runs through which its position moved.
        first: when its first record came, and the offset; records of a peek count,
            too. None: no record came.
        came: the offsets of its records, without those that the position skipped.
        skipped: offsets that the application skipped.
        began_at: the position where it stood first; None if it is not known.
        deleted: offsets that the client's reset rule skipped.
        passed: offsets of records that a worker gave up because a seek of its program
            went beyond them, and that have not come again in it.
        commits: the commits that were asked for in it, or soon after.
        was_assigned: whether an entry reports its begin; if not, records just came.
        seeks: how many successful seeks came before its first record.
        was_reset: whether it began where an operator's hold moved the partition: what
            was committed before it counts no more.
        was_lost: whether it ended without the member's doing.
        was_revoked: whether it ended in a rebalance that the member took part in.
        has_committed: whether a commit of it was acknowledged.
        sure: the lowest and the highest offset that were committed before any seek;
            None if no commit was acknowledged.
        generation: the generation of the group, if it is known; -1 means no generation.
        topic_id: the id of the topic, if it is known.
        cluster: the id of the cluster, if it is known.
        owned_since: when it began, or when the one before it began if the same or the
            very next generation gave the partition back: nobody else can have owned it
            in between.
    """

    member: str
    at: float
    over: float = field(default=Factory(lambda self: self.at, takes_self=True))
    runs: list[Delivered] = field(factory=list)
    first: tuple[float, int] | None = None
    came: Spans = field(factory=Spans)
    skipped: Spans = field(factory=Spans)
    began_at: int | None = None
    deleted: Spans = field(factory=Spans)
    passed: Spans = field(factory=Spans)
    commits: Commits = field(factory=Commits)
    was_assigned: bool = True
    seeks: int = 0
    was_reset: bool = False
    was_lost: bool = False
    was_revoked: bool = False
    has_committed: bool = False
    sure: tuple[int, int] | None = None
    generation: int | None = None
    topic_id: str | None = None
    cluster: str | None = None
    owned_since: float = field(default=Factory(lambda self: self.at, takes_self=True))

    def is_followed_by(self, generation: int | None) -> bool:
        """
        Return whether an ownership of that generation is this one given back.

        By the very next one, or by the same: a follower that joins again may be
        answered with the generation that it knows. Nobody else can have had the
        partition.
        """
        if self.generation is None or generation is None or self.was_lost:
            return False
        is_same = generation == self.generation >= 0
        return is_same or generation == self.generation + 1

    def is_since(self, other: "Epoch") -> bool:
        """Return whether it is that ownership, or is known to be a later one."""
        if self.member == other.member:
            return self.at >= other.at
        both = [(one.generation or 0, one.at) for one in (self, other)]
        return self.is_numbered and other.is_numbered and both[0] > both[1]

    @property
    def end(self) -> int:
        """The highest position that it reached; -1 if nothing came."""
        return max((run.end for run in self.runs), default=-1)

    @property
    def was_sought(self) -> bool:
        """Whether a seek chose where it begins."""
        return self.seeks > 0

    @property
    def is_numbered(self) -> bool:
        """Whether the group's generation at its begin is known."""
        return self.generation is not None and self.generation >= 0

    @property
    def delivered_at(self) -> float:
        """When its first record came, or when it began."""
        return self.runs[0].at if self.runs and self.runs[0].at < math.inf else self.at
