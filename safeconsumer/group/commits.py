"""
Notes from look to look which committed offsets move though nobody owns the partition.

Whoever assigns partitions to itself is no member for Kafka; what it commits is all that
is seen of it. Kafka takes such commits only while the group has no members.
"""

import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from attrs import field, frozen
from kafka import TopicPartition

from safeconsumer.group.facts import UNKNOWN, GroupFacts

# Clients commit by themselves every 5 s, unless they are told otherwise.
STILL_AFTER = 6.0
# Who was seen to commit may do so less often, and has not gone for that.
_MOVED_FOR = 30.0

# States in which somebody may commit who is in no member list that Kafka tells.
OPEN = frozenset({"Empty", "Dead", UNKNOWN})


@frozen
class Move:
    """
    A committed offset that went on; ``before`` is None if there was none.
    """

    before: int | None
    after: int


@frozen(kw_only=True)
class Commits:
    """
    What several looks tell of the commits for partitions that nobody owns.

    Attributes:
        moved: those whose committed offset went on lately, from look to look.
        still: those whose committed offset stands for longer than clients that commit
            by themselves let it stand.
    """

    moved: Mapping[TopicPartition, Move] = field(factory=dict)
    still: AbstractSet[TopicPartition] = frozenset()


NOTHING_SEEN = Commits()
"""
What one look tells.
"""


@frozen
class _Seen:
    offset: int
    since: float
    is_free: bool
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
    seen: Mapping[TopicPartition, _Seen]

    def is_free(self, tp: TopicPartition) -> bool:
        return self.is_open and tp not in self.owned


class CommitWatch:
    """
    Remembers the committed offsets of groups, for somebody who looks several times.

    Thread rules: none of its own; whoever shares one locks.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looks: dict[str, _Look] = {}

    def note(
        self, group: str, facts: GroupFacts, owned: AbstractSet[TopicPartition]
    ) -> Commits:
        """
        Note one look at a group; return what it and those before tell.

        A move counts only between two looks in both of which nobody owned the
        partition: a member's last commit, with which it leaves, is none.

        Args:
            group: its name.
            facts: what the cluster says.
            owned: what somebody owns, by the cluster's word or by a member's own.
        """
        if not facts.has_committed:
            self._looks.pop(group, None)
            return NOTHING_SEEN
        now, before = self._clock(), self._looks.get(group)
        look = _Look(is_open=facts.state in OPEN, owned=owned, seen={})
        seen = {
            tp: _next(before, tp, offset, now, is_free=look.is_free(tp))
            for tp, offset in facts.committed.items()
        }
        self._looks[group] = _Look(look.is_open, owned, seen)
        free = {tp: one for tp, one in seen.items() if one.is_free}
        return Commits(
            moved={
                tp: one.moved
                for tp, one in free.items()
                if one.moved is not None and one.has_moved(now)
            },
            still=frozenset(tp for tp, one in free.items() if one.is_still(now)),
        )

    def keep(self, groups: AbstractSet[str]) -> None:
        """
        Forget all other groups.
        """
        self._looks = {name: one for name, one in self._looks.items() if name in groups}

    def stands_since(self) -> dict[tuple[str, TopicPartition], float]:
        """
        Return since when committed offsets are where they are, as far as was looked.
        """
        return {
            (group, tp): one.since
            for group, look in self._looks.items()
            for tp, one in look.seen.items()
        }


def _next(
    before: _Look | None, tp: TopicPartition, offset: int, now: float, *, is_free: bool
) -> _Seen:
    known = before.seen.get(tp) if before else None
    if known is not None and known.offset == offset and known.is_free == is_free:
        return known
    at = None if known is None else known.offset
    went_on = at is None or offset > at
    if is_free and went_on and before is not None and before.is_free(tp):
        return _Seen(offset, now, is_free, Move(at, offset), now)
    return _Seen(offset, now, is_free)
