"""Defines the events of a steered stream."""

from typing import ClassVar

from safeconsumer.events.consumer import Event, Partitions


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
