"""Defines the events of a steered stream."""

from safeconsumer.events.base import Event, Partitions


class PlanChanged(Event):
    """
    From this batch on, other partitions are held than before.

    Attributes:
        stream: which stream of this session.
        held: the partitions that are held now.
        lag_at_plan: how many offsets they were behind, in all, when this batch was
            planned; it does not grow with what comes later, as ``holds.lag()`` does.
        because: one line per hold: who, why, since when, until when.
    """

    name = "spark_plan_changed"
    level = "warning"

    stream: str
    held: Partitions
    lag_at_plan: int
    because: tuple[str, ...]


class HoldsUnreadable(Event):
    """
    The holds cannot be read: everything is held until they can.

    Attributes:
        stream: which stream of this session.
        reasons: why they cannot be read.
    """

    name = "spark_holds_unreadable"
    level = "error"

    stream: str
    reasons: tuple[str, ...]


class HeldDataLost(Event):
    """
    The next record of a held partition is gone.

    Attributes:
        stream: which stream of this session.
        losses: one line per partition.
    """

    name = "spark_held_data_lost"
    level = "error"

    stream: str
    losses: tuple[str, ...]
