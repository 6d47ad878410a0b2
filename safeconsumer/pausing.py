"""
The calls that place, lift and show holds: one half of the consumer's face.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeAlias

from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._control import Attached
from safeconsumer._kafka.errors import IllegalTargetError
from safeconsumer._kafka.facade import Parts
from safeconsumer._kafka.pausing.iteration import PauseSafeIteration
from safeconsumer.errors import ControlSettingError, ScopeSyntaxError, TargetTypeError
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.early import EarlyHolds
from safeconsumer.holds.explain import explain_lines
from safeconsumer.holds.hold import (
    APP,
    Hold,
    HoldKey,
    Lifetime,
    checked_duration,
    checked_lifetime,
    checked_owner,
    checked_reason,
)
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import CompiledPattern, Everything, Scope

Target: TypeAlias = scopes.TopicPartition | str | CompiledPattern
"""A partition, a topic by name, or topics by a pattern over their whole names."""

_held_numbers = itertools.count(1)


class PausingCalls(PauseSafeIteration):
    """
    What ``SafeConsumer`` says about pausing; it makes the attributes.

    Thread rules: every method on any thread, in a rebalance listener and in a signal
    handler, but ``pause_group`` and ``resume_group``, which wait for a broker.
    """

    _ledger: PauseLedger
    _parts: Parts
    _early: EarlyHolds
    _control: Attached | None
    _default_lifetime: Lifetime
    _strict_pause: bool

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

    def _need_control(self, call: str) -> Attached:
        if self._control is None:
            message = f"{call}() needs SafeConsumer(..., control=Control())"
            raise ControlSettingError(message)
        return self._control


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


def _by_scope_and_owner(hold: Hold) -> tuple[str, str]:
    return str(hold.scope), hold.owner
