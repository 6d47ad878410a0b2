"""Defines ``SafeConsumer``: a ``KafkaConsumer`` whose pauses survive rebalances."""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from datetime import timedelta
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer as UpstreamConsumer

from safeconsumer._kafka import arguments, installed
from safeconsumer._kafka.adopt import adopt
from safeconsumer._kafka.consumed import (
    RepeatedChange,
    fits_assignment,
    fits_subscription,
)
from safeconsumer._kafka.decoding.decoders import DecoderChoice, choose, log_once
from safeconsumer._kafka.decoding.deserializing import wrapped_functions
from safeconsumer._kafka.fixes.construction import closed_if_constructor_fails
from safeconsumer._kafka.hold_calls import HoldCalls
from safeconsumer._kafka.pausing.fetcher import DEFAULT_PARKED_MAX_BYTES
from safeconsumer._kafka.pausing.iteration import (
    Iteration,
    refuse_if_executing,
)
from safeconsumer._kafka.pausing.listeners import (
    blocking,
    is_on_io_thread,
    refuse_blocking,
    refuse_if_closed,
    refuse_in_listener,
    refuse_in_signal_handler,
)
from safeconsumer._kafka.polling import UPSTREAM_NEXT, Polling
from safeconsumer._kafka.structs import ConsumerRecord, TopicPartition
from safeconsumer.errors.kafka_python import ConcurrentPollError
from safeconsumer.events.dispatch import Hook
from safeconsumer.events.log import log_event
from safeconsumer.holds.explain import explain_lines
from safeconsumer.holds.hold import APP, Hold, Lifetime, checked_lifetime
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import ALL, Target

if TYPE_CHECKING:
    from safeconsumer.holds.control import Control, GroupControl
    from safeconsumer.journal.recorder import Recorder
    from safeconsumer.journal.writer import JournalWriter


