"""
What can be seen happening in a steered stream, each as one frozen value.
"""

from typing import ClassVar

from attrs import frozen

from safeconsumer.events.consumer import Event, Partitions


@frozen(kw_only=True)
class PlanChanged(Event):
    """
    From this batch on other partitions are held than before.

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


@frozen(kw_only=True)
class HoldsUnreadable(Event):
    """
    What is held cannot be told: everything is, until it can.

    Attributes:
        stream: which stream of this session.
        reasons: why.
    """

    name: ClassVar[str] = "spark_holds_unreadable"
    level: ClassVar[str] = "error"

    stream: str
    reasons: tuple[str, ...]


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class RetentionIsNear(Event):
    """
    Retention will soon take the next record of held partitions.

    Attributes:
        stream: which stream of this session.
        warnings: one line per partition.
    """

    name: ClassVar[str] = "spark_retention_is_near"
    level: ClassVar[str] = "warning"

    stream: str
    warnings: tuple[str, ...]


@frozen(kw_only=True)
class WatchFailed(Event):
    """
    What is held cannot be watched: its log's start and its topic's identity.

    Attributes:
        stream: which stream of this session.
        reason: why.
    """

    name: ClassVar[str] = "spark_watch_failed"
    level: ClassVar[str] = "warning"

    stream: str
    reason: str


@frozen(kw_only=True)
class QueryHeld(Event):
    """
    By its progress, a query leaves more or fewer partitions alone than before.

    Attributes:
        query: its name, or its id.
        held: how many partitions.
        lag: how many offsets they are behind.
        because: why everything is held, if that cannot be told; else empty.
    """

    name: ClassVar[str] = "spark_query_held"
    level: ClassVar[str] = "info"

    query: str
    held: int
    lag: int
    because: str


@frozen(kw_only=True)
class QueryEndedHeld(Event):
    """
    A query has ended, and has left held partitions behind.

    Attributes:
        query: its name, or its id.
        held: how many partitions.
        lag: how many offsets they are behind.
        because: why everything is held, if that cannot be told; else empty.
    """

    name: ClassVar[str] = "spark_query_ended_held"
    level: ClassVar[str] = "warning"

    query: str
    held: int
    lag: int
    because: str
