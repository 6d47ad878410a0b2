"""
Finds held partitions that are read by a member that does not report.

Only the commits of such a member are visible. A consumer that assigns partitions to itself
is not a member for Kafka: if it does not report, it is invisible.
"""

import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from attrs import evolve, frozen
from kafka import TopicPartition

from safeconsumer.group.facts import GroupFacts

# Seconds for which a move counts: a consumer may commit rarely.
_MOVED_FOR = 30.0


# Seconds within which members obey a hold: a later delivery is under the hold.
_OBEYED_AFTER = 10.0


@frozen
class Move:
    """
    A committed offset that has moved while its partition was held.

    Attributes:
        before: the earlier offset; or an offset that the group had not passed when the
            hold was placed.
        after: the offset now.
        is_proven: whether it moved recently, by the broker's clock; otherwise it is
            past records that, by their producers' clocks, are younger than the hold.
    """

    before: int
    after: int
    is_proven: bool = True


def times_to_look_up(
    now: float, since: Mapping[TopicPartition, float]
) -> tuple[Mapping[TopicPartition, float], Mapping[TopicPartition, float]]:
    """
    Return the times whose first offsets :func:`moved_at_once` needs.

    Args:
        now: the broker's time, in seconds since the epoch.
        since: by partition, when its oldest hold was placed.

    Returns:
        By partition, the time from which on members obey its hold; and that time, or one
        of the last seconds, whichever is later.
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
    Return the held offsets that have moved, from one view of a group.

    A committed offset that is past a record of the time of a hold has moved under it. The
    move is proven if the broker wrote that time (``LogAppendTime``) and it is recent: an
    older record may have been passed by a member that has left.

    Args:
        committed: the committed offsets.
        held: the first offset at or after each time from which on a hold is obeyed.
        recent: likewise of the recent times.
        timed: the topics whose records have the broker's times.
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
    # The silent member that owned it while it was held; None if there was none.
    by: str | None
    # Whether this is the first offset with that member: the hold may be placed after
    # it.
    is_first: bool = False
    moved: Move | None = None


class CommitWatch:
    """
    Remembers the committed offsets of groups, for a caller that asks repeatedly.

    Thread rules: none; a caller that shares one between threads must lock.

    Args:
        clock: returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._last: dict[str, dict[TopicPartition, _LastCommit]] = {}

    def note(
        self, group: str, facts: GroupFacts, silent: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Move]:
        """
        Note the offsets of a group; return the moves of held offsets by silent members.

        A move counts only between two calls in both of which the partition was held and
        owned by the same silent member, and not from the first such call on: a commit from
        before the hold, or by the previous owner, does not count.

        Args:
            group: the group's name.
            facts: the cluster's answer.
            silent: held partitions whose owner does not report, each with its member id;
                empty if reports are not read.
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
        """Forget all other groups."""
        self._last = {name: one for name, one in self._last.items() if name in groups}


def _next(
    before: _LastCommit | None, offset: int, now: float, by: str | None
) -> _LastCommit:
    if before is None or before.by != by:
        # 1. The cluster reports the offset.
        # 2. The member commits.
        # 3. An operator holds the partition.
        # 4. The hold is read: that commit did not disobey it.
        return _LastCommit(offset, now, by, is_first=True)
    if before.offset == offset:
        return evolve(before, is_first=False)
    went_on = by is not None and offset > before.offset and not before.is_first
    moved = Move(before.offset, offset) if went_on else None
    return _LastCommit(offset, now, by, moved=moved)
