"""
Tells ownerships apart, and finds what a new assignment changed.

An ownership of a partition is known by an object, of which its client makes one for each:
kafka-python's state of the partition. Here it is compared by identity, and not used for
anything else. So a request of an earlier ownership is not taken for one of this one.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from safeconsumer.holds.scope import TopicPartition

Owned = Mapping[TopicPartition, object]
"""
The owned partitions, each with the object that its ownership is known by.
"""


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

    ANEW = "anew"
    """
    Topics were deleted and recreated, or an operator has reset the group: what is owned
    of that begins anew, and nothing else is decided.
    """

    @property
    def is_passing(self) -> bool:
        """Whether it is left to the next completed join what became of the partitions."""
        return self in {Cause.PASSING, Cause.LOST, Cause.ANEW}

    @property
    def is_called(self) -> bool:
        """Whether the application's own call changes it."""
        return self in {Cause.ASSIGNED, Cause.UNSUBSCRIBED, Cause.CLOSED}


class Reassignment(NamedTuple):
    """
    What a new assignment changed: the difference of what was owned before and after.

    Attributes:
        kept: owned before and after, without a gap.
        gained: ownerships that begin.
        departed: ownerships that ended; one whose topic was recreated, or that was
            reset, has ended, and another one of the same partition begins.
    """

    kept: frozenset[TopicPartition] = frozenset()
    gained: frozenset[TopicPartition] = frozenset()
    departed: frozenset[TopicPartition] = frozenset()


def still(owned: Owned, earlier: Owned) -> frozenset[TopicPartition]:
    """Return the partitions of which an earlier ownership goes on."""
    return frozenset(tp for tp, one in earlier.items() if owned.get(tp) is one)


def difference(before: Owned, after: Owned) -> Reassignment:
    """Return what changed between two assignments."""
    kept = still(after, before)
    return Reassignment(
        kept, frozenset(after.keys() - kept), frozenset(before.keys() - kept)
    )