class SafeConsumer(UpstreamConsumer):
    """
    A drop-in ``kafka.KafkaConsumer`` that delivers no records of held partitions.

    A *hold* is one owner's request to keep a partition, a topic, the topics that match
    a pattern, or the whole consumer quiet (see :meth:`pause`). A partition's records
    are delivered when no hold covers it.

    Args:
        topics: the topics to subscribe to, as in kafka-python.
        start_paused: whether to hold the whole consumer before the first poll;
            :meth:`resume_all` lifts that hold.
        default_lifetime: the lifetime of holds that are placed without one. If it is
            None, plain pauses end as described in :meth:`pause`, and other holds last
            until they are resumed.
        parked_max_bytes: how much fetched data of quiet partitions to keep until they
            are resumed, in bytes as received from the broker. Beyond this limit the
            oldest data is dropped, and fetched again later.
        decoder: the decoder for record batches: ``compiled``, which needs a fifth of
            the CPU time; ``python``, which is kafka-python's own; or ``auto``, which is
            the compiled one if it is installed.
        control: a :class:`~safeconsumer.Control`, with which this member obeys the
            holds that operators and the group keep in Kafka; None to start no control
            thread.
        pause_handover: with ``assignor``, a partition that is paused here stays paused
            on its next owner (KAFKA-13463); whole pauses of a topic are not handed
            over. With ``off``, no pauses are handed over.
        journal: a folder in which this consumer's actions are recorded for
            ``safeconsumer audit``; or a ``safeconsumer.journal.writer.JournalWriter``
            that no other consumer uses.
        hooks: functions that are called with every event (see ``safeconsumer.events``),
            on any thread; they must return quickly. An ``Exception`` from a hook is
            counted in :attr:`hook_failures` and does not affect the consumer.
            ``KeyboardInterrupt`` and ``SystemExit`` are raised when all hooks have
            received the event.
        log: whether to log events, with structlog if it is configured, otherwise with
            the standard logger ``safeconsumer``.
        configs: any of kafka-python's settings.

    Raises:
        UnsupportedKafkaPythonError: the installed kafka-python is not supported.
        HoldSettingError, DecoderSettingError, HookTypeError, ControlSettingError: an
            argument is invalid; the message names it.
        KafkaConfigurationError: kafka-python rejects one of its settings, or
            ``auto_offset_reset`` is unknown.
        MissingExtraError: ``decoder`` is ``"compiled"``, but this installation was
            built without that decoder; the message has the install command.
        JournalError: the ``journal`` folder is not writable. Later calls raise this
            error if they cannot write to the journal.
        ControlTopicError: the settings of one of ``control``'s topics would let Kafka
            delete holds.

    If the constructor raises, it leaves no thread running.

    Every call that waits for the network raises ``BlockingCallInListenerError`` in a
    rebalance listener, where it would wait forever. On a closed consumer such a call
    raises ``ConsumerClosedError``, except that ``poll`` raises the parent class of that
    error, kafka-python's ``IllegalStateError``.

    Thread rules: ``pause``, ``resume``, ``pause_all``, ``resume_all``, ``held``,
    ``paused``, ``quiet``, ``holds``, ``explain``, ``assignment`` and ``wakeup`` may be
    called on any thread, in a rebalance listener and in a signal handler; ``poll`` and
    iteration must stay on one thread.
    """

    busy: Callable[[], Iterable[TopicPartition]] | None = None
    """
    A function that the program may set, to return the partitions whose records the
    program's own threads are processing.

    With ``control=`` a held partition is not reported quiet while the function returns
    it, even after the partition is no longer assigned. Nor is it reported quiet before
    the next ``poll``, or step, after the call that returned records of it. Another
    thread calls the function for each report (on changes and every ``status_interval``
    seconds) until ``close``. If the function raises, all assigned partitions count as
    busy, and one ERROR is logged. A ``Worker`` and a ``Pump`` need no such function.
    """

    _iterator: Iterator[ConsumerRecord] | None  # upstream's
    _consumer_timeout: float  # upstream's

    def __init__(  # noqa: PLR0913 - one keyword per choice, all with defaults
        self,
        *topics: str,
        start_paused: bool = False,
        default_lifetime: Lifetime | None = None,
        parked_max_bytes: int = DEFAULT_PARKED_MAX_BYTES,
        decoder: str = "auto",
        control: "Control | None" = None,
        pause_handover: str = "off",
        journal: "str | os.PathLike[str] | JournalWriter | None" = None,
        hooks: Iterable[Hook] = (),
        log: bool = True,
        **configs: Any,  # noqa: ANN401 - upstream's keys and types
    ) -> None:
        installed.require_supported()
        # Upstream fills in its defaults in the same way.
        settings = {**self.DEFAULT_CONFIG, **configs}
        arguments.check_flags(start_paused=start_paused, log=log)
        arguments.check_parked_max_bytes(parked_max_bytes)
        arguments.check_handover(pause_handover, settings["group_id"])
        arguments.check_reset(settings["auto_offset_reset"])
        arguments.check_control(control)
        if default_lifetime is not None:
            checked_lifetime(default_lifetime)
        chosen = choose(decoder)
        deserializers = wrapped_functions(settings)
        hooks = (*([log_event] if log else ()), *arguments.checked_hooks(hooks))
        hands_over = pause_handover != "off"
        self._safe_is_logged = log
        self._safe_change = RepeatedChange()
        self._safe_control: GroupControl | None = None
        self._safe_journal: Recorder | None = None
        with ExitStack() as undo:
            if journal is not None:
                recorder = self._safe_recorder(journal, settings, hands_over=hands_over)
                self._safe_journal = recorder
                undo.callback(recorder.undo)
                hooks = (*hooks, recorder.hook)
            self._safe_ledger = PauseLedger(
                hooks, client_id=settings["client_id"], group_id=settings["group_id"]
            )
            with closed_if_constructor_fails(self):
                super().__init__(**configs | deserializers)
            self.config |= {key: configs[key] for key in deserializers}
            # If a later step fails, upstream's part of the consumer must be closed.
            undo.callback(super().close, autocommit=False, timeout_ms=0)
            self._safe_adopt(parked_max_bytes, chosen, hands_over=hands_over)
            self._safe_make_calls(default_lifetime)
            self._safe_begin(topics, control, undo, start_paused=start_paused)
            undo.pop_all()

    @staticmethod
    def _safe_recorder(
        journal: "str | os.PathLike[str] | JournalWriter",
        settings: Mapping[str, Any],
        *,
        hands_over: bool,
    ) -> "Recorder":
        # Imported here because importing the package does not require the journal.
        from safeconsumer.journal.recorder import Recorder  # noqa: PLC0415

        client_id, group = settings["client_id"], settings["group_id"]
        return Recorder(journal, client_id, group, hands_over=hands_over)

    def _safe_attach(self, control: "Control") -> "GroupControl":
        # Imported here because most consumers use no group control.
        from safeconsumer._kafka.of_group.client import ConsumerClient  # noqa: PLC0415

        attached = control.attach(ConsumerClient(self), self.config)
        self._safe_control = attached
        self._safe_iteration.when_done = attached.report_soon
        return attached

    def _safe_adopt(
        self, parked_max_bytes: int, chosen: DecoderChoice, *, hands_over: bool
    ) -> None:
        ledger = self._safe_ledger
        adopt(self, ledger, parked_max_bytes, chosen.records, hands_over=hands_over)
        self._safe_iteration = Iteration(self, chosen.steps)
        self._safe_decoder = chosen.name
        log_once(chosen)

    def _safe_make_calls(self, default_lifetime: Lifetime | None) -> None:
        self._safe_hold_calls = HoldCalls(
            self, self._safe_ledger, default_lifetime, self._safe_journal
        )
        self._safe_polling = Polling(
            self,
            self._safe_iteration,
            self._safe_change,
            self._safe_hold_calls,
            self._safe_journal,
        )

    def _safe_begin(
        self,
        topics: Sequence[str],
        control: "Control | None",
        undo: ExitStack,
        *,
        start_paused: bool,
    ) -> None:
        # The consumer is complete now. Makes the first calls that a program would make.
        if self._safe_journal is not None:
            self._safe_journal.begin(self)
        if control is not None:
            undo.callback(self._safe_attach(control).close)
        # A subclass's overrides are bypassed, because the subclass is not set up yet.
        if start_paused:
            SafeConsumer.pause_all(self, reason="start_paused")
        if topics:
            SafeConsumer.subscribe(self, topics=topics)

    @cached_property  # a subclass may set this attribute, unlike a property
    def decoder(self) -> str:
        """The record batch decoder that is in use, ``"compiled"`` or ``"python"``."""
        return self._safe_decoder

    @property
    def hook_failures(self) -> Mapping[str, int]:
        """How many times each hook has raised, by its ``repr``. Any thread may read this."""
        return dict(self._safe_ledger.dispatcher.failures)

    # ------------------------------------------------------------ records

    def poll(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """
        Return records of partitions that are not held when the call returns.

        Otherwise the call behaves like kafka-python's ``poll``. If all assigned
        partitions are quiet when the call starts, partitions that are gained during the
        call stay quiet until it returns (KAFKA-13463). If the call raises, for example
        because of a signal handler, the next call returns the records that this call
        had already taken, in order. :meth:`wakeup` interrupts the wait.

        Raises:
            ConcurrentPollError: another thread is polling or iterating, a hook polls
                while it handles an event, or a ``Worker`` or ``Pump`` is using the
                consumer.
            ForkedConsumerError: the consumer was created in another process.
            FencedInstanceIdError: another member has taken over the
                ``group_instance_id``.
            JournalError: a write to the ``journal`` failed.
        """
        return self._safe_polling.poll(
            super().poll, timeout_ms, max_records, update_offsets
        )

    def _poll_once(
        self,
        timer: object,
        max_records: int,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        return self._safe_polling.poll_once(
            super()._poll_once, timer, max_records, update_offsets
        )

    def __next__(self) -> ConsumerRecord:
        """
        Return the next record; wait for it up to ``consumer_timeout_ms``.

        Raises:
            StopIteration: the time has passed, or the consumer was closed.
            ConcurrentPollError: another thread is polling or iterating.
        """
        # A tracing tool, for example, may have wrapped upstream's method, and must see
        # every record.
        is_wrapped = UpstreamConsumer.__next__ is not UPSTREAM_NEXT
        try:
            # A running iterator never waits, so the deadline need not be set for each
            # record.
            running = self._iterator
            if running is not None and not is_wrapped and not self._closed:
                for record in running:
                    return record
        except ValueError as error:
            refuse_in_listener(self, "next")
            refuse_if_executing(error)
            raise
        return self._safe_polling.step(super().__next__, is_wrapped=is_wrapped)

    def _set_consumer_timeout(self) -> None:
        self._consumer_timeout = math.inf
        super()._set_consumer_timeout()

    def _message_generator_v2(self) -> Iterator[ConsumerRecord]:
        # Upstream's __next__ calls this method.
        return self._safe_iteration.remembering_last(self._safe_polling.records())

    def wakeup(self) -> None:
        """
        Make a waiting ``poll`` return immediately, with the records that it has so far.

        If the program is not in a ``poll``, the next one returns immediately, whatever
        its timeout is; several calls before that ``poll`` count as one. An iteration
        yields the records of its last poll, and raises ``StopIteration`` when it would
        have to poll again. The program may then continue to iterate. If the ``poll``
        was waiting for a rebalance, the rebalance continues, and the next ``poll``
        finishes it. ``wakeup`` does not interrupt listeners, commits (not even in a
        ``poll``) or other calls that wait. The call takes no lock.
        """
        self._fetcher.wakeup.ask()
        self._fetcher.wake()

    # ------------------------------------------------------------ pausing

    def pause(
        self,
        *targets: Target,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
        lifetime: Lifetime | None = None,
    ) -> None:
        """
        Hold the targets; once the call has returned, their records are not delivered.

        A hold lasts until its owner resumes it, through rebalances, lost memberships
        and changed subscriptions. Only a plain pause (partitions, owner ``app``, no
        ``lifetime``) ends earlier, when a join or ``assign`` leaves its partition out.
        The call returns nothing; if it raises, nothing has changed. It does not affect
        positions, commits or other holds. If several holds cover a partition, its
        records are delivered only when all of these are lifted.

        Targets need not be assigned yet. If the targets are all partitions of a topic
        that one call of :meth:`assignment` returned, this is a *whole pause*:
        partitions of the topic that are gained later are paused, too, until the next
        ``resume`` by ``app``. Placing a hold again replaces its reason, lifetime and
        duration, but a plain pause never shortens another hold. Without targets, or on
        a closed consumer, the call has no effect.

        Args:
            targets: partitions, scopes as text (``orders:3``, ``orders:0-2,5``,
                ``orders``, ``@all``, ``re:ord.*`` for whole names), compiled patterns,
                scopes of holds, :data:`safeconsumer.ALL`.
            owner: the name under which the hold is kept; only a ``resume`` with the
                same owner lifts it.
            reason: text for people, up to 1,024 bytes; shown on one line.
            for_: seconds, or a timedelta, until the hold expires. The hold never
                expires early, and has expired when the consumer next checks, as every
                ``poll`` does.
            lifetime: the event that ends the hold without a resume; by default the
                consumer's ``default_lifetime``.

        Raises:
            TargetTypeError: a target is of another type.
            ScopeSyntaxError: a text or pattern is not valid.
            NotConsumedError: a target cannot belong to this consumer;
                ``IllegalTargetError``, a subclass of both, if its name or number is not
                valid in Kafka.
            HoldSettingError: the owner, reason, duration or lifetime is not valid.
        """
        self._safe_hold_calls.place(
            targets, owner=owner, reason=reason, for_=for_, lifetime=lifetime
        )

    def resume(self, *targets: Target, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's holds of exactly these targets.

        A hold of a wider scope, or of another owner, stays in force. A ``resume`` by
        ``app``, whatever its targets are, also ends whole pauses, and plain pauses of
        partitions that are not assigned. Resuming a target that is not held is not an
        error. If the consumer has kept data of a partition that is no longer quiet, a
        ``poll`` that is waiting on another thread returns that data.

        Args:
            targets: the same kinds of targets as for :meth:`pause`.
            owner: the owner of the holds; must not be an operator or a group.

        Returns:
            The holds that still cover the targets, or parts of them. If there are none,
            records of the targets are delivered, except from partitions that wait at a
            gate (see :meth:`explain`).

        Raises:
            TargetTypeError, ScopeSyntaxError, IllegalTargetError: as :meth:`pause`.
            HoldSettingError: the owner is not valid, or is reserved for operators.
        """
        return self._safe_hold_calls.lift(targets, owner)

    def pause_all(
        self,
        *,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
        lifetime: Lifetime | None = None,
    ) -> None:
        """Hold the whole consumer, now and later. Arguments are as for :meth:`pause`."""
        self._safe_hold_calls.place(
            (ALL,), owner=owner, reason=reason, for_=for_, lifetime=lifetime
        )

    def resume_all(self, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift all holds of this owner: of partitions, topics, patterns and everything.

        Returns:
            The holds of other owners. If there are none, records of all partitions are
            delivered, except from partitions that wait at a gate.

        Raises:
            HoldSettingError: the owner is not valid, or is reserved for operators.
        """
        self._safe_hold_calls.lift_all(owner)
        return self.holds()

    def held(
        self,
        *targets: Target,
        reason: str | None = None,
        owner: str | None = None,
        for_: float | timedelta | None = None,
    ) -> AbstractContextManager[None]:
        """
        Hold the targets in a ``with`` block; by default under a new owner name.

        The hold lasts for the whole block, through any rebalance, and is lifted however
        the block ends. Arguments and errors are those of :meth:`pause`. Without targets
        the call raises ``HoldSettingError``, because nothing would be held in the
        block. The call is also refused if ``owner`` already holds a target, because the
        end of the block would lift that hold.
        """
        return self._safe_hold_calls.held(
            targets, owner=owner, reason=reason, for_=for_
        )

    def paused(self, *, owner: str = APP) -> set[TopicPartition]:
        """
        Return the assigned partitions that an owner has paused.

        By default these are the application's pauses: of single partitions, topics,
        patterns or everything, and those that a previous owner of a partition handed
        over. Programs written for kafka-python call this method without ``owner``.
        :meth:`quiet` also returns partitions that only other owners' holds or a gate
        keep quiet. After ``resume(*paused())`` there is no plain pause of the
        application that could take effect later. The result contains the same objects
        as :meth:`assignment`, so that a ``pause`` of all partitions of a topic is a
        whole pause of the topic.

        Args:
            owner: the owner, for example the ``owner`` of a hold from :meth:`holds`.

        Raises:
            HoldSettingError: the owner is not a valid name.
        """
        return self._safe_hold_calls.paused(owner)

    def quiet(self) -> set[TopicPartition]:
        """
        Return exactly those assigned partitions that a hold or a closed gate covers.

        ``resume(*quiet())`` lifts the application's holds of these partitions, and
        returns the holds that still cover them; :meth:`explain` returns the reasons.
        Like :meth:`paused`, this method returns the same objects as :meth:`assignment`.
        """
        return self._safe_hold_calls.quiet()

    def holds(self) -> tuple[Hold, ...]:
        """
        Return all holds, even those that cover no currently assigned partition.

        If a strict hold is beneath a plain pause of the same owner, it follows that
        pause.
        """
        return self._safe_ledger.every_hold()

    def explain(self, tp: TopicPartition | str) -> tuple[str, ...]:
        """
        Return the reasons why a partition is quiet, one line per hold.

        Each line contains the hold's scope, owner, reason, start and expiry (UTC). If
        the partition is not quiet, the result is empty. If nothing covers the partition
        and it is not assigned here, a single line says so.
        """
        scope = arguments.partition_of(tp)
        view = self._safe_ledger.view()
        now, _ = self._safe_ledger.now()
        return explain_lines(view, (scope.topic, scope.partition), now)

    # ------------------------------------------------------------ the subscription

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Assign partitions manually, as kafka-python does.

        Holds stay in force, except plain pauses of partitions that the call leaves out,
        and whole pauses of topics.

        Raises:
            TargetTypeError: a value is not a ``TopicPartition`` with a topic name and a
                whole number; nothing was changed.
            NotConsumedError: before anything was subscribed to or assigned, a hold was
                placed on a target that is not among the partitions.
            ConsumerInUseError: a ``Worker`` or ``Pump`` is using the consumer.
        """
        refuse_if_closed(self, "assign")
        self._subscription.refuse_other_end("assign")
        if not partitions:  # same rule as upstream
            self.unsubscribe()
            return
        for one in partitions:
            arguments.check_assignable(one)
        partitions = [TopicPartition(one.topic, one.partition) for one in partitions]
        fits = fits_assignment(set(partitions))
        with self._safe_hold_calls.early.checked(fits, "assign()"):
            self._safe_change.make(lambda: self._safe_assign(partitions))

    def _safe_assign(self, partitions: Sequence[TopicPartition]) -> None:
        written = self._safe_journaled(lambda it: it.calling("assign", {}))
        with written, self._coordinator.reassigning():
            super().assign(partitions)

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        listener: Any = None,  # noqa: ANN401 - upstream's listener classes
    ) -> None:
        """
        Subscribe to topics or a pattern, as kafka-python does.

        Holds stay in force, except that the next join ends plain pauses of partitions
        that it leaves out.

        Raises:
            NotConsumedError: a hold was placed before the first subscription or
                assignment, on a topic that this subscription leaves out.
            ConsumerClosedError: the consumer is closed.
        """
        refuse_if_closed(self, "subscribe")
        fits = fits_subscription(topics, pattern)
        with self._safe_hold_calls.early.checked(fits, "subscribe()"):
            self._safe_change.make(
                lambda: self._safe_subscribe(topics, pattern, listener)
            )

    def _safe_subscribe(
        self,
        topics: Sequence[str],
        pattern: str | None,
        listener: Any,  # noqa: ANN401 - upstream's listener classes
    ) -> None:
        def change() -> None:
            UpstreamConsumer.subscribe(self, topics, pattern, listener)
            self._safe_ledger.subscription_changed()
            self._iterator = None

        self._safe_iteration.change_and_end(change)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of a partition, as kafka-python does."""
        self._safe_seek({partition: offset}, partial(super().seek, partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seek to the start of these partitions, or of all of them, as kafka-python does."""
        moved = dict.fromkeys(partitions or self.assignment())
        self._safe_seek(moved, partial(super().seek_to_beginning, *partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seek to the end of these partitions, or of all of them, as kafka-python does."""
        moved = dict.fromkeys(partitions or self.assignment())
        self._safe_seek(moved, partial(super().seek_to_end, *partitions))

    def _safe_seek(
        self, moved: Mapping[TopicPartition, int | None], seek: Callable[[], None]
    ) -> None:
        # note_seek() comes first, because a metadata response may arrive right after
        # the seek.
        self._subscription.note_seek(moved)
        with self._safe_journaled(lambda it: it.seeking(moved)):
            self._safe_iteration.change_and_end(seek)

    def _safe_go_back(self, partition: TopicPartition, offset: int) -> None:
        # Seeks back to a record that a poll has returned. Only this package calls this
        # method.
        with self._safe_journaled(lambda it: it.seeking({partition: offset})):
            seek = partial(self._subscription.go_back, partition, offset)
            self._safe_iteration.change_and_end(seek)

    def unsubscribe(self) -> None:
        """
        Clear the subscription and the assignment, as kafka-python does.

        Holds stay in force, except plain pauses and holds that end with the assignment.

        Raises:
            ConsumerInUseError: a ``Worker`` or ``Pump`` is using the consumer.
        """
        refuse_blocking(self, "unsubscribe")
        self._subscription.refuse_other_end("unsubscribe")
        self._safe_change.make(self._safe_unsubscribe)

    def _safe_unsubscribe(self) -> None:
        written = self._safe_journaled(lambda it: it.calling("unsubscribe", {}))
        with written, self._coordinator.reassigning():
            self._safe_iteration.change_and_end(super().unsubscribe)
            self._safe_ledger.subscription_changed()

    def assignment(self) -> set[TopicPartition]:
        """
        Return the currently assigned partitions.

        A ``pause`` of all partitions that this method has returned is a whole pause of
        their topics (see :meth:`pause`). The method takes no lock, so signal handlers
        may call it.
        """
        if self._closed:  # upstream no longer updates its assignment
            return set(self._subscription.assignment)
        return set(self._safe_hold_calls.assigned().values())

    # upstream's signature
    @wraps(UpstreamConsumer.partitions_for_topic, assigned=())
    def partitions_for_topic(self, topic: str, *args: Any, **kwargs: Any) -> set[int]:  # noqa: ANN401 - upstream's
        """Return the numbers of a topic's partitions, as kafka-python does."""
        if self._closed or is_on_io_thread(self):
            known = self._cluster.partitions_for_topic(topic)
            if known is not None:
                return set(known)
            refuse_blocking(self, "partitions_for_topic")
        partitions: set[int] = super().partitions_for_topic(topic, *args, **kwargs)
        return partitions

    # ------------------------------------------------------------ positions, commits

    def position(
        self, partition: TopicPartition, timeout_ms: float | None = None
    ) -> int | None:
        """
        Return the offset of the next record in a partition, as kafka-python does.

        If a ``poll`` on another thread has taken records but not returned yet, these do
        not count. In a rebalance listener the call works for partitions that have a
        position.
        """
        known: int | None
        if self._closed or is_on_io_thread(self):
            known = self._subscription.delivered_position(partition)
            if known is not None:
                return known
            if partition in set(self._subscription.assignment):
                refuse_blocking(self, "position")
        if self._subscription.delivered_position(partition) is None:
            refuse_in_signal_handler(self, "position")
        fetched: int | None = super().position(partition, timeout_ms)
        known = self._subscription.delivered_position(partition)
        return fetched if known is None else known

    beginning_offsets = blocking("beginning_offsets")
    bootstrap = blocking("bootstrap")
    committed = blocking("committed")
    end_offsets = blocking("end_offsets")
    topics = blocking("topics")

    def commit(
        self,
        offsets: dict[TopicPartition, Any] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """
        Commit offsets and wait for the result, as kafka-python does.

        Raises:
            NotOwnedError: under :meth:`subscribe`, the commit includes a partition that
                this member does not own. Nothing was sent, and no offset was committed.
            CommitFailedError: kafka-python's error; the broker has ended the
                membership, which this member had not noticed yet.
            CommitRefusedError: a ``Worker`` or ``Pump`` is using the consumer and makes
                its commits.
            BlockingCallInSignalHandlerError: a signal handler has called ``commit``,
                which would wait for the interrupted call.
        """
        # This check comes first: the error of refuse_blocking() would suggest
        # commit_async(), which would be refused, too.
        self._coordinator.refuse_other_commit(offsets)
        refuse_blocking(self, "commit")
        super().commit(offsets, timeout_ms)

    def commit_async(
        self,
        offsets: dict[TopicPartition, Any] | None = None,
        callback: Callable[[Any, Any], object] | None = None,
    ) -> Any:  # noqa: ANN401 - upstream's future
        """
        Commit without waiting, as kafka-python does.

        Under :meth:`subscribe`, nothing is sent if the commit includes a partition that
        this member does not own; the callback and the future receive a
        ``NotOwnedError``.

        Raises:
            CommitRefusedError: a ``Worker`` or ``Pump`` is using the consumer and makes
                its commits.
        """
        refuse_if_closed(self, "commit_async")
        return super().commit_async(offsets, callback)

    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, float],
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, Any]:
        """
        Return partitions' first offsets at or after a timestamp, as kafka-python does.

        Args:
            timestamps: for each partition, a timestamp in milliseconds since 1970.
            timeout_ms: milliseconds to wait; None for ``request_timeout_ms``.

        Raises:
            TimestampError: a timestamp is negative, or is not a number that Kafka
                accepts.
            KafkaTimeoutError: kafka-python's error; also raised if a partition does not
                exist.
        """
        refuse_blocking(self, "offsets_for_times")
        arguments.check_times(timestamps)
        found: dict[TopicPartition, Any]
        found = super().offsets_for_times(dict(timestamps), timeout_ms)
        return found

    # ------------------------------------------------------------ closing

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:  # noqa: FBT001, FBT002 - upstream's signature
        """
        Close the consumer, as kafka-python does. Buffered data is discarded.

        The consumer's holds end, except those of operators and of the group.

        Raises:
            ForkedConsumerError: the consumer was created in another process.
            ConsumerInUseError: a ``Worker`` or ``Pump`` is using the consumer. A
                ``Worker`` closes it after stopping, and a ``Pump`` then gives it back
                to the program.
            BlockingCallInSignalHandlerError: a signal handler has called ``close``,
                which would wait for the interrupted call; close after that call
                instead.
        """
        refuse_in_listener(self, "close")
        refuse_in_signal_handler(self, "close")
        self._safe_iteration.refuse_if_in_child()
        if not self._closed:
            self._subscription.refuse_other_end("close")
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._subscription.is_closing = True
        if self._safe_control is not None:
            # Half of the timeout is kept for leaving the group.
            self._safe_control.close(None if timeout_ms is None else timeout_ms / 2000)
        with self._coordinator.reassigning():
            if until is not None:
                timeout_ms = max(0.0, until - time.monotonic()) * 1000
            try:
                super().close(autocommit=autocommit, timeout_ms=timeout_ms)
            finally:
                self._safe_ledger.close()
                # If a listener raises, upstream's close() leaves a thread running and
                # sockets open.
                self._client.close()
                # If another thread is polling, the poll closes the fetcher when it
                # ends.
                with suppress(ConcurrentPollError):
                    self._safe_iteration.alone(self._fetcher.close)
                if self._safe_journal is not None:
                    self._safe_journal.end()

    # ------------------------------------------------------------ inside

    def _safe_journaled(
        self, call: Callable[["Recorder"], AbstractContextManager[None]]
    ) -> AbstractContextManager[None]:
        journal = self._safe_journal
        return nullcontext() if journal is None else call(journal)


KafkaConsumer = SafeConsumer
"""The same class under upstream's name, so that only the import line has to change."""
