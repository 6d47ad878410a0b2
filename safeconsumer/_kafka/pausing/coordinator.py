"""Extends upstream's group coordinator, so that no join is forgotten or unreported."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.consumer.subscription_state import SubscriptionType
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.base import MemberState, UnjoinedGroupException
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    RetriableError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafka.future import Future
from kafka.protocol.consumer import OffsetResetStrategy
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.protocol.metadata import MetadataResponse
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.util import Timer

from safeconsumer import events
from safeconsumer._interrupts import is_from_handler
from safeconsumer._kafka.network import new_future, run, wakeable_net
from safeconsumer._kafka.pausing.commits import Offsets, OwnedOffsets, States
from safeconsumer._kafka.pausing.ids import PATIENCE
from safeconsumer._kafka.pausing.notes import Notes
from safeconsumer._kafka.pausing.subscription import ConsumedOffsets, LedgerSubscription
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer._kafka.pausing.waking import Wakeup, WakingManager
from safeconsumer.errors.kafka_python import CommitRefusedError
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Cause, Owned
from safeconsumer.holds.table import rebalanced

if TYPE_CHECKING:
    from safeconsumer._kafka.handover import HandOver

log = logging.getLogger(ConsumerCoordinator.__module__)
_OUT_OF_DATE = (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError)

LONGEST_LEAVING_MS = 3000
"""
The longest time that leaving a group may take, in milliseconds.
"""

# The member id that upstream passes for a member without a generation.
_UNKNOWN_MEMBER = (-1, "")


class Joined(NamedTuple):
    """
    A join that has succeeded on the wire and waits for a ``poll`` to apply it.

    Attributes:
        generation: upstream's object, which is replaced when the membership changes.
        assignment: the encoded assignment from SyncGroup's response.
        at: the time of the success, in seconds on the monotonic clock.
    """

    generation: object
    assignment: bytes
    at: float

    def is_current(
        self, generation: object, last_heartbeat: float, session_timeout: float
    ) -> bool:
        """
        Return whether the join can still be applied.

        A heartbeat since then would have shown that the generation has ended, unless no
        heartbeat got through.
        """
        silent = time.monotonic() - max(self.at, last_heartbeat)
        return self.generation is generation and silent < session_timeout

    async def answer(self) -> bytes:
        """Return the assignment of SyncGroup's response again."""
        return self.assignment


