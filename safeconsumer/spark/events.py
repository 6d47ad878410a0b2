"""Defines the events of a steered stream."""

from safeconsumer.events.base import Event, Partitions


class StreamEvent(Event):
    """
    Parent of the events of a steered stream.

    Attributes:
        stream: which stream of this session.
    """

    __match_args__ = ("name",)
    name = "spark"

    stream: str


class PlanChanged(StreamEvent):
    """
    The next batch holds other partitions than the one before.

    Attributes:
        held: the partitions that are held now.
        lag_at_plan: how many offsets they were behind, in all, when this batch was
            planned; it does not grow with what comes later, as ``holds.lag()`` does.
        because: one line per hold: who, why, since when, until when.
    """

    name = "spark_plan_changed"
    level = "warning"

    held: Partitions
    lag_at_plan: int
    because: tuple[str, ...]


class HoldsUnreadable(StreamEvent):
    """
    The holds cannot be read: everything is held until they can.

    Attributes:
        reasons: why they cannot be read.
    """

    name = "spark_holds_unreadable"
    level = "error"

    reasons: tuple[str, ...]


class HeldDataLost(StreamEvent):
    """
    The next record of a held partition is gone.

    Attributes:
        losses: one line per partition.
    """

    name = "spark_held_data_lost"
    level = "error"

    losses: tuple[str, ...]


class OffsetsSkipped(StreamEvent):
    """
    A batch skips offsets, as :meth:`Controller.skip` asked for.

    Attributes:
        skipped: one line per partition: which offsets, who, why.
    """

    name = "spark_offsets_skipped"
    level = "warning"

    skipped: tuple[str, ...]


class SkipRefused(StreamEvent):
    """
    A requested skip is impossible, and is dropped.

    Attributes:
        reasons: one line per partition.
    """

    name = "spark_skip_refused"
    level = "error"

    reasons: tuple[str, ...]


class ProgressNotCommitted(StreamEvent):
    """
    A stream's progress cannot be committed to its ``commitGroup``; batches continue.

    Attributes:
        group: the group.
        reason: why; empty once it succeeds again.
    """

    name = "spark_progress_not_committed"
    level = "warning"

    group: str
    reason: str
