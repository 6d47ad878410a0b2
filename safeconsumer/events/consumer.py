"""Defines a consumer's events: about holds, partitions, fetched data, joins, patterns."""

from safeconsumer.events.base import Event, Partitions
from safeconsumer.holds.hold import APP, WHOLE, Hold, Lifetime, is_routine
from safeconsumer.holds.scope import Partition, TopicPartition

_OWN = frozenset({APP, WHOLE})

# The maximum number of holds that a warning's advice names.
_FEW = 3


class HoldEvent(Event):
    """
    Base class of events about holds; level debug if they only limit a worker's load.

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
        # A program that pauses and resumes ten times a second should not fill the log.
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
    A call has placed or changed holds; level debug if the holds are the application's.

    Attributes:
        holds: the holds that are new or changed.
        quiet: the assigned partitions that became quiet.
        topics: the known topics that the holds cover; None if no hold is on a pattern.
        is_taken_over: whether previous owners of the partitions have handed the holds
            over. If so, the level is warning, because no call of this program has
            placed them.
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
    """A hold was placed on a pattern that currently matches no known topic."""

    name = "pattern_covers_nothing"
    level = "warning"


class HoldCoversNothing(HoldEvent):
    """
    Holds name targets that a member with another client library does not consume.

    A name may be mistyped. The event is emitted once for each hold: when the hold is
    placed, or, if nothing is assigned then, after the next assignment. For patterns
    there is a separate event, :class:`PatternCoversNothing`.
    """

    name = "hold_covers_nothing"
    level = "warning"


class HoldsRemoved(HoldEvent):
    """
    A call has lifted holds; level debug if only the application held its targets.

    Attributes:
        flowing: assigned partitions that are no longer quiet.
        remaining: holds that still cover the same targets.
        besides: whole pauses of topics that the call has ended, although it did not
            name the topic, or not all of its partitions that are no longer quiet now.
        waiting: pauses of single, unassigned partitions that the call has ended
            although it named other targets; if there are any, the level is warning.
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
    """A call lifted nothing, because other owners' or wider holds cover its targets."""

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

    The holds were bound to an assignment that has ended, as plain pauses are, or the
    consumer was closed. Or the holds were handed over to the next owner, or depended on
    a whole pause that has expired. The level is debug if a call by the application
    ended its own holds.

    Attributes:
        departed: the partitions that departed; empty if a whole pause expired.
        flowing: partitions that are still assigned, and are no longer quiet.
        handed_over: partitions that stay paused on their next owner.
        is_called: whether a call by the application ended the holds: ``assign``,
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
    Existing holds keep newly assigned partitions quiet.

    Either the partitions were quiet when they departed and have now come back, or a
    whole pause of their topic covers them. The level is normally warning. It is info if
    only plain pauses keep the partitions quiet, because each eager rebalance gives such
    partitions back. The level is warning even then in two cases: if the application has
    paused none of the topic's remaining partitions by name, or if the partitions were
    lost with the membership. kafka-python's pauses end with the membership, so a
    program may have forgotten its pauses.

    Attributes:
        partitions: the gained partitions that are quiet. If ``is_left_alone`` is true,
            all partitions that the whole pause keeps quiet.
        is_left_alone: whether the application has paused a topic as a whole, but has
            paused none of the topic's remaining partitions by name; reported once.
        lost: those of the partitions that were lost with the membership.
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
    Partitions are no longer quiet, because their gates opened and no hold covers them.

    Attributes:
        reason: the reason why the gates opened, as text for people.
    """

    __match_args__ = ("flowing",)
    name = "gate_changed"
    level = "debug"

    flowing: Partitions
    reason: str


class RebalanceCompleted(Event):
    """
    A join of the consumer group has completed, and its assignment is in force.

    Attributes:
        generation: Kafka's generation id.
        member_id: Kafka's member id.
        kept: partitions that were owned before and after, without a gap.
        gained: partitions that are owned from now on, including regained ones.
        revoked: partitions that the member gave up.
        lost: partitions that were taken away while the membership was lost.
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
    Fetched data of ended ownerships was discarded; level debug if it was empty.

    Data that was discarded because of a seek is not counted.

    Attributes:
        bytes: the size of the data, as received from the broker. If records were
            decoded and put back, the sizes of their keys and values are added to the
            size of their batch.
        fetches: the number of fetch responses, or parts of them, that were discarded.
        records: the number of records; None if the record format does not contain it.
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
    Parked data exceeded ``parked_max_bytes``; the oldest data was dropped.

    Attributes:
        bytes: the size of the data, counted as in :class:`FetchesPurged`.
    """

    __match_args__ = ("partitions", "bytes")
    name = "parked_data_dropped"

    partitions: Partitions
    bytes: int


class HeldPartitionUncommitted(Event):
    """
    A quiet partition without a committed offset departed; its next owner skips records.

    Under ``latest``, the next owner starts at the end of the log, and skips the records
    that were held back.
    """

    __match_args__ = ("partitions",)
    name = "held_partition_uncommitted"
    level = "warning"

    partitions: Partitions


class UnreadRecordsDeleted(Event):
    """
    Records were deleted before they were read; reading continues after them.

    Attributes:
        position: the offset at which reading would have continued.
        start: the offset at which reading continues, the start of the log.
        gone: the number of offsets from ``position`` to ``start``.
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

    Either the position was beyond the end of the log; or the partition was not held,
    the records at the position were deleted, and ``latest`` skips all later ones.

    Attributes:
        position: the offset at which reading would have continued.
        offset: the offset at which reading continues.
        skipped: the number of skipped offsets, deleted or not; 0 if the position was
            beyond the end.
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
                "seek_to_beginning() reads the remaining records that were skipped; "
                "auto_offset_reset='earliest' would have continued there"
            )
        return (
            "the log ends before the position, because it was truncated or its topic "
            "was recreated; new records get offsets that were read before"
        )


