"""Defines hold records, and the cluster's description of a group."""

from collections.abc import Iterable, Mapping

from attrs import frozen

from safeconsumer.group import patterns
from safeconsumer.group.durations import duration_text
from safeconsumer.group.wire import ControlHold, ControlKey
from safeconsumer.holds.explain import utc
from safeconsumer.holds.hold import OPERATOR
from safeconsumer.holds.resets import Target, Targets
from safeconsumer.holds.scope import Scope, TopicPartition


@frozen(kw_only=True)
class HoldRecord:
    """
    The record of a hold on the holds topic, or a tombstone.

    Attributes:
        key: group, owner and scope.
        hold: the hold; None for a tombstone.
        at: the record's timestamp, in seconds since the epoch; None if the record has
            none, in which case each member counts from when it read the record.
        offset: its offset in the topic.
        incarnation: how many times the topic had been recreated before the record was
            read; each time, its offsets start over.
    """

    key: ControlKey
    hold: ControlHold | None
    at: float | None
    offset: int
    incarnation: int = 0

    @property
    def owner(self) -> str:
        """The hold's owner as members see it, such as ``operator:alice``."""
        return OPERATOR + self.key.owner

    @property
    def since(self) -> float | None:
        """When the hold was placed, in seconds since the epoch; :attr:`at` may be later."""
        if self.hold is None or self.hold.since_ms is None:
            return self.at
        return self.hold.since_ms / 1000

    @property
    def expires_at(self) -> float | None:
        """When the hold expires by the broker's clock, in seconds since the epoch."""
        if self.at is None or self.hold is None or self.hold.ttl_ms is None:
            return None
        return self.at + self.hold.ttl_ms / 1000

    def is_over(self, now: float) -> bool:
        """Return whether the hold has expired at ``now``, in seconds since the epoch."""
        return self.expires_at is not None and self.expires_at <= now

    def in_force(self, now: float, skew: float) -> bool:
        """Return whether members that lift holds ``skew`` seconds late still obey it."""
        return self.hold is not None and not self.is_over(now - skew)

    @property
    def scope(self) -> Scope:
        """The scope as members with this version of safeconsumer read it."""
        return patterns.read_key(self.key).scope

    def covers(self, tp: TopicPartition) -> bool:
        """Return whether :attr:`scope` covers a partition."""
        return self.scope.covers(tp)

    def cells(self) -> tuple[str, ...]:
        """Return the hold as table cells: scope, owner, since, until, reason."""
        why = (self.hold.reason if self.hold else None) or ""
        since = "since unknown" if self.since is None else f"since {utc(self.since)}"
        return self.key.scope, self.owner, since, self._until(), why

    def _until(self) -> str:
        if self.expires_at is not None:
            return f"until {utc(self.expires_at)}"
        if self.hold is not None and self.hold.ttl_ms is not None:
            return (
                f"for {duration_text(self.hold.ttl_ms / 1000)} after a member read it"
            )
        return "until resumed"


def targets_of(records: Iterable[HoldRecord]) -> Targets:
    """Return the reset targets by partition; the reset that was written last counts."""
    found: dict[TopicPartition, Target] = {}
    for one in sorted(records, key=lambda one: (one.incarnation, one.offset)):
        if (hold := one.hold) is None or hold.reset is None:
            continue
        ids = dict(hold.reset.topic_ids)
        found |= {
            (topic, partition): Target(
                offset=offset,
                topic_id=ids.get(topic),
                owner=one.owner,
                hold_id=hold.hold_id,
                record=one.offset,
            )
            for topic, partition, offset in hold.reset.to
            if one.scope.covers((topic, partition))
        }
    return found


# The state of a group that cannot be described.
UNKNOWN = "Unknown"


@frozen(kw_only=True)
class MemberFacts:
    """
    A member of a group, as the cluster describes it.

    Attributes:
        member_id: the member's id in Kafka, which changes with each process and
            whenever the membership is lost.
        client_id: its ``client_id`` setting.
        host: the host that it connects from.
        assigned: its partitions; empty during a rebalance of the classic protocol.
        epoch: its epoch if the broker assigns the group's partitions (KIP-848); the
            member reports this epoch as its generation. None in other groups.
    """

    member_id: str
    client_id: str
    host: str
    assigned: frozenset[TopicPartition]
    epoch: int | None = None


@frozen(kw_only=True)
class GroupFacts:
    """
    A consumer group, as the cluster describes it.

    Attributes:
        state: Kafka's name for the group's state; ``Dead`` if the group does not exist,
            ``Unknown`` if the cluster does not describe it.
        members: its members; consumers that assign partitions to themselves are not
            members.
        committed: the group's committed offsets.
        has_committed: whether the cluster answered with committed offsets.
    """

    state: str
    members: tuple[MemberFacts, ...]
    committed: Mapping[TopicPartition, int]
    has_committed: bool = True

    @property
    def member_count(self) -> int | None:
        """The number of members; None if the cluster does not list them."""
        return None if self.state == UNKNOWN else len(self.members)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that its members own."""
        return frozenset(tp for one in self.members for tp in one.assigned)

    @property
    def is_known(self) -> bool:
        """Whether the group exists."""
        return self.state != "Dead" or bool(self.committed)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """All partitions that the group owns or has committed offsets for, sorted."""
        return tuple(sorted(self.assigned | set(self.committed)))


NO_GROUP = GroupFacts(state="Dead", members=(), committed={})
NOT_READ = GroupFacts(state=UNKNOWN, members=(), committed={}, has_committed=False)
