"""
Carries pauses through joins in an assignor's data, as KAFKA-13463 suggests.

Its limits are in ``design/0031-hand-over.md``: a mark set since the last join is lost
with its owner, and a leader without this assignor merges nothing. A pause that did not
reach the group stays at its old owner.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kafka.consumer.subscription_state import SubscriptionType
from kafka.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.structs import TopicPartition

from safeconsumer import events
from safeconsumer._kafka.handover import envelope
from safeconsumer._kafka.handover.carrying import HandOver, arrive, travelling
from safeconsumer._kafka.handover.envelope import Direction
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.events import group as control_events
from safeconsumer.holds.merge import Register, held, merge

# Every version of the assignor reads this as "nothing owned". Without it, Java's
# cooperative-sticky would take an envelope's first bytes for a generation.
_NEUTRAL = {"sticky": b"\0" * 8, "cooperative-sticky": b"\xff" * 4}

# The limit for the whole generation, twice every member's share: the group's metadata
# is one record of at most 1 MB.
MOST_BYTES_OF_A_GENERATION = 128 * 1024

# Generations. A member that restarts is away for one or two.
_KEPT_FOR = 16

Marks = dict[TopicPartition, Register]


class MarkBook:
    """
    What this member knows of every partition's pause, from itself and from the group.

    Args:
        is_paused: returns whether a partition that is owned here is paused, so that the
            pause is handed over.
        owned: returns the partitions owned here.

    Thread rules: the IO thread.
    """

    def __init__(
        self,
        is_paused: Callable[[TopicPartition], bool],
        owned: Callable[[], Iterable[TopicPartition]],
    ) -> None:
        self._is_paused = is_paused
        self._owned = owned
        self._heard: Marks = {}
        self._generation = 0
        self.unmerged = 0

    def snapshot(self) -> Marks:
        """
        Return what is known now; for its own partitions the owner's word counts.

        A partition that the group reported as paused and that its owner resumed is
        reported as resumed, so that an older mark does not come back. The latest state
        counts: a listener may lift a pause that the same join would have reported
        before.
        """
        own = {}
        for tp in self._owned():
            if self._is_paused(tp) or tp in self._heard:
                own[tp] = Register((self._generation, 1), self._is_paused(tp))
        return {**self._heard, **own}

    def forget_but(self, topics: Collection[str]) -> None:
        """
        Forget old marks of topics that are not consumed here.

        Nobody can know whether such a topic is gone or its consumers are away. The
        owner of a partition reports it at every join.
        """
        self._heard = {
            tp: one
            for tp, one in self._heard.items()
            if tp[0] in topics or self._generation - one.stamp[0] <= _KEPT_FOR
        }

    def known(self) -> Marks:
        """Return the marks of the last :meth:`freeze` and everything received since then."""
        return self._heard

    def hear(self, data: bytes, generation: int) -> "set[TopicPartition]":
        """Take over what the leader merged; return the partitions that it says are paused."""
        _, found = envelope.unwrap(data)
        if found is None or found.direction != Direction.ASSIGNMENT:
            # The leader is a plain client; some of them send our own subscription back.
            self.unmerged += bool(self._heard)
        else:
            self._heard = merge(self._heard, found.marks)
        self._generation = generation
        return {tp for tp, one in self._heard.items() if one.is_held}

    def freeze(self) -> None:
        """
        Fix what the next join will report, before it gives anything up.

        It must not be called once JoinGroup is sent: a retry with other bytes would
        start one more rebalance.
        """
        self._heard = self.snapshot()


class HoldCarryingAssignor(AbstractPartitionAssignor):
    """
    Wraps another assignor and adds marks to its user data; it assigns nothing itself.

    Args:
        inner: the assignor that decides.
        book: the marks that this member knows.
        arrived: called with the paused partitions when an assignment arrives.
    """

    def __init__(
        self,
        inner: Any,  # noqa: ANN401 - a class or an object, as kafka-python takes either
        book: MarkBook,
        arrived: Callable[[set[TopicPartition]], object],
    ) -> None:
        self._inner = inner
        self._book = book
        self._arrived = arrived

    @property
    def name(self) -> str:
        """The inner assignor's name, so that members without safeconsumer take part."""
        return str(self._inner.name)

    @property
    def version(self) -> int:
        """The inner assignor's version."""
        return int(self._inner.version)

    def supported_protocols(self) -> Any:  # noqa: ANN401 - upstream's
        """Return the protocols that the inner assignor supports."""
        inner = self._inner() if isinstance(self._inner, type) else self._inner
        return inner.supported_protocols()

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return the inner assignor's subscription with the marks behind its user data."""
        plain = self._inner.metadata(topics)
        self._book.forget_but(frozenset(topics))
        return self._with(plain, self._book.known(), Direction.SUBSCRIPTION)

    def assign(
        self,
        cluster: Any,  # noqa: ANN401 - upstream's
        members: Iterable[Any],
    ) -> dict[str, ConsumerProtocolAssignment]:
        """Let the inner assignor decide, and give every member all marks."""
        members = list(members)
        merged: Mapping[TopicPartition, Register] = {}
        for member in members:
            inner, found = envelope.unwrap(member.metadata.user_data or b"")
            member.metadata.user_data = inner
            if found is not None and found.direction == Direction.SUBSCRIPTION:
                merged = merge(merged, found.marks)
        assignments: dict[str, ConsumerProtocolAssignment]
        assignments = self._inner.assign(cluster, members)
        size = len(envelope.wrap(b"", merged, Direction.ASSIGNMENT))
        if 2 * size * len(members) > MOST_BYTES_OF_A_GENERATION:
            return assignments  # better no marks than a group that cannot rebalance
        return {
            member: self._with(one, merged, Direction.ASSIGNMENT)
            for member, one in assignments.items()
        }

    def on_assignment(
        self, assignment: ConsumerProtocolAssignment, generation: int
    ) -> None:
        """Take over the marks, then give the inner assignor its own data only."""
        data = assignment.user_data or b""
        self._arrived(self._book.hear(data, generation))
        assignment.user_data = envelope.unwrap(data)[0]
        self._inner.on_assignment(assignment, generation)

    def _with(
        self,
        plain: Any,  # noqa: ANN401 - either message
        held: Mapping[TopicPartition, Register],
        direction: Direction,
    ) -> Any:  # noqa: ANN401 - the same
        if not held:
            return plain
        data = plain.user_data or _NEUTRAL.get(self.name, b"")
        if not isinstance(data, bytes):  # the sticky assignor leaves it None
            data = data.encode()
        plain.user_data = envelope.wrap(data, held, direction)
        return plain


