"""
Finds out which committed offsets move though no member reports the partition.

A consumer that assigns partitions to itself is not a member for Kafka; only its commits
can be seen. Kafka accepts such commits only while the group has no members. Of a member
that does not report, only the commits can be seen, too.
"""

import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from attrs import evolve, field, frozen
from kafka import TopicPartition

from safeconsumer.group.facts import UNKNOWN, GroupFacts, Standing
from safeconsumer.group.report_wire import Report

# Seconds; clients commit by themselves every 5 s, unless they are set up otherwise.
STILL_AFTER = 6.0
# Seconds; a consumer that was seen to commit may also do so less often.
_MOVED_FOR = 30.0

# Group states in which a consumer may commit that Kafka lists as no member.
OPEN = frozenset({"Empty", "Dead", UNKNOWN})

_NONE_SILENT: Mapping[TopicPartition, str] = MappingProxyType({})


@frozen
class Move:
    """A committed offset that has moved; ``before`` is None if there was none."""

    before: int | None
    after: int


@frozen(kw_only=True)
class Commits:
    """
    What several looks show of the commits for partitions that no owner reports.

    Attributes:
        moved: unowned partitions whose committed offset moved lately, between two
            looks.
        still: unowned partitions whose committed offset has not moved for longer than
            clients wait that commit by themselves.
        moved_by_silent: held partitions whose committed offset moved lately while the
            same member, which does not report, owned them.
    """

    moved: Mapping[TopicPartition, Move] = field(factory=dict)
    still: AbstractSet[TopicPartition] = frozenset()
    moved_by_silent: Mapping[TopicPartition, Move] = field(factory=dict)


NOTHING_SEEN = Commits()
"""
The result of a single look.
"""


def held_by_silent(
    facts: GroupFacts, reports: Collection[Report], holds: Collection[Standing]
) -> dict[TopicPartition, str]:
    """
    Return held partitions whose owner does not report, each with its member id.

    An earlier version reports without its member id; any member of its client id may be
    meant.
    """
    ids = {one.member_id for one in reports}
    names = {one.client_id for one in reports if one.member_id is None}
    return {
        tp: one.member_id
        for one in facts.members
        if one.member_id not in ids and one.client_id not in names
        for tp in one.assigned
        if any(hold.covers(tp) for hold in holds)
    }


# "" if nobody owns it; else the id of a member that does not report and owns a held
# one.
_NOBODY = ""


@frozen
class _Seen:
    offset: int
    since: float
    # The only member that may commit it; None if others may, too.
    by: str | None
    moved: Move | None = None
    moved_at: float = 0.0

    def has_moved(self, now: float) -> bool:
        return self.moved is not None and now - self.moved_at <= _MOVED_FOR

    def is_still(self, now: float) -> bool:
        return not self.has_moved(now) and now - self.since >= STILL_AFTER


@frozen
class _Look:
    is_open: bool
    owned: AbstractSet[TopicPartition]
    silent: Mapping[TopicPartition, str]
    seen: Mapping[TopicPartition, _Seen]

    def by(self, tp: TopicPartition) -> str | None:
        is_free = self.is_open and tp not in self.owned
        return _NOBODY if is_free else self.silent.get(tp)


class CommitWatch:
    """
    Remembers the committed offsets of groups, for a caller that looks several times.

    Thread rules: none; a caller that shares one between threads must lock.

    Args:
        clock: returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._looks: dict[str, _Look] = {}

    def note(
        self,
        group: str,
        facts: GroupFacts,
        owned: AbstractSet[TopicPartition],
        silent: Mapping[TopicPartition, str] = _NONE_SILENT,
    ) -> Commits:
        """
        Note one look at a group; return what it shows together with those before.

        A move counts only between two looks in both of which nobody owned the
        partition: the last commit of a member that leaves does not count. Or between
        two looks in both of which it was held and owned by the same silent member: a
        commit from before the hold, or by the previous owner, does not count.

        Args:
            group: the group's name.
            facts: what the cluster answered.
            owned: partitions with an owner, as the cluster or a member reports.
            silent: the result of :func:`held_by_silent`; empty if reports are not read.
        """
        if not facts.has_committed:
            self._looks.pop(group, None)
            return NOTHING_SEEN
        now, before = self._clock(), self._looks.get(group)
        look = _Look(facts.state in OPEN, owned, silent, {})
        seen = {
            tp: _next(before, tp, offset, now, look.by(tp))
            for tp, offset in facts.committed.items()
        }
        self._looks[group] = evolve(look, seen=seen)
        return _commits(seen, now)

    def keep(self, groups: AbstractSet[str]) -> None:
        """Forget all other groups."""
        self._looks = {name: one for name, one in self._looks.items() if name in groups}

    def stands_since(self) -> dict[tuple[str, TopicPartition], float]:
        """Return since when committed offsets have not moved, as far as looks go back."""
        return {
            (group, tp): one.since
            for group, look in self._looks.items()
            for tp, one in look.seen.items()
        }


def _commits(seen: Mapping[TopicPartition, _Seen], now: float) -> Commits:
    moved: dict[bool, dict[TopicPartition, Move]] = {True: {}, False: {}}
    for tp, one in seen.items():
        if one.moved is not None and one.has_moved(now):
            moved[one.by == _NOBODY][tp] = one.moved
    free = (tp for tp, one in seen.items() if one.by == _NOBODY and one.is_still(now))
    return Commits(
        moved=moved[True], still=frozenset(free), moved_by_silent=moved[False]
    )


def _next(
    before: _Look | None, tp: TopicPartition, offset: int, now: float, by: str | None
) -> _Seen:
    known = before.seen.get(tp) if before else None
    if known is not None and known.offset == offset and known.by == by:
        return known
    at = None if known is None else known.offset
    # Its first commit may be the position at which it began.
    went_on = by == _NOBODY if at is None else offset > at
    if by is not None and went_on and before is not None and before.by(tp) == by:
        return _Seen(offset, now, by, Move(at, offset), now)
    return _Seen(offset, now, by)
