"""Numbers ownerships, and finds what a new assignment changed."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from safeconsumer.holds.scope import TopicPartition


class Cause(Enum):
    """Says why an assignment changes."""

    JOINED = "joined"
    """A join has completed, or partitions were assigned without a group."""

    ASSIGNED = "assigned"
    """The application called ``assign``."""

    UNSUBSCRIBED = "unsubscribed"
    """The application called ``unsubscribe``."""

    CLOSED = "closed"
    """The application closed the consumer."""

    PASSING = "passing"
    """
    A join is being prepared, or the consumer closes: the next completed join decides
    what became of the partitions.
    """

    LOST = "lost"
    """
    The membership was lost, so that others may have owned the partitions; the next
    completed join decides here, too.
    """

    @property
    def is_passing(self) -> bool:
        """Whether it is left to the next completed join what became of the partitions."""
        return self in {Cause.PASSING, Cause.LOST}

    @property
    def is_called(self) -> bool:
        """Whether the application's own call changes it."""
        return self in {Cause.ASSIGNED, Cause.UNSUBSCRIBED, Cause.CLOSED}


class Ownership(NamedTuple):
    """
    The owned partitions, each with the epoch in which its ownership began.

    An epoch is never used twice, so requests of an earlier ownership of the same
    partition can be distinguished from those of this one.
    """

    epochs: Mapping[TopicPartition, int] = {}
    next_epoch: int = 1

    def still(self, epochs: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return what is owned still, without a gap since it had these epochs."""
        return {tp for tp, epoch in epochs.items() if self.epochs.get(tp) == epoch}


class Reassignment(NamedTuple):
    """
    What a new assignment changed.

    Attributes:
        kept: owned before and after, without a gap.
        gained: owned from now on.
        departed: no longer owned.
    """

    kept: frozenset[TopicPartition] = frozenset()
    gained: frozenset[TopicPartition] = frozenset()
    departed: frozenset[TopicPartition] = frozenset()


def reassign(
    ownership: Ownership,
    assignment: Iterable[TopicPartition],
    recreated: Collection[TopicPartition] = (),
) -> tuple[Ownership, Reassignment]:
    """
    Move to a new assignment.

    Kept partitions keep their epoch; gained ones get a new one, and so do those whose
    topic was recreated: they have departed, and are gained.
    """
    after = tuple(dict.fromkeys(assignment))
    before = {tp: one for tp, one in ownership.epochs.items() if tp not in recreated}
    epoch = ownership.next_epoch
    gained = frozenset(tp for tp in after if tp not in before)
    if not gained and len(after) == len(before):
        return ownership, Reassignment(kept=frozenset(before))
    change = Reassignment(
        kept=frozenset(tp for tp in after if tp in before),
        gained=gained,
        departed=frozenset(ownership.epochs).difference(
            tp for tp in after if tp in before
        ),
    )
    epochs = {tp: before.get(tp, epoch) for tp in after}
    return Ownership(epochs, epoch + bool(gained)), change
