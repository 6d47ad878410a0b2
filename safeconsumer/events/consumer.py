"""
Everything that can be seen happening, each as one frozen, JSON-ready value.
"""

from collections.abc import Iterable
from typing import ClassVar

from attrs import fields, frozen

from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import TopicPartition

Partitions = tuple[TopicPartition, ...]


@frozen(kw_only=True)
class Event:
    """
    Parent of all events.

    Attributes:
        at: seconds since the epoch.
        client_id: Kafka's ``client_id`` of the consumer, or None.
        group_id: its consumer group, or None.
        name: what happened, in the notation of log lines.
        level: how a log line about such events is ranked: debug, info, warning, error.
    """

    name: ClassVar[str] = "event"
    level: ClassVar[str] = "info"

    at: float = 0.0
    client_id: str | None = None
    group_id: str | None = None

    @property
    def severity(self) -> str:
        """
        How a log line about this one is ranked: as all of its kind, if not routine.
        """
        return self.level

    def as_dict(self) -> dict[str, object]:
        """
        Return every field as plain JSON values; partitions as ``orders:3``.
        """
        return {one.name: _plain(getattr(self, one.name)) for one in fields(type(self))}


@frozen(kw_only=True)
class AboutHolds(Event):
    """
    Parent of what happens to holds; about a worker's own it is for debugging only.

    Attributes:
        holds: which.
    """

    name: ClassVar[str] = "about_holds"

    holds: tuple[Hold, ...]

    @property
    def severity(self) -> str:
        """
        How a log line about this one is ranked.
        """
        is_routine = self.holds and all(one.is_routine for one in self.holds)
        return "debug" if is_routine else self.level


@frozen(kw_only=True)
class HoldsPlaced(AboutHolds):
    """
    One call placed or changed holds.

    Attributes:
        holds: those that are new or different.
        quiet: assigned partitions that became quiet by it.
        topics: known topics that the holds cover; None if no pattern is among them.
    """

    name: ClassVar[str] = "hold_placed"

    quiet: Partitions = ()
    topics: tuple[str, ...] | None = None


@frozen(kw_only=True)
class PatternCoversNothing(Event):
    """
    A pattern was placed that no known topic matches now.
    """

    name: ClassVar[str] = "pattern_covers_nothing"
    level: ClassVar[str] = "warning"

    holds: tuple[Hold, ...]


@frozen(kw_only=True)
class PatternIsSlow(Event):
    """
    Matching a pattern against one topic name took long, and stopped every thread.

    Attributes:
        pattern: the expression, in the notation of scopes.
        topic: the name it was matched with.
        seconds: how long it took.
    """

    name: ClassVar[str] = "pattern_is_slow"
    level: ClassVar[str] = "warning"

    pattern: str
    topic: str
    seconds: float


@frozen(kw_only=True)
class PatternFailed(Event):
    """
    A pattern raised when it was asked about a topic name; the topic counts as covered.

    Attributes:
        pattern: the expression, in the notation of scopes.
        topic: the name it was asked about.
        error: what it raised.
    """

    name: ClassVar[str] = "pattern_failed"
    level: ClassVar[str] = "error"

    pattern: str
    topic: str
    error: str


@frozen(kw_only=True)
class HoldsRemain(Event):
    """
    One call tried to lift holds that are not there, and others cover its targets.

    Attributes:
        targets: what was to be lifted.
        remaining: holds that cover them.
    """

    name: ClassVar[str] = "hold_remains"

    targets: tuple[str, ...]
    remaining: tuple[Hold, ...]


@frozen(kw_only=True)
class HoldsRemoved(AboutHolds):
    """
    One call lifted holds.

    Attributes:
        holds: those that are gone.
        flowing: assigned partitions that flow by it.
        remaining: holds that still cover the same targets.
    """

    name: ClassVar[str] = "hold_removed"

    flowing: Partitions = ()
    remaining: tuple[Hold, ...] = ()


@frozen(kw_only=True)
class HoldsExpired(AboutHolds):
    """
    Holds reached their time limit.
    """

    name: ClassVar[str] = "hold_expired"

    flowing: Partitions = ()


@frozen(kw_only=True)
class HoldsEnded(AboutHolds):
    """
    Holds ended with the assignment they were bound to.

    Attributes:
        holds: those that are gone.
        departed: the partitions that were revoked or lost.
    """

    name: ClassVar[str] = "hold_ended"

    departed: Partitions


