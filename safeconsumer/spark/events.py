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


class OffsetsSkipped(Event):
    """
    A batch skips offsets, as was asked for by :meth:`Controller.skip`.

    Attributes:
        stream: which stream of this session.
        skipped: one line per partition: which offsets, who, why.
    """

    name = "spark_offsets_skipped"
    level = "warning"

    stream: str
    skipped: tuple[str, ...]


class SkipRefused(Event):
    """
    A batch does not skip offsets, though that was asked for; the wish is dropped.

    Attributes:
        stream: which stream of this session.
        reasons: one line per partition.
    """

    name = "spark_skip_refused"
    level = "error"

    stream: str
    reasons: tuple[str, ...]


class ProgressNotCommitted(Event):
    """
    A stream's progress cannot be committed to its ``commitGroup``; batches go on.

    Attributes:
        stream: which stream of this session.
        group: the group.
        reason: why; empty once it succeeds again.
    """

    name = "spark_progress_not_committed"
    level = "warning"

    stream: str
    group: str
    reason: str
