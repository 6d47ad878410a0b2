"""Finds the holds that take effect on gained partitions, where people may not expect it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from safeconsumer.holds.hold import APP, WHOLE, Hold, HoldKey
from safeconsumer.holds.ownership import Cause, Reassignment
from safeconsumer.holds.scope import Partition, Topic, TopicPartition
from safeconsumer.holds.view import Assigned, Holds

# The most partitions that are remembered to have left quiet: under a hold of everything,
# topics with ever new names would fill the memory. A page of a million bytes.
MOST_LEFT = 10_000


class Bites(NamedTuple):
    """
    What must be known of the past to tell whether a hold bites.

    A hold bites if a partition that left quiet is back and it keeps that quiet, or if
    more comes under a whole pause. That of a whole pause nothing is left by name is
    reported once: all that it keeps quiet is among the partitions then.

    Attributes:
        left_quiet: partitions that left while they were quiet, and are held still, and
            whether the membership was lost with them; the last that left stand last.
        alone: the whole pauses that were reported so, by topic.
    """

    left_quiet: Mapping[TopicPartition, bool] = {}
    alone: Mapping[str, Hold] = {}

    def after(
        self,
        what: Reassignment,
        holds: Holds,
        assigned: Assigned,
        *,
        left: Iterable[TopicPartition],
        cause: Cause,
    ) -> tuple[Bites, dict[str, Any]]:
        """
        Move to a new assignment, of which ``left`` departs and was quiet.

        Returns:
            What is known then; and, if holds bite, the fields of a ``HoldsBit``.
        """
        is_lost = cause is Cause.LOST
        left_quiet = {**self.left_quiet, **dict.fromkeys(left, is_lost)}
        alone = self.alone if cause.is_passing else self._alone(holds, assigned)
        news = {
            topic for topic, one in alone.items() if self.alone.get(topic) is not one
        }
        looked_at = [*what.gained, *(tp for topic in news for tp in assigned[topic])]
        bit: list[TopicPartition] = []
        biting: dict[HoldKey, Hold] = {}
        for tp in sorted(set(looked_at)):
            covering = holds.covering(tp)
            is_whole = any(hold.owner == WHOLE for hold in covering)
            if covering and (is_whole or tp in left_quiet):
                bit.append(tp)
                biting.update((hold.key, hold) for hold in covering)
        gained = what.gained
        still = [tp for tp in left_quiet if tp not in gained and holds.covers(tp)]
        bites = Bites({tp: left_quiet[tp] for tp in still[-MOST_LEFT:]}, alone)
        told = {
            "partitions": tuple(bit),
            "holds": tuple(biting.values()),
            "is_left_alone": bool(news),
            "lost": tuple(tp for tp in bit if tp in gained and left_quiet.get(tp)),
        }
        return bites, told if bit else {}

    def _alone(self, holds: Holds, assigned: Assigned) -> dict[str, Hold]:
        # Whole pauses of topics of which something is here, and nothing by name. One with
        # nothing here at all stays what it was.
        alone = {}
        for topic in {*assigned, *self.alone}:
            whole = holds.get((Topic(topic), WHOLE))
            if whole is None:
                continue
            here = assigned.get(topic, ())
            is_named = any(holds.get((Partition(tp[0], tp[1]), APP)) for tp in here)
            if not is_named and (here or self.alone.get(topic) is whole):
                alone[topic] = whole
        return alone
