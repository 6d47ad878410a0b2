"""``SafeConsumer``, the public class: a ``KafkaConsumer`` whose pauses hold."""

import itertools
import math
import os
import threading
import time
import weakref
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from datetime import timedelta
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer as UpstreamConsumer

from safeconsumer._interrupts import is_of_handler
from safeconsumer._kafka import installed
from safeconsumer._kafka.adopt import adopt
from safeconsumer._kafka.arguments import (
    check_assignable,
    check_control,
    check_flags,
    check_handover,
    check_parked_max_bytes,
    check_reset,
    checked_hooks,
    scope_of,
)
from safeconsumer._kafka.consumed import (
    Consumed,
    EarlyHolds,
    fits_assignment,
    fits_subscription,
)
from safeconsumer._kafka.decoding.decoders import DecoderChoice, choose, log_once
from safeconsumer._kafka.decoding.deserializing import wrapped
from safeconsumer._kafka.errors import ConcurrentPollError
from safeconsumer._kafka.fixes.timers import ExactTimer
from safeconsumer._kafka.fixes.unmade import ended_if_unmade
from safeconsumer._kafka.pausing.fetcher import DEFAULT_PARKED_MAX_BYTES
from safeconsumer._kafka.pausing.iteration import (
    GATING_STEP_MS,
    Iteration,
    refuse_if_executing,
    refuse_second_poll,
)
from safeconsumer._kafka.pausing.listeners import (
    blocking,
    is_on_io_thread,
    refuse_blocking,
    refuse_if_closed,
    refuse_in_listener,
)
from safeconsumer._kafka.structs import (
    AssignedPartition,
    ConsumerRecord,
    Edition,
    TopicPartition,
)
from safeconsumer.errors import (
    ControlSettingError,
    HoldSettingError,
    TargetTypeError,
    TimestampError,
)
from safeconsumer.events.dispatch import Hook
from safeconsumer.events.log import log_event, prepare
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.explain import explain_lines
from safeconsumer.holds.hold import (
    APP,
    Hold,
    HoldKey,
    Lifetime,
    checked_duration,
    checked_lifetime,
    checked_name,
    checked_owner,
    checked_placer,
    checked_reason,
)
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import ALL, Scope, Target
from safeconsumer.holds.view import View

if TYPE_CHECKING:
    from safeconsumer.group.member import GroupControl
    from safeconsumer.group.settings import Control
    from safeconsumer.journal.recorder import Recorder
    from safeconsumer.journal.writer import JournalWriter

_held_numbers = itertools.count(1)

# Kafka's times have 64 bits.
_FIRST_TIME_TOO_LATE = 2**63

# The method that upstream calls for each record, to see whether somebody has wrapped
# it; None if that was done before we were imported.
_UPSTREAM_NEXT: Any = UpstreamConsumer.__next__
if getattr(_UPSTREAM_NEXT, "__globals__", {}).get("__name__") != (
    UpstreamConsumer.__module__
):
    _UPSTREAM_NEXT = None


