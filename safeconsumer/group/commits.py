"""
Finds held partitions that are still consumed by members that do not report.

The only evidence of what a silent member does is its commits. Kafka does not count a
consumer that assigns partitions to itself as a member; if such a consumer does not
report, it cannot be found at all.
"""

import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from attrs import evolve, frozen
from kafka import TopicPartition

from safeconsumer.group.facts import GroupFacts

# Seconds for which a :class:`Move` counts as recent; long, as commits may be rare.
_MOVED_FOR = 30.0


# Seconds within which members must obey a hold; any later delivery disobeys the hold.
_OBEYED_AFTER = 10.0


@frozen
class Move:
    """
    A committed offset that advanced while its partition was held.

    Attributes:
        before: the offset before the move; if only one view was read, an offset that
            the group had not passed when the hold was placed.
        after: the current offset.
        is_proven: whether the move is proven to be recent; if not, the offset is only
            known to be past records with timestamps later than the hold.
    """

    before: int
    after: int
    is_proven: bool = True


def times_to_look_up(
    now: float, since: Mapping[TopicPartition, float]
) -> tuple[Mapping[TopicPartition, float], Mapping[TopicPartition, float]]:
    """
    Return the times for which :func:`moved_at_once` needs the first offsets.

    Args:
        now: the broker's time, in seconds since the epoch.
        since: by partition, the time when its oldest hold was placed.

    Returns:
        By partition, the time from which members must obey its hold; and a second
        mapping with the later of that time and 30 seconds ago.
    """
    held = {tp: one + _OBEYED_AFTER for tp, one in since.items()}
    held = {tp: one for tp, one in held.items() if one < now}
    return held, {tp: max(one, now - _MOVED_FOR) for tp, one in held.items()}


def moved_at_once(
    committed: Mapping[TopicPartition, int],
    held: Mapping[TopicPartition, int],
    recent: Mapping[TopicPartition, int],
    timed: AbstractSet[str],
) -> dict[TopicPartition, Move]:
    """
    Return the held partitions whose committed offset advanced, from a single view.

    If the committed offset is past a record that was written during a hold, the offset
    was moved during the hold. The move is proven if the broker set the record's
    timestamp (``LogAppendTime``) and the timestamp is recent. An older record may have
    been passed by a member that has left.

    Args:
        committed: the committed offsets.
        held: by partition, the first offset at or after the time from which members
            must obey its hold.
        recent: by partition, the first offset at or after the later of that time and 30
            seconds ago.
        timed: the topics whose record timestamps are set by the broker.
    """
    found: dict[TopicPartition, Move] = {}
    for tp, first in held.items():
        offset, late = committed.get(tp, -1), recent.get(tp)
        if late is not None and offset > late and tp.topic in timed:
            found[tp] = Move(late, offset)
        elif offset > first:
            found[tp] = Move(first, offset, is_proven=False)
    return found


@frozen
class _LastCommit:
    offset: int
    since: float
    # The id of the silent member that owned the held partition; None if there was none.
    by: str | None
    # Whether only the newest call found this ``by``; the offset may then be older
    # than the hold.
    is_first: bool = False
    moved: Move | None = None


class CommitWatch:
    """
    Remembers the committed offsets of groups between the queries of a caller.

    Thread rules: not thread-safe; a caller that shares a watch between threads must
    lock.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._last: dict[str, dict[TopicPartition, _LastCommit]] = {}

    def note(
        self, group: str, facts: GroupFacts, silent: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Move]:
        """
        Store a group's offsets; return the held partitions that silent members moved.

        A move counts only between two calls that both find the partition held and owned
        by the same silent member. The first call that finds this member is never the
        earlier of the two, because a commit that becomes visible after it may be older
        than the hold or come from the previous owner.

        Args:
            group: the group's name.
            facts: the cluster's answer.
            silent: held partitions whose owner does not report, each with the owner's
                member id; empty if reports are not read.
        """
        if not facts.has_committed:
            self._last.pop(group, None)
            return {}
        now, before = self._clock(), self._last.get(group, {})
        found = {
            tp: _next(before.get(tp), offset, now, silent.get(tp))
            for tp, offset in facts.committed.items()
        }
        self._last[group] = found
        return {
            tp: one.moved
            for tp, one in found.items()
            if one.moved is not None and now - one.since <= _MOVED_FOR
        }

    def keep(self, groups: AbstractSet[str]) -> None:
        """Forget all groups except these."""
        self._last = {name: one for name, one in self._last.items() if name in groups}


def _next(
    before: _LastCommit | None, offset: int, now: float, by: str | None
) -> _LastCommit:
    if before is None or before.by != by:
        # 1. The cluster reports the offset.
        # 2. The member commits.
        # 3. An operator holds the partition.
        # 4. This program reads the hold; the earlier commit did not violate the hold.
        return _LastCommit(offset, now, by, is_first=True)
    if before.offset == offset:
        return evolve(before, is_first=False)
    went_on = by is not None and offset > before.offset and not before.is_first
    moved = Move(before.offset, offset) if went_on else None
    return _LastCommit(offset, now, by, moved=moved)
