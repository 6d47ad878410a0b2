"""Defines the events of a controlled stream."""

from safeconsumer.events.base import Event, Partitions


class StreamEvent(Event):
    """
    Base class of the events of a controlled stream.

    Attributes:
        stream: the name of the stream in this session.
    """

    __match_args__ = ("name",)
    name = "spark"

    stream: str


class PlanChanged(StreamEvent):
    """
    The next batch holds different partitions from the previous batch.

    Attributes:
        held: the partitions that are held now.
        lag_at_plan: the total lag of these partitions when this batch was planned, in
            offsets; unlike ``holds.lag()`` this number does not grow with later
            records.
        because: one line per hold, with its owner, reason, start and end.
    """

    name = "spark_plan_changed"
    level = "warning"

    held: Partitions
    lag_at_plan: int
    because: tuple[str, ...]


class HoldsUnreadable(StreamEvent):
    """
    The holds cannot be read, so everything is held until they can be read again.

    Attributes:
        reasons: the reasons why the holds cannot be read.
    """

    name = "spark_holds_unreadable"
    level = "error"

    reasons: tuple[str, ...]


class HeldDataLost(StreamEvent):
    """
    The next record of a held partition was deleted.

    Attributes:
        losses: one line per partition.
    """

    name = "spark_held_data_lost"
    level = "error"

    losses: tuple[str, ...]


class OffsetsSkipped(StreamEvent):
    """
    A batch skips offsets, as :meth:`Controller.skip` requested.

    Attributes:
        skipped: one line per partition, with the offsets, the owner and the reason.
    """

    name = "spark_offsets_skipped"
    level = "warning"

    skipped: tuple[str, ...]


class SkipRefused(StreamEvent):
    """
    A requested skip is impossible and was dropped.

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
        reason: the reason for the failure; empty when commits succeed again.
    """

    name = "spark_progress_not_committed"
    level = "warning"

    group: str
    reason: str
