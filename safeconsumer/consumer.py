"""
The product's face: a ``KafkaConsumer`` whose pauses hold.
"""

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn, TypeAlias

from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import _fork
from safeconsumer._control import Attachable, Attached
from safeconsumer._core import scopes
from safeconsumer._core.holds import (
    APP,
    Hold,
    HoldKey,
    Lifetime,
    checked_duration,
    checked_lifetime,
    checked_owner,
    checked_reason,
)
from safeconsumer._core.scopes import CompiledPattern, Everything, Scope
from safeconsumer._early import (
    EarlyHolds,
    Fits,
    first_unfit,
    fits_assignment,
    fits_subscription,
)
from safeconsumer._kafka import compat
from safeconsumer._kafka.adopt import adopt
from safeconsumer._kafka.carrying import checked_handover
from safeconsumer._kafka.decoders import choose, log_once
from safeconsumer._kafka.draining import DEFAULT_PARKED_MAX_BYTES
from safeconsumer._kafka.errors import (
    ForkedConsumerError,
    IllegalTargetError,
)
from safeconsumer._kafka.iteration import GATING_STEP_MS, PauseSafeIteration
from safeconsumer._kafka.parts import Parts
from safeconsumer.errors import (
    ControlSettingError,
    HoldSettingError,
    ScopeSyntaxError,
    TargetTypeError,
)
from safeconsumer.explain import explain_lines
from safeconsumer.hooks import Hook, LazyHook
from safeconsumer.ledger import PauseLedger

Target: TypeAlias = scopes.TopicPartition | str | CompiledPattern
"""A partition, a topic by name, or topics by a pattern over their whole names."""

DEFAULT_HOOKS: tuple[Hook, ...] = (
    LazyHook("safeconsumer.instrumentation._structlog:log_event"),
)

_held_numbers = itertools.count(1)


