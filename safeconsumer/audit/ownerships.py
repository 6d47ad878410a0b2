"""Records a member's ownerships of a partition, their deliveries and commits."""

import math
from array import array
from collections.abc import Iterator

from attrs import Factory, define, field, frozen

from safeconsumer.audit.spans import Spans
from safeconsumer.audit.moments import Moments as Moments


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


@define(eq=False)
class Commit:
    """
    A commit that was asked for.

    Attributes:
        entry: the number of the entry that asks for it.
        offset: the offset.
        answered: the number of the entry with its answer; 0 if there is none.
        is_done: whether the answer was that it is done; otherwise it may be, too.
    """

    entry: int
    offset: int
    answered: int = 0
    is_done: bool = False


@define(eq=False)
class Commits:
    """
    The commits of an ownership with which a broker may answer later.

    One that had its answer before a later one was asked for is forgotten once that is
    done.
    """

    _known: list[Commit] = field(factory=list)

    def asked(self, entry: int, offset: int) -> Commit:
        """Add a commit; without an answer it may still have been done."""
        self._known.append(Commit(entry, offset))
        return self._known[-1]

    def answered(self, commit: Commit, entry: int, *, is_done: bool) -> None:
        """Note the answer to one of them."""
        commit.answered, commit.is_done = entry, is_done
        if is_done:
            self._known = [
                one
                for one in self._known
                if one is commit or not 0 < one.answered < commit.entry
            ]

    def __iter__(self) -> Iterator[Commit]:
        return iter(self._known)

    @property
    def last(self) -> Commit | None:
        """The last one that was certainly done."""
        return next((one for one in reversed(self._known) if one.is_done), None)


@frozen
class Answer:
    """
    What the broker answered that the group had committed where an ownership begins.

    Attributes:
        offset: the offset; None if nothing was committed.
        note: the metadata of that commit.
        entry: the number of the entry that has it.
    """

    offset: int | None
    note: str
    entry: int


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
        entry: the number of the entry that reports its begin.
        answer: what was committed where it begins; None if it was not asked for.
        is_chosen: whether a seek, or a reset, chose that position.
        deleted: offsets that the client's reset rule skipped.
        passed: offsets of records that a worker gave up because a seek of its program
            went beyond them, and that have not come again in it.
        commits: those that were asked for in it, or soon after.
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
    entry: int = 0
    answer: Answer | None = None
    is_chosen: bool = False
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
