"""``SafeConsumer``, the public class: a ``KafkaConsumer`` whose pauses hold."""

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
    A drop-in for ``kafka.KafkaConsumer`` that delivers nothing a hold covers.

    A *hold* is one owner's request to keep a partition, a topic, the topics of a
    pattern, or the whole consumer quiet (:meth:`pause`). A partition flows when no hold
    covers it.

    Args:
        topics: the topics to subscribe to; as for kafka-python.
        start_paused: hold the whole consumer before the first poll; :meth:`resume_all`
            lifts that.
        default_lifetime: the lifetime of holds that are placed without one. With None
            plain pauses end as :meth:`pause` says, and other holds when they are
            resumed.
        parked_max_bytes: how much fetched data of quiet partitions is kept for their
            resume, in bytes as they came from the broker; beyond it the oldest is
            dropped and fetched again.
        decoder: the reader of record batches: ``compiled`` (a fifth of the CPU time),
            ``python`` (kafka-python's own), or ``auto``: the compiled one if it is
            installed.
        control: a :class:`~safeconsumer.Control` makes this member obey operator and
            group holds that are kept in Kafka. None starts no control thread.
        pause_handover: ``assignor`` keeps a partition that is paused here paused at its
            next owner (KAFKA-13463); a pause of everything assigned is not handed over.
            ``off`` hands nothing over.
        journal: a folder for a journal of this consumer's actions, for ``safeconsumer
            audit``, or a ``safeconsumer.journal.writer.JournalWriter`` of its own.
        hooks: functions that take every event (``safeconsumer.events``), quickly and on
            any thread. An ``Exception`` of a hook is counted in :attr:`hook_failures`
            and breaks nothing; ``KeyboardInterrupt`` and ``SystemExit`` are raised once
            all hooks have had the event.
        log: whether events become structlog lines, or lines of the standard logger
            ``safeconsumer`` where structlog is not configured.
        configs: kafka-python's settings, all of them.

    Raises:
        UnsupportedKafkaPythonError: the installed kafka-python is not supported.
        HoldSettingError, DecoderSettingError, HookTypeError, ControlSettingError: an
            argument is not acceptable.
        KafkaConfigurationError: kafka-python's, for its settings, and for an unknown
            ``auto_offset_reset``.
        MissingExtraError: ``decoder="compiled"``, and this installation was built
            without it; the message has the install line.
        JournalError: the folder of ``journal`` cannot be written. Later calls raise it
            if something could not be written to the journal.
        ControlTopicError: the settings of a topic of ``control`` would let Kafka delete
            holds.

    After an exception no thread is left running.

    Every call that waits for the network raises ``BlockingCallInListenerError`` in a
    rebalance listener, where it would wait for ever, and ``ConsumerClosedError`` on a
    closed consumer; on a closed consumer ``poll`` raises its parent class,
    kafka-python's ``IllegalStateError``.

    Thread rules: ``pause``, ``resume``, ``pause_all``, ``resume_all``, ``held``,
    ``paused``, ``quiet``, ``holds``, ``explain``, ``assignment`` and ``wakeup`` on any
    thread, in a rebalance listener and in a signal handler; ``poll`` and iteration on
    one thread.
    """

    busy: Callable[[], Iterable[TopicPartition]] | None = None
    """
    Set it to a function that returns the partitions whose records the program's own
    threads are working on.

    With ``control=`` a held partition is not reported quiet while the function returns
    it, even after it was taken away, nor before the ``poll``, or step, after the one that
    returned records of it. Another thread calls the function with each report (at
    changes and every ``status_interval`` seconds), until ``close``; if it raises, all
    assigned partitions count, with one ERROR in the log. A ``Worker`` and a ``Pump`` need
    no such function.
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
        # Upstream completes its settings in the same way.
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
            # Upstream's constructor has begun.
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
        # Imported here: an import of us alone does not need it.
        from safeconsumer.journal.recorder import Recorder  # noqa: PLC0415

        client_id, group = settings["client_id"], settings["group_id"]
        return Recorder(journal, client_id, group, hands_over=hands_over)

    def _safe_attach(self, control: "Control") -> "GroupControl":
        # Imported here: most consumers obey no group's holds.
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
        # Make the first calls, as a program would on the consumer that is complete now.
        if self._safe_journal is not None:
            self._safe_journal.begin(self)
        if control is not None:
            undo.callback(self._safe_attach(control).close)
        # Not a subclass's override: the subclass is not set up yet.
        if start_paused:
            SafeConsumer.pause_all(self, reason="start_paused")
        if topics:
            SafeConsumer.subscribe(self, topics=topics)

    @cached_property  # a subclass may set this, unlike a property
    def decoder(self) -> str:
        """The reader of record batches that is in use, ``"compiled"`` or ``"python"``."""
        return self._safe_decoder

    @property
    def hook_failures(self) -> Mapping[str, int]:
        """How often each hook raised, by its ``repr``; empty if none did. Any thread."""
        return dict(self._safe_ledger.dispatcher.failures)

    # ------------------------------------------------------------ records

    def poll(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """
        Return records of partitions that no hold covers at the moment of return.

        Otherwise it behaves like kafka-python's. Partitions gained during a call that
        began with everything assigned quiet stay quiet until the call returns
        (KAFKA-13463). After an exception, a signal handler's too, the next call returns
        the records that this one had taken, in order. :meth:`wakeup` ends its wait.

        Raises:
            ConcurrentPollError: another thread is in the middle of this call or of a
                step of an iteration, or a hook calls it while it handles an event; or a
                ``Worker`` or ``Pump`` has the consumer.
            ForkedConsumerError: the consumer was made in another process.
            FencedInstanceIdError: another member took over the ``group_instance_id``.
            JournalError: something could not be written to the ``journal``.
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
        Return the next record, waiting up to ``consumer_timeout_ms`` for it.

        Raises:
            StopIteration: after that time, or when the consumer is closed.
            ConcurrentPollError: if another thread is in the middle of this call or of
                ``poll``.
        """
        # Tracing, for example, wraps upstream's method, and must get every record.
        is_wrapped = UpstreamConsumer.__next__ is not UPSTREAM_NEXT
        try:
            # A running iterator never waits: its records need no new deadline.
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
        # Upstream's step calls it.
        return self._safe_iteration.remembering_last(self._safe_polling.records())

    def wakeup(self) -> None:
        """
        End a ``poll`` that waits: it returns at once, with the records that it has.

        If no ``poll`` is under way, the next one ends at once, whatever its timeout;
        several calls before it count as one. An iteration yields what its last poll has
        taken, and stops (``StopIteration``) where it would poll again; it can continue.
        A rebalance that the ``poll`` waited for continues, and the next ``poll``
        finishes it. Listeners and commits, in a ``poll`` too, and other calls that wait
        are not ended. It takes no lock.
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
        Hold the targets: once this has returned, none of their records is delivered.

        A hold lasts until its owner resumes it, through rebalances, lost membership and
        changed subscriptions; only a plain pause (partitions, owner ``app``, no
        ``lifetime``) ends earlier, when a join or ``assign`` leaves its partition out.
        The call returns nothing, and after an exception nothing has changed. It does
        not touch positions, commits and other holds: a partition that several holds
        cover flows when all of them are lifted.

        Targets need not be assigned yet. If they are all partitions of a topic that one
        call of :meth:`assignment` returned, later gains of the topic are paused, too,
        until the next ``resume`` of ``app``. A hold that is placed again takes its new
        reason, lifetime and duration; a plain pause never shortens another hold.
        Without targets, and on a closed consumer, nothing is held.

        Args:
            targets: partitions, scopes as text (``orders:3``, ``orders:0-2,5``,
                ``orders``, ``re:ord.*`` over whole names, ``@all``), compiled patterns,
                scopes of holds, :data:`safeconsumer.ALL`.
            owner: the name under which the hold is kept; only a ``resume`` with the
                same owner lifts it.
            reason: text for people, up to 1,024 bytes; shown on one line.
            for_: seconds, or a timedelta, until the hold expires: never early,
                at the latest when the consumer next checks, which ``poll`` does.
            lifetime: the event that ends the hold without a resume; the consumer's
                default if it is not given.

        Raises:
            TargetTypeError: a target is of another type.
            ScopeSyntaxError: a text or pattern is not acceptable.
            NotConsumedError: a target cannot belong to this consumer;
                ``IllegalTargetError``, a child of both, if its name or number is not
                legal in Kafka.
            HoldSettingError: owner, reason, duration or lifetime is not acceptable.
        """
        self._safe_hold_calls.place(
            targets, owner=owner, reason=reason, for_=for_, lifetime=lifetime
        )

    def resume(self, *targets: Target, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's holds of exactly these targets.

        A hold of a wider scope, or of another owner, stays in force. A ``resume`` of
        ``app``, whatever it names, also ends pauses of everything that is assigned, and
        plain pauses of partitions that are not assigned. A target that is not held is
        no error. If a partition that flows now has kept data, a ``poll`` that waits on
        another thread returns it.

        Args:
            targets: as :meth:`pause` takes them.
            owner: the owner of the holds; not an operator or a group.

        Returns:
            The holds that still cover the targets or parts of them. If there is none,
            the targets flow, except partitions that wait at a gate (:meth:`explain`).

        Raises:
            TargetTypeError, ScopeSyntaxError, IllegalTargetError: as :meth:`pause`.
            HoldSettingError: the owner is not acceptable, or belongs to holds from
                outside.
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
        """Hold the whole consumer, now and later; arguments as for :meth:`pause`."""
        self._safe_hold_calls.place(
            (ALL,), owner=owner, reason=reason, for_=for_, lifetime=lifetime
        )

    def resume_all(self, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift every hold of this owner: of partitions, topics, patterns and everything.

        Returns:
            The holds of other owners. If there is none, everything flows except
            partitions that wait at a gate.

        Raises:
            HoldSettingError: the owner is not acceptable, or belongs to holds from
                outside.
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
        Hold the targets for a block, under a new owner name unless ``owner`` is given.

        The hold lasts for the whole block, whatever rebalances meanwhile, and is lifted
        however the block ends. Arguments and errors as for :meth:`pause`; without
        targets it is a ``HoldSettingError``: the block would run with nothing held. So
        is an ``owner`` that already holds a target, which the end of the block would
        lift.
        """
        return self._safe_hold_calls.held(
            targets, owner=owner, reason=reason, for_=for_
        )

    def paused(self, *, owner: str = APP) -> set[TopicPartition]:
        """
        Return the assigned partitions that an owner has paused.

        The default owner is the application: its pauses by single partitions, topics,
        patterns or as a whole, and those that a previous owner handed over.
        Programs written for kafka-python call it without ``owner``.
        :meth:`quiet` also has partitions that only other owners' holds or a gate keep
        quiet. After ``resume(*paused())`` no plain pause of the application is left that
        could take effect later. The partitions are the objects of :meth:`assignment`, so
        a ``pause`` of all partitions of a topic is one of the topic.

        Args:
            owner: the owner, any ``Hold.owner`` of :meth:`holds`.

        Raises:
            HoldSettingError: the owner is not acceptable as a name.
        """
        return self._safe_hold_calls.paused(owner)

    def quiet(self) -> set[TopicPartition]:
        """
        Return the assigned partitions that a hold or a closed gate covers, and no others.

        ``resume(*quiet())`` lifts the application's holds of them, and returns the holds
        that still cover them; :meth:`explain` has the reasons. The partitions are the
        objects of :meth:`assignment`, as in :meth:`paused`.
        """
        return self._safe_hold_calls.quiet()

    def holds(self) -> tuple[Hold, ...]:
        """
        Return every hold, also those that cover nothing assigned here now.

        A strict hold beneath a plain pause of its owner follows that pause.
        """
        return self._safe_ledger.every_hold()

    def explain(self, tp: TopicPartition | str) -> tuple[str, ...]:
        """
        Return the reasons why a partition is quiet: a line per hold, none if it flows.

        A line names scope, owner, reason, beginning and end (UTC). A partition that is
        not assigned here has a line about that.
        """
        scope = arguments.partition_of(tp)
        view = self._safe_ledger.view()
        now, _ = self._safe_ledger.now()
        return explain_lines(view, (scope.topic, scope.partition), now)

    # ------------------------------------------------------------ the subscription

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Assign partitions by hand, as kafka-python does.

        Holds stay in force, except plain pauses of partitions that it leaves out, and
        pauses of everything that was assigned.

        Raises:
            TargetTypeError: a value among them is no ``TopicPartition`` of a text and a
                whole number; nothing was changed.
            NotConsumedError: a hold was placed, before anything was subscribed or
                assigned, on a target that is not among the partitions.
            ConsumerInUseError: a ``Worker`` or ``Pump`` has the consumer.
        """
        refuse_if_closed(self, "assign")
        self._subscription.refuse_other_end("assign")
        if not partitions:  # upstream's rule
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

        Holds stay in force, except plain pauses of partitions that the next join leaves
        out.

        Raises:
            NotConsumedError: a hold that was placed before the first subscription or
                assignment is on a topic that this subscription leaves out.
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
        """Go to the first record of partitions, or of all, as kafka-python does."""
        moved = dict.fromkeys(partitions or self.assignment())
        self._safe_seek(moved, partial(super().seek_to_beginning, *partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the end of partitions, or of all, as kafka-python does."""
        moved = dict.fromkeys(partitions or self.assignment())
        self._safe_seek(moved, partial(super().seek_to_end, *partitions))

    def _safe_seek(
        self, moved: Mapping[TopicPartition, int | None], seek: Callable[[], None]
    ) -> None:
        # First: a metadata response may come right after the seek.
        self._subscription.note_seek(moved)
        with self._safe_journaled(lambda it: it.seeking(moved)):
            self._safe_iteration.change_and_end(seek)

    def _safe_go_back(self, partition: TopicPartition, offset: int) -> None:
        # A seek of ours to a record that a poll has returned.
        with self._safe_journaled(lambda it: it.seeking({partition: offset})):
            seek = partial(self._subscription.go_back, partition, offset)
            self._safe_iteration.change_and_end(seek)

    def unsubscribe(self) -> None:
        """
        Give up subscription and assignment, as kafka-python does.

        Holds stay in force, except plain pauses and holds that end with the assignment.

        Raises:
            ConsumerInUseError: a ``Worker`` or ``Pump`` has the consumer.
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
        Return the partitions assigned now.

        A ``pause`` of all of them, as they are returned here, is one of their topics:
        see :meth:`pause`. It takes no lock, so signal handlers may call it.
        """
        if self._closed:  # upstream does not change it
            return set(self._subscription.assignment)
        return set(self._safe_hold_calls.assigned().values())

    # the signature of upstream's method
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
        Return the offset of the next record of a partition, as kafka-python does.

        Records that a ``poll`` under way on another thread has taken and not returned
        do not count. In a rebalance listener it answers for partitions with a position.
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
        Commit, and wait until it is done, as kafka-python does.

        Raises:
            NotOwnedError: under :meth:`subscribe` it names a partition that this member
                does not own. Nothing was sent, nor committed of the others.
            CommitFailedError: kafka-python's; the broker has ended the membership and
                this member does not know it yet.
            CommitRefusedError: a ``Worker`` or ``Pump`` has the consumer, and commits.
            BlockingCallInSignalHandlerError: a signal handler called it, and would wait
                for the call that it has interrupted.
        """
        # First: in a listener of a worker's consumer commit_async() is refused, too.
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

        Under :meth:`subscribe` a commit that names a partition which this member does
        not own sends nothing: callback and future get a ``NotOwnedError``.

        Raises:
            CommitRefusedError: a ``Worker`` or ``Pump`` has the consumer, and commits.
        """
        refuse_if_closed(self, "commit_async")
        return super().commit_async(offsets, callback)

    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, float],
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, Any]:
        """
        Return the first offset of each partition at or after a time, as kafka-python does.

        Args:
            timestamps: milliseconds since 1970, by partition.
            timeout_ms: milliseconds to wait; None for ``request_timeout_ms``.

        Raises:
            TimestampError: a time is negative, or no number that Kafka knows.
            KafkaTimeoutError: kafka-python's; also if a partition does not exist.
        """
        refuse_blocking(self, "offsets_for_times")
        arguments.check_times(timestamps)
        found: dict[TopicPartition, Any]
        found = super().offsets_for_times(dict(timestamps), timeout_ms)
        return found

    # ------------------------------------------------------------ the end

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:  # noqa: FBT001, FBT002 - upstream's signature
        """
        Close the consumer, as kafka-python does. Buffered data is thrown away.

        Its holds end, except those of operators and of the group.

        Raises:
            ForkedConsumerError: the consumer was made in another process.
            ConsumerInUseError: a ``Worker`` or ``Pump`` has the consumer: it closes it
                when it has stopped, and a ``Pump`` gives it back.
            BlockingCallInSignalHandlerError: a signal handler called it, and would wait
                for the call that it has interrupted: close after that call instead.
        """
        refuse_in_listener(self, "close")
        refuse_in_signal_handler(self, "close")
        self._safe_iteration.refuse_if_in_child()
        if not self._closed:
            self._subscription.refuse_other_end("close")
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._subscription.is_closing = True
        if self._safe_control is not None:
            # Half of the time is left for leaving the group.
            self._safe_control.close(None if timeout_ms is None else timeout_ms / 2000)
        with self._coordinator.reassigning():
            if until is not None:
                timeout_ms = max(0.0, until - time.monotonic()) * 1000
            try:
                super().close(autocommit=autocommit, timeout_ms=timeout_ms)
            finally:
                self._safe_ledger.close()
                # Upstream's leaves a thread and sockets behind if a listener raises.
                self._client.close()
                # Otherwise the current poll ends it.
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
"""The same class under upstream's name, so that one import line changes."""