@frozen(kw_only=True)
class AssignmentChanged(Event):
    """
    The assignment changed, by a join, ``assign``, ``unsubscribe`` or ``close``.

    Attributes:
        gained: partitions owned from now on.
        departed: partitions no longer owned.
        quiet: those of the gained that are quiet from their first instant.
    """

    name: ClassVar[str] = "assignment_changed"
    level: ClassVar[str] = "debug"

    gained: Partitions
    departed: Partitions
    quiet: Partitions


@frozen(kw_only=True)
class HoldsBit(AboutHolds):
    """
    Surviving holds took effect on partitions that were gained.

    Attributes:
        partitions: gained and quiet.
        holds: what keeps them so.
    """

    name: ClassVar[str] = "hold_bit_on_assignment"
    level: ClassVar[str] = "warning"

    partitions: Partitions


@frozen(kw_only=True)
class GatesChanged(Event):
    """
    Partitions were closed, or opened, by the consumer itself and not by a hold.

    Attributes:
        quiet: partitions that became quiet.
        flowing: partitions that flow again.
        reason: why, for people.
    """

    name: ClassVar[str] = "gate_changed"
    level: ClassVar[str] = "debug"

    quiet: Partitions
    flowing: Partitions
    reason: str


@frozen(kw_only=True)
class RebalanceCompleted(Event):
    """
    A join of the consumer group completed and its assignment is in force.

    Attributes:
        generation: Kafka's generation id.
        member_id: Kafka's member id.
        kept: owned without a gap.
        gained: owned from now on, regained ones too.
        revoked: given up.
        lost: taken away while the membership was lost.
        quiet: what is quiet now.
        bit: holds that keep gained partitions quiet.
    """

    name: ClassVar[str] = "rebalance_completed"

    generation: int
    member_id: str
    kept: Partitions
    gained: Partitions
    revoked: Partitions
    lost: Partitions
    quiet: Partitions
    bit: tuple[Hold, ...]


@frozen(kw_only=True)
class PauseForgotten(Event):
    """
    A kept partition woke in a rebalance though nobody lifted its hold.

    It never happens; if it does, it is a defect of this package.
    """

    name: ClassVar[str] = "pause_forgotten"
    level: ClassVar[str] = "error"

    partitions: Partitions


@frozen(kw_only=True)
class StaleJoinDropped(Event):
    """
    A join had been started for a subscription that was changed since.

    Its assignment was not applied; the consumer joins again before it delivers.
    """

    name: ClassVar[str] = "stale_join_dropped"

    generation: int


@frozen(kw_only=True)
class FetchesPurged(Event):
    """
    Fetched data of an ended ownership was thrown away.

    Attributes:
        partitions: whose it was.
        fetches: how many answers or parts of answers.
        records: how many records; None where the format does not tell.
        bytes: as they came from the broker.
    """

    name: ClassVar[str] = "fetches_purged"

    partitions: Partitions
    fetches: int
    records: int | None
    bytes: int


@frozen(kw_only=True)
class ParkedDataDropped(Event):
    """
    Parked data exceeded ``parked_max_bytes``; the oldest will be fetched again.

    Attributes:
        partitions: whose data it was.
        bytes: how much was dropped.
    """

    name: ClassVar[str] = "parked_data_dropped"

    partitions: Partitions
    bytes: int


@frozen(kw_only=True)
class HeldPartitionUncommitted(Event):
    """
    A quiet partition departed, nothing was committed for it, and the policy is latest.

    Whoever owns it next starts at its end: what was held back is skipped.
    """

    name: ClassVar[str] = "held_partition_uncommitted"
    level: ClassVar[str] = "warning"

    partitions: Partitions


def sorted_partitions(partitions: Iterable[TopicPartition]) -> Partitions:
    """
    Return partitions in the order people expect.
    """
    return tuple(sorted(partitions))


def _plain(value: object) -> object:
    if isinstance(value, Hold):
        return value.as_dict()
    if isinstance(value, tuple):
        if type(value) is not tuple or _is_partition(value):
            return f"{value[0]}:{value[1]}"
        return [_plain(one) for one in value]
    return value


def _is_partition(value: tuple[object, ...]) -> bool:
    return (
        len(value) == 2  # noqa: PLR2004 - a topic and a number
        and isinstance(value[0], str)
        and isinstance(value[1], int)
    )
