"""Holds what is known of one group at one moment, for everything that judges it."""

import time
from collections.abc import Collection, Iterable, Mapping

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


def best_time(now: float | None, *others: float) -> float:
    """
    Return the best known time, by which it is judged what is still in force.

    Args:
        now: the broker's; None if it is unknown, because nobody reports.
        others: this machine's, and the times of records, which prove that it is no
            earlier; the latest counts then. What is in force gets the allowed skew.
    """
    return max(others) if now is None else now


@frozen(kw_only=True)
class Picture:
    """
    One look at a group. What could not be read is None or empty, and is named.

    Attributes:
        group: the consumer group.
        facts: what the cluster knows of it.
        standing: the holds that members obey, folded as members fold them; expiry is
            judged by the broker's clock, or if that is unknown by :func:`best_time`.
        reports: the last report of every member that reported lately.
        is_heard: whether reports could be read; if not, it is unknown who obeys.
        ends: the end offsets of the control topics; None if unknown.
        lags: records behind the committed offset, of all partitions that have one.
        now: the broker's time when the look ended, in seconds since the epoch; None if
            it is unknown, because no member reports.
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

    @property
    def best(self) -> float:
        """The best known time."""
        records = (one.at or 0.0 for one in self.standing)
        return best_time(self.now, time.time(), *records)

    @property
    def is_known(self) -> bool:
        """Whether anything is known of such a group; if not, its name may be mistyped."""
        return self.facts.is_known or bool(self.standing or self.reports or self.late)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The holds that members obey though the control topics lost them."""
        return tuple(sorted({kept for one in self.reports for kept in one.kept}))

    @property
    def lasting(self) -> tuple[Standing, ...]:
        """The holds that have not expired; members lift others late by the allowed skew."""
        now = self.now
        return tuple(
            one for one in self.standing if now is None or not one.is_over(now)
        )

    def lifted_by(self, holds: Collection[Standing]) -> float | None:
        """Return when members have lifted the given holds; None if one has not expired."""
        now = self.now
        if now is None or not all(one.is_over(now) for one in holds):
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