class SafeConsumer(UpstreamConsumer):
    """
    A drop-in for ``kafka.KafkaConsumer`` that delivers nothing a hold covers.

    A *hold* is one owner's wish that a scope be quiet: a partition, a topic, a pattern
    over topics, or the whole consumer. It ends when its owner lifts it, when it expires,
    or with its lifetime (:meth:`pause`). A partition flows when no hold covers it.

    Args:
        topics: the topics to subscribe to; as for kafka-python.
        start_paused: place a hold on the whole consumer before the first poll; lift
            it with :meth:`resume_all`.
        default_lifetime: the lifetime of holds that are placed without one. With None
            plain pauses end as :meth:`pause` says, other holds when they are resumed.
            ``Lifetime.UNTIL_RESUMED`` makes every pause last until it is resumed;
            with ``Lifetime.WHILE_ASSIGNED`` it ends when its partition is really
            revoked or lost, as in kafka-python.
        parked_max_bytes: how much fetched data of quiet partitions is kept for their
            resume, in bytes as it came from the broker; beyond it the oldest is
            dropped and fetched again.
        decoder: what reads record batches: ``compiled`` (a fifth of the CPU time, and
            missing where the package was built without a C compiler), ``python``
            (kafka-python's own), or ``auto``, which takes the compiled one where it is
            and never fails.
        control: a :class:`~safeconsumer.Control` makes this member obey operator and
            group holds that are kept in Kafka. With None there is no control thread.
        pause_handover: whether a partition that is paused here stays paused at its next
            owner (KAFKA-13463): ``assignor`` tells the group of it at each join,
            ``off`` hands nothing over. A pause of all that is assigned does not travel.
        journal: a folder for a journal of what this consumer does, for ``safeconsumer
            audit``, or a ``safeconsumer.journal.writer.JournalWriter`` that no other
            consumer uses at the time. With None nothing is written.
        hooks: functions that take every event (``safeconsumer.events``), in addition to
            the log. They must be quick and may be called on any thread. A hook that
            raises an ``Exception`` is counted in :attr:`hook_failures` and breaks
            nothing; ``KeyboardInterrupt`` and ``SystemExit`` are raised once all hooks
            have had the event.
        log: whether events become structlog lines, or lines of the standard logger
            ``safeconsumer`` where structlog is not configured.
        configs: kafka-python's settings, all of them.

    Raises:
        UnsupportedKafkaPythonError: the installed kafka-python is not a supported
            version; no thread was started.
        HoldSettingError, DecoderSettingError, HookTypeError, ControlSettingError: an
            argument is not acceptable; no thread was started.
        KafkaConfigurationError: kafka-python's, for its settings, and for an unknown
            ``auto_offset_reset``.
        MissingExtraError: ``decoder="compiled"``, and this installation was built
            without it; the message has the install line.
        JournalError: the folder of ``journal`` cannot be written. Later calls raise it
            if something could not be written to the journal.
        ControlTopicError: the settings of a topic of ``control`` would let Kafka delete
            holds.

    Thread rules: ``pause``, ``resume``, ``pause_all``, ``resume_all``, ``held``,
    ``paused``, ``quiet``, ``holds``, ``explain``, ``assignment`` and ``wakeup`` on any
    thread, in a rebalance listener and in a signal handler; ``poll`` and iteration on
    one thread.
    """

    busy: Callable[[], Iterable[TopicPartition]] | None = None
    """
    Returns the partitions of whose records threads of the program's own have some.

    With ``control=`` a held partition is not reported quiet while it is among them, nor
    before the ``poll``, or step, after the one that returned records of it. It is asked
    with each report, on another thread: at each change, and every ``status_interval``
    seconds. A partition that was taken away counts as long as it is among them. If it
    raises, all assigned ones count, and the log says so once. Nobody asks it after
    ``close``, so end the threads first. A ``Worker`` and a ``Pump`` need it not. None:
    there are no such threads.
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
        settings = {**self.DEFAULT_CONFIG, **configs}  # as upstream will complete them
        check_flags(start_paused=start_paused, log=log)
        check_parked_max_bytes(parked_max_bytes)
        check_handover(pause_handover, settings["group_id"])
        check_reset(settings["auto_offset_reset"])
        check_control(control)
        if default_lifetime is not None:
            checked_lifetime(default_lifetime)
        chosen = choose(decoder)
        deserializers = wrapped(settings)
        hooks = (*([log_event] if log else ()), *checked_hooks(hooks))
        if log:
            prepare()
        self._safe_lifetime = default_lifetime
        self._safe_is_logged = log
        self._safe_edition = Edition({})
        self._safe_interrupted: Callable[[], None] | None = None
        # Of blocks of held() that are over, while their holds are not lifted yet.
        self._safe_ended: dict[_EndedBlock, None] = {}
        self._safe_control: GroupControl | None = None
        self._safe_journal: Recorder | None = None
        with ExitStack() as undo:
            if journal is not None:
                hands_over = pause_handover != "off"
                recorder = _recorder(journal, settings, hands_over=hands_over)
                self._safe_journal = recorder
                undo.callback(recorder.undo)
                hooks = (*hooks, recorder.hook)
            self._safe_ledger = PauseLedger(
                hooks, client_id=settings["client_id"], group_id=settings["group_id"]
            )
            with ended_if_unmade(self):
                super().__init__(**configs | deserializers)
            self.config |= {key: configs[key] for key in deserializers}
            undo.callback(super().close, autocommit=False, timeout_ms=0)  # it has begun
            self._safe_adopt(parked_max_bytes, chosen, pause_handover != "off")
            if self._safe_journal is not None:
                self._safe_journal.begin(self)
            if control is not None:
                undo.callback(self._safe_attach(control).close)
            # Not a subclass's override: it is not set up yet.
            if start_paused:
                SafeConsumer.pause_all(self, reason="start_paused")
            if topics:
                SafeConsumer.subscribe(self, topics=topics)
            undo.pop_all()

    def _safe_attach(self, control: "Control") -> "GroupControl":
        ledger, consumer = self._safe_ledger, weakref.ref(self)
        ledger.membership = self._coordinator.membership
        ledger.busy = self._subscription.in_hand
        ledger.busy_elsewhere = lambda: _busy_in(consumer())
        self._safe_control = control.attach(ledger, self.config)
        self._safe_iteration.when_done = self._safe_control.report_soon
        return self._safe_control

    def _safe_adopt(
        self,
        parked_max_bytes: int,
        chosen: DecoderChoice,
        hands_over: bool,  # noqa: FBT001 - its only call is above
    ) -> None:
        ledger = self._safe_ledger
        adopt(self, ledger, parked_max_bytes, chosen.records, hands_over=hands_over)
        self._safe_consumed = Consumed(self)
        self._safe_early = EarlyHolds(ledger)
        self._safe_iteration = Iteration(self, chosen.steps)
        self._safe_decoder = chosen.name
        if self._metrics is not None:  # metrics_enabled=False
            _report_figures(self, self._metrics)
        log_once(chosen)

    @cached_property  # a subclass may set it, unlike a property
    def decoder(self) -> str:
        """The reader of record batches that is in use, ``"compiled"`` or ``"python"``."""
        return self._safe_decoder

    @property
    def hook_failures(self) -> Mapping[str, int]:
        """How often each hook raised, by its ``repr``; empty if none did. Any thread."""
        return self._safe_ledger.hook_failures()

    # ------------------------------------------------------------ records

    def poll(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """
        Return records of partitions that no hold covers at the moment of return.

        Otherwise it behaves as kafka-python's. Partitions gained during a call that
        began with everything assigned quiet stay quiet until the call returns
        (KAFKA-13463). After ``next(consumer)`` it returns the rest of the batch that
        the iteration had taken.

        After an exception no record is lost: what the call had taken comes with the next
        one, in order. What a signal handler raises comes out of this call,
        wherever it is raised. :meth:`wakeup` ends its wait.

        Raises:
            ConcurrentPollError: another thread is in the middle of this call or of a
                step of an iteration, or a hook calls it while it handles an event; or a
                ``Worker`` or ``Pump`` has the consumer.
            ForkedConsumerError: the consumer was made in another process.
            FencedInstanceIdError: another member took over the ``group_instance_id``.
            BlockingCallInListenerError: called in a rebalance listener, where no call
                may wait for the network.
            JournalError: something could not be written to the ``journal``.
        """
        if not self._safe_iteration.is_stepping():
            refuse_in_listener(self, "poll")
            self._subscription.refuse_other_poll()
            if self._safe_ledger.is_telling_here():
                refuse_second_poll()
        return self._safe_iteration.one_poll(
            lambda: self._safe_poll(timeout_ms, max_records, update_offsets)
        )

    def _safe_poll(
        self,
        timeout_ms: float,
        max_records: int | None,
        update_offsets: bool,  # noqa: FBT001 - upstream's signature
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        self._safe_iteration.begin()
        if self._safe_interrupted is not None:
            self._safe_surely(self._safe_interrupted)
        self._safe_end_interrupted()
        self._safe_ledger.deliver()
        is_step = self._safe_iteration.is_stepping()
        # A step of an iteration writes the records that it yields, one by one.
        journal = None if is_step else self._safe_journal
        began = {} if journal is None else journal.began()
        is_gating = self._safe_ledger.begin_call()
        if is_gating and is_step:
            timeout_ms = min(timeout_ms, GATING_STEP_MS)
        wakeup = self._fetcher.wakeup
        if wakeup.is_asked:
            timeout_ms = min(timeout_ms, 0)
        wakeup.poller = threading.get_ident()
        records: dict[TopicPartition, list[ConsumerRecord]]
        try:
            records = super().poll(timeout_ms, max_records, update_offsets)
        except _WokenUpError:
            records = {}
        finally:
            wakeup.poller = None
            self._safe_ledger.end_call()
            is_late = self._safe_ledger.deliver()
            if self._closed:  # meanwhile, on another thread or in a handler
                self._fetcher.close()
                self._safe_ledger.deliver()
        if is_late:  # hooks took time, and a pause may have returned: P1's check again
            records = self._fetcher.put_back_quiet(records)
        if not is_step:  # an iteration stops where it would poll again
            wakeup.is_asked = False
        if journal is not None:
            journal.polled(records, began, is_peek=not update_offsets)
        # From here on nothing is called: what a signal handler raises comes before
        # this, and the records come again, or after the caller has them.
        self._fetcher.delivered()
        return records

    def _poll_once(
        self,
        timer: object,
        max_records: int,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        self._safe_ledger.goes_on()
        records: dict[TopicPartition, list[ConsumerRecord]]
        records = super()._poll_once(ExactTimer(timer), max_records, update_offsets)
        records = self._fetcher.put_back_quiet(records)
        if not records and self._fetcher.wakeup.is_asked:
            raise _WokenUpError
        return records

    def __next__(self) -> ConsumerRecord:
        """
        Return the next record, waiting up to ``consumer_timeout_ms`` for it.

        Raises:
            StopIteration: after that time, or when the consumer is closed.
            ConcurrentPollError: if another thread is in the middle of this call or of
                ``poll``.
        """
        # Tracing, for example, wraps upstream's method and has to see every record.
        is_wrapped = UpstreamConsumer.__next__ is not _UPSTREAM_NEXT
        try:
            # A running iterator never waits: what it yields needs no new deadline.
            running = self._iterator
            if running is not None and not is_wrapped and not self._closed:
                for record in running:
                    return record
        except ValueError as error:
            refuse_in_listener(self, "next")
            refuse_if_executing(error)
            raise
        refuse_in_listener(self, "next")
        self._subscription.refuse_other_poll()
        step: Callable[[], ConsumerRecord] = self._safe_step
        if is_wrapped:
            # A lambda would cost each record a tenth of its time: self in a cell.
            step = partial(self._safe_iteration.foreign_step, super().__next__)
        try:
            return self._safe_iteration.alone(step, goes_on=is_wrapped)
        except StopIteration:
            self._fetcher.wakeup.is_asked = False  # it has stopped for it
            raise

    def _safe_step(self) -> ConsumerRecord:
        # As upstream's, which calls next(): a signal handler that raises right after
        # that would lose what it has returned. A loop calls nothing.
        if self._closed:
            raise StopIteration
        self._set_consumer_timeout()
        while time.monotonic() < self._consumer_timeout:
            self._iterator = records = self._safe_records()
            for record in records:
                return record
            self._iterator = None
        raise StopIteration

    def _set_consumer_timeout(self) -> None:
        self._consumer_timeout = math.inf
        super()._set_consumer_timeout()

    def _message_generator_v2(self) -> Iterator[ConsumerRecord]:
        # Upstream's step calls it.
        return self._safe_iteration.noted(self._safe_records())

    def _safe_records(self) -> Generator[ConsumerRecord, None, None]:
        if self._fetcher.wakeup.is_asked:
            self._safe_iteration.begin()
            self._consumer_timeout = -math.inf  # for this step
            nothing: tuple[ConsumerRecord, ...] = ()
            return (record for record in nothing)
        records, journal = self._safe_iteration.records(), self._safe_journal
        if journal is None:
            return records
        return journal.steps(records, self._safe_iteration.put_back)

    def wakeup(self) -> None:
        """
        End a ``poll`` that waits: it returns at once with what there is, or nothing.

        If none is under way, the next one ends at once, whatever its timeout; several
        calls before it are one. An iteration yields what its last poll has taken, and
        stops (``StopIteration``) where it would poll again; it can go on. A rebalance
        that the ``poll`` waited for goes on, and the next one finishes it; a listener
        that runs, and the commit before a rebalance, are waited for. Other calls that
        wait (``commit``, ``position``) are not ended. On a closed consumer it does
        nothing.

        Thread rules: any thread, and a signal handler; it takes no lock.
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

        Takes effect wholly or not at all. Targets need not be assigned yet: the hold
        bites at assignment, before the first fetch. Without targets it does nothing,
        as upstream's. A hold placed again with another reason, lifetime or duration
        replaces the old one; a plain pause changes a strict hold only where it lasts
        longer.

        Partitions of ``app`` without ``lifetime`` are a plain pause: it ends when a
        join, or ``assign``, leaves its partition out. If they are all that one call of
        :meth:`assignment` returned of a topic, what is gained of the topic is paused,
        too, until the next ``resume``. Every other hold survives rebalances, lost
        membership and changed subscriptions, until it is resumed.

        On a closed consumer it checks its arguments and changes nothing, so that a
        thread that pauses while another closes needs no care.

        Args:
            targets: partitions, scopes as text (``orders:3``, ``orders``,
                ``re:ord.*`` over whole names, ``@all``), compiled patterns, scopes of
                holds, :data:`safeconsumer.ALL`.
            owner: whose hold it is; only the same owner's ``resume`` lifts it.
            reason: text for people, up to 1,024 bytes; shown on one line.
            for_: seconds, or a timedelta, after which the hold expires by itself:
                never early, at the latest when the consumer next checks, which
                ``poll`` does.
            lifetime: when it ends by itself; the consumer's default if not given.

        Raises:
            TargetTypeError: a target is of another type.
            ScopeSyntaxError: a text or pattern is not acceptable.
            NotConsumedError: a target cannot belong to this consumer;
                ``IllegalTargetError``, a child of both, where its name or number is
                not even legal in Kafka.
            HoldSettingError: owner, reason, duration or lifetime is not acceptable;
                ``worker:`` begins the owners of a ``Worker``'s own holds.

        After an exception nothing has changed.
        """
        self._safe_place(
            {scope_of(target): target for target in targets},
            owner=owner,
            reason=reason,
            for_=for_,
            lifetime=lifetime,
        )

    def resume(self, *targets: Target, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's holds of exactly these targets.

        A hold of a wider scope, or of another owner, stays. A ``resume`` of ``app``,
        whatever it names and without targets too, also ends pauses of all that is
        assigned, and plain pauses of what is not assigned. Lifting what is not held
        is no error. Data kept for a partition that flows now comes with the next
        ``poll``, or ends the wait of one under way on another thread.

        Args:
            targets: as :meth:`pause` takes them, scopes of :meth:`holds` too.
            owner: whose holds are lifted; not an operator's or a group's.

        Returns:
            The holds that still cover the targets or parts of them; empty if no hold
            does, so that they flow. What waits at a gate, until the control topics are
            read, flows a little later: :meth:`explain` has a line for it.

        Raises:
            TargetTypeError: a target is of another type.
            ScopeSyntaxError: a pattern is not acceptable; ``IllegalTargetError``, a
                child of it, if a topic name or partition number is not legal.
            HoldSettingError: the owner is not acceptable, or is of holds from outside.
        """
        checked_owner(owner)
        keys = [(scope_of(target), owner) for target in targets]
        return self._safe_lift(keys, owner=owner, by_application=owner == APP)

    def pause_all(
        self,
        *,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
        lifetime: Lifetime | None = None,
    ) -> None:
        """
        Hold the whole consumer: whatever is assigned, now and later.

        Args and errors as :meth:`pause`.
        """
        self._safe_place(
            {ALL: ALL}, owner=owner, reason=reason, for_=for_, lifetime=lifetime
        )

    def resume_all(self, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift every hold of this owner: of partitions, topics, patterns and the whole.

        For ``app`` pauses of all that is assigned, too.

        Returns:
            The holds of other owners that are left. If it is empty, everything flows
            except partitions that wait at a gate.

        Raises:
            HoldSettingError: the owner is not acceptable, or is of holds from outside.
        """
        checked_owner(owner)
        holds = self._safe_ledger.view().holds
        keys = [hold.key for hold in holds if hold.owner == owner]
        self._safe_lift(keys, owner=owner, all_of_owner=True)
        return self.holds()

    @contextmanager
    def held(
        self,
        *targets: Target,
        reason: str | None = None,
        owner: str | None = None,
        for_: float | timedelta | None = None,
    ) -> Iterator[None]:
        """
        Hold the targets for a block, under a new owner name unless ``owner`` is given.

        The hold lasts for the whole block, whatever rebalances meanwhile, and is lifted
        however the block ends. Args and errors as :meth:`pause`.

        Raises:
            HoldSettingError: no targets: the block would run with nothing held.
        """
        if not targets:
            message = (
                "held() needs a target, or nothing would be held in its block; "
                "held(safeconsumer.ALL) holds the whole consumer"
            )
            raise HoldSettingError(message)
        if owner is None:
            owner = f"held-{next(_held_numbers)}"
        for one in targets:
            scope_of(one)  # a bad one is refused here, and not at the end
        block = _EndedBlock(owner, targets)
        lifetime = Lifetime.UNTIL_RESUMED
        try:
            self.pause(
                *targets, owner=owner, reason=reason, for_=for_, lifetime=lifetime
            )
        except BaseException as error:
            if not isinstance(error, Exception) or is_of_handler(error):
                block.is_interrupted = True
                self._safe_ended[block] = None  # it may be placed
                self._safe_end(block)
            raise
        try:
            yield
        finally:
            try:
                self._safe_ended[block] = None
                self._safe_end(block)
            except BaseException:  # where that begins, too
                block.is_interrupted = True
                raise

    def _safe_end(self, block: "_EndedBlock") -> None:
        # Who takes it out lifts its hold, and nobody else: another thread that was slow
        # would lift that of a later block. What a signal handler interrupts is put back,
        # for the next poll or pause.
        try:
            if self._safe_ended.pop(block, block) is block:
                return  # another thread has taken it out
            if block.owner == APP:  # its whole pauses go on
                keys = [(scope_of(one), block.owner) for one in block.targets]
                self._safe_lift(keys, owner=block.owner)
            else:
                self.resume(*block.targets, owner=block.owner)
            block.is_lifted = True
        except BaseException:
            block.is_interrupted = True
            if not block.is_lifted:
                self._safe_ended[block] = None
            raise

    def _safe_end_interrupted(self) -> None:
        if self._safe_ended:
            for block in tuple(self._safe_ended):
                if block.is_interrupted:
                    self._safe_end(block)

    def pause_group(
        self,
        *targets: Target,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
    ) -> None:
        """
        Hold the targets for every member of the group, now and in the future.

        This member obeys at once, the others within milliseconds; once this has
        returned, no assignment that begins later delivers any of it. The hold outlives
        this process; :meth:`resume_group` on any member ends it, or its expiry. An
        existing hold is not made shorter here before the change is acknowledged.

        Args:
            targets: as for :meth:`pause`; a pattern must be RE2, which every member
                reads alike.
            owner: whose hold it is; any member may lift it by this name.
            reason: text for people, up to 1,024 bytes; shown on one line.
            for_: seconds, or a timedelta, by the broker's clock; never early.

        Raises:
            ControlSettingError: the consumer has no ``control=``.
            ControlWriteError: the broker did not acknowledge it in 10 s, and it was
                not found in the topic in 5 s more; what was acknowledged stands, and
                doing it again is safe. The message names what may be written later.
            BlockingCallInListenerError: called in a rebalance listener.
            MissingExtraError: a pattern, and google-re2 is missing.
        """
        refuse_in_listener(self, "pause_group")
        self._safe_need_control("pause_group").pause(
            targets, owner=owner, reason=reason, for_=for_
        )

    def resume_group(self, *targets: Target, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's group holds of exactly these targets, for every member.

        An operator's hold stays. Errors as :meth:`pause_group`.

        Returns:
            The holds that still cover the targets here.
        """
        refuse_in_listener(self, "resume_group")
        return self._safe_need_control("resume_group").resume(targets, owner=owner)

    def paused(self, *, owner: str = APP) -> set[TopicPartition]:
        """
        Return the assigned partitions that an owner has paused; as kafka-python's.

        By default those are the application's own: by single partitions, topics,
        patterns or as a whole, and those that a previous owner handed over. A hold of
        an operator, of a worker or of any other owner does not show here, and neither
        does a closed gate: so ``assignment() - paused()`` is what the application lets
        flow, whatever others hold of it. :meth:`quiet` has all that is quiet.

        After ``resume(*paused())`` no plain pause of the application is left that could
        take effect later. The partitions are those of :meth:`assignment`, so a ``pause``
        of all of a topic is one of the topic.

        Args:
            owner: whose pauses are asked for, any ``Hold.owner`` of :meth:`holds`.

        Raises:
            HoldSettingError: the owner is not acceptable as a name.
        """
        checked_name(owner)
        view = self._safe_ledger.view()
        return self._safe_returned(view, view.held_by(owner))

    def quiet(self) -> set[TopicPartition]:
        """
        Return the assigned partitions that a hold or a closed gate covers, and no others.

        None of their records is delivered now; :meth:`explain` says who keeps them quiet.
        ``resume(*quiet())`` lifts what the application holds of them, and returns what
        still covers them. The partitions are those of :meth:`assignment`, so that
        ``pause(*quiet())`` is a pause of the topic where nothing of it flows.
        """
        view = self._safe_ledger.view()
        return self._safe_returned(view, view.quiet)

    def holds(self) -> tuple[Hold, ...]:
        """Return every hold, also those that cover nothing assigned here now."""
        return tuple(sorted(self._safe_ledger.view().holds, key=_by_scope_and_owner))

    def explain(self, tp: TopicPartition | str) -> tuple[str, ...]:
        """
        Say why a partition is quiet: one line per hold, and no line if it flows.

        A line names scope, owner, reason, since when and until when (UTC); or it says
        that the partition is not assigned here.
        """
        scope = scope_of(tp)
        if not isinstance(scope, scopes.Partition):
            message = f"explain() takes a partition, like 'orders:3', not {tp!r}"
            raise TargetTypeError(message)
        view = self._safe_ledger.view()
        return explain_lines(view, (scope.topic, scope.partition))

    # ------------------------------------------------------------ what is consumed

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Assign partitions by hand; as kafka-python's. Holds stay and bite.

        Plain pauses of what it leaves out end, and pauses of all that is assigned.

        Raises:
            TargetTypeError: something among them is no ``TopicPartition`` of a text and
                a whole number; nothing was changed.
            NotConsumedError: a hold was placed, before anything was subscribed or
                assigned, on something that is not among the partitions.
            ConsumerClosedError: the consumer is closed.
        """
        refuse_if_closed(self, "assign")
        if not partitions:  # upstream's rule
            self.unsubscribe()
            return
        for one in partitions:
            check_assignable(one)
        partitions = [TopicPartition(one.topic, one.partition) for one in partitions]
        fits = fits_assignment(set(partitions))
        with self._safe_early.checked(fits, "assign()"):
            self._safe_surely(lambda: self._safe_assign(partitions))

    def _safe_assign(self, partitions: Sequence[TopicPartition]) -> None:
        written = self._safe_written(lambda it: it.calling("assign", {}))
        with written, self._coordinator.reassigning():
            super().assign(partitions)

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        listener: Any = None,  # noqa: ANN401 - upstream's listener classes
    ) -> None:
        """
        Subscribe to topics or a pattern; as kafka-python's. Holds stay and bite.

        Plain pauses of what the next join leaves out end.

        Raises:
            NotConsumedError: a hold was placed, before anything was subscribed or
                assigned, on a topic that is not among these.
        """
        fits = fits_subscription(topics, pattern)
        with self._safe_early.checked(fits, "subscribe()"):
            self._safe_surely(lambda: self._safe_subscribe(topics, pattern, listener))

    def _safe_subscribe(
        self,
        topics: Sequence[str],
        pattern: str | None,
        listener: Any,  # noqa: ANN401 - upstream's listener classes
    ) -> None:
        def change() -> None:
            UpstreamConsumer.subscribe(self, topics, pattern, listener)
            self._safe_ledger.choose_anew()
            self._iterator = None

        self._safe_iteration.ended_by(change)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of a partition; as kafka-python's."""
        self._safe_seek({partition: offset}, partial(super().seek, partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first record of partitions, or of all; as kafka-python's."""
        moved = dict.fromkeys(partitions or self.assignment())
        self._safe_seek(moved, partial(super().seek_to_beginning, *partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the end of partitions, or of all; as kafka-python's."""
        moved = dict.fromkeys(partitions or self.assignment())
        self._safe_seek(moved, partial(super().seek_to_end, *partitions))

    def _safe_seek(
        self, moved: Mapping[TopicPartition, int | None], seek: Callable[[], None]
    ) -> None:
        # First: an answer about metadata may come behind the seek.
        self._subscription.note_sought(moved)
        with self._safe_written(lambda it: it.seeking(moved)):
            self._safe_iteration.ended_by(seek)

    def _safe_go_back(self, partition: TopicPartition, offset: int) -> None:
        # A seek of ours to a record that a poll has returned.
        with self._safe_written(lambda it: it.seeking({partition: offset})):
            seek = partial(self._subscription.go_back, partition, offset)
            self._safe_iteration.ended_by(seek)

    def unsubscribe(self) -> None:
        """
        Give up subscription and assignment; as kafka-python's.

        Holds stay, but for plain pauses and those that end with the assignment.

        Raises:
            BlockingCallInListenerError: called in a rebalance listener.
            ConsumerClosedError: the consumer is closed.
        """
        refuse_blocking(self, "unsubscribe")
        self._safe_surely(self._safe_unsubscribe)

    def _safe_unsubscribe(self) -> None:
        written = self._safe_written(lambda it: it.calling("unsubscribe", {}))
        with written, self._coordinator.reassigning():
            self._safe_iteration.ended_by(super().unsubscribe)
            self._safe_ledger.choose_anew()

    def assignment(self) -> set[TopicPartition]:
        """
        Return the partitions assigned now.

        A ``pause`` of all of them, as they are returned here, is one of their topics:
        see :meth:`pause`. It takes no lock, so signal handlers may call it.
        """
        if self._closed:  # upstream leaves it as it was
            return set(self._subscription.assignment)
        return set(self._safe_handed(self._safe_ledger.view().assigned).values())

    @wraps(UpstreamConsumer.partitions_for_topic, assigned=())  # its signature
    def partitions_for_topic(self, topic: str, *args: Any, **kwargs: Any) -> set[int]:  # noqa: ANN401 - upstream's
        """
        Return the numbers of a topic's partitions; as kafka-python's.

        Raises:
            BlockingCallInListenerError: called in a rebalance listener, of a topic
                about which no metadata is known here; ``ConsumerClosedError`` if the
                consumer is closed.
        """
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
        Return the offset of the next record of a partition; as kafka-python's.

        Records that a ``poll`` under way on another thread has taken and not returned
        do not count. In a rebalance listener it answers for what has a position.

        Raises:
            BlockingCallInListenerError: called in a rebalance listener, of a partition
                whose position would have to be asked of a broker;
                ``ConsumerClosedError`` if the consumer is closed.
        """
        known: int | None
        if self._closed or is_on_io_thread(self):
            known = self._subscription.delivered_position(partition)
            if known is not None:
                return known
            if partition in set(self._subscription.assignment):
                refuse_blocking(self, "position")
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
        Commit, and wait until it is done; as kafka-python's.

        Raises:
            NotOwnedError: under :meth:`subscribe` it names a partition that this member
                does not own. Nothing was sent, nor committed of the others.
            CommitFailedError: kafka-python's, where the broker has ended the membership
                and this member does not know it yet.
            HandlersFailError: a ``Worker`` or ``Pump`` has the consumer, and commits.
            BlockingCallInListenerError: called in a rebalance listener.
            ConsumerClosedError: the consumer is closed.
        """
        # First: in a listener the advice to call commit_async() would be wrong.
        self._coordinator.refuse_other_commit(offsets)
        refuse_blocking(self, "commit")
        super().commit(offsets, timeout_ms)

    def commit_async(
        self,
        offsets: dict[TopicPartition, Any] | None = None,
        callback: Callable[[Any, Any], object] | None = None,
    ) -> Any:  # noqa: ANN401 - upstream's future
        """
        Commit without waiting; as kafka-python's.

        Under :meth:`subscribe` a commit that names a partition which this member does
        not own sends nothing: callback and future get a ``NotOwnedError``.

        Raises:
            HandlersFailError: a ``Worker`` or ``Pump`` has the consumer, and commits.
            ConsumerClosedError: the consumer is closed.
        """
        refuse_if_closed(self, "commit_async")
        return super().commit_async(offsets, callback)

    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, float],
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, Any]:
        """
        Return the first offset of each partition at or after a time; as kafka-python's.

        Args:
            timestamps: milliseconds since 1970, by partition.
            timeout_ms: milliseconds to wait; None for ``request_timeout_ms``.

        Raises:
            TimestampError: a time is negative, or no number that Kafka knows.
            KafkaTimeoutError: kafka-python's; also where a partition does not exist.
            BlockingCallInListenerError: called in a rebalance listener.
            ConsumerClosedError: the consumer is closed.
        """
        refuse_blocking(self, "offsets_for_times")
        for tp, time_ms in timestamps.items():
            if not 0 <= time_ms < _FIRST_TIME_TOO_LATE:
                message = (
                    f"offsets_for_times() takes milliseconds since 1970, from 0 up to "
                    f"{_FIRST_TIME_TOO_LATE - 1}, not {time_ms!r} "
                    f"for {tp.topic}:{tp.partition}"
                )
                raise TimestampError(message)
        found: dict[TopicPartition, Any]
        found = super().offsets_for_times(dict(timestamps), timeout_ms)
        return found

    # ------------------------------------------------------------ the end

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:  # noqa: FBT001, FBT002 - upstream's signature
        """
        Close the consumer; as kafka-python's. Buffered data is thrown away.

        Its holds end, but for those of operators and of the group.

        Raises:
            BlockingCallInListenerError: called in a rebalance listener.
            ForkedConsumerError: the consumer was made in another process.
        """
        refuse_in_listener(self, "close")
        self._safe_iteration.refuse_if_in_child()
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._subscription.is_closing = True
        if self._safe_control is not None:
            # The other half of the time is for leaving the group.
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
                with suppress(ConcurrentPollError):  # else the poll under way does it
                    self._safe_iteration.alone(self._fetcher.close)
                if self._safe_journal is not None:
                    self._safe_journal.end()

    # ------------------------------------------------------------ inside

    def _safe_surely(self, change: Callable[[], None]) -> None:
        # Upstream changes what is consumed in several steps, and takes the same call
        # for no change. What a signal handler interrupts is done again from its start,
        # by the next poll.
        earlier = self._safe_interrupted
        if earlier is not None and earlier is not change:
            self._safe_surely(earlier)
        try:
            change()
        except BaseException as error:
            self._safe_interrupted = change  # first: another signal may come
            if isinstance(error, Exception) and not is_of_handler(error):
                self._safe_interrupted = None  # it was refused
            raise
        self._safe_interrupted = None

    def _safe_written(
        self, call: Callable[["Recorder"], AbstractContextManager[None]]
    ) -> AbstractContextManager[None]:
        journal = self._safe_journal
        return nullcontext() if journal is None else call(journal)

    def _safe_returned(
        self, view: View, partitions: Iterable[tuple[str, int]]
    ) -> set[TopicPartition]:
        handed = self._safe_handed(view.assigned)
        return {handed[tp] for tp in partitions}

    def _safe_handed(
        self, assigned: Mapping[str, Any]
    ) -> dict[tuple[str, int], TopicPartition]:
        edition = self._safe_edition
        if edition.assigned is not assigned:
            self._safe_edition = edition = Edition(assigned)
        return edition.partitions

    def _safe_place(
        self,
        found: Mapping[Scope, object],
        *,
        owner: str,
        reason: str | None,
        for_: float | timedelta | None,
        lifetime: Lifetime | None,
    ) -> None:
        if self._safe_ended:
            self._safe_end_interrupted()
        checked_placer(owner)
        reason = None if reason is None else checked_reason(reason)
        seconds = None if for_ is None else checked_duration(for_)
        lifetime = self._safe_lifetime_of(owner, lifetime)
        is_plain = lifetime is Lifetime.PLAIN
        if not found or self._closed:
            return
        named = {
            scope: target.edition
            for scope, target in found.items()
            if isinstance(target, AssignedPartition) and target.edition is not None
        }
        self._safe_consumed.check([one for one in found if one not in named])
        place = partial(
            self._safe_ledger.place,
            found,
            owner=owner,
            reason=reason,
            for_=seconds,
            lifetime=lifetime,
            known_topics=self._safe_consumed.known_topics,
            named=list(named.items()) if is_plain else (),
        )
        if self._safe_journal is None:
            place()
        else:
            with self._safe_journal.pausing(found, owner, lifetime, seconds):
                place()
        if not self._safe_consumed.has_any():
            self._safe_early.note((scope, owner) for scope in found)

    def _safe_lifetime_of(self, owner: str, lifetime: Lifetime | None) -> Lifetime:
        if lifetime is not None:
            return checked_lifetime(lifetime)
        if self._safe_lifetime is not None:
            return self._safe_lifetime
        return Lifetime.PLAIN if owner == APP else Lifetime.UNTIL_RESUMED

    def _safe_lift(
        self,
        keys: Sequence[HoldKey],
        *,
        owner: str,
        by_application: bool = False,
        all_of_owner: bool = False,
    ) -> tuple[Hold, ...]:
        # First: a hold placed meanwhile is noted again after it.
        self._safe_early.forget(keys)
        ledger, journal = self._safe_ledger, self._safe_journal
        lift = partial(ledger.remove, keys, by_application=by_application)
        if all_of_owner:
            lift = partial(ledger.remove_owner, owner)
        if journal is None:
            return lift()
        with journal.resuming([scope for scope, _ in keys], owner):
            return lift()

    def _safe_need_control(self, call: str) -> "GroupControl":
        if self._safe_control is None:
            message = f"{call}() needs SafeConsumer(..., control=Control())"
            raise ControlSettingError(message)
        return self._safe_control


class _EndedBlock:
    """A block of ``held()`` that is over, until its hold is lifted."""

    def __init__(self, owner: str, targets: tuple[Target, ...]) -> None:
        self.owner, self.targets = owner, targets
        self.is_interrupted = False  # and whoever comes next ends it
        self.is_lifted = False


class _WokenUpError(Exception):
    """Ends a poll that has nothing to return, from within upstream's loop."""


KafkaConsumer = SafeConsumer
"""The same class under upstream's name, so that one import line changes."""


def _recorder(
    journal: "str | os.PathLike[str] | JournalWriter",
    settings: dict[str, Any],
    *,
    hands_over: bool,
) -> "Recorder":
    # Imported here: not for whoever only imports us.
    from safeconsumer.journal.recorder import Recorder  # noqa: PLC0415

    client_id, group = settings["client_id"], settings["group_id"]
    return Recorder(journal, client_id, group, hands_over=hands_over)


def _report_figures(consumer: SafeConsumer, metrics: object) -> None:
    # Imported here: 4 ms, and not for whoever only imports us.
    from safeconsumer.metrics.figures import Figures  # noqa: PLC0415

    Figures(consumer).report(metrics)


def _busy_in(consumer: SafeConsumer | None) -> Iterable[TopicPartition]:
    ask = None if consumer is None else consumer.busy
    return () if ask is None else ask()


def _by_scope_and_owner(hold: Hold) -> tuple[str, str]:
    return str(hold.scope), hold.owner