class MarksInJoins(HandOver):
    """
    Reports at every join what is paused here, and obeys what the group reports.

    Args:
        coordinator: the consumer's; its assignors are wrapped.
        subscription: the consumer's; its ledger has the pauses.

    Thread rules: the IO thread.
    """

    def __init__(
        self, coordinator: ConsumerCoordinator, subscription: LedgerSubscription
    ) -> None:
        self._subscription = subscription
        self._ledger = subscription.ledger
        self._ledger.is_carried = self._is_carried
        self._in_group: frozenset[TopicPartition] = frozenset()  # as its leader said
        self._owned: Mapping[TopicPartition, int] = {}
        self._arrived: dict[TopicPartition, int] = {}  # by ownership epoch
        self._book = MarkBook(
            lambda tp: travelling(self._ledger, tp), subscription.assigned_partitions
        )
        coordinator._assignors = {
            name: HoldCarryingAssignor(one, self._book, self._take_over)
            for name, one in coordinator._assignors.items()
        }

    async def before_join(self) -> None:
        """Fix what the join reports."""
        self._book.freeze()

    async def revoked(self) -> None:
        """Fix it again: the listener may have paused and resumed."""
        self._book.freeze()

    def joined(self, assignment: bytes) -> None:
        """
        Note which pauses the group knows, before any partition departs.

        A pause made since JoinGroup was sent is not among them. With a plain leader, or
        if the marks were too many, no pause is.
        """
        data = ConsumerProtocolAssignment.decode(assignment).user_data
        _, found = envelope.unwrap(data or b"")
        is_merged = found is not None and found.direction == Direction.ASSIGNMENT
        known = held(found.marks) if found is not None and is_merged else ()
        self._in_group = frozenset(TopicPartition(*tp) for tp in known)

    def reassigned(self) -> None:
        """Report which pauses were left behind."""
        owned = self._ledger.ownership().epochs
        before, self._owned = self._owned, owned
        left = [
            tp
            for tp, epoch in before.items()
            if owned.get(tp) != epoch
            and tp not in self._in_group
            and travelling(self._ledger, tp)
        ]
        if left:
            self._ledger.emit(
                control_events.PauseNotHandedOver,
                partitions=events.sorted_partitions(left),
            )

    def _is_carried(self, tp: TopicPartition) -> bool:
        # unsubscribe() and assign() are no joins: their paused partitions stay paused
        # here.
        kind = self._subscription.subscription_type
        is_member = kind in {
            SubscriptionType.AUTO_TOPICS,
            SubscriptionType.AUTO_PATTERN,
        }
        return is_member and tp in self._in_group

    def _take_over(self, paused: Iterable[TopicPartition]) -> None:
        # It runs with the assignment, before any partition has a position.
        owned = self._ledger.ownership().epochs
        there, before = set(paused), self._arrived
        self._arrived = dict(owned)
        arrive(
            self._ledger,
            {
                tp: epoch
                for tp, epoch in owned.items()
                if tp in there and before.get(tp) != epoch
            },
        )
