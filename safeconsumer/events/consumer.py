"""Defines the events of a consumer: holds, partitions, fetched data, joins, patterns."""

from safeconsumer.events.base import Event, Partitions
from safeconsumer.holds.hold import APP, WHOLE, Hold, Lifetime, is_routine
from safeconsumer.holds.scope import Partition, TopicPartition

_OWN = frozenset({APP, WHOLE})

# The largest number of holds that a warning's advice names.
_FEW = 3


class HoldEvent(Event):
    """
    Parent of events about holds; debug, if all of them only limit a worker's own load.

    Attributes:
        holds: the holds.
    """

    __match_args__ = ("holds",)
    name = "hold"

    holds: tuple[Hold, ...]

    @property
    def severity(self) -> str:
        owners = {one.owner for one in self.holds}
        return "debug" if owners and all(map(is_routine, owners)) else self.level

    @property
    def _are_own(self) -> bool:
        # A program that pauses and resumes ten times a second needs no lines about it.
        owners = {one.owner for one in self.holds}
        return all(one in _OWN or is_routine(one) for one in owners)

    def _how_to_lift(self, holds: tuple[Hold, ...]) -> str | None:
        if not holds:
            return None
        named = [one.lifted_by(self.group_id) for one in holds[:_FEW]]
        more = len(holds) - len(named)
        return "lift with " + "; ".join([*named, *([f"{more} more"] if more else [])])


class HoldsPlaced(HoldEvent):
    """
    One call placed or changed holds; debug, if they are the application's own.

    Attributes:
        holds: the holds that are new or changed.
        quiet: the assigned partitions that became quiet.
        topics: the known topics that the holds cover; None if no pattern is among them.
        is_taken_over: whether previous owners of the partitions handed the holds over:
            a warning, since no call of this program has placed them.
    """

    __match_args__ = ("holds", "quiet")
    name = "hold_placed"

    quiet: Partitions = ()
    topics: tuple[str, ...] | None = None
    is_taken_over: bool = False

    @property
    def severity(self) -> str:
        if self.is_taken_over:
            return "warning"
        return "debug" if self._are_own else self.level

    @property
    def advice(self) -> str | None:
        return self._how_to_lift(self.holds) if self.is_taken_over else None


class PatternCoversNothing(HoldEvent):
    """A pattern was placed that no known topic matches now."""

    name = "pattern_covers_nothing"
    level = "warning"


class HoldCoversNothing(HoldEvent):
    """
    Holds name topics or partitions that a member on another client does not consume.

    A name is perhaps mistyped. The event comes once for a hold, when it is placed or, if
    nothing is assigned then, after the next assignment. A pattern has its own event,
    :class:`PatternCoversNothing`.
    """

    name = "hold_covers_nothing"
    level = "warning"


class HoldsRemoved(HoldEvent):
    """
    One call lifted holds; debug, if only the application's own holds covered the targets.

    Attributes:
        flowing: assigned partitions that flow again.
        remaining: holds that still cover the same targets.
        besides: pauses of everything that was assigned of a topic, which the call ended
            although it did not name the topic, or named fewer of its partitions than
            flow now.
        waiting: pauses of single partitions that are not assigned, which the call ended
            though it named others: a warning.
    """

    __match_args__ = ("holds", "flowing")
    name = "hold_removed"

    flowing: Partitions = ()
    remaining: tuple[Hold, ...] = ()
    besides: tuple[Hold, ...] = ()
    waiting: tuple[Hold, ...] = ()

    @property
    def severity(self) -> str:
        if self.waiting:
            return "warning"
        is_plain = self._are_own and not self.remaining and not self.besides
        return "debug" if is_plain else super().severity

    @property
    def advice(self) -> str | None:
        if self.waiting:
            scope = str(self.waiting[0].scope)
            return (
                "any resume() ends pauses of partitions that are not assigned; "
                f"pause({scope!r}, owner=...) lasts until resume({scope!r}, owner=...)"
            )
        if self.remaining or not self.besides:
            return self._how_to_lift(self.remaining)
        scope = str(self.besides[0].scope)
        return (
            "any resume() ends pause(*assignment()), of every topic; "
            f"pause({scope!r}) lasts until resume({scope!r})"
        )


class StillHeld(HoldEvent):
    """A call lifted nothing: its targets are held by others, or by wider scopes."""

    name = "still_held"

    @property
    def advice(self) -> str | None:
        return self._how_to_lift(self.holds)


class HoldsExpired(HoldEvent):
    """Holds reached their time limit."""

    __match_args__ = ("holds", "flowing")
    name = "hold_expired"

    flowing: Partitions = ()


