"""
Upstream's group coordinator: joins are never forgotten, and every one is seen.
"""

import time
from collections.abc import Callable
from typing import Any

from attrs import frozen
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.base import MemberState
from kafka.errors import FencedInstanceIdError, RetriableError
from kafka.structs import TopicPartition

from safeconsumer import events
from safeconsumer._kafka.pausing.committed import CommittedOffsets
from safeconsumer.holds import ownership as rebalance

# What upstream passes for a member without a generation.
_UNKNOWN_MEMBER = (-1, "")


@frozen
class _Joined:
    """
    A join that has succeeded on the wire and waits for a ``poll`` to apply it.
    """

    generation: object
    assignment: bytes
    at: float


class PauseSafeCoordinator(CommittedOffsets):
    """
    Takes a snapshot when a join is prepared, and compares when it has completed.

    Differences from upstream 3.0.12, each with a regression test:

    - A join that outlasts the ``poll`` that began it is finished by later ones,
      however short they are; upstream forgets it, keeps its old assignment with
      heartbeats off, and goes on delivering partitions that others own by then.
    - A join that succeeded between two polls is used, not begun anew, and the
      member's heartbeats go on meanwhile.
    - A join begun for an older subscription is not applied.
    - A fenced static member raises on every ``poll``.

    Works constructed as upstream's class is and adopted by ``__class__`` (then call
    :meth:`prepare`), beside a plain ``SubscriptionState`` too.

    Thread rules: ``poll`` and ``need_rejoin`` on the polling thread; the coroutines
    on the IO thread, where the user's rebalance listener runs too.
    """

    def __init__(self, client: object, subscription: object, **configs: object) -> None:
        super().__init__(client, subscription, **configs)
        self.prepare()

    def prepare(self) -> None:
        """
        Make what this class needs beyond upstream's attributes.
        """
        super().prepare()
        self._snapshot: rebalance.Snapshot | None = None
        self._lost: frozenset[TopicPartition] = frozenset()
        self._joined: _Joined | None = None
        self._join_task: Any  # upstream's
        self._has_stale_join = False
        self._applied: int | None = None  # the generation whose assignment is here
        self._fenced: FencedInstanceIdError | None = None
        self._raised_by_callback: RetriableError | None = None
        self.before_join: Callable[[], None] | None = None
        self.losses = 0

    # ------------------------------------------------------------ polling

    def poll(self, timeout_ms: float | None = None) -> bool:
        """
        Do what upstream does; answer False while a join must be repeated first.

        Also when a connection broke or a broker was silent: a member that subscribed to
        a pattern asks for metadata before it joins, and upstream (3.0.12) raises if
        that fails, into programs that did nothing wrong and can do nothing but poll
        again. It asks ``retry_backoff_ms`` apart. A refused login is no such failure.

        Raises:
            Exception: what a callback of ``commit_async`` raised.
            FencedInstanceIdError: on every call, once another member took over this
                one's ``group_instance_id``.
        """
        if self._fenced is not None:
            raise FencedInstanceIdError(*self._fenced.args) from self._fenced
        try:
            ready: bool = super().poll(timeout_ms)
        except FencedInstanceIdError as error:
            self._fenced = error
            raise
        except RetriableError as error:
            if error is self._raised_by_callback:
                raise
            return False
        finally:
            self._raised_by_callback = None
            self._deliver()
        waits = self._has_stale_join and self._subscription.partitions_auto_assigned()
        return ready and not waits

    def _invoke_completed_offset_commit_callbacks(self) -> None:
        try:
            super()._invoke_completed_offset_commit_callbacks()
        except RetriableError as error:  # what a commit met, say, passed on
            self._raised_by_callback = error
            raise

    def need_rejoin(self) -> bool:
        """
        Tell whether a join is needed, or under way and not applied yet.

        Upstream asks only what could *start* a join. Once JoinGroup is sent nothing
        of that is left, so a ``poll`` that gave up waiting was the last to care.
        """
        if super().need_rejoin():
            return True
        return bool(
            self.rejoining
            and self._subscription.partitions_auto_assigned()
            and not self._auto_assign_all_partitions()
        )

    def ensure_active_group(self, timeout_ms: float | None = None) -> bool:
        """
        Join; ask ``before_join`` where a join would begin.

        A heartbeat's answer can ask for a join in the middle of a ``poll``, so no look
        before the call would do. What ``before_join`` raises ends the ``poll``, which
        has taken nothing then, and counts as a poll for ``max_poll_interval_ms``.
        """
        if self.before_join is not None and not self.rejoining:
            with self._lock:
                self.heartbeat.poll()
            self.before_join()
        active: bool = super().ensure_active_group(timeout_ms)
        return active

    def reset_generation(self, *args: object, **kwargs: object) -> None:
        """
        Do what upstream does, and count it.

        Whoever saw another count has lost what it owned, however that came about.
        """
        self.losses += 1
        super().reset_generation(*args, **kwargs)

    # ------------------------------------------------------------ joining (IO thread)

    def stable(self) -> bool:
        """
        Tell the heartbeat loop whether to go on: also for a join not yet applied.
        """
        joined = self._joined
        return bool(super().stable()) or (
            joined is not None and joined.generation is self._generation
        )

    async def _do_join_and_sync_async(self) -> bytes:
        self._joined = None
        await self._lose_stale_assignment()
        assignment: bytes = await super()._do_join_and_sync_async()
        with self._lock:
            # From here on a request to rejoin is about the generation just joined.
            self.rejoin_needed = False
            self._joined = _Joined(self._generation, assignment, time.monotonic())
        self._enable_heartbeat()
        return assignment

    async def _lose_stale_assignment(self) -> None:
        # Membership lost *inside* a join: upstream prepares a join only once, so it
        # would carry positions over a time in which others may have owned them.
        owned = self._subscription.assigned_partitions()
        if not owned or not self._generation.is_lost():
            return
        try:
            if self._rebalance_protocol == RebalanceProtocol.EAGER:
                self._subscription.assign_from_subscribed([])  # the listener was told
            else:
                await super()._on_join_prepare_async(*_UNKNOWN_MEMBER)
        finally:
            self._note_lost()

    def _lose_what_others_had(self, generation: int) -> None:
        # A generation in between was missed, its SyncGroup refused or cut off, say:
        # 1. before it, this member gave up all it owned, as an eager one does;
        # 2. in it, others may have owned that, and committed;
        # 3. upstream, which keeps the positions of what comes back, would go on where
        #    this member once was, and commit that over their offsets.
        # A cooperative member claims what it owns when it joins: nobody else gets it.
        # A follower that joins again may be answered with the generation it knows.
        owned = frozenset(self._subscription.assigned_partitions())
        applied = generation if self._applied is None else self._applied
        missed = generation not in {applied, applied + 1}
        if owned and missed and self._rebalance_protocol == RebalanceProtocol.EAGER:
            self._subscription.assign_from_subscribed([])  # the listener was told
            self._lost |= owned

    async def join_group_async(self, timeout_ms: float | None = None) -> bool:
        """
        Join, or apply the join that succeeded since the last ``poll``.
        """
        joined = self._joined
        task = self._join_task
        if joined is not None and task is not None and task.is_done:
            # Upstream would take a finished task for none and join once more: a
            # member that polls briefly and rarely would never leave that circle.
            if self._is_current(joined):
                self._join_task = self._manager.call_soon(_answer(joined.assignment))
            else:
                self._joined = None
        done: bool = await super().join_group_async(timeout_ms)
        return done

    def _is_current(self, joined: _Joined) -> bool:
        # Heartbeats told in the meantime if the generation was over, but not if
        # none of them got through.
        limit = self.heartbeat.config["session_timeout_ms"] / 1000
        silent = time.monotonic() - max(joined.at, self.heartbeat.last_receive)
        return (
            self._generation is joined.generation
            and not self.rejoin_needed
            and silent < limit
        )

    async def _on_join_prepare_async(
        self, generation: int, member_id: str, timeout_ms: float | None = None
    ) -> None:
        self._take_snapshot()
        try:
            await super()._on_join_prepare_async(generation, member_id, timeout_ms)
        finally:
            self._note_lost()
            self._deliver()

    async def _on_join_complete_async(
        self,
        generation: int,
        member_id: str,
        protocol: str,
        member_assignment_bytes: bytes,
    ) -> None:
        self._joined = None
        if self._is_for_older_subscription():
            self._drop_stale_join(generation)
            return
        self._has_stale_join = False
        self._lose_what_others_had(generation)
        self._applied = generation
        try:
            await super()._on_join_complete_async(
                generation, member_id, protocol, member_assignment_bytes
            )
        finally:
            self._tell_rebalance(generation, member_id)
            self._deliver()

    def _is_for_older_subscription(self) -> bool:
        current = self._subscription.subscription
        joined = self._joined_subscription
        # One that named no topics got none assigned: nothing to hold against it.
        return current is None or bool(joined and joined != set(current))

    def _drop_stale_join(self, generation: int) -> None:
        # What it assigned was asked for by a subscription that is over. Until the
        # next join completes nothing may flow, and nothing may be committed in the
        # generation just joined: others own the old partitions now. So this member
        # is in the middle of joining still; what prepares a join is not done again.
        self._has_stale_join = self._subscription.partitions_auto_assigned()
        with self._lock:
            self.rejoining = True
            self.state = MemberState.REBALANCING
        self.request_rejoin()
        self._emit(events.StaleJoinDropped, generation=generation)
        self._deliver()

    # ------------------------------------------------------------ the snapshot

    def _take_snapshot(self) -> None:
        if self._ours is not None:
            ledger = self._ours.ledger
            self._snapshot = rebalance.snapshot(ledger.view(), ledger.ownership())
            self._lost = frozenset()

    def _note_lost(self) -> None:
        # Upstream empties the assignment in join-prepare only when membership is lost.
        if self._ours is None or self._snapshot is None:
            return
        if self._generation.is_lost():
            owned = self._ours.ledger.ownership().epochs
            self._lost = frozenset(
                tp for tp in self._snapshot.epochs if tp not in owned
            )

    def _tell_rebalance(self, generation: int, member_id: str) -> None:
        if self._ours is None or self._snapshot is None:
            return
        ledger = self._ours.ledger
        view = ledger.view()
        outcome = rebalance.compare(
            self._snapshot, view, ledger.ownership(), self._lost
        )
        self._warn_uncommitted((outcome.revoked | outcome.lost) & self._snapshot.quiet)
        self._snapshot = None
        bit = {
            hold.key: hold
            for tp in outcome.gained
            if tp in view.quiet
            for hold in view.state.covering(tp)
        }
        ledger.emit(
            events.RebalanceCompleted,
            generation=generation,
            member_id=member_id,
            kept=events.sorted_partitions(outcome.kept),
            gained=events.sorted_partitions(outcome.gained),
            revoked=events.sorted_partitions(outcome.revoked),
            lost=events.sorted_partitions(outcome.lost),
            quiet=events.sorted_partitions(view.quiet),
            bit=tuple(bit.values()),
        )
        if outcome.woken:
            ledger.emit(
                events.PauseForgotten,
                partitions=events.sorted_partitions(outcome.woken),
            )

    # ------------------------------------------------------------ heartbeats

    def _handle_heartbeat_response(self, response: object, send_time: float) -> None:
        try:
            super()._handle_heartbeat_response(response, send_time)
        except FencedInstanceIdError as error:
            self._fenced = error  # upstream only stops its heartbeats
            raise


def _answer(assignment: bytes) -> Any:  # noqa: ANN401 - a coroutine function
    async def answer() -> bytes:
        return assignment

    return answer