class LogTruncated(Event):
    """
    A log was truncated below a position; reading continues where it was truncated.

    A replica that lacked records became the leader (an unclean election). The records
    from ``offset`` on, which may have been read already, are gone, and other records
    may have their offsets now. Brokers without topic ids (before Kafka 2.8) send the
    same response if the topic was deleted and recreated, and its log ends below the
    position. In that case the new records before ``offset`` were not read.

    Attributes:
        position: the offset at which reading would have continued.
        offset: the offset at which reading continues, which is the first one that the
            new leader lacked.
    """

    __match_args__ = ("partition", "position", "offset")
    name = "log_truncated"
    level = "warning"

    partition: TopicPartition
    position: int
    offset: int

    advice = (
        "undo the effects of records from the new position on if they must not count, "
        "because the brokers have lost these records "
        "(unclean.leader.election.enable=false and min.insync.replicas=2 keep them). "
        "Brokers before Kafka 2.8 respond in the same way if the topic was recreated; "
        "in that case seek_to_beginning() reads the new topic"
    )


class TopicRecreated(Event):
    """
    A topic was deleted and recreated; a partition is now read from the new topic.

    Positions, commits and fetched records of the old topic are no longer used. Holds
    stay in force. If a rebalance took the partitions away before the topic was
    recreated, there is no event, because the consumer no longer has a position in the
    old topic.

    Attributes:
        position: the offset at which reading would have continued in the old topic;
            None if that is not known.
        old_id: the id of the deleted topic, in Kafka's text form.
        new_id: the id of the new topic with the same name.
        begins: where reading starts: "earliest" if the partition was held, or a worker
            consumes it; otherwise the value of ``auto_offset_reset``. With "none" the
            next ``poll`` raises, as it does for a partition without a position. For a
            partition that was just gained, the value is "committed": reading starts at
            the offset that the group has committed in the new topic; if there is none,
            the rules above apply.
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
            return "seek to the offset to read from, as with seek_to_beginning()"
        if self.begins == "latest":
            return (
                "auto_offset_reset='latest' skips the records already in the new "
                "topic; seek_to_beginning() reads them, and a held partition is read "
                "from there"
            )
        return (
            "check whether the program needs unread records of the old topic; if it "
            "passes offsets to commit(), these must be of records that poll() has "
            "returned since"
        )


class PauseNotHandedOver(Event):
    """
    A paused partition departed and its pause was not handed over.

    A pause that lasts until it is resumed stays in force on this member; a plain pause
    has ended.

    There are several possible reasons: the pause was placed after the request for the
    join was sent, the leader does not use safeconsumer, or the group has too many
    pauses. Or the pause was a whole pause of the topic, which stays in force on this
    member and is never handed over.

    Attributes:
        partitions: the paused partitions.
        is_whole: whether the topic was paused as a whole.
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

    The partition is held during the move. Records that were fetched, or queued by a
    worker, before the move are dropped, and commits that were requested before the move
    are refused. The rebalance listener was called as if the partition had been revoked
    and assigned again. A member that owns the partition again later does not report the
    move a second time.

    Attributes:
        position: the offset at which reading would have continued; None if that is not
            known.
        offset: the offset at which reading continues.
        owner: the owner of the hold that moved the partition, such as
            ``operator:alice``.
    """

    __match_args__ = ("partition", "position", "offset")
    name = "partition_reset"
    level = "warning"

    partition: TopicPartition
    position: int | None
    offset: int
    owner: str
