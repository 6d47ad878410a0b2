"""
Distinguishes a partition's ownerships, and compares assignments.

Each ownership of a partition is identified by an object. The client creates a new
object for each ownership, like kafka-python's state objects for partitions. This module
compares these objects only by identity, so a request from an earlier ownership is never
mistaken for one from the current ownership.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from safeconsumer.holds.scope import TopicPartition

Owned = Mapping[TopicPartition, object]
"""
The owned partitions, each with the object that identifies its ownership.
"""


class Cause(Enum):
    """The reason why an assignment changes."""

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
    A join is being prepared, or the consumer is closing; the next completed join
    decides whether this member gets the partitions back.
    """

    LOST = "lost"
    """
    The membership was lost, so other members may have owned the partitions; the next
    completed join decides whether this member gets them back, too.
    """

    RENEWED = "renewed"
    """
    Topics were deleted and recreated, or an operator has reset the group; the affected
    partitions get new ownerships, and undecided ownerships stay undecided.
    """

    @property
    def is_passing(self) -> bool:
        """Whether the next completed join determines if the partitions are given back."""
        return self in {Cause.PASSING, Cause.LOST, Cause.RENEWED}

    @property
    def is_called(self) -> bool:
        """Whether a call by the application has changed the assignment."""
        return self in {Cause.ASSIGNED, Cause.UNSUBSCRIBED, Cause.CLOSED}


class Reassignment(NamedTuple):
    """
    The difference between two assignments.

    Attributes:
        kept: partitions that were owned before and after, without a gap.
        gained: partitions whose ownership begins.
        departed: partitions whose ownership ended. A partition that was reset, or whose
            topic was recreated, is both departed and gained.
    """

    kept: frozenset[TopicPartition] = frozenset()
    gained: frozenset[TopicPartition] = frozenset()
    departed: frozenset[TopicPartition] = frozenset()


def still(owned: Owned, earlier: Owned) -> frozenset[TopicPartition]:
    """Return the partitions whose earlier ownership is still the current one."""
    return frozenset(tp for tp, one in earlier.items() if owned.get(tp) is one)


def difference(before: Owned, after: Owned) -> Reassignment:
    """Return the difference between two assignments."""
    kept = still(after, before)
    return Reassignment(
        kept, frozenset(after.keys() - kept), frozenset(before.keys() - kept)
    )
