"""Defines the events of a consumer: holds, partitions, fetched data, joins, patterns."""

from collections.abc import Iterable
from typing import ClassVar, Self, dataclass_transform, get_origin

from attrs.exceptions import FrozenInstanceError

from safeconsumer.holds.hold import APP, WHOLE, Hold, Lifetime, is_routine
from safeconsumer.holds.scope import TopicPartition

Partitions = tuple[TopicPartition, ...]

_OWN = frozenset({APP, WHOLE})
_set = object.__setattr__

# The most holds that an advice names.
_FEW = 3


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _Values:
    # What attrs would compile for each class, which was a sixth of the import of a
    # consumer: fields with defaults, given by keyword, that never change.
    _fields: ClassVar[tuple[str, ...]] = ()
    _known: ClassVar[frozenset[str]] = frozenset()
    _needed: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        own = cls.__annotations__.items()
        cls._fields += tuple(name for name, kind in own if not _is_of_class(kind))
        cls._known = frozenset(cls._fields)
        cls._needed = frozenset(one for one in cls._fields if not hasattr(cls, one))

    def __init__(self, **values: object) -> None:
        if not self._needed <= values.keys() <= self._known:
            takes, given = ", ".join(self._fields), ", ".join(values) or "nothing"
            message = f"{type(self).__name__} takes {takes}; it was given {given}"
            raise TypeError(message)
        _set(self, "__dict__", values)  # nobody else has this dict

    @classmethod
    def of(cls, values: dict[str, object]) -> Self:
        """Make one of values that fit, and keep that dict: for who makes many."""
        made = cls.__new__(cls)
        _set(made, "__dict__", values)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError

    def _values(self) -> tuple[tuple[str, object], ...]:
        return tuple((name, getattr(self, name)) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={one!r}" for name, one in self._values())
        return f"{type(self).__qualname__}({said})"


def _is_of_class(kind: object) -> bool:
    # A text where a module has ``from __future__ import annotations``.
    if isinstance(kind, str):
        return kind.partition("[")[0].rpartition(".")[2].strip() == "ClassVar"
    return ClassVar in {kind, get_origin(kind)}


class Event(_Values):
    """
    Parent of all events.

    Attributes:
        at: seconds since the epoch.
        client_id: Kafka's ``client_id`` of the consumer, or None.
        group_id: its consumer group, or None.
        name: the name of the event, as in log lines.
        level: the level of log lines about it: debug, info, warning, error.
    """

    __match_args__ = ("name",)
    name: ClassVar[str] = "event"
    level: ClassVar[str] = "info"

    at: float = 0.0
    client_id: str | None = None
    group_id: str | None = None

    @property
    def severity(self) -> str:
        """The level of its log line; debug, if it is about a worker's own holds only."""
        holds = getattr(self, "holds", ())
        is_listed = isinstance(holds, tuple) and holds  # some events count them
        is_routine = is_listed and all(one.is_routine for one in holds)
        return "debug" if is_routine else self.level

    @property
    def advice(self) -> str | None:
        """What the reader of its log line may do about it; None if nothing."""
        return None

    def as_dict(self, most: int | None = None) -> dict[str, object]:
        """
        Return every field as plain JSON values; partitions as ``orders:3``.

        Args:
            most: the most values of a list; if there are more, its last value says how
                many. None: all values.
        """
        return {name: _plain(one, most) for name, one in self._values()}


class HoldsPlaced(Event):
    """
    One call placed or changed holds.

    Attributes:
        holds: the holds that are new or changed.
        quiet: assigned partitions that it made quiet.
        topics: known topics that the holds cover; None if no pattern is among them.
        is_taken_over: whether a previous owner placed them, and they were handed over:
            a warning, since nothing here has asked for them.
    """

    __match_args__ = ("holds", "quiet")
    name: ClassVar[str] = "hold_placed"

    holds: tuple[Hold, ...]
    quiet: Partitions = ()
    topics: tuple[str, ...] | None = None
    is_taken_over: bool = False

    @property
    def severity(self) -> str:
        """The level of its log line; debug for the application's own holds."""
        if self.is_taken_over:
            return "warning"
        return "debug" if _is_own(self.holds) else super().severity

    @property
    def advice(self) -> str | None:
        """How to lift holds that were handed over."""
        return _how_to_lift(self.holds, self.group_id) if self.is_taken_over else None


class PatternCoversNothing(Event):
    """A pattern was placed that no known topic matches now."""

    __match_args__ = ("holds",)
    name: ClassVar[str] = "pattern_covers_nothing"
    level: ClassVar[str] = "warning"

    holds: tuple[Hold, ...]


class HoldsRemoved(Event):
    """
    One call lifted holds.

    Attributes:
        holds: the holds that were lifted.
        flowing: assigned partitions that flow again.
        remaining: holds that still cover the same targets.
        besides: pauses of all that was assigned of a topic, which the call ended
            though it named nothing of the topic, or though more of it flows than it
            named.
        waiting: pauses by name of what is not assigned, which the call ended though it
            named others: a warning.
    """

    __match_args__ = ("holds", "flowing")
    name: ClassVar[str] = "hold_removed"

    holds: tuple[Hold, ...]
    flowing: Partitions = ()
    remaining: tuple[Hold, ...] = ()
    besides: tuple[Hold, ...] = ()
    waiting: tuple[Hold, ...] = ()

    @property
    def severity(self) -> str:
        """
        The level of its log line; debug for the application's own holds.

        If other holds still cover what was to flow, or more of what is assigned ended
        than was named, the level is that of the class.
        """
        if self.waiting:
            return "warning"
        is_told = not _is_own(self.holds) or self.remaining or self.besides
        return super().severity if is_told else "debug"

    @property
    def advice(self) -> str | None:
        """How to lift what is left, or to keep what ended without being named."""
        if self.waiting:
            scope = str(self.waiting[0].scope)
            return (
                "any resume() ends pauses of what is not assigned; "
                f"pause({scope!r}, owner=...) lasts until resume({scope!r}, owner=...)"
            )
        if self.remaining or not self.besides:
            return _how_to_lift(self.remaining, self.group_id)
        scope = str(self.besides[0].scope)
        return (
            "any resume() ends pause(*assignment()), of every topic; "
            f"pause({scope!r}) lasts until resume({scope!r})"
        )


class StillHeld(Event):
    """
    A call lifted nothing, and its targets are held.

    Attributes:
        holds: the holds that cover them, by others or of wider scopes.
    """

    __match_args__ = ("holds",)
    name: ClassVar[str] = "still_held"

    holds: tuple[Hold, ...]

    @property
    def advice(self) -> str | None:
        """How to lift the holds."""
        return _how_to_lift(self.holds, self.group_id)


class HoldsExpired(Event):
    """Holds reached their time limit."""

    __match_args__ = ("holds", "flowing")
    name: ClassVar[str] = "hold_expired"

    holds: tuple[Hold, ...]
    flowing: Partitions = ()


class HoldsEnded(Event):
    """
    Holds ended by themselves.

    They ended with the assignment they were bound to, as plain pauses do, or with the
    consumer, were handed over to the next owner, or were under a whole pause that
    expired.

    Attributes:
        holds: the holds that ended.
        departed: the partitions that left; empty if a whole pause expired.
        flowing: partitions that stay assigned and flow again.
        handed_over: those of them that stay paused at their next owner.
        is_called: whether a call of the application ended them: ``assign``,
            ``unsubscribe`` or ``close``.
    """

    __match_args__ = ("holds", "departed")
    name: ClassVar[str] = "hold_ended"

    holds: tuple[Hold, ...]
    departed: Partitions
    flowing: Partitions = ()
    handed_over: Partitions = ()
    is_called: bool = False

    @property
    def severity(self) -> str:
        """The level of its log line; debug for the application's own, if it ended them."""
        is_own = self.is_called and _is_own(self.holds)
        return "debug" if is_own else super().severity

    @property
    def advice(self) -> str | None:
        """How to keep such a pause, if a plain one has ended by itself."""
        handed_over = {f"{topic}:{number}" for topic, number in self.handed_over}
        if not self.is_called and any(
            one.lifetime is Lifetime.PLAIN and str(one.scope) not in handed_over
            for one in self.holds
        ):
            return "pause(..., lifetime=Lifetime.UNTIL_RESUMED) lasts until its resume"
        return None


class AssignedWhileHeld(Event):
    """
    Holds from before took effect on partitions that were gained.

    They left quiet and are back, or they came under a pause of all that was assigned of
    their topic. If plain pauses alone keep them quiet, as each eager rebalance gives
    them back, the level is info; but a warning, where no partition is left that the
    application paused by name, or where the membership was lost with them: kafka-python's
    pauses end then, and a program may have forgotten its own.

    Attributes:
        holds: the holds that keep them quiet.
        partitions: the gained partitions that are quiet; if a whole pause is left
            alone, all that it keeps quiet.
        is_left_alone: whether, of a topic that was paused as a whole, nothing is left
            that was paused by name; reported once.
        lost: the partitions among them that were lost with the membership.
    """

    __match_args__ = ("holds", "partitions")
    name: ClassVar[str] = "assigned_while_held"
    level: ClassVar[str] = "warning"

    holds: tuple[Hold, ...]
    partitions: Partitions
    is_left_alone: bool = False
    lost: Partitions = ()

    @property
    def severity(self) -> str:
        """The level of its log line."""
        level, holds = super().severity, self.holds
        is_asked_for = (
            bool(holds)
            and not self.is_left_alone
            and not self.lost
            and all(one.lifetime is Lifetime.PLAIN or one.is_routine for one in holds)
        )
        return "info" if is_asked_for and level == self.level else level

    @property
    def advice(self) -> str | None:
        """How to lift the holds."""
        how = _how_to_lift(self.holds, self.group_id)
        return f"pauses outlive a lost membership; {how}" if self.lost else how


class GatesChanged(Event):
    """
    Partitions flow that no hold kept quiet, but the consumer itself.

    Attributes:
        flowing: partitions that flow again.
        reason: why, as text for people.
    """

    __match_args__ = ("flowing",)
    name: ClassVar[str] = "gate_changed"
    level: ClassVar[str] = "debug"

    flowing: Partitions
    reason: str


class RebalanceCompleted(Event):
    """
    A join of the consumer group completed and its assignment is in force.

    Attributes:
        generation: Kafka's generation id.
        member_id: Kafka's member id.
        kept: partitions owned without a gap.
        gained: partitions owned from now on, regained ones too.
        revoked: partitions given up.
        lost: partitions taken away while the membership was lost.
        quiet: the partitions that are quiet now.
        holds_on_gained: holds that keep gained partitions quiet.
    """

    __match_args__ = ("kept", "gained", "revoked", "lost")
    name: ClassVar[str] = "rebalance_completed"

    generation: int
    member_id: str
    kept: Partitions
    gained: Partitions
    revoked: Partitions
    lost: Partitions
    quiet: Partitions
    holds_on_gained: tuple[Hold, ...]


class FetchesPurged(Event):
    """
    Fetched data of an ended ownership was thrown away.

    Attributes:
        partitions: the partitions of the data.
        bytes: the size of the data, as it came from the broker.
        fetches: how many answers or parts of answers.
        records: how many records; None if the record format does not say.
    """

    __match_args__ = ("partitions", "fetches", "records", "bytes")
    name: ClassVar[str] = "fetches_purged"

    partitions: Partitions
    bytes: int
    fetches: int
    records: int | None

    @property
    def severity(self) -> str:
        """The level of its log line; debug if nothing was in the data."""
        return super().severity if self.bytes else "debug"


class ParkedDataDropped(Event):
    """
    Parked data exceeded ``parked_max_bytes``; the oldest will be fetched again.

    Attributes:
        partitions: the partitions of the data.
        bytes: the size of the data, as it came from the broker.
    """

    __match_args__ = ("partitions", "bytes")
    name: ClassVar[str] = "parked_data_dropped"

    partitions: Partitions
    bytes: int


class HeldPartitionUncommitted(Event):
    """
    A quiet partition departed without any committed offset, and the policy is latest.

    Its next owner starts at its end: the records that were held back are skipped.
    """

    __match_args__ = ("partitions",)
    name: ClassVar[str] = "held_partition_uncommitted"
    level: ClassVar[str] = "warning"

    partitions: Partitions


class UnreadRecordsDeleted(Event):
    """
    Records were deleted before they were read; reading goes on at the first one left.

    Attributes:
        partition: their partition.
        position: where it would have gone on.
        start: where it goes on, the start of the log.
        gone: how many offsets are between the two.
    """

    __match_args__ = ("partition", "position", "start", "gone")
    name: ClassVar[str] = "unread_records_deleted"
    level: ClassVar[str] = "warning"

    partition: TopicPartition
    position: int
    start: int
    gone: int


class PositionOutOfRange(Event):
    """
    A position was out of range, and ``auto_offset_reset`` has chosen another one.

    It was beyond the end; or records below it were deleted, it was not held, and
    ``latest`` passes over those that are left.

    Attributes:
        partition: the partition.
        position: where it would have gone on.
        offset: where it goes on.
        skipped: how many offsets it passes over, deleted or not; 0 beyond the end.
    """

    __match_args__ = ("partition", "position", "offset")
    name: ClassVar[str] = "position_out_of_range"
    level: ClassVar[str] = "warning"

    partition: TopicPartition
    position: int
    offset: int
    skipped: int

    @property
    def advice(self) -> str:
        """What to do about what is passed over, or comes again."""
        if self.skipped:
            return (
                "seek_to_beginning() reads what is left of the records passed over; "
                "auto_offset_reset='earliest' would have gone on there"
            )
        return (
            "the log ends before the position: it was cut off or its topic was "
            "recreated, and what is written from here on has offsets that were read "
            "before"
        )


class LogTruncated(Event):
    """
    A log was cut below a position, and reading goes on where the logs part.

    A leader took over that lacked records (an unclean election): those from ``offset``
    on, which may have been read before, are gone, and others may have their offsets
    now. On brokers without topic ids (before Kafka 2.8) it may also be that the topic was
    deleted and recreated, with fewer records than the position; then those before
    ``offset`` were not read.

    Attributes:
        partition: the partition.
        position: where it would have gone on.
        offset: where it goes on, the first offset that the new leader lacked.
    """

    __match_args__ = ("partition", "position", "offset")
    name: ClassVar[str] = "log_truncated"
    level: ClassVar[str] = "warning"

    partition: TopicPartition
    position: int
    offset: int

    @property
    def advice(self) -> str:
        """What to do about the records that were read and are gone."""
        return (
            "undo what was done with the records from the new position on, if they must "
            "not count: the brokers have lost them (unclean.leader.election.enable=false "
            "and min.insync.replicas=2 keep them). Brokers before Kafka 2.8 answer the "
            "same if the topic was recreated: if it was, seek_to_beginning() reads the "
            "new one"
        )


class TopicRecreated(Event):
    """
    A topic was deleted and recreated, and a partition of it is read from the new one.

    Positions, commits and fetched records of the old topic do not count any more. Holds
    stay.

    Attributes:
        partition: the partition.
        position: where it would have gone on in the old topic; None: that was not known.
        old_id: the id of the topic that was deleted, as Kafka writes it.
        new_id: the id of the one that has its name now.
        begins: where reading begins: "earliest" if the partition was held, or a worker
            has it; else ``auto_offset_reset``. With "none" the next ``poll`` raises, as
            it does where there is no position. "committed" of what was just gained: at
            the group's commit, if it has one of the new topic, else as above.
    """

    __match_args__ = ("partition", "position", "old_id", "new_id")
    name: ClassVar[str] = "topic_recreated"
    level: ClassVar[str] = "warning"

    partition: TopicPartition
    position: int | None
    old_id: str
    new_id: str
    begins: str

    @property
    def advice(self) -> str:
        """What to do about records of the old topic, and of the new one."""
        if self.begins == "none":
            return "seek to where reading shall begin, as seek_to_beginning() does"
        if self.begins == "latest":
            return (
                "auto_offset_reset='latest' passes over what the new topic has already: "
                "seek_to_beginning() reads it, and a held partition is read from there"
            )
        return (
            "check whether records of the old topic that were not read are missed; if "
            "your program names offsets in commit(), name those of records that poll() "
            "has returned since"
        )


class PauseNotHandedOver(Event):
    """
    A paused partition departed and its pause was not handed over.

    A pause that lasts until it is resumed stays here; a plain one has ended.

    The join that took it away did not name it: it was paused after that join's request
    was sent, the leader does not use safeconsumer, or the group had too many pauses. Or
    it was paused with all that was assigned of its topic, and stays so here: such a
    pause is never handed over.

    Attributes:
        partitions: the paused partitions.
        is_whole: whether they were under a pause of all that was assigned of the topic.
    """

    __match_args__ = ("partitions",)
    name: ClassVar[str] = "pause_not_handed_over"
    level: ClassVar[str] = "warning"

    partitions: Partitions
    is_whole: bool = False

    @property
    def advice(self) -> str | None:
        """How to have such a pause handed over."""
        if not self.is_whole:
            return None
        return "pause(..., lifetime=Lifetime.UNTIL_RESUMED) is handed over"


def sorted_partitions(partitions: Iterable[TopicPartition]) -> Partitions:
    """Return partitions sorted by topic and number."""
    return tuple(sorted(partitions))


def _is_own(holds: Iterable[Hold]) -> bool:
    # A program that pauses and resumes ten times a second needs no log lines about it.
    owners = {one.owner for one in holds}
    return owners <= _OWN or all(map(is_routine, owners - _OWN))


def _how_to_lift(holds: tuple[Hold, ...], group_id: str | None) -> str | None:
    if not holds:
        return None
    named = [one.lifted_by(group_id) for one in holds[:_FEW]]
    more = len(holds) - len(named)
    return "lift with " + "; ".join([*named, *([f"{more} more"] if more else [])])


def _plain(value: object, most: int | None) -> object:
    if isinstance(value, Hold):
        return value.as_dict()
    if isinstance(value, tuple):
        if type(value) is not tuple or _is_partition(value):
            return f"{value[0]}:{value[1]}"
        if most is not None and len(value) > most:
            named = [_plain(one, most) for one in value[:most]]
            return [*named, f"... {len(value) - most} more"]
        return [_plain(one, most) for one in value]
    return value


def _is_partition(value: tuple[object, ...]) -> bool:
    return (
        len(value) == 2  # noqa: PLR2004 - a topic and a number
        and isinstance(value[0], str)
        and isinstance(value[1], int)
    )
