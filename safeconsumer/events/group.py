"""
What can be seen happening around group control, each as one frozen value.
"""

from typing import ClassVar

from attrs import frozen

from safeconsumer.events.consumer import Event, Partitions


@frozen(kw_only=True)
class ControlReady(Event):
    """
    The control topics are read up to their end, for the first time or again.

    Attributes:
        topics: which.
        holds: how many operator and group holds are in force for this group.
        seconds: since the reading began.
    """

    name: ClassVar[str] = "control_ready"

    topics: tuple[str, ...]
    holds: int
    seconds: float


@frozen(kw_only=True)
class ControlUnavailable(Event):
    """
    The control topics cannot be read: what is known stays, new partitions wait.

    Attributes:
        reason: why, for people.
    """

    name: ClassVar[str] = "control_unavailable"
    level: ClassVar[str] = "error"

    reason: str


@frozen(kw_only=True)
class ControlUnchecked(Event):
    """
    Whether a control topic keeps its records for good could not be checked.

    Attributes:
        topics: which.
        reason: why not.
    """

    name: ClassVar[str] = "control_unchecked"
    level: ClassVar[str] = "warning"

    topics: tuple[str, ...]
    reason: str


@frozen(kw_only=True)
class ControlTopicReset(Event):
    """
    A control topic was deleted and made again, or lost its end.

    What was known stays in force; it is lifted by tombstones, never by absence.

    Attributes:
        topic: which.
        applied: up to where it had been read.
        end: where it ends now.
    """

    name: ClassVar[str] = "control_topic_reset"
    level: ClassVar[str] = "error"

    topic: str
    applied: int
    end: int


@frozen(kw_only=True)
class ControlRecordsSkipped(Event):
    """
    Records of a control topic could not be read and were passed over.

    Attributes:
        topic: which.
        records: how many since this was told last.
    """

    name: ClassVar[str] = "control_records_skipped"
    level: ClassVar[str] = "warning"

    topic: str
    records: int


@frozen(kw_only=True)
class ControlNotUnderstood(Event):
    """
    A hold was not understood and therefore covers more than it may say.

    Attributes:
        hold: its scope and owner.
        why: what was not understood.
    """

    name: ClassVar[str] = "control_not_understood"
    level: ClassVar[str] = "error"

    hold: str
    why: str


@frozen(kw_only=True)
class PauseNotHandedOver(Event):
    """
    A paused partition departed before its mark was written; the pause stays here.

    Attributes:
        partitions: which.
    """

    name: ClassVar[str] = "pause_not_handed_over"
    level: ClassVar[str] = "warning"

    partitions: Partitions


@frozen(kw_only=True)
class GatesOpenedUnread(Event):
    """
    Partitions flow though the control topics could not be read: ``unavailable="run"``.

    Attributes:
        partitions: which.
    """

    name: ClassVar[str] = "gates_opened_unread"
    level: ClassVar[str] = "error"

    partitions: Partitions
