"""
The simulated group: joins happen when the model says so, commits at once.

The consumer's coordinator is the real one, but its ``poll`` and its two requests for
offsets; joins run through its own hooks, so that snapshots, revocation, listeners and
positions are upstream's and ours, not the model's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from attrs import define
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.base import Generation
from kafka.protocol.consumer import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.harness.model.network import finish
from tests.unit.model.truth import Truth, Violation

Partitions = frozenset[TopicPartition]
_Assigned = ConsumerProtocolAssignment.TopicPartition


class Kind(enum.Enum):
    """How partitions change hands."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"
    LOST = "lost"


@define
class Join:
    """
    A rebalance: prepared by one poll, completed by the same or a later one.

    Attributes:
        is_split: whether the poll that prepares it gives up waiting.
        listener: what the application does in ``on_partitions_assigned``.
    """

    kind: Kind
    partitions: Partitions
    is_split: bool
    listener: Callable[[Partitions], None]
    is_prepared: bool = False
    is_applied: bool = False


class Group(ConsumerRebalanceListener):
    """
    The coordinator's side of one consumer.

    Args:
        truth: what is told of joins and commits.
        consumer: whose coordinator is taken over.
        commits: whether there is a group, so that positions come from commits.
        is_slow: whether committed offsets take longer than the poll that asks for them.
    """

    def __init__(
        self,
        truth: Truth,
        consumer: Any,  # noqa: ANN401 - ours or upstream's
        *,
        commits: bool,
        is_slow: bool,
    ) -> None:
        self.join: Join | None = None
        self._truth = truth
        self._commits = commits
        self._generation = 0
        self._is_slow = is_slow
        self._consumer = consumer
        self._coordinator = coordinator = consumer._coordinator
        coordinator.poll = self._poll
        coordinator.ensure_coordinator_ready_async = self._ready
        coordinator._send_offset_fetch_request = self._fetch_offsets
        coordinator._send_offset_commit_request = self._commit_offsets

    def _poll(self, timeout_ms: float | None = None) -> bool:  # noqa: ARG002
        self._truth.begin_call()
        join = self.join
        if join is None:
            return True
        if not join.is_prepared:
            self._prepare(join)
            if join.is_split:
                return False
        self._complete(join)
        return True

    def _prepare(self, join: Join) -> None:
        coordinator = self._coordinator
        coordinator._rebalance_protocol = (
            RebalanceProtocol.COOPERATIVE
            if join.kind is Kind.COOPERATIVE
            else RebalanceProtocol.EAGER
        )
        if join.kind is Kind.LOST:
            coordinator._generation = Generation.NO_GENERATION
        join.is_prepared = True
        finish(coordinator._on_join_prepare_async(self._generation, "m"))
        if join.kind is Kind.LOST:
            self._truth.reassign((), commits=self._commits)

    def _complete(self, join: Join) -> None:
        self._generation += 1
        coordinator, number = self._coordinator, self._generation
        coordinator._generation = Generation(number, "m", "range")
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(join.partitions):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        assignment = ConsumerProtocolAssignment(
            assigned_partitions=[
                _Assigned(topic=topic, partitions=numbers)
                for topic, numbers in by_topic.items()
            ],
            user_data=b"",
        )
        encoded = assignment.encode(version=0)
        finish(coordinator._on_join_complete_async(number, "m", "range", encoded))
        self._apply(join)
        self.join = None

    def _apply(self, join: Join) -> None:
        if not join.is_applied:
            join.is_applied = True
            self._truth.reassign(join.partitions, commits=self._commits)

    # ------------------------------------------------------------ the listener

    def on_partitions_revoked(self, revoked: Partitions) -> None:
        """Do nothing; what was revoked is known when the join completes."""

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        """Do what the application does."""
        join = self.join
        assert join is not None
        self._apply(join)
        self._check_paused(frozenset(assigned))
        join.listener(frozenset(assigned))
        self._check_paused(frozenset(assigned))

    def _check_paused(self, assigned: Partitions) -> None:
        # Gates may close what was gained in this call, and nothing else.
        paused, quiet = self._consumer.paused(), self._truth.paused()
        if not self._truth.is_lenient and not quiet <= paused <= quiet | assigned:
            raise Violation("A7", f"paused() is {paused}, expected {quiet}")

    # ------------------------------------------------------------ offsets

    async def _ready(self, timeout_ms: float | None = None) -> bool:  # noqa: ARG002
        return True

    async def _fetch_offsets(
        self, partitions: set[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        broker = self._truth.broker
        found = {
            tp: OffsetAndMetadata(broker.committed[tp], "", -1)
            for tp in partitions
            if tp in broker.committed
        }
        if self._is_slow:
            await broker.take(0, None).future
        return found

    async def _commit_offsets(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self._truth.commit({tp: one.offset for tp, one in offsets.items()})
