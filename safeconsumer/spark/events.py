"""Defines the events of a steered stream."""

from typing import ClassVar

from safeconsumer.events.consumer import Event, Partitions, event


@event
class PlanChanged(Event):
    """
    From this batch on, other partitions are held than before.

    Attributes:
        stream: which stream of this session.
        held: the partitions that are held now.
        lag: how many offsets they are behind, in all.
        because: one line per hold: who, why, since when, until when.
    """

    name: ClassVar[str] = "spark_plan_changed"
    level: ClassVar[str] = "warning"

    stream: str
    held: Partitions
    lag: int
    because: tuple[str, ...]


@event
class HoldsUnreadable(Event):
    """
    The holds cannot be read: everything is held until they can.

    Attributes:
        stream: which stream of this session.
        reasons: why they cannot be read.
    """

    name: ClassVar[str] = "spark_holds_unreadable"
    level: ClassVar[str] = "error"

    stream: str
    reasons: tuple[str, ...]


@event
class HeldDataLost(Event):
    """
    The next record of a held partition is gone.

    Attributes:
        stream: which stream of this session.
        losses: one line per partition.
    """

    name: ClassVar[str] = "spark_held_data_lost"
    level: ClassVar[str] = "error"

    stream: str
    losses: tuple[str, ...]


@event
class RetentionIsNear(Event):
    """
    Retention will soon delete the next record of held partitions.

    Attributes:
        stream: which stream of this session.
        warnings: one line per partition.
    """

    name: ClassVar[str] = "spark_retention_is_near"
    level: ClassVar[str] = "warning"

    stream: str
    warnings: tuple[str, ...]


@event
class WatchFailed(Event):
    """
    The log start and the topic identity of held partitions cannot be watched.

    Attributes:
        stream: which stream of this session.
        reason: why.
    """

    name: ClassVar[str] = "spark_watch_failed"
    level: ClassVar[str] = "warning"

    stream: str
    reason: str


@event
class QueryEvent(Event):
    """
    Parent of events about what queries leave out, according to Spark's progress.

    Attributes:
        query: its name, or its id.
        held: how many partitions.
        partitions: which ones, as ``orders:0-3``.
        lag: how many offsets they are behind.
        because: why everything is held, if the holds cannot be read; otherwise empty.
    """

    query: str
    held: int
    partitions: str
    lag: int
    because: str


@event
class QueryHeld(QueryEvent):
    """According to its progress, a query leaves other partitions out than before."""

    name: ClassVar[str] = "spark_query_held"


@event
class QueryEndedHeld(QueryEvent):
    """A query has ended, and has left held partitions behind."""

    name: ClassVar[str] = "spark_query_ended_held"
    level: ClassVar[str] = "warning"
