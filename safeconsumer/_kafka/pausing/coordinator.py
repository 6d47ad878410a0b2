"""Extends upstream's group coordinator, so that no join is lost or goes unreported."""

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

# The generation and member id that upstream passes for a member without a generation.
_UNKNOWN_MEMBER = (-1, "")


class Joined(NamedTuple):
    """
    A join for which SyncGroup has succeeded, and which the next ``poll`` will apply.

    Attributes:
        generation: upstream's generation object, which is replaced when the membership
            changes.
        assignment: the encoded assignment from SyncGroup's response.
        at: the time at which SyncGroup succeeded, in seconds on the monotonic clock.
    """

    generation: object
    assignment: bytes
    at: float

    def is_current(
        self, generation: object, last_heartbeat: float, session_timeout: float
    ) -> bool:
        """
        Return whether the join can still be applied.

        If the generation had ended, the response to a heartbeat would have shown it,
        unless no heartbeat has succeeded since.
        """
        silent = time.monotonic() - max(self.at, last_heartbeat)
        return self.generation is generation and silent < session_timeout

    async def answer(self) -> bytes:
        """Return the assignment from SyncGroup's response again."""
        return self.assignment


class PauseSafeCoordinator(ConsumerCoordinator):
    """
    Joins, commits and sends heartbeats for one member; its pauses survive joins.

    Each method extends upstream's method, and its docstring describes the differences
    from 3.0.12. ``design/joins.md`` lists all differences.

    Thread rules: ``poll`` and ``need_rejoin`` run on the polling thread, and the
    coroutines on the IO thread, where the user's rebalance listener runs, too.

    Attributes:
        handover: the object that hands pauses over in joins; None if pauses are not
            handed over.
        before_join: a function that is called on the polling thread before each join.
        losses: how many times the generation was lost.
    """

    coordinator_id: int | str | None  # upstream's

    def __init__(self, client: object, subscription: object, **configs: object) -> None:
        super().__init__(client, subscription, **configs)
        self.prepare()

    def prepare(self, wakeup: Wakeup | None = None) -> None:
        """Set this class's attributes; ``wakeup`` interrupts the waits of :meth:`poll`."""
        self._is_leaving = False  # whether it is leaving over a separate connection
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
        # The partitions that were owned when a join was last prepared or, later,
        # completed.
        self._owned: States = {}
        self._revoking: States = {}
        self._drained: States = {}
        # The ownerships for which upstream's pending requests for offsets were sent.
        self._owned_when_asked: Owned | None = None
        # The quiet partitions whose committed offsets were last requested, and that
        # request.
        self._quiet_when_asked: frozenset[TopicPartition] | None = None
        self._held_question = Future().success(None)
        self._is_committed_elsewhere = False
        # The time of the last FindCoordinator request.
        self._coordinator_asked_at = -math.inf
        # The time at which the coordinator last refused a join or another request.
        self._refused_at = -math.inf
        self._join_of_poll: Future | None = None  # done when the join in progress ends
        # A future that is done when the listener has handled a loss within a join.
        self._listener_of_loss: Future | None = None
        # A future that is done when the topic ids that a commit waits for have arrived.
        self._id_request = Future().success(None)

    # ------------------------------------------------------------ polling

    def poll(self, timeout_ms: float | None = None) -> bool:
        """
        Join, and set positions; return False if the poll must first call this again.

        The result is also False if a connection broke or a broker did not respond.
        Upstream raises, for example, if a member that subscribed to a pattern cannot
        get the metadata that it needs for a join, although the program can only poll
        again. If authentication fails, this method raises.

        Raises:
            Exception: a callback of ``commit_async`` has raised it.
            FencedInstanceIdError: another member has taken over the
                ``group_instance_id`` of this member; from then on, every call raises
                this error.
        """
        if self._fencing_error is not None:
            raise FencedInstanceIdError(
                *self._fencing_error.args
            ) from self._fencing_error
        try:
            if self._join_of_poll is not None:
                # A signal handler has ended the poll that started this join. Upstream
                # regards the join as complete as soon as the listener starts. It would
                # deliver records of partitions in which the listener is about to seek.
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
        # Upstream regards a join as complete even if it was dropped.
        waits = self.rejoining and self._subscription.partitions_auto_assigned()
        return ready and not waits

    def ensure_coordinator_ready(self, timeout_ms: float | None = None) -> bool:
        """Find the coordinator. If it is known, ``poll`` does not wait for another thread."""
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

        Upstream sends a new request after each wait, until the timeout. In this class a
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
        # Waits for a call, as upstream's methods do, except that a poll can be woken.
        return run(self._net, self._waking.wakeable(call), timeout_ms)

    async def _send_group_coordinator_request(self) -> Any:  # noqa: ANN401 - upstream's
        # Until brokers notice that a coordinator has failed, they still name it.
        # Upstream looks up the coordinator, cannot connect to it, and repeats this
        # immediately, 240 times a second.
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
        # Upstream also waits after a refusal, but only until the end of its poll.
        backoff: float = self.config["retry_backoff_ms"] / 1000
        due = since + backoff - time.monotonic()
        if due > 0:
            await self._net.sleep(due)

    def _maybe_auto_commit_offsets_sync(self, timeout_ms: float | None = None) -> None:
        # Upstream would log every exception, even a signal handler's.
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

        If a heartbeat is due before the previous one was answered, upstream returns 0,
        and its consumer calls this method thousands of times a second. Heartbeats do
        not depend on ``poll``.
        """
        backoff: float = self.config["retry_backoff_ms"] / 1000
        seconds: float = super().time_to_next_poll()
        return max(seconds, backoff)

    def _invoke_completed_offset_commit_callbacks(self) -> None:
        try:
            super()._invoke_completed_offset_commit_callbacks()
        except RetriableError as error:
            # The callback may, for example, have raised the commit's error.
            self._raised_by_callback = error
            raise

    def need_rejoin(self) -> bool:
        """
        Return whether a join is needed, or is in progress and not applied yet.

        Upstream checks only the reasons to *start* a join, and forgets a join that
        takes longer than its ``poll``. The member would then keep the old assignment,
        but send no heartbeats.
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
        Join. Call ``before_join`` before a join starts, even during a poll.

        If ``before_join`` raises, the ``poll`` ends with that error, but still counts
        as a poll for ``max_poll_interval_ms``.
        """
        if self.before_join is not None and not self.rejoining:
            with self._lock:
                self.heartbeat.poll()
            self.before_join()
        active: bool = self._run(self.ensure_active_group_async, timeout_ms)
        return active

    async def ensure_active_group_async(self, timeout_ms: float | None = None) -> bool:
        """
        Join, but first wait until the join of an earlier ``poll`` has ended.

        If a signal handler raises, the poll ends, but the poll's coroutine continues.
        Two coroutines would apply the same join twice, and call the listener twice.
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
        """Count the loss. As long as the count is unchanged, no partition was lost."""
        self.losses += 1
        super().reset_generation(*args, **kwargs)

    def coordinator_dead(self, error: object) -> None:
        """Discard the coordinator; a new one may accept different commit metadata."""
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
        """
        Return whether to send heartbeats.

        The result is also True while a completed join's assignment is not applied yet.
        """
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
            # The broker compared the protocols with those of a membership that has
            # ended.
            if self._generation.is_lost():
                raise UnjoinedGroupException from None
            raise
        if self._generation.is_lost():  # for example by unsubscribe()
            raise UnjoinedGroupException
        with self._lock:
            # Any later request to rejoin concerns this new generation.
            self.rejoin_needed = False
            self._joined = Joined(self._generation, assignment, time.monotonic())
        self._enable_heartbeat()
        return assignment

    def group_protocols(self) -> list[tuple[str, ConsumerProtocolSubscription]]:
        """
        Return the protocols for a join, which claim only currently owned partitions.

        Upstream's cooperative assignor also claims the partitions of a lost membership.
        A leader would assign these to this member while their current owner still reads
        them.
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
        # Handles a membership that was lost *during* a join. Upstream prepares a join
        # only once, so the old positions would be kept although other members may have
        # owned the partitions since.
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
        # Sets the cause that is reported if the ``with`` block changes the assignment.
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

        A broker answers the requests on a connection in order, and answers JoinGroup
        only when the slowest member has joined. On the same connection, LeaveGroup
        would wait for the response to JoinGroup, and the group would wait for this
        member.
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
        # The consumer's holds end after it has closed.
        with self._assigning_because(Cause.PASSING):
            await super()._on_close_prepare_async()

    def _lose_assignment_of_missed_generation(self, generation: int) -> None:
        # If this member has missed a generation because its SyncGroup was refused or
        # cut off:
        # 1. an eager member gave up all its partitions before that generation;
        # 2. in that generation, other members may have owned these partitions and
        #    committed;
        # 3. upstream keeps the positions of partitions that are assigned again, so this
        #    member would continue at its old positions, and overwrite the others'
        #    commits.
        # A cooperative member claims its partitions when it joins, so no other member
        # gets them. A broker may return the same generation to a follower that joins
        # again.
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
        """Join, or apply a join whose SyncGroup has succeeded since the last ``poll``."""
        joined = self._joined
        task = self._join_task
        if joined is not None and task is not None and task.is_done:
            # Upstream ignores a finished task and would join again, so a member that
            # polls briefly and rarely would never complete a join.
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
            # Waits for the listener, as upstream does before a join.
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
            # A wake-up must not cut off the wait for the commit.
            if self._waking.is_asked:
                timeout_ms = None
            cause = Cause.LOST if self._generation.is_lost() else Cause.PASSING
            with self._assigning_because(cause), self._waking.unwakeable():
                await super()._on_join_prepare_async(generation, member_id, timeout_ms)
        except BaseException:
            # A listener has raised. Upstream has already revoked the partitions, and
            # would not join if the program then undid the change of topics that caused
            # the join.
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
        # A response that arrived after SyncGroup's may have ended the membership.
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
        # 2. In between, in before_join(), a worker finishes and commits the records of
        #    these partitions.
        # 3. This member joins. From the next generation on, other members own the
        #    partitions.
        is_cooperative = self._rebalance_protocol == RebalanceProtocol.COOPERATIVE
        if is_cooperative and self.before_join is not None:
            now = self._subscription.assignment
            self._drained = {
                tp: one for tp, one in self._owned.items() if tp not in now
            }

    def note_partitions(self) -> None:
        """Make the subscription record its topics' partitions, as far as they are known."""
        self._subscription.note_partitions(self._known_partitions())

    def skip_no_record(self) -> None:
        """From now on do not skip unread records; see the subscription's method."""
        self._subscription.skip_no_record(self._known_partitions())

    def _known_partitions(self) -> Mapping[str, Collection[int]]:
        # The leader returns the partitions that it has assigned. Its metadata may have
        # gained partitions since, which another join will assign.
        assigned = self._assignment_snapshot
        known: Mapping[str, Collection[int]]
        known = self._metadata_snapshot if assigned is None else assigned
        return known

    def note_missing_topics(self, *, is_of_all: bool) -> None:
        """Make the subscription record which topics are missing in a metadata response."""
        self._subscription.note_missing_topics(
            self._metadata_snapshot, is_of_all=is_of_all
        )

    def _is_for_older_subscription(self, assignment: bytes) -> bool:
        # Returns whether the assignment includes topics that are no longer subscribed
        # to. For added topics upstream starts another join on its own.
        current = self._subscription.subscription
        if current is None:
            return True
        if self._joined_subscription <= set(current):
            return False
        assigned = ConsumerProtocolAssignment.decode(assignment).partitions()
        return any(tp.topic not in current for tp in assigned)

    def _drop_join(self) -> None:
        # The subscription or the membership for which this member joined has ended.
        # Other members own the old partitions now. Until the next join completes, no
        # partition may be delivered, and no commit may use the new generation. The
        # member's state therefore stays REBALANCING, so that it does not prepare the
        # next join again.
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
            self._fencing_error = error  # upstream would only stop the heartbeats
            raise

    # ------------------------------------------------------------ commits

    def commit_offsets_async(
        self,
        offsets: Offsets,
        callback: Callable[[Offsets, object], object] | None = None,
    ) -> Future:
        """
        Commit, and pass the result to the callback and to the returned future.

        If the coordinator must be found first, upstream's future is already done when
        the coordinator is found. A listener that awaits the future would continue
        before the commit is sent.

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
            # The result is not chained to another future: if a signal handler raised
            # while chaining, that future's lock could stay held.
            return self._note_answer(
                self._do_commit_offsets_async(commit, callback), commit
            )
        # No other thread has access to this future yet, so its lock cannot stay held.
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
            NotOwnedError: a partition is not owned when the commit is requested, or is
                no longer owned when the commit is retried.
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
            # If a signal handler raised, the coroutine would continue and retry the
            # commit.
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
            # In a short poll, the wait for topic ids would leave no time for the
            # commit.
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
                # Commits that the listener has requested may wait for their turn, and
                # start in the loop's next cycle. JoinGroup comes next, after which the
                # broker would refuse these commits.
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
        """Return the offsets, marked as a commit by the worker or pump."""
        commit = self._with_ownerships(offsets)
        commit.is_of_worker = True
        return commit

    def refuse_other_commit(self, offsets: object = None) -> None:
        """
        Refuse a commit that is not from the worker or pump that uses the consumer.

        Only the worker or pump knows which records are finished. An earlier commit that
        has not been sent yet is refused, too, because it could move the group's offset
        back.

        Raises:
            CommitRefusedError: a worker or pump uses the consumer, and did not request
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
        # Every commit passes through this method: manual, automatic, in a listener, in
        # close().
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
                # The membership for which the commit was sent has ended, or never
                # existed. Upstream would raise this error in every later poll, as if
                # the current member were fenced.
                raise CommitFailedError from error
            raise
        except UnknownTopicOrPartitionError:
            # Upstream would retry until the call times out, and a draining worker until
            # its drain ends. A coordinator that is starting may not know a topic yet,
            # and the metadata may be out of date, so a topic counts as missing only if
            # both lack it. A fetch of the topic requests new metadata, and so does a
            # commit for a held partition.
            if not offsets.leave_out(self._cluster.is_missing):
                raise
            return await self._send_if_allowed(offsets)

    async def _ask_for_ids(self, commit: OwnedOffsets) -> None:
        # Under a subscription, the commit includes held partitions only if their
        # positions moved.
        ids = self._subscription.ids
        if not ids.begin_to_ask(ids.doubtful(commit.states.items())):
            return
        self._id_request = self._cluster.request_newer(PATIENCE)
        await self._wait_briefly(self._id_request)

    async def _wait_for_commits(self) -> None:
        # Any commit that waits for topic ids, or for its turn, started to wait before
        # this call.
        await self._wait_briefly(self._id_request)
        await self._wait_briefly(self._notes.last)

    async def _wait_briefly(self, future: Any) -> None:  # noqa: ANN401 - upstream's
        if not future.is_done:
            with suppress(KafkaError):
                await self._manager.wait_for(future, PATIENCE * 1000)

    def maybe_auto_commit_offsets_now(self) -> None:
        """
        Commit, and wait briefly until all commits that were requested so far are sent.

        Upstream sends commits later, for example only after ``unsubscribe``, when the
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
        # The program may pass on an earlier commit's metadata, which can be a journal's
        # note. Such a note is removed.
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
        Fetch committed offsets; record for each ownership whether the group has one.

        If a request takes longer than its poll, upstream may use its response hours and
        generations later. In this class a request is discarded when ownerships change,
        or when one of its partitions is committed.
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

        Upstream overwrites a position that was set while the request was in flight,
        even in a newer ownership. Upstream also drops the commit's leader epoch, which
        is needed to detect that a log was truncated (KIP-320).
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
        # Partitions without a committed offset are reset next; all others can be
        # fetched.
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
        # Returns the states of partitions without a position, and their numbers of
        # moves. Both reveal a later change: of the ownership, or of the position.
        return {
            tp: (state, state.moves)
            for tp, state in self._subscription.assignment.items()
            if isinstance(state, OwnedPartitionState) and state.position is None
        }

    def group_metadata(self) -> Any:  # noqa: ANN401 - upstream's
        """
        Return the data with which a producer can commit for this member.

        Raises:
            CommitRefusedError: a worker or pump uses the consumer, and makes all its
                commits.
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
        """Warn, as a join does, about quiet partitions that depart in the ``with`` block."""
        self._note_held()
        try:
            yield
        finally:
            self._warn_uncommitted()
            self.ledger.deliver()

    def _ask_about_held(self) -> None:
        """
        Request, without waiting, the committed offsets of held partitions.

        If the program has set the first position of a partition itself, nothing else
        requests its committed offset. When the partition departs, a warning is due only
        if it has no committed offset.
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
        # The committed offsets of these partitions will be requested anyway, to set
        # their positions.
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
            self._quiet_when_asked = None  # the next poll repeats the request
        except KafkaError:
            log.debug(
                "the committed offsets of held partitions are unknown", exc_info=True
            )

    @property
    def _skips_uncommitted(self) -> bool:
        # Whether the next owner of a partition without a committed offset starts at the
        # log's end.
        strategy = self._subscription._default_offset_reset_strategy
        return strategy == OffsetResetStrategy.LATEST and bool(self.group_id)

    def _note_held(self) -> None:
        # _held keeps partitions that were given up for a join that has not completed.
        states: States = self._subscription.assignment
        held = {tp: one for tp in self.ledger.quiet() if (one := states.get(tp))}
        self._held = {**self._held, **held}

    def _warn_uncommitted(self) -> None:
        held, self._held = self._held, {}
        if not self._skips_uncommitted:
            return
        # Upstream does not clear its assignment in close().
        owned = self.ledger.owned()
        left = [tp for tp, one in held.items() if owned.get(tp) is not one]
        skipped = [tp for tp in left if self.has_commit(held[tp]) is False]
        if skipped:
            self.ledger.emit(
                events.HeldPartitionUncommitted,
                partitions=events.sorted_partitions(skipped),
            )
