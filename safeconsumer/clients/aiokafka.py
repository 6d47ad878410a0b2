"""Defines ``AIOKafkaConsumer``: aiokafka's consumer with lasting pauses and group holds."""

import asyncio
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from safeconsumer.clients.aiokafka_control import (
    ConsumerRebalanceListener,
    ConsumerRecord,
    IllegalStateError,
    LoopCalls,
    TopicPartition,
    UpstreamConsumer,
    control_clients,
    require_supported,
    run_on_thread,
    stop_client,
)
from safeconsumer.clients.member import HoldingConsumer, Member
from safeconsumer.events.dispatch import Hook
from safeconsumer.group.settings import Control
from safeconsumer.holds.hold import APP
from safeconsumer.holds.ownership import Cause

__all__ = ["AIOKafkaConsumer"]

_NONE: frozenset[TopicPartition] = frozenset()
_Weak = weakref.WeakMethod[Callable[[], None]]
# The maximum seconds between two refreshes, because the event loop may not accept
# longer timers.
_LONGEST = 3600.0


class AIOKafkaConsumer(HoldingConsumer, UpstreamConsumer):
    """
    An ``aiokafka.AIOKafkaConsumer`` that does not deliver records covered by a hold.

    A hold (:meth:`hold`) keeps a partition, a topic, the topics that match a pattern or
    the whole consumer quiet, even through rebalances, until its owner lifts the hold.
    :meth:`pause` and :meth:`resume` work as in aiokafka, but a pause lasts through
    rebalances after which the member still owns the partition. With ``control=``, the
    consumer also obeys operators' holds on its group, and reports whether it obeys,
    from :meth:`start` to :meth:`stop`.

    Everything else works as in aiokafka.

    Args:
        topics: topics to subscribe to, as in aiokafka.
        control: a :class:`~safeconsumer.Control` that makes this member obey operators'
            holds; with None, there are no control threads. Control topics are read and
            written in this event loop, by clients with the same addresses,
            authentication, ``ssl_context`` and ``sasl_oauth_token_provider``.
            ``client_configs=`` must not be set.
        hooks: functions that receive every event (``safeconsumer.events``); they must
            be quick, and are called on any thread.
        log: whether events are logged, with structlog or else with the logger
            ``safeconsumer``.
        configs: any of aiokafka's settings.

    Raises:
        MissingExtraError: raised by the import if aiokafka is not installed.
        UnsupportedAiokafkaError: this package does not support the installed aiokafka
            version.
        ControlSettingError, HookTypeError: an argument is invalid.

    Thread rules: ``hold``, ``lift``, ``pause``, ``resume``, ``holds``, ``explain``,
    ``paused`` and ``quiet`` on any thread; everything else in the event loop. Only one
    task at a time may request records, except if :attr:`busy` returns the partitions
    whose records the other tasks are processing.
    """

    # A class attribute, so that calls do not have to look up the parent's method.
    _upstream_assignment = UpstreamConsumer.assignment

    def __init__(
        self,
        *topics: str,
        control: Control | None = None,
        hooks: Iterable[Hook] = (),
        log: bool = True,
        **configs: Any,  # noqa: ANN401 - upstream's settings
    ) -> None:
        require_supported()
        client_id, group_id = configs.get("client_id"), configs.get("group_id")
        self._member = Member(
            self, client_id=client_id, group_id=group_id, hooks=hooks, log=log
        )
        self._ledger = self._member.ledger
        self._configs, self._control = configs, control
        self._calls = LoopCalls()
        self._clients = control_clients(configs, self._calls)
        if control is not None:
            # Raises if the control argument is invalid.
            self._member.control_of(control, self._clients)
        # The task that starts group control; None before that and after group control
        # has stopped.
        self._attaching: asyncio.Future[None] | None = None
        # The task that stops group control after start() has failed.
        self._ending: asyncio.Future[None] | None = None
        # The assignment that the ledger knows, as aiokafka's own object, and whether it
        # has been revoked since.
        self._known = _NONE
        self._is_revoked = False
        # The quiet set that aiokafka's pauses match; None if they may be out of date.
        self._applied: frozenset[tuple[str, int]] | None = None
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        # Without a group, aiokafka calls no listeners, and it requests metadata
        # immediately.
        super().__init__(*(topics if group_id is None else ()), **configs)
        if group_id is not None and topics:
            self.subscribe(topics)
        # A weak reference, so that a consumer that is never stopped can be
        # garbage-collected; aiokafka then warns.
        refresh = weakref.WeakMethod(self._refresh)
        self._refresh_soon = partial(_call_soon, refresh, asyncio.get_running_loop())
        self._ledger.observers.append(self._refresh_soon)

    # ------------------------------------------------------------ pausing

    def pause(self, *partitions: TopicPartition) -> None:
        """
        Pause partitions as in aiokafka, but keep them paused in rebalances.

        A pause ends with :meth:`resume`, or when a rebalance takes its partition away.
        The pause is a hold by the owner ``app``, and is included in :meth:`holds`.
        """
        self._require_assigned(partitions)
        self._pause(partitions)
        self._apply_if_in_loop()

    def resume(self, *partitions: TopicPartition) -> None:
        """Resume partitions as in aiokafka. All other holds stay in force."""
        self._require_assigned(partitions)
        self.lift(*partitions)
        self._apply_if_in_loop()

    def _require_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        # The same checks as in aiokafka's pause and resume, which may only be called on
        # the loop's thread.
        if not all(isinstance(one, TopicPartition) for one in partitions):
            message = "partitions must be TopicPartition namedtuples"
            raise TypeError(message)
        owned = super().assignment()
        for one in partitions:
            if one not in owned:
                message = f"No current assignment for partition {one}"
                raise IllegalStateError(message)

    def _apply_if_in_loop(self) -> None:
        # After calls on other threads, the ledger schedules a refresh in the loop.
        if self._calls.is_in_loop:
            self._apply()

    def paused(self) -> set[TopicPartition]:
        """
        Return the assigned partitions that are covered by holds of the owner ``app``.

        Holds of ``app`` come from :meth:`pause`, and from :meth:`hold` without
        ``owner=``.
        """
        found = self._ledger.view().held_by(APP)
        return {TopicPartition(*tp) for tp in found}

    def quiet(self) -> set[TopicPartition]:
        """Return the assigned partitions that are covered by a hold or a closed gate now."""
        return {TopicPartition(*tp) for tp in self._member.quiet()}

    # ------------------------------------------------------------ records

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """Like aiokafka's method, but does not return records from held partitions."""
        self._member.begin_call()
        while True:
            self._apply()
            record = await super().getone(*partitions)
            # From here on, no other task runs in the loop until this method returns or
            # awaits.
            self._notice_assignment()
            if self._member.may_give_one((record.topic, record.partition)):
                return record
            tp = TopicPartition(record.topic, record.partition)
            if self._may_give({tp: [record]}):
                return record

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Like aiokafka's method, but does not return records from held partitions."""
        self._member.begin_call()
        until = time.monotonic() + timeout_ms / 1000
        while True:
            self._apply()
            left = max(0.0, until - time.monotonic()) * 1000
            found: dict[TopicPartition, list[ConsumerRecord]] = await super().getmany(
                *partitions, timeout_ms=left, max_records=max_records
            )
            free = self._may_give(found)
            if free or time.monotonic() >= until:
                return {tp: found[tp] for tp in found if tp in free}

    def _may_give(
        self, found: Mapping[TopicPartition, list[ConsumerRecord]]
    ) -> frozenset[tuple[str, int]]:
        """Put back records from quiet partitions; return the other partitions."""
        self._notice_assignment()
        free = self._member.may_give(found.keys())
        for tp, records in found.items():
            if tp not in free:
                # The offset cannot have been committed, because no other task has run
                # since these records were fetched.
                self.seek(tp, records[0].offset)
        self._member.note_given(free)
        return free

    # ------------------------------------------------------------ the assignment

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """
        Subscribe to topics, or to the topics that match a pattern, as in aiokafka.

        Held partitions are paused before ``on_partitions_assigned`` is called.
        """
        if listener is None or isinstance(listener, ConsumerRebalanceListener):
            revoked = weakref.WeakMethod(self._on_revoked)
            assigned = weakref.WeakMethod(self._on_assigned)
            listener = _Listener(revoked, assigned, listener)
        super().subscribe(topics, pattern=pattern, listener=listener)
        self._notice_assignment()

    def unsubscribe(self) -> None:
        """End the subscription as in aiokafka. Pauses end, but holds stay."""
        super().unsubscribe()
        self._begin_ownerships(Cause.UNSUBSCRIBED)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment, as in aiokafka."""
        super().assign(partitions)
        self._begin_ownerships(Cause.ASSIGNED)

    def _subscribed(self) -> Collection[str]:
        found: Collection[str] = self.subscription()
        return found

    def _known_numbers(self, topic: str) -> Collection[int] | None:
        found: Collection[int] | None = self.partitions_for_topic(topic)
        return found

    def _notice_assignment(self) -> None:
        # aiokafka creates an object for each assignment. There is no object while a changed
        # subscription waits for its assignment.
        now = self._upstream_assignment() or _NONE
        if now is not self._known:
            self._begin_ownerships(Cause.JOINED if now else Cause.PASSING)

    def _begin_ownerships(self, cause: Cause) -> None:
        self._known = super().assignment() or _NONE
        self._is_revoked, self._applied = cause is Cause.PASSING, None
        self._identify()
        owned = [(tp.topic, tp.partition) for tp in self._known]
        self._member.begin_ownerships(owned, cause, all_=True)
        self._apply()

    def _on_revoked(self) -> None:
        _, generation = self._identify()
        self._is_revoked = True
        cause = Cause.LOST if generation < 0 else Cause.PASSING
        self._member.begin_ownerships((), cause, all_=True)

    def _on_assigned(self) -> None:
        if self._is_revoked or super().assignment() is not self._known:
            self._begin_ownerships(Cause.JOINED)
        self._identify()

    def _identify(self) -> tuple[str, int]:
        # Without a group, or before start(), there is no coordinator with these
        # attributes.
        member_id = getattr(self._coordinator, "member_id", "")
        generation = getattr(self._coordinator, "generation", -1)
        self._member.identify(member_id, generation)
        return member_id, generation

    def _apply(self) -> None:
        """Pause the newly quiet partitions in aiokafka, and resume the others."""
        self._notice_assignment()
        quiet = self._ledger.quiet()
        if quiet is self._applied:
            return
        wanted, paused = {tp for tp in self._known if tp in quiet}, super().paused()
        super().pause(*(wanted - paused))
        super().resume(*(paused - wanted))
        self._applied = quiet

    def _refresh(self) -> None:
        """Apply the holds and deliver events, now and again when the next hold expires."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_over:
            self._apply()
            self._ledger.deliver()
            left = max(0.0, min(self._ledger.seconds_to_next_expiry(), _LONGEST))
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(left, self._refresh_soon)

    # ------------------------------------------------------------ start and end

    async def start(self) -> None:
        """
        Read the group's holds if there is ``control``, and start as in aiokafka.

        After an exception the control threads stop, and this method may be called
        again. If it had already started to join the group, only :meth:`stop` can be
        called, as in aiokafka. After a cancellation the threads stop as soon as they
        can.

        Raises:
            ControlTopicError: the settings of the holds topic would let Kafka delete
                holds.
        """
        if self._ending is not None:
            await asyncio.shield(self._ending)
        if self._attaching is not None:  # another call has started group control
            await asyncio.shield(self._attaching)
        if self._control is None or self._is_over or self._attaching is not None:
            await super().start()
            return
        obeying = partial(self._member.obey, self._control, self._clients)
        # Cancelling a task would not stop its thread, so the task is kept and shielded.
        self._attaching = asyncio.ensure_future(run_on_thread(obeying))
        try:
            await asyncio.shield(self._attaching)
            await super().start()
        except BaseException as error:
            self._ending = asyncio.ensure_future(self._give_up_control())
            if not isinstance(error, asyncio.CancelledError):
                await asyncio.shield(self._ending)
            raise

    async def _give_up_control(self) -> None:
        if not self._is_over:  # else stop() stops group control
            await self._end_control(self._member.give_up_control)
            self._calls = LoopCalls()
            self._clients = control_clients(self._configs, self._calls)

    async def stop(self) -> None:
        """Leave the group and stop as in aiokafka; also stop the control threads."""
        try:
            # Stop the client first. Otherwise Kafka would still list the member for a
            # while after it has reported that it stopped.
            await stop_client(self, super().stop())
        finally:
            if not self._is_over:
                self._is_over = True
                await self._end()

    async def _end(self) -> None:
        self._refresh()  # this cancels the refresh timer
        try:
            if self._ending is not None:
                await asyncio.wait([self._ending])
            await self._end_control(self._member.end_control)
        finally:
            self._member.close()

    async def _end_control(self, end: Callable[[], None]) -> None:
        try:
            if self._attaching is not None:
                await asyncio.wait([self._attaching])
            await run_on_thread(end)
        finally:
            await self._calls.end()
            self._attaching = None


class _Listener(ConsumerRebalanceListener):
    # When partitions are assigned, the program's listener is called last; when they are
    # revoked, first.

    def __init__(
        self,
        revoked: _Weak,
        assigned: _Weak,
        theirs: ConsumerRebalanceListener | None,
    ) -> None:
        self._revoked, self._assigned, self._theirs = revoked, assigned, theirs

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        try:
            if self._theirs is not None:
                called = self._theirs.on_partitions_revoked(revoked)
                if asyncio.iscoroutine(called):
                    await called
        finally:
            if (call := self._revoked()) is not None:
                call()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        if (call := self._assigned()) is not None:
            call()
        if self._theirs is not None:
            called = self._theirs.on_partitions_assigned(assigned)
            if asyncio.iscoroutine(called):
                await called


def _call_soon(weak: _Weak, loop: asyncio.AbstractEventLoop) -> None:
    if (call := weak()) is not None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(call)