class HoldsEnded(HoldEvent):
    """
    Holds ended without a resume.

    They ended with the assignment that they were bound to, as plain pauses do, or with
    the consumer; or they were handed over to the next owner; or they were under a whole
    pause that expired. Debug, if a call of the application ended its own holds.

    Attributes:
        departed: the partitions that left; empty if a whole pause expired.
        flowing: partitions that stay assigned and flow again.
        handed_over: those of them that stay paused at their next owner.
        is_called: whether a call of the application ended them: ``assign``,
            ``unsubscribe`` or ``close``.
    """

    __match_args__ = ("holds", "departed")
    name = "hold_ended"

    departed: Partitions
    flowing: Partitions = ()
    handed_over: Partitions = ()
    is_called: bool = False

    @property
    def severity(self) -> str:
        return "debug" if self.is_called and self._are_own else super().severity

    @property
    def advice(self) -> str | None:
        handed_over = {Partition(*tp) for tp in self.handed_over}
        if not self.is_called and any(
            one.lifetime is Lifetime.PLAIN and one.scope not in handed_over
            for one in self.holds
        ):
            return "pause(..., lifetime=Lifetime.UNTIL_RESUMED) lasts until its resume"
        return None


class AssignedWhileHeld(HoldEvent):
    """
    Partitions were assigned that earlier holds keep quiet.

    The partitions were quiet when they left and are back, or they came under a pause of
    everything that was assigned of their topic. The level is a warning. It is info if
    only plain pauses keep them quiet, as each eager rebalance gives such partitions
    back; but not if no partition of the topic is left that the application paused by
    name, nor if the membership was lost with them: kafka-python's pauses end then, and a
    program may have forgotten its own.

    Attributes:
        partitions: the gained partitions that are quiet; if a whole pause is left
            alone, all partitions that it keeps quiet.
        is_left_alone: whether the application has paused, by name, none of the
            partitions that remain of a topic which it paused as a whole; reported once.
        lost: the partitions among them that were lost with the membership.
    """

    __match_args__ = ("holds", "partitions")
    name = "assigned_while_held"
    level = "warning"

    partitions: Partitions
    is_left_alone: bool = False
    lost: Partitions = ()

    @property
    def severity(self) -> str:
        is_asked_for = (
            bool(self.holds)
            and not self.is_left_alone
            and not self.lost
            and all(
                one.lifetime is Lifetime.PLAIN or one.is_routine for one in self.holds
            )
        )
        level = super().severity
        return "info" if is_asked_for and level == self.level else level

    @property
    def advice(self) -> str | None:
        how = self._how_to_lift(self.holds)
        return f"pauses outlive a lost membership; {how}" if self.lost else how


