"""Defines the events about the control topics of a group."""

from safeconsumer.events.base import Event, Partitions


class ControlEvent(Event):
    """The parent class of events about reading the control topics."""

    __match_args__ = ("name",)
    name = "control"


class ControlReady(ControlEvent):
    """
    The control topics have been read to their end, at the start or after an outage.

    After an outage the event is emitted once reading has worked for a second without a
    failure.

    Attributes:
        topics: the control topics.
        holds: the number of operator and group holds in force for this group.
        seconds: how long reading took.
    """

    __match_args__ = ("topics", "holds")
    name = "control_ready"

    topics: tuple[str, ...]
    holds: int
    seconds: float


class ControlUnavailable(ControlEvent):
    """
    The control topics cannot be read; known holds stay, and new partitions are gated.

    In the minute after an outage ends, another outage is reported only if it lasts ten
    seconds.

    Attributes:
        reason: the reason, as text for people.
    """

    __match_args__ = ("reason",)
    name = "control_unavailable"
    level = "error"

    reason: str


class ControlUnchecked(ControlEvent):
    """
    A control topic's settings are unknown, or could lose holds or end them wrongly.

    Attributes:
        topics: the control topics.
        reason: the settings and their effect, as text for people.
    """

    __match_args__ = ("topics", "reason")
    name = "control_unchecked"
    level = "warning"

    topics: tuple[str, ...]
    reason: str


class ControlTopicReset(ControlEvent):
    """
    A control topic was deleted and recreated, or lost its last records.

    Known holds stay in force, because only tombstones lift holds, never missing
    records.

    Attributes:
        topic: the control topic.
        applied: the offset up to which the topic had been read.
        end: its current end offset.
    """

    __match_args__ = ("topic",)
    name = "control_topic_reset"
    level = "error"

    topic: str
    applied: int
    end: int


class ControlRecordsSkipped(ControlEvent):
    """
    Records of a control topic could not be read and were skipped.

    Attributes:
        topic: the control topic.
        records: the number of skipped records since the last such event.
    """

    __match_args__ = ("topic", "records")
    name = "control_records_skipped"
    level = "warning"

    topic: str
    records: int


class ControlNotUnderstood(ControlEvent):
    """
    A hold was not understood, and may therefore cover more than intended.

    Attributes:
        hold: the scope and owner of the hold.
        why: the part of the hold that was not understood.
    """

    __match_args__ = ("hold", "why")
    name = "control_not_understood"
    level = "error"

    hold: str
    why: str


class GatesOpenedUnread(ControlEvent):
    """
    Partitions are delivered although the control topics are not read yet.

    Attributes:
        partitions: the partitions that are read because of ``unavailable="run"``.
    """

    __match_args__ = ("partitions",)
    name = "gates_opened_unread"
    level = "error"

    partitions: Partitions
