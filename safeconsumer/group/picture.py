"""
What is known of one group at one moment: the value that all judging is done on.
"""

from collections.abc import Collection, Iterable, Mapping

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.group.commits import NOTHING_SEEN, Commits
from safeconsumer.group.facts import GroupFacts, Standing
from safeconsumer.group.report_wire import Report


def skew_of(own: float, reports: Iterable[Report]) -> float:
    """
    Return by how many seconds members lift holds late, at the most.

    Args:
        own: what is said here; an earlier version does not report it.
        reports: of the members.
    """
    return max((own, *(one.skew for one in reports if one.skew is not None)))


@frozen(kw_only=True)
class Picture:
    """
    One look at a group. What could not be read is None or empty, and named.

    Attributes:
        group: the consumer group.
        facts: what the cluster knows of it.
        standing: the holds that members obey, folded as members fold them, with their
            expiry judged by the broker's clock. Where that is unknown, a hold is left
            out only if records prove that its time is over.
        reports: the last report of every member that said something lately.
        is_heard: whether reports could be read; else nobody knows who obeys.
        ends: where the control topics end; None if that is unknown.
        lags: records behind the committed offset, of held partitions.
        now: the broker's time when it ended, seconds since the epoch; None if it is
            unknown, because nobody reports.
        taken_at: when this look ended, by our monotonic clock.
        unread: what could not be read, each with why, in words.
        skew: seconds by which members lift holds late, the most of all.
        gone: the last reports of Spark streams that were heard of lately, and are not
            any more, though they did not say that they stop.
        commits: what this look and those before tell of commits for what nobody owns.
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
    commits: Commits = NOTHING_SEEN

    @property
    def is_known(self) -> bool:
        """
        Whether there is anything of such a group: else its name is a typing error.
        """
        return self.facts.is_known or bool(self.standing) or bool(self.reports)

    @property
    def lasting(self) -> tuple[Standing, ...]:
        """
        The holds whose time is not over; members lift others late by the allowed skew.
        """
        now = self.now
        return tuple(
            one for one in self.standing if now is None or not one.is_over(now)
        )

    def lifted_by(self, holds: Collection[Standing]) -> float | None:
        """
        Return when members have lifted holds of which none lasts any more, else None.
        """
        now = self.now
        if now is None or not all(one.is_over(now) for one in holds):
            return None
        ends = [one.expires_at for one in holds if one.expires_at is not None]
        return max(ends) + self.skew if ends else None

    @property
    def reporting(self) -> int | None:
        """
        How many of the members that Kafka knows tell of themselves; None if unknown.
        """
        if not self.is_heard:
            return None
        said = {one.member_id for one in self.reports}
        return sum(one.member_id in said for one in self.facts.members)

    @property
    def held(self) -> tuple[TopicPartition, ...]:
        """
        The partitions of the group that a hold covers, sorted.
        """
        return tuple(
            tp
            for tp in self.facts.partitions
            if any(one.covers(tp) for one in self.standing)
        )