class SafeConsumer(PauseSafeIteration):
    """
    A drop-in for ``kafka.KafkaConsumer`` that delivers nothing a hold covers.

    A *hold* is one owner's wish that a scope be quiet: a partition, a topic, a pattern
    over topics, or the whole consumer. It survives rebalances, lost membership and
    changed subscriptions until its owner lifts it, it expires, or its lifetime ends.
    A partition flows when no hold covers it.

    Args:
        topics: as kafka-python's: topics to subscribe to.
        start_paused: place a hold on the whole consumer before the first poll; lift
            it with :meth:`resume_all`.
        default_lifetime: the lifetime of holds that are placed without one.
        strict_pause: refuse to pause anything that is not assigned at that moment.
        parked_max_bytes: how much fetched data of quiet partitions is kept for their
            resume, in bytes as it came from the broker; beyond it the oldest is
            dropped and fetched again.
        decoder: what reads record batches: ``compiled`` (the extra ``fast``: a fifth of
            the CPU time), ``python`` (kafka-python's own), or ``auto``, which takes the
            compiled one where it can be had and never fails.
        control: a :class:`~safeconsumer.Control` makes this member obey operator and
            group holds that are kept in Kafka; None: none of it runs.
        pause_handover: whether a partition that is paused here stays paused at its next
            owner (KAFKA-13463): ``offsets`` marks its committed offset, ``assignor``
            tells the group at its next join, ``off`` does not.
        hooks: what takes the events; by default they become structlog lines.
        configs: as kafka-python's, all of them.

    Raises:
        UnsupportedKafkaPythonError: the installed kafka-python is not one we know;
            no thread was started.
        MissingExtraError: ``decoder="compiled"`` and it cannot be had; the message has
            the install line.
        ControlTopicError: a topic of ``control`` would not keep holds for good.

    Thread rules: ``pause``, ``resume``, ``pause_all``, ``resume_all``, ``held``,
    ``paused``, ``holds`` and ``explain`` on any thread, in a rebalance listener and in
    a signal handler. ``poll`` and iteration on one thread at a time.
    """

    def __init__(  # noqa: PLR0913 - one keyword per choice, all with defaults
        self,
        *topics: str,
        start_paused: bool = False,
        default_lifetime: Lifetime = Lifetime.UNTIL_RESUMED,
        strict_pause: bool = False,
        parked_max_bytes: int = DEFAULT_PARKED_MAX_BYTES,
        decoder: str = "auto",
        control: Attachable | None = None,
        pause_handover: str = "off",
        hooks: Iterable[Hook] = DEFAULT_HOOKS,
        **configs: Any,  # noqa: ANN401 - upstream's keys and types
    ) -> None:
        compat.require_supported()
        self._default_lifetime = checked_lifetime(default_lifetime)
        self._strict_pause = strict_pause
        _check_parked_max_bytes(parked_max_bytes)
        handover = checked_handover(pause_handover, configs.get("group_id"))
        chosen = choose(decoder)
        settings = {**self.DEFAULT_CONFIG, **configs}  # as upstream will settle them
        self._ledger = PauseLedger(
            hooks, client_id=settings["client_id"], group_id=settings["group_id"]
        )
        self._poll_guard = threading.Lock()
        self._early = EarlyHolds()
        self._control: Attached | None = None
        super().__init__(**configs)
        _fork.watch(self, _ForkedConsumer)
        try:
            adopt(self, self._ledger, parked_max_bytes, chosen.records, handover)
            self._parts = Parts(self)
            self._decoder = chosen.name
            log_once(chosen)
            if control is not None:
                self._control = control.attach(self._ledger, self.config)
            if start_paused:
                self.pause_all(reason="start_paused")
            if topics:
                self.subscribe(topics=topics)
        except BaseException:
            if self._control is not None:
                self._control.close()
            super().close(autocommit=False, timeout_ms=0)  # its IO thread runs already
            raise

    # ------------------------------------------------------------ holds

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
        as upstream's, so that ``pause(*assignment())`` is safe while nothing is
        assigned. A hold placed again unchanged stays as it is; one placed again with
        another reason, lifetime or duration replaces the old one.

        Args:
            targets: partitions, topic names, patterns (matched with whole names).
            owner: whose hold it is; only the same owner's ``resume`` lifts it.
            reason: text for people, up to 1,024 bytes.
            for_: seconds, or a timedelta, after which the hold expires by itself:
                never early, late by one look-up.
            lifetime: when it ends by itself; the consumer's default if not given.

        Raises:
            TargetTypeError: a target is of another type.
            ScopeSyntaxError: a pattern is not acceptable.
            NotConsumedError: a target cannot belong to this consumer;
                ``IllegalTargetError``, a child of both, where its name or number is
                not even legal in Kafka.
            HoldSettingError: owner, reason, duration or lifetime is not acceptable.
            Exception: whatever a pattern raises when it is asked about a topic name.
                One that raises later, about a topic that comes, covers that topic.

        After an exception nothing has changed.
        """
        self._place(
            tuple(map(_scope, targets)),
            owner=owner,
            reason=reason,
            for_=for_,
            lifetime=lifetime,
        )

    def resume(self, *targets: Target, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's holds of exactly these targets.

        A hold of a wider scope, or of another owner, stays. Lifting what is not held
        is no error. Data kept for a partition that flows now comes with the next
        ``poll``, or ends the wait of one under way on another thread.

        Args:
            targets: as they were paused.
            owner: whose holds are lifted.

        Returns:
            The holds that still cover the targets; empty if they flow.

        Raises:
            TargetTypeError: a target is of another type.
            ScopeSyntaxError: a pattern is not acceptable; ``IllegalTargetError``, a
                child of it, if a topic name or partition number is not legal.
        """
        checked_owner(owner)
        return self._lift([(_scope(target), owner) for target in targets])

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
        self._place(
            (Everything(),), owner=owner, reason=reason, for_=for_, lifetime=lifetime
        )

    def resume_all(self, *, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's hold of the whole consumer; holds of parts of it stay.

        Returns:
            Other owners' holds of the whole consumer.
        """
        return self._lift([(Everything(), checked_owner(owner))])

    @contextmanager
    def held(
        self,
        *targets: Target,
        reason: str | None = None,
        owner: str | None = None,
        for_: float | timedelta | None = None,
    ) -> Iterator[None]:
        """
        Hold the targets for a block, under an owner of its own unless one is given.

        The hold is lifted however the block ends. Args and errors as :meth:`pause`.
        """
        if owner is None:
            owner = f"held-{next(_held_numbers)}"
        self.pause(*targets, owner=owner, reason=reason, for_=for_)
        try:
            yield
        finally:
            self.resume(*targets, owner=owner)

    def pause_group(
        self,
        *targets: Target,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
    ) -> None:
        """
        Hold the targets for every member of the group, now and in the future.

        Obeyed here at once and by the others within milliseconds; once this has
        returned, no assignment that begins later delivers any of it. It outlives this
        process and ends by :meth:`resume_group`, on any member, or by expiry.

        Args:
            targets: as for :meth:`pause`; text may be any scope: ``orders:3``,
                ``orders``, ``re:ord.*`` (RE2), ``@all`` for the whole group.
            owner: whose hold it is; any member may lift it by this name.
            reason: text for people, up to 1,024 bytes.
            for_: seconds, or a timedelta, by the broker's clock; never early.

        Raises:
            ControlSettingError: the consumer has no ``control=``.
            ControlWriteError: the broker did not acknowledge it in 10 s; what was
                acknowledged stands, and doing it again is safe.
            BlockingCallInListenerError: called in a rebalance listener.
            MissingExtraError: a pattern, and google-re2 is missing.
        """
        self._refuse_in_listener("pause_group")
        self._need_control("pause_group").pause(
            targets, owner=owner, reason=reason, for_=for_
        )

    def resume_group(self, *targets: Target, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's group holds of exactly these targets, for every member.

        An operator's hold stays. Errors as :meth:`pause_group`.

        Returns:
            The holds that still cover the targets here.
        """
        self._refuse_in_listener("resume_group")
        return self._need_control("resume_group").resume(targets, owner=owner)

    def marked_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """
        Return offsets as a producer's transaction must commit them.

        With ``pause_handover="offsets"`` pass it what you would give to
        ``send_offsets_to_transaction``: the consumer's own commits keep the marks of
        paused partitions by themselves, a producer's do not go through it.
        """
        return self._parts.marked_offsets(offsets)

    def paused(self) -> set[TopicPartition]:
        """
        Return the assigned partitions that a hold or a closed gate covers now.

        Those that merely wait for a position, or are being revoked, are not in it.
        """
        return set(self._ledger.view().quiet)

    def holds(self) -> tuple[Hold, ...]:
        """
        Return every hold, also those that cover nothing assigned here now.
        """
        return tuple(sorted(self._ledger.view().state, key=_by_scope_and_owner))

    def explain(self, tp: TopicPartition) -> tuple[str, ...]:
        """
        Say who keeps a partition quiet: one line per hold; none if nothing does.

        A line names scope, owner, reason, since when and until when (UTC).
        """
        scope = _scope(tp)
        if not isinstance(scope, scopes.Partition):
            message = f"explain() takes a TopicPartition, not {tp!r}"
            raise TargetTypeError(message)
        view = self._ledger.view_about(scope.topic)
        return explain_lines(view, (scope.topic, scope.partition))

    @property
    def decoder(self) -> str:
        """
        Which decoder reads record batches: ``compiled`` or ``python``.
        """
        return self._decoder

    # ------------------------------------------------------------ records

    def poll(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """
        Return records of partitions that no hold covers at the moment of return.

        As kafka-python's otherwise. Partitions gained during a call that began with
        everything assigned quiet stay quiet until it returns (KAFKA-13463). After
        ``next(consumer)`` it returns the rest of what the iteration had taken.

        Raises:
            ConcurrentPollError: another thread is in the middle of this call or of a
                step of an iteration, or this is a hook that such a call runs.
            ForkedConsumerError: the consumer was made in another process.
            FencedInstanceIdError: another member took over the ``group_instance_id``.
            BlockingCallInListenerError: called in a rebalance listener, as every call
                that waits for the network.
        """
        with self._one_poll():
            self._ledger.deliver()
            is_gating = self._ledger.begin_call()
            if is_gating and not update_offsets:  # for an iteration
                timeout_ms = min(timeout_ms, GATING_STEP_MS)
            records: dict[TopicPartition, list[ConsumerRecord]]
            try:
                records = super().poll(timeout_ms, max_records, update_offsets)
            finally:
                self._ledger.end_call()
                is_late = self._ledger.deliver()
            return self._without_quiet(records) if is_late else records

    # ------------------------------------------------------------ upstream's calls

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Assign partitions by hand; as kafka-python's. Holds stay and bite.

        Raises:
            NotConsumedError: a hold was placed, before anything was subscribed or
                assigned, on something that is not among the partitions.
        """
        if not partitions:  # upstream's rule
            self.unsubscribe()
            return
        fits = fits_assignment(set(partitions))
        with self._checking_early(fits, "assign()"), self._reassigning():
            super().assign(partitions)

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        listener: Any = None,  # noqa: ANN401 - upstream's listener classes
    ) -> None:
        """
        Subscribe to topics or a pattern; as kafka-python's. Holds stay and bite.

        Raises:
            NotConsumedError: a hold was placed, before anything was subscribed or
                assigned, on a topic that is not among these.
        """
        fits = fits_subscription(topics, pattern)
        with self._checking_early(fits, "subscribe()"):
            super().subscribe(topics=topics, pattern=pattern, listener=listener)
        self._ledger.choose_anew()
        self._iterator = None

    def unsubscribe(self) -> None:
        """
        Give up subscription and assignment; as kafka-python's. Holds stay.

        Raises:
            BlockingCallInListenerError: called in a rebalance listener.
        """
        self._refuse_in_listener("unsubscribe")
        with self._reassigning():
            super().unsubscribe()
            self._ledger.choose_anew()

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:  # noqa: FBT001, FBT002 - upstream's signature
        """
        Close the consumer; as kafka-python's. Buffered data is thrown away.

        Raises:
            BlockingCallInListenerError: called in a rebalance listener.
        """
        self._refuse_in_listener("close")
        if self._control is not None:
            self._control.close()
        with self._reassigning():
            try:
                super().close(autocommit=autocommit, timeout_ms=timeout_ms)
            finally:
                self._iterator = None
                self._parts.clear_buffers()
                self._ledger.assign(())

    # ------------------------------------------------------------ inside

    def _place(
        self,
        found: tuple[Scope, ...],
        *,
        owner: str,
        reason: str | None,
        for_: float | timedelta | None,
        lifetime: Lifetime | None,
    ) -> None:
        checked_owner(owner)
        checked_reason(reason)
        seconds = checked_duration(for_)
        if lifetime is None:
            lifetime = self._default_lifetime
        checked_lifetime(lifetime)
        if not found:
            return
        self._check_targets(found)
        self._ledger.place(
            found,
            owner=owner,
            reason=reason,
            for_=seconds,
            lifetime=lifetime,
            known_topics=self._parts.known_topics,
        )
        self._parts.hand_over()
        if not self._parts.consumes_anything():
            self._early.add((scope, owner) for scope in found)

    def _lift(self, keys: Sequence[HoldKey]) -> tuple[Hold, ...]:
        self._early.forget(keys)  # before: one placed again meanwhile is noted after it
        if not keys:
            return ()
        remaining = self._ledger.remove(keys)
        self._parts.hand_over()
        return remaining

    def _check_targets(self, found: tuple[Scope, ...]) -> None:
        self._parts.check_consumed(found)
        if self._strict_pause:
            view = self._ledger.view()
            for scope in self._ledger.asked(found):
                is_empty = not any(True for _ in view.affected_by(scope))
                if is_empty and not isinstance(scope, Everything):
                    self._parts.refuse_unassigned(scope)

    @contextmanager
    def _checking_early(self, fits: Fits, call: str) -> Iterator[None]:
        keys = self._early.keys()
        unfit = first_unfit(keys, self._ledger.view().state, fits)
        if unfit is not None:
            self._parts.refuse_early_hold(unfit, call)
        yield
        self._early.forget(keys)  # not if upstream refused

    def _need_control(self, call: str) -> Attached:
        if self._control is None:
            message = f"{call}() needs SafeConsumer(..., control=Control())"
            raise ControlSettingError(message)
        return self._control

    @contextmanager
    def _reassigning(self) -> Iterator[None]:
        quiet = frozenset(self._ledger.view().quiet)
        try:
            yield
        finally:
            self._parts.tell_departed(quiet)
            self._ledger.deliver()


class _ForkedConsumer(SafeConsumer):
    """
    What a consumer becomes in a forked child: every public name raises, and iteration.
    """

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - whatever is there
        if not name.startswith("_"):
            _refuse_forked()
        return super().__getattribute__(name)

    def __iter__(self) -> NoReturn:
        _refuse_forked()

    def __next__(self) -> NoReturn:
        # A generator that the parent began would go on yielding here.
        _refuse_forked()


def _refuse_forked() -> NoReturn:
    message = (
        "this consumer was made before the process was forked and its threads "
        "stayed behind; make a consumer in the child process"
    )
    raise ForkedConsumerError(message)


KafkaConsumer = SafeConsumer
"""The same class under upstream's name, so that one import line changes."""


def _scope(target: object) -> Scope:
    try:
        if isinstance(target, TopicPartition):
            return scopes.partition(target.topic, target.partition)
        if isinstance(target, str):
            return scopes.topic(target)
    except ScopeSyntaxError as error:
        raise IllegalTargetError(*error.args) from error
    if hasattr(target, "fullmatch") and hasattr(target, "pattern"):
        return scopes.pattern(target)
    message = (
        f"a target is a TopicPartition, a topic name or a compiled pattern, "
        f"not {target!r}"
    )
    raise TargetTypeError(message)


def _check_parked_max_bytes(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        message = (
            f"parked_max_bytes must be a number of bytes, 0 or more, not {value!r}"
        )
        raise HoldSettingError(message)


def _by_scope_and_owner(hold: Hold) -> tuple[str, str]:
    return str(hold.scope), hold.owner