class PauseSafeCoordinator(ConsumerCoordinator):
    """
    Joins, commits and sends heartbeats for one member, and keeps its pauses in joins.

    Each method extends upstream's, and its docstring describes the difference from
    3.0.12. ``design/joins.md`` lists all differences.

    Thread rules: ``poll`` and ``need_rejoin`` run on the polling thread, and the
    coroutines on the IO thread, where the user's rebalance listener runs, too.

    Attributes:
        handover: the object that hands pauses over in joins; None if no pause is handed
            over.
        before_join: a function that is called on the polling thread before each join.
        losses: how often the generation was lost.
    """

    coordinator_id: int | str | None  # upstream's

    def __init__(self, client: object, subscription: object, **configs: object) -> None:
        super().__init__(client, subscription, **configs)
        self.prepare()

    def prepare(self, wakeup: Wakeup | None = None) -> None:
        """Make this class's attributes; ``wakeup`` interrupts the waits of :meth:`poll`."""
        self._is_leaving = False  # whether a separate connection is leaving the group
        self._waking = WakingManager(self._manager, wakeup or Wakeup(self._net))
        self._manager: Any = self._waking
        self._net: Any = wakeable_net(self._net, self._waking)
        self.ledger: PauseLedger = self._subscription.ledger
        self.handover: HandOver | None = None
        self.before_join: Callable[[], None] | None = None
        self.losses = 0
        self._joined: Joined | None = None
        self._join_task: Any  # upstream's
        # The generation of the applied assignment.
        self._applied_generation: int | None = None
        self._fencing_error: FencedInstanceIdError | None = None
        self._notes = Notes(self._net)
        self._raised_by_callback: RetriableError | None = None
        # The partitions that were held when a join was prepared, until they are reported.
        self._held: States = {}
        # The owned partitions when a join was last prepared, or completed.
        self._owned: States = {}
        self._revoking: States = {}
        self._drained: States = {}
        # The ownerships at the time of upstream's pending offset requests.
        self._owned_when_asked: Owned | None = None
        # The held partitions whose commits were last requested, and that request.
        self._quiet_when_asked: frozenset[TopicPartition] | None = None
        self._held_question = Future().success(None)
        self._is_committed_elsewhere = False
        # The time of the last request for the coordinator.
        self._coordinator_asked_at = -math.inf
        # The time at which the coordinator last refused a join or request.
        self._refused_at = -math.inf
        self._join_of_poll: Future | None = None  # done when the join of a poll ends
        # A future that is done when the listener has handled a loss within a join.
        self._listener_of_loss: Future | None = None
        # A future that is done when the ids for which a commit waits have arrived.
        self._id_request = Future().success(None)

    # ------------------------------------------------------------ polling

    def poll(self, timeout_ms: float | None = None) -> bool:
        """
        Join, and set positions; return False if the poll must repeat that first.

        The result is also False if a connection broke or a broker did not respond. A
        member that subscribed to a pattern requests metadata before it joins; if that
        fails, upstream raises in a program that can only poll again. A refused login
        raises.

        Raises:
            Exception: a callback of ``commit_async`` has raised it.
            FencedInstanceIdError: on every call, once another member has taken over the
                ``group_instance_id`` of this member.
        """
        if self._fencing_error is not None:
            raise FencedInstanceIdError(
                *self._fencing_error.args
            ) from self._fencing_error
        try:
            if self._join_of_poll is not None:
                # A signal handler ended the poll of this join. Upstream regards the
                # join as complete when its listener starts, and would deliver records
                # of partitions in which the listener is about to seek.
                timer = Timer(timeout_ms)
                if not self._run(self._wait_for_join, timeout_ms):
                    return False
                timeout_ms = timer.timeout_ms
            ready: bool = super().poll(timeout_ms)
            self._ask_about_held()
        except FencedInstanceIdError as error:
            self._fencing_error = error
            raise
        except RetriableError as error:
            if error is self._raised_by_callback or is_from_handler(error):
                raise
            return False
        finally:
            self._raised_by_callback = None
            self.ledger.deliver()
        # Upstream regards a dropped join as complete.
        waits = self.rejoining and self._subscription.partitions_auto_assigned()
        return ready and not waits

    def ensure_coordinator_ready(self, timeout_ms: float | None = None) -> bool:
        """Find the coordinator; if it is known, the ``poll`` waits for no other thread."""
        known = self.coordinator_id
        if known is not None and not self._client.is_disconnected(known):
            return True
        ready: bool = self._run(self.ensure_coordinator_ready_async, timeout_ms)
        return ready

    def refresh_committed_offsets_if_needed(
        self, timeout_ms: float | None = None
    ) -> bool:
        """
        Set missing positions.

        Upstream sends a new request after each wait, until the time is over. Here a
        separate task sends the request, and continues if the ``poll`` is woken.
        """
        is_done: bool = self._run(self._refresh_committed_offsets, timeout_ms)
        return is_done

    async def _refresh_committed_offsets(self, timeout_ms: float | None) -> bool:
        refresh = self.refresh_committed_offsets_if_needed_async
        task = self._manager.call_soon(refresh, timeout_ms)
        try:
            return bool(await self._waking.wait_for(task, timeout_ms))
        except KafkaTimeoutError:
            return False

    def _run(self, call: Callable[..., Any], timeout_ms: float | None) -> Any:  # noqa: ANN401 - what it returns
        # Like upstream's method with the caller's name, but a poll can be woken.
        return run(self._net, self._waking.wakeable(call), timeout_ms)

    async def _send_group_coordinator_request(self) -> Any:  # noqa: ANN401 - upstream's
        # Brokers report a failed coordinator until they notice the failure. Upstream
        # asks for the coordinator, cannot connect, and asks again immediately, 240
        # times a second.
        await self._back_off(self._coordinator_asked_at)
        self._coordinator_asked_at = time.monotonic()
        return await super()._send_group_coordinator_request()

    async def _send_offset_fetch_request(self, partitions: Any) -> Any:  # noqa: ANN401 - upstream's
        await self._back_off(self._refused_at)
        try:
            return await super()._send_offset_fetch_request(partitions)
        except RetriableError:
            self._refused_at = time.monotonic()
            raise

    async def _back_off(self, since: float) -> None:
        # Upstream also waits after a refusal, but not beyond the end of its poll.
        backoff: float = self.config["retry_backoff_ms"] / 1000
        due = since + backoff - time.monotonic()
        if due > 0:
            await self._net.sleep(due)

    def _maybe_auto_commit_offsets_sync(self, timeout_ms: float | None = None) -> None:
        # Upstream logs every exception, even a signal handler's.
        if not self.config["enable_auto_commit"]:
            return
        consumed = self._subscription.all_consumed_offsets()
        try:
            self.commit_offsets_sync(consumed, timeout_ms=timeout_ms)
        except Exception as error:
            if is_from_handler(error):
                raise
            if isinstance(error, _OUT_OF_DATE):
                log.warning(
                    "The last commit failed after the membership ended: %s", error
                )
            else:
                log.exception("The last commit failed; records will be read again")

    def time_to_next_poll(self) -> float:
        """
        Return the seconds until the next ``poll`` is due, never less than a backoff.

        Upstream returns 0 if the response to a heartbeat is missing when the next one
        is due, and its consumer then calls this thousands of times a second. Heartbeats
        need no ``poll``.
        """
        backoff: float = self.config["retry_backoff_ms"] / 1000
        seconds: float = super().time_to_next_poll()
        return max(seconds, backoff)

    def _invoke_completed_offset_commit_callbacks(self) -> None:
        try:
            super()._invoke_completed_offset_commit_callbacks()
        except RetriableError as error:
            # For example, the callback raised a commit's error.
            self._raised_by_callback = error
            raise

    def need_rejoin(self) -> bool:
        """
        Return whether a join is needed, or is in progress and not applied yet.

        Upstream checks only the reasons to *start* a join, and forgets a join that
        outlasts its ``poll``. The member then keeps the old assignment without
        heartbeats.
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
        Join; call ``before_join`` before a join starts, even during a poll.

        If ``before_join`` raises, the ``poll`` ends without records, but still counts
        for ``max_poll_interval_ms``.
        """
        if self.before_join is not None and not self.rejoining:
            with self._lock:
                self.heartbeat.poll()
            self.before_join()
        active: bool = self._run(self.ensure_active_group_async, timeout_ms)
        return active

    async def ensure_active_group_async(self, timeout_ms: float | None = None) -> bool:
        """
        Join, after the join of an earlier ``poll`` has ended.

        A signal handler's exception ends a poll, but not the poll's coroutine. Two
        coroutines would apply the same join twice, and call the listener twice.
        """
        if self._join_of_poll is not None:
            timer = Timer(timeout_ms)
            if not await self._wait_for_join(timeout_ms):
                return False
            timeout_ms = timer.timeout_ms
        self._join_of_poll = mine = new_future(self._net)
        try:
            active: bool = await super().ensure_active_group_async(timeout_ms)
        except BaseException as error:
            mine.failure(error)
            raise
        finally:
            self._join_of_poll = None
        mine.success(active)
        return active

    async def _wait_for_join(self, timeout_ms: float | None) -> bool:
        timer = Timer(timeout_ms)
        while (earlier := self._join_of_poll) is not None:
            try:
                await self._waking.wait_for(earlier, timer.timeout_ms)
            except KafkaTimeoutError:
                return False
        return True

    def reset_generation(self, *args: object, **kwargs: object) -> None:
        """Count the loss; an unchanged count means that no partition was lost."""
        self.losses += 1
        super().reset_generation(*args, **kwargs)

    def coordinator_dead(self, error: object) -> None:
        """Look up the coordinator again; a new one may accept other commit metadata."""
        super().coordinator_dead(error)
        self._notes.forget()

    def membership(self) -> tuple[str, int]:
        """
        Return the member id and generation, or "" and -1 outside a group.

        Any thread may call this.
        """
        generation = self._generation
        if generation.generation_id < 0:
            return "", -1
        return str(generation.member_id), int(generation.generation_id)

    # ------------------------------------------------------------ joining (IO thread)

    def stable(self) -> bool:
        """Return whether heartbeats continue, as they do for a join not applied yet."""
        joined = self._joined
        return bool(super().stable()) or (
            joined is not None and joined.generation is self._generation
        )

    async def _do_join_and_sync_async(self) -> bytes:
        self._joined = None
        await self._back_off(self._refused_at)
        await self._lose_stale_assignment()
        try:
            assignment: bytes = await super()._do_join_and_sync_async()
        except RetriableError:
            self._refused_at = time.monotonic()
            raise
        except InconsistentGroupProtocolError:
            # The broker compared the protocol with that of an ended membership.
            if self._generation.is_lost():
                raise UnjoinedGroupException from None
            raise
        if self._generation.is_lost():  # by unsubscribe() and subscribe(), for example
            raise UnjoinedGroupException
        with self._lock:
            # A later request to rejoin concerns this new generation.
            self.rejoin_needed = False
            self._joined = Joined(self._generation, assignment, time.monotonic())
        self._enable_heartbeat()
        return assignment

    def group_protocols(self) -> list[tuple[str, ConsumerProtocolSubscription]]:
        """
        Return the protocols of a join, which claim only partitions that are owned now.

        Upstream's cooperative assignor also claims the partitions of a lost membership.
        A leader would give these back while their current owner still reads them.
        """
        owned = self._subscription.assigned_partitions()
        offered: list[tuple[str, ConsumerProtocolSubscription]] = (
            super().group_protocols()
        )
        for _, subscription in offered:
            claims = subscription.owned_partitions or ()
            for claim in claims:
                claim.partitions = [
                    partition
                    for partition in claim.partitions
                    if TopicPartition(claim.topic, partition) in owned
                ]
        return offered

    async def _lose_stale_assignment(self) -> None:
        # The membership was lost *within* a join. Upstream prepares a join only once,
        # so positions would survive although other members may have owned the
        # partitions.
        owned = self._subscription.assigned_partitions()
        if not owned or not self._generation.is_lost():
            return
        self._listener_of_loss = new_future(self._net)
        try:
            with self._assigning_because(Cause.LOST):
                if self._rebalance_protocol == RebalanceProtocol.EAGER:
                    # The listener has already been called.
                    self._subscription.assign_from_subscribed([])
                else:
                    await super()._on_join_prepare_async(*_UNKNOWN_MEMBER)
        finally:
            self._listener_of_loss.success(None)

    @contextmanager
    def _assigning_because(self, cause: Cause) -> Iterator[None]:
        # The block changes the assignment for a cause other than a completed join.
        subscription: LedgerSubscription = self._subscription
        subscription.cause = cause
        try:
            yield
        finally:
            subscription.cause = Cause.JOINED

    async def maybe_leave_group_async(
        self, reason: str | None = None, timeout_ms: float | None = None
    ) -> None:
        """
        Leave the group within 3 s; during a join, on a separate connection.

        A broker answers the requests of a connection in order, and answers JoinGroup
        when the slowest member has joined. On the same connection, LeaveGroup would
        wait for JoinGroup's response, while the group waits for this member.
        """
        limit = LONGEST_LEAVING_MS if timeout_ms is None else timeout_ms
        timeout_ms = min(limit, LONGEST_LEAVING_MS)
        joining = self._cluster.broker_metadata(self.coordinator_id)
        is_waiting = self.state is MemberState.REBALANCING and not self._is_leaving
        if joining is None or not is_waiting:
            await super().maybe_leave_group_async(reason, timeout_ms)
            return
        brokers = self._cluster._coordinator_brokers
        known, own = self.coordinator_id, f"{self.coordinator_id}-leaving"
        brokers[own] = MetadataResponse.MetadataResponseBroker(
            own, joining.host, joining.port, None
        )
        self.coordinator_id, self._is_leaving = own, True
        try:
            await super().maybe_leave_group_async(reason, timeout_ms)
        finally:
            self._is_leaving = False
            del brokers[own]
            if self.coordinator_id == own:
                self.coordinator_id = known
            connection = self._manager._conns.get(own)
            if connection is not None:
                connection.close()

    async def _on_close_prepare_async(self) -> None:
        # The consumer's holds end after this.
        with self._assigning_because(Cause.PASSING):
            await super()._on_close_prepare_async()

    def _lose_assignment_of_missed_generation(self, generation: int) -> None:
        # This member missed a generation because its SyncGroup was refused or cut off:
        # 1. before that generation, an eager member gave up all its partitions;
        # 2. in that generation, other members may have owned these partitions, and
        #    committed;
        # 3. upstream keeps the positions of partitions that come back, so this member
        #    would continue at its old positions, and commit them over the others' offsets.
        # A cooperative member claims its partitions when it joins, so no other member
        # gets these partitions. A broker may give a follower that joins again the same
        # generation.
        owned = frozenset(self._subscription.assigned_partitions())
        applied = (
            generation if self._applied_generation is None else self._applied_generation
        )
        missed = generation not in {applied, applied + 1}
        if owned and missed and self._rebalance_protocol == RebalanceProtocol.EAGER:
            with self._assigning_because(Cause.LOST):
                # The listener has already been called.
                self._subscription.assign_from_subscribed([])

    async def join_group_async(self, timeout_ms: float | None = None) -> bool:
        """Join, or apply a join that has succeeded since the last ``poll``."""
        joined = self._joined
        task = self._join_task
        if joined is not None and task is not None and task.is_done:
            # Upstream ignores a finished task and would join once more, so a member
            # that polls briefly and rarely would never complete a join.
            if not self.rejoin_needed and joined.is_current(
                self._generation,
                self.heartbeat.last_receive,
                self.heartbeat.config["session_timeout_ms"] / 1000,
            ):
                self._join_task = self._manager.call_soon(joined.answer)
            else:
                self._joined = None
        try:
            done: bool = await super().join_group_async(timeout_ms)
        finally:
            # Wait for the listener, as upstream does before a join.
            if self._listener_of_loss is not None:
                await self._listener_of_loss
        return done

    async def _on_join_prepare_async(
        self, generation: int, member_id: str, timeout_ms: float | None = None
    ) -> None:
        self._owned, self._drained = dict(self._subscription.assignment), {}
        self._note_held()
        if self.handover is not None:
            self.handover.before_join()
        try:
            # A wake-up must not shorten the wait for the commit.
            if self._waking.is_asked:
                timeout_ms = None
            cause = Cause.LOST if self._generation.is_lost() else Cause.PASSING
            with self._assigning_because(cause), self._waking.unwakeable():
                await super()._on_join_prepare_async(generation, member_id, timeout_ms)
        except BaseException:
            # A listener raised. Upstream has already revoked the partitions, and would
            # not join if the program undoes the change of topics that caused the join.
            self.request_rejoin()
            raise
        finally:
            # poll() delivers the events, because a hook that runs here would block the
            # IO thread.
            if self._generation.is_lost():  # others may own the partitions
                self.ledger.assign(self.ledger.owned(), Cause.LOST)
            elif self.handover is not None:
                self.handover.before_join()

    async def _on_join_complete_async(
        self,
        generation: int,
        member_id: str,
        protocol: str,
        member_assignment_bytes: bytes,
    ) -> None:
        self._joined = None
        # A response after SyncGroup's may have ended the membership.
        is_over = generation < 0 or not member_id
        if is_over or self._is_for_older_subscription(member_assignment_bytes):
            self._drop_join()
            return
        self.note_partitions()
        if self.handover is not None:
            decoded = ConsumerProtocolAssignment.decode(member_assignment_bytes)
            self.handover.joined(decoded.user_data or b"", generation)
        self._lose_assignment_of_missed_generation(generation)
        self._applied_generation = generation
        self._owned = dict(self._subscription.assignment)
        before = self.ledger.table()
        try:
            with self._waking.unwakeable():
                await super()._on_join_complete_async(
                    generation, member_id, protocol, member_assignment_bytes
                )
        finally:
            self._note_drained()
            changed = rebalanced(before, self.ledger.table())
            ids = {"generation": generation, "member_id": member_id}
            self.ledger.emit(events.RebalanceCompleted, **ids, **changed)
            self._subscription.on_joined()
            self._warn_uncommitted()

    def _note_drained(self) -> None:
        # 1. A cooperative join revokes partitions; the next join assigns them.
        # 2. In between, a worker finishes and commits the records of these partitions
        #    (before_join).
        # 3. This member joins, and another owns the partitions from the next generation
        #    on.
        is_cooperative = self._rebalance_protocol == RebalanceProtocol.COOPERATIVE
        if is_cooperative and self.before_join is not None:
            now = self._subscription.assignment
            self._drained = {
                tp: one for tp, one in self._owned.items() if tp not in now
            }

    def note_partitions(self) -> None:
        """Let the subscription record the partitions of its topics, if these are known."""
        self._subscription.note_partitions(self._known_partitions())

    def skip_no_record(self) -> None:
        """Skip no unread record from now on; see the subscription's method."""
        self._subscription.skip_no_record(self._known_partitions())

    def _known_partitions(self) -> Mapping[str, Collection[int]]:
        # The leader records the partitions that it has assigned, because another join
        # will assign the partitions that its metadata has gained since.
        assigned = self._assignment_snapshot
        known: Mapping[str, Collection[int]]
        known = self._metadata_snapshot if assigned is None else assigned
        return known

    def note_answer(self, *, is_of_all: bool) -> None:
        """Let the subscription note the topics that a metadata response lacks."""
        self._subscription.note_answer(self._metadata_snapshot, is_of_all=is_of_all)

    def _is_for_older_subscription(self, assignment: bytes) -> bool:
        # Returns whether the assignment has topics that are no longer subscribed. Added
        # topics need another join, which upstream starts on its own.
        current = self._subscription.subscription
        if current is None:
            return True
        if self._joined_subscription <= set(current):
            return False
        assigned = ConsumerProtocolAssignment.decode(assignment).partitions()
        return any(tp.topic not in current for tp in assigned)

    def _drop_join(self) -> None:
        # The subscription or the membership of this join has ended. Other members own
        # the old partitions now, so until the next join completes, no partition may
        # flow, and no commit may use the generation just joined. This member is still
        # joining, and does not prepare the next join again.
        with self._lock:
            self.rejoining = True
            self.state = MemberState.REBALANCING
        self.request_rejoin()

    # ------------------------------------------------------------ heartbeats

    async def _send_heartbeat_request(self) -> Any:  # noqa: ANN401 - upstream's
        member = self._generation.member_id
        try:
            return await super()._send_heartbeat_request()
        except FencedInstanceIdError as error:
            # The membership that sent the heartbeat has ended.
            if member != self._generation.member_id:
                raise UnknownMemberIdError from error
            self._fencing_error = error  # upstream would only stop sending heartbeats
            raise

    # ------------------------------------------------------------ commits

    def commit_offsets_async(
        self,
        offsets: Offsets,
        callback: Callable[[Offsets, object], object] | None = None,
    ) -> Future:
        """
        Commit, and pass the result to the callback and the future.

        If the coordinator must be found first, upstream's future is done as soon as the
        coordinator is found, so a listener that awaits the future continues before the
        commit is sent.

        Raises:
            CommitRefusedError: as :meth:`refuse_other_commit`.
        """
        commit = self._with_ownerships(offsets)
        self.refuse_other_commit(commit)
        self._invoke_completed_offset_commit_callbacks()
        refusal = self._refusal(commit)
        if refusal is None:
            self._journal(commit)
        if refusal is None and not self.coordinator_unknown():
            # The result is not chained to another future, because an interrupt could
            # leave that future's lock held.
            return self._note_answer(
                self._do_commit_offsets_async(commit, callback), commit
            )
        # No other thread has this future yet, so no interrupt can leave its lock held.
        result: Future = self._note_answer(new_future(self._net), commit)
        then = callback or self.config["default_offset_commit_callback"]

        def fail(error: Exception) -> None:
            self.completed_offset_commits.appendleft((then, commit, error))
            result.failure(error)

        def send(_coordinator: object) -> None:
            self._do_commit_offsets_async(commit, callback).chain(result)

        if refusal is None:
            self.lookup_coordinator().add_callback(send).add_errback(fail)
        else:
            fail(refusal)
        return result

    def _note_answer(self, result: Future, commit: OwnedOffsets) -> Future:
        if commit.is_journaled:
            result.add_callback(lambda _: commit.answered(commit, is_done=True))
            result.add_errback(lambda _: commit.answered(commit, is_done=False))
        return result

    def commit_offsets_sync(
        self, offsets: Offsets, timeout_ms: float | None = None
    ) -> None:
        """
        Commit, and wait for the result.

        Raises:
            NotOwnedError: a partition is not owned, or is no longer owned when the
                commit is retried.
            CommitRefusedError: as :meth:`refuse_other_commit`.
        """
        commit = self._with_ownerships(offsets)
        self.refuse_other_commit(commit)
        refusal = self._refusal(commit)
        if refusal is not None:
            raise refusal
        self._journal(commit)
        try:
            super().commit_offsets_sync(commit, timeout_ms)
        except BaseException:
            # After a signal handler's exception, the coroutine would go on and retry
            # the commit.
            commit.is_given_up = True
            raise

    async def _commit_offsets_sync_async(
        self, offsets: Offsets, timeout_ms: float | None = None
    ) -> None:
        commit = self._with_ownerships(offsets)
        self._journal(commit)  # for commits that upstream makes before a join
        is_done = False
        doubtful = self._subscription.ids.doubtful(commit.states.items())
        if timeout_ms is not None and doubtful:
            # In a short poll, the wait for ids would leave no time for the commit.
            timeout_ms += PATIENCE * 1000
        try:
            await super()._commit_offsets_sync_async(commit, timeout_ms)
            is_done = True
        finally:
            commit.answered(commit, is_done=is_done)

    async def _invoke_rebalance_listener_async(
        self, method_name: str, arg: Collection[TopicPartition]
    ) -> None:
        if method_name == "on_partitions_revoked":
            known = {**self._owned, **self._subscription.assignment}
            self._revoking = {tp: known[tp] for tp in arg if tp in known}
        try:
            await super()._invoke_rebalance_listener_async(method_name, arg)
            if self._revoking and self._subscription.journal is not None:
                # Commits of the listener may wait for their turn, and start in the
                # loop's next cycle. After JoinGroup, which follows, the broker would
                # refuse these commits.
                await self._net.sleep(0)
                await self._wait_for_commits()
        finally:
            self._revoking = {}

    def _with_ownerships(self, offsets: Offsets) -> OwnedOffsets:
        if isinstance(offsets, OwnedOffsets):
            return offsets
        if not all(isinstance(tp, TopicPartition) for tp in offsets) or not all(
            isinstance(one, OffsetAndMetadata) for one in offsets.values()
        ):
            message = "offsets must be dict[TopicPartition, OffsetAndMetadata]"
            raise TypeError(message)
        revoked = {**self._revoking, **self._drained}
        assigned = self._subscription.assignment
        commit = OwnedOffsets(offsets, assigned, self._generation, revoked)
        commit.is_implicit = isinstance(offsets, ConsumedOffsets)
        return commit

    def mark_as_worker_commit(self, offsets: Offsets) -> Offsets:
        """Return the offsets, marked as a commit of the worker or pump."""
        commit = self._with_ownerships(offsets)
        commit.is_of_worker = True
        return commit

    def refuse_other_commit(self, offsets: object = None) -> None:
        """
        Refuse a commit that does not come from the worker or pump that has the consumer.

        Only the worker or pump knows which records are finished. An earlier commit that
        was not sent yet is refused, too, because it could set the offset back.

        Raises:
            CommitRefusedError: a worker or pump has the consumer, and did not request
                this commit.
        """
        is_taken = self._subscription.taken_by is not None
        if is_taken and not getattr(offsets, "is_of_worker", False):
            message = (
                "a Worker or Pump uses this consumer and commits finished records: "
                "leave out commit(), commit_async() and group_metadata(), with or "
                "without offsets; they would commit past records that other handlers "
                "have not finished. Nothing was sent"
            )
            raise CommitRefusedError(message)

    def _refusal(self, commit: OwnedOffsets) -> CommitFailedError | None:
        subscription: LedgerSubscription = self._subscription
        with subscription._lock:
            assigned = subscription.assignment
            refusal = commit.refuse_deleted(assigned, subscription.newest_id)
            position = subscription.undelivered.position
            refusal = refusal or commit.refuse_undoing(assigned, position)
        if (
            not subscription.partitions_auto_assigned()
            or self._auto_assign_all_partitions()
        ):
            return refusal  # no group owns the partitions
        return refusal or commit.refusal(subscription.assignment, self._generation)

    async def _send_offset_commit_request(self, offsets: Offsets) -> Any:  # noqa: ANN401 - upstream's
        # Every commit calls this method: manual, automatic, in a listener, at close().
        offsets = self._with_ownerships(offsets)
        await self._ask_for_ids(offsets)
        if self._subscription.journal is None:
            return await self._send_if_allowed(offsets)
        return await self._notes.send(offsets, partial(self._send_if_allowed, offsets))

    async def _send_if_allowed(self, offsets: OwnedOffsets) -> Any:  # noqa: ANN401 - upstream's
        self.refuse_other_commit(offsets)
        refusal = self._refusal(offsets)
        if refusal is not None:
            raise refusal
        if offsets.is_given_up:
            raise CommitFailedError
        for state in offsets.states.values():
            state.commits_sent += 1
        kind, member = self._subscription.subscription_type, self._generation.member_id
        try:
            return await super()._send_offset_commit_request(offsets)
        except FencedInstanceIdError as error:
            is_over = member != self._generation.member_id
            if is_over or kind == SubscriptionType.NONE:
                # The sender of the commit is no longer a member, or never was one. In
                # every later poll, upstream would raise the error that this member is
                # fenced.
                raise CommitFailedError from error
            raise
        except UnknownTopicOrPartitionError:
            # Upstream would retry until the end of the call, and a draining worker
            # until the end of its drain. A starting coordinator may not know a topic
            # yet, and the metadata may be old, so both must lack the topic. A fetch of
            # the topic, and a commit of a held partition, request new metadata.
            if not offsets.leave_out(self._cluster.is_missing):
                raise
            return await self._send_if_allowed(offsets)

    async def _ask_for_ids(self, commit: OwnedOffsets) -> None:
        # Under a subscription, only held partitions whose position moved are in the
        # commit.
        ids = self._subscription.ids
        if not ids.begin_to_ask(ids.doubtful(commit.states.items())):
            return
        self._id_request = self._cluster.request_update()
        await self._wait_briefly(self._id_request)

    async def _wait_for_commits(self) -> None:
        # Commits that wait for ids, or for their turn, started to wait before this
        # call.
        await self._wait_briefly(self._id_request)
        await self._wait_briefly(self._notes.last)

    async def _wait_briefly(self, future: Any) -> None:  # noqa: ANN401 - upstream's
        if not future.is_done:
            with suppress(KafkaError):
                await self._manager.wait_for(future, PATIENCE * 1000)

    def maybe_auto_commit_offsets_now(self) -> None:
        """
        Commit, and wait briefly until all commits requested so far were sent.

        Upstream sends the commits later, for example after ``unsubscribe``, when the
        broker refuses them.
        """
        super().maybe_auto_commit_offsets_now()
        if self.group_id and threading.current_thread() is not self._net._io_thread:
            self._net.run(self._wait_for_commits)

    def _journal(self, commit: OwnedOffsets) -> None:
        journal = self._subscription.journal
        if journal is None or not commit or commit.is_journaled:
            return
        commit.is_journaled = True
        offsets = {tp: one.offset for tp, one in commit.items()}
        # If the program passes on metadata that names an earlier commit, it is removed.
        for tp, one in commit.items():
            if one.metadata and journal.is_note(one.metadata):
                commit[tp] = OffsetAndMetadata(one.offset, "", one.leader_epoch)
        commit.note, commit.answered = journal.committing(offsets)

    def _handle_offset_commit_response(
        self,
        offsets: Offsets,
        send_time: float,
        response: Any,  # noqa: ANN401 - upstream's
    ) -> None:
        states = self._with_ownerships(offsets).states
        self._forget_questions(offsets)
        for topic, partitions in response.topics:
            for number, error in partitions:
                state = states.get(TopicPartition(topic, number))
                if state is not None and not error:
                    state.has_commit = True
                    state.committed = offsets[TopicPartition(topic, number)].offset
        super()._handle_offset_commit_response(offsets, send_time, response)

    async def fetch_committed_offsets_async(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> Offsets:
        """
        Fetch committed offsets, and record in each ownership whether the group has one.

        Upstream keeps a request that outlasts its poll, for hours and across
        generations. In this class a change of ownerships, or a commit of one of the
        request's partitions, ends the request.
        """
        owned = self.ledger.owned()
        if owned is not self._owned_when_asked:
            self._owned_when_asked = owned
            self._offset_fetch_futures.clear()
        states: States = self._subscription.assignment
        known = [(tp, one) for tp in partitions if (one := states.get(tp)) is not None]
        asked = [(tp, one, one.commits_sent) for tp, one in known]
        offsets: Offsets
        offsets = await super().fetch_committed_offsets_async(partitions, timeout_ms)
        for tp, state, sent in asked:
            if tp in offsets or state.commits_sent == sent:
                if state.has_commit is None and tp in offsets:
                    state.committed = offsets[tp].offset
                state.has_commit = tp in offsets
        return offsets

    def _forget_questions(self, committed: Collection[TopicPartition]) -> None:
        for asked in tuple(self._offset_fetch_futures):
            if not asked.isdisjoint(committed):
                del self._offset_fetch_futures[asked]

    async def refresh_committed_offsets_if_needed_async(
        self, timeout_ms: float | None = None
    ) -> bool:
        """
        Set missing positions to committed offsets; return False if a retry is needed.

        Upstream overwrites a position that was set during the request, even in an
        ownership that started since. Upstream also drops the leader epoch of the
        commit, which is needed to detect that a log was truncated (KIP-320).
        """
        subscription: LedgerSubscription = self._subscription
        with subscription._lock:
            missing = self._states_without_position()
            before = self._moves_without_position()
        try:
            offsets = await self.fetch_committed_offsets_async(
                frozenset(missing), timeout_ms
            )
        except KafkaTimeoutError:
            return False
        with subscription._lock:  # atomic with respect to seeks on other threads
            now, moved = self._states_without_position(), self._moves_without_position()
            if subscription.journal is not None:
                still = [tp for tp in missing if moved.get(tp, 0) == before.get(tp)]
                subscription.journal.committed({tp: offsets.get(tp) for tp in still})
            for tp, committed in offsets.items():
                if tp in moved and moved[tp] == before.get(tp):
                    begin = OffsetAndMetadata(
                        committed.offset, "", committed.leader_epoch
                    )
                    subscription.seek(tp, begin)
                    subscription.assignment[tp].committed = committed.offset
        # Partitions without a committed offset are reset next; the others are fetched.
        return all(missing.get(tp) is state for tp, state in now.items())

    def _states_without_position(self) -> dict[TopicPartition, OwnedPartitionState]:
        # The committed offset of a recreated topic belongs to the deleted topic.
        states: States = self._subscription.assignment
        return {
            tp: one
            for tp in self._subscription.missing_fetch_positions()
            if (one := states.get(tp)) is not None
            and (one.asks_commit or not one.is_recreated)
        }

    def _moves_without_position(
        self,
    ) -> dict[TopicPartition, tuple[OwnedPartitionState, int]]:
        # Returns the states and their numbers of moves, which differ in another
        # ownership, and after a position was set or given up.
        return {
            tp: (state, state.moves)
            for tp, state in self._subscription.assignment.items()
            if isinstance(state, OwnedPartitionState) and state.position is None
        }

    def group_metadata(self) -> Any:  # noqa: ANN401 - upstream's
        """
        Return the data with which a producer may commit for this member from now on.

        Raises:
            CommitRefusedError: a worker or pump makes all commits of the consumer.
        """
        self.refuse_other_commit()
        self._is_committed_elsewhere = True
        if self._subscription.journal is not None:
            self._subscription.journal.unseen()
        return super().group_metadata()

    def has_commit(self, state: OwnedPartitionState | None) -> bool | None:
        """Return whether the group has a committed offset; None if that is unknown."""
        if self._is_committed_elsewhere:  # a producer may have committed
            return True
        return None if state is None else state.has_commit

    @contextmanager
    def reassigning(self) -> Iterator[None]:
        """Warn about quiet partitions that depart in the block, as a join would warn."""
        self._note_held()
        try:
            yield
        finally:
            self._warn_uncommitted()
            self.ledger.deliver()

    def _ask_about_held(self) -> None:
        """
        Find out, without waiting, whether the group has offsets of the held partitions.

        If the program has set the first positions of the partitions, no other request
        would find that out, and the result decides if their departure is a warning.
        """
        quiet = self.ledger.quiet()
        if quiet is self._quiet_when_asked or not self._skips_uncommitted:
            return
        if not self._held_question.is_done:
            return
        states: States = self._subscription.assignment
        unknown = {
            tp
            for tp in quiet
            if (one := states.get(tp)) is not None and one.has_commit is None
        }
        # The offsets of these partitions are requested next, to set their positions.
        missing = self._states_without_position().keys() if unknown else frozenset()
        self._quiet_when_asked = None if unknown & missing else quiet
        if asked := unknown - missing:
            self._held_question = self._manager.call_soon(self._note_commits, asked)

    async def _note_commits(self, partitions: Collection[TopicPartition]) -> None:
        try:
            await self.fetch_committed_offsets_async(
                partitions, self.config["request_timeout_ms"]
            )
        except KafkaTimeoutError:
            self._quiet_when_asked = None  # the next poll asks again
        except KafkaError:
            log.debug(
                "the committed offsets of held partitions are unknown", exc_info=True
            )

    @property
    def _skips_uncommitted(self) -> bool:
        # Whether the next owner starts a partition without a commit at the log's end.
        strategy = self._subscription._default_offset_reset_strategy
        return strategy == OffsetResetStrategy.LATEST and bool(self.group_id)

    def _note_held(self) -> None:
        # ``_held`` keeps the partitions that were given up for an incomplete join.
        states: States = self._subscription.assignment
        held = {tp: one for tp in self.ledger.quiet() if (one := states.get(tp))}
        self._held = {**self._held, **held}

    def _warn_uncommitted(self) -> None:
        held, self._held = self._held, {}
        if not self._skips_uncommitted:
            return
        # Upstream does not change the assignment at close().
        owned = self.ledger.owned()
        left = [tp for tp, one in held.items() if owned.get(tp) is not one]
        skipped = [tp for tp in left if self.has_commit(held[tp]) is False]
        if skipped:
            self.ledger.emit(
                events.HeldPartitionUncommitted,
                partitions=events.sorted_partitions(skipped),
            )
