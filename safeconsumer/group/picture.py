"""Holds what is known of one group at one moment, for everything that judges it."""

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from attrs import field, frozen
from kafka import TopicPartition

from safeconsumer.group.commits import Move
from safeconsumer.group.facts import GroupFacts, Standing
from safeconsumer.group.report_wire import Kept, Report


def skew_of(own: float, reports: Iterable[Report]) -> float:
    """
    Return the most seconds by which any member lifts holds late.

    Args:
        own: this side's setting, which counts if no member reports its own.
        reports: of the members.
    """
    return max((one.skew for one in reports if one.skew is not None), default=own)


@frozen
class Times:
    """
    The two times by which it is judged whether a hold has ended.

    A hold whose end is before ``proven`` has ended. One whose end is before ``here``
    alone may have ended, and counts as in force: members obey it.

    Attributes:
        proven: a time that a record proves: the broker's clock is no earlier.
        here: the time by this machine's clock, which may be wrong. If members report
            the broker's time it is that, and no earlier than ``proven`` otherwise.
    """

    proven: float
    here: float

    @classmethod
    def of(cls, now: float | None, newest: float, wall: float) -> "Times":
        """
        Choose the two times.

        Args:
            now: the broker's time; None if it is unknown, because nobody reports.
            newest: the time of the newest record.
            wall: this machine's time.
        """
        return cls(newest, max(newest, wall)) if now is None else cls(now, now)


NO_TIMES = Times(0.0, 0.0)


@frozen(kw_only=True)
class Picture:
    """
    One look at a group. What could not be read is None or empty, and is named.

    Attributes:
        group: the consumer group.
        facts: what the cluster knows of it.
        standing: the holds that members obey, folded as members fold them; expiry is
            judged by the time that a record proves, and the allowed skew.
        reports: the last report of every member that reported lately.
        is_heard: whether reports could be read; if not, it is unknown who obeys.
        ends: the end offsets of the control topics; None if unknown.
        lags: records behind the committed offset, of all partitions that have one.
        now: the broker's time when the look ended, in seconds since the epoch; None if
            it is unknown, because no member reports.
        newest: the time of the newest record; the broker's is no earlier.
        wall: this machine's time when the look ended.
        taken_at: when this look ended, by our monotonic clock.
        unread: what could not be read, each with the reason, as text.
        skew: seconds by which members lift holds late, the most of all members.
        gone: the last reports of Spark streams that reported lately, and do not any
            more, though they did not say that they stop.
        late: the last reports of members that reported lately, and do not any more; and
            of those that have stopped, while Kafka lists them.
        just_over: the holds that expired so lately that a report may count them still.
        moved_by_silent: held partitions whose committed offset moved lately, between
            two looks, while the same member owned them and did not report.
    """

    group: str
    facts: GroupFacts
    standing: tuple[Standing, ...]
    reports: tuple[Report, ...]
    ends: Mapping[str, int] | None
    lags: Mapping[TopicPartition, int]
    now: float | None
    taken_at: float
    unread: tuple[str, ...] = ()
    is_heard: bool = True
    skew: float = 0.0
    gone: tuple[Report, ...] = ()
    late: tuple[Report, ...] = ()
    just_over: tuple[Standing, ...] = ()
    moved_by_silent: Mapping[TopicPartition, Move] = field(factory=dict)
    newest: float = 0.0
    wall: float = 0.0

    @cached_property
    def times(self) -> Times:
        """The times by which it is judged whether a hold has ended."""
        newest = max((one.at or 0.0 for one in self.standing), default=0.0)
        return Times.of(self.now, max(self.newest, newest), self.wall)

    @property
    def is_known(self) -> bool:
        """Whether anything is known of such a group; if not, its name may be mistyped."""
        said = (self.standing, self.reports, self.late, self.gone)
        return self.facts.is_known or any(said)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The holds that members obey though the control topics lost them."""
        return tuple(sorted({kept for one in self.reports for kept in one.kept}))

    @cached_property
    def lasting(self) -> tuple[Standing, ...]:
        """The holds that have not ended; members lift others late by the allowed skew."""
        proven = self.times.proven
        return tuple(one for one in self.standing if not one.is_over(proven))

    @cached_property
    def maybe_over(self) -> tuple[Standing, ...]:
        """The holds of these that have ended by this machine's clock alone."""
        here = self.times.here
        return tuple(one for one in self.lasting if one.is_over(here))

    def lifted_by(self, holds: Collection[Standing]) -> float | None:
        """Return when members have lifted the given holds; None if one has not ended."""
        proven = self.times.proven
        if not all(one.is_over(proven) for one in holds):
            return None
        ends = [one.expires_at for one in holds if one.expires_at is not None]
        return max(ends) + self.skew if ends else None

    @property
    def reporting(self) -> int | None:
        """How many of the members that Kafka lists report; None if unknown."""
        if not self.is_heard:
            return None
        said = {one.member_id for one in self.reports}
        return sum(one.member_id in said for one in self.facts.members)

    @property
    def without_lag(self) -> frozenset[TopicPartition]:
        """The partitions with a committed offset whose end could not be had."""
        return frozenset(self.facts.committed.keys() - self.lags.keys())

    @property
    def held(self) -> tuple[TopicPartition, ...]:
        """The partitions of the group that a hold covers, sorted."""
        return tuple(
            tp
            for tp in self.facts.partitions
            if any(one.covers(tp) for one in self.standing)
        )