class GatesChanged(Event):
    """
    The gates of partitions opened, and no hold covers the partitions: they flow.

    Attributes:
        reason: the reason, as text for people.
    """

    __match_args__ = ("flowing",)
    name = "gate_changed"
    level = "debug"

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
    name = "rebalance_completed"

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
    Fetched data of an ended ownership was thrown away; debug, if nothing was in it.

    Data that a seek has made useless is not counted.

    Attributes:
        bytes: the size of the data, as it came from the broker; records that were
            decoded and put back count with their keys and values beside their batch.
        fetches: how many answers or parts of answers.
        records: how many records; None if the record format does not state it.
    """

    __match_args__ = ("partitions", "fetches", "records", "bytes")
    name = "fetches_purged"

    partitions: Partitions
    bytes: int
    fetches: int
    records: int | None

    @property
    def severity(self) -> str:
        return super().severity if self.bytes else "debug"


class ParkedDataDropped(Event):
    """
    Parked data exceeded ``parked_max_bytes``; the oldest will be fetched again.

    Attributes:
        bytes: the size of the data, counted as in :class:`FetchesPurged`.
    """

    __match_args__ = ("partitions", "bytes")
    name = "parked_data_dropped"

    partitions: Partitions
    bytes: int


class HeldPartitionUncommitted(Event):
    """
    A quiet partition departed without any committed offset, and the policy is latest.

    Its next owner starts at the end of the log: the records held back are skipped.
    """

    __match_args__ = ("partitions",)
    name = "held_partition_uncommitted"
    level = "warning"

    partitions: Partitions


class UnreadRecordsDeleted(Event):
    """
    Records were deleted before they were read; reading continues at the first one left.

    Attributes:
        position: the offset at which reading would have continued.
        start: the offset at which it continues, the start of the log.
        gone: the number of offsets between the two.
    """

    __match_args__ = ("partition", "position", "start", "gone")
    name = "unread_records_deleted"
    level = "warning"

    partition: TopicPartition
    position: int
    start: int
    gone: int


class PositionOutOfRange(Event):
    """
    A position was out of range, and ``auto_offset_reset`` has chosen another one.

    The position was beyond the end of the log; or the partition was not held, its
    records were deleted up to beyond the position, and ``latest`` skips those left.

    Attributes:
        position: the offset at which reading would have gone on.
        offset: the offset at which it goes on.
        skipped: the number of offsets passed over, deleted or not; 0 beyond the end.
    """

    __match_args__ = ("partition", "position", "offset")
    name = "position_out_of_range"
    level = "warning"

    partition: TopicPartition
    position: int
    offset: int
    skipped: int

    @property
    def advice(self) -> str:
        if self.skipped:
            return (
                "seek_to_beginning() reads the remaining records that were passed over; "
                "auto_offset_reset='earliest' would have continued there"
            )
        return (
            "the log ends before the position: it was cut off or its topic was "
            "recreated, and what is written from here on has offsets that were read "
            "before"
        )


class LogTruncated(Event):
    """
    A log was truncated below a position; reading continues at the point of truncation.

    A leader took over that lacked records (an unclean election): the records from
    ``offset`` on, which may have been read before, are gone, and other records may have
    their offsets now. Brokers without topic ids (before Kafka 2.8) give the same answer
    if the topic was deleted and recreated, with fewer records than the position; then
    the records before ``offset`` were not read.

    Attributes:
        position: the offset at which reading would have gone on.
        offset: the offset at which it goes on, the first that the new leader lacked.
    """

    __match_args__ = ("partition", "position", "offset")
    name = "log_truncated"
    level = "warning"

    partition: TopicPartition
    position: int
    offset: int

    advice = (
        "undo what was done with the records from the new position on, if they must "
        "not count: the brokers have lost them (unclean.leader.election.enable=false "
        "and min.insync.replicas=2 keep them). Brokers before Kafka 2.8 answer the "
        "same if the topic was recreated: if it was, seek_to_beginning() reads the "
        "new one"
    )


class TopicRecreated(Event):
    """
    A topic was deleted and recreated; one of its partitions is read from the new topic.

    Positions, commits and fetched records of the old topic do not count any more. Holds
    stay.

    Attributes:
        position: the offset at which reading would have gone on in the old topic; None
            if that is not known.
        old_id: the id of the topic that was deleted, as Kafka writes it.
        new_id: the id of the topic that has its name now.
        begins: the place at which reading begins: "earliest" if the partition was held,
            or a worker has it; otherwise ``auto_offset_reset``. With "none" the next ``poll``
            raises, as it does for a partition without a position. A partition that was
            just gained has "committed": it begins at the group's commit, if there is
            one for the new topic, otherwise as above.
    """

    __match_args__ = ("partition", "position", "old_id", "new_id")
    name = "topic_recreated"
    level = "warning"

    partition: TopicPartition
    position: int | None
    old_id: str
    new_id: str
    begins: str

    @property
    def advice(self) -> str:
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

    A pause that lasts until it is resumed stays in force here; a plain pause has ended.

    The join that took the partition away did not carry the pause: the pause came after
    that join's request was sent, the leader does not use safeconsumer, or the group had
    too many pauses. Or the partition was paused with everything that was assigned of its
    topic: such a pause stays in force here and is never handed over.

    Attributes:
        partitions: the paused partitions.
        is_whole: whether they were under a pause of all that was assigned of the topic.
    """

    __match_args__ = ("partitions",)
    name = "pause_not_handed_over"
    level = "warning"

    partitions: Partitions
    is_whole: bool = False

    @property
    def advice(self) -> str | None:
        if not self.is_whole:
            return None
        return "pause(..., lifetime=Lifetime.UNTIL_RESUMED) is handed over"


class PartitionReset(Event):
    """
    An operator has moved a partition, and reading continues at another offset.

    The partition is held meanwhile. Records that were fetched or queued by a worker
    before are void, and so are commits that were requested; the listener was called as
    for a partition that was revoked and assigned again. A member that owns the
    partition again later does not report the move a second time.

    Attributes:
        position: the offset at which reading would have gone on; None if that is not
            known.
        offset: the offset at which it goes on.
        owner: the owner of the hold, as ``operator:alice``.
    """

    __match_args__ = ("partition", "position", "offset")
    name = "partition_reset"
    level = "warning"

    partition: TopicPartition
    position: int | None
    offset: int
    owner: str
