"""Keeps what members on other clients share: a ledger, what they own, and have in hand."""

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any, Protocol

from safeconsumer.errors.base import (
    ControlSettingError,
    HoldSettingError,
    HookTypeError,
)
from safeconsumer.events.consumer import RebalanceCompleted
from safeconsumer.events.dispatch import Hook
from safeconsumer.events.log import log_event, prepare
from safeconsumer.group.control_clients import ControlClients
from safeconsumer.group.member import GroupControl
from safeconsumer.group.settings import Control
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.explain import explain_lines
from safeconsumer.holds.hold import (
    APP,
    Hold,
    Lifetime,
    checked_duration,
    checked_owner,
    checked_placer,
    checked_reason,
)
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.scope import Partition, Scope, TopicPartition
from safeconsumer.holds.table import rebalanced


class OtherPartition(Protocol):
    """A partition as other libraries have it."""

    topic: str
    partition: int


Target = scopes.Target | OtherPartition
"""
The types that ``hold`` takes: those of ``SafeConsumer.pause``, and the library's own.
"""

_NONE: frozenset[TopicPartition] = frozenset()


class Member:
    """
    One consumer of a group, for ``safeconsumer.group``: its holds, and what it obeys.

    Its consumer tells it each change of the assignment, asks what is quiet, and asks
    before it gives records to the program.

    Args:
        client_id: the consumer's name for people; None if it has none.
        group_id: the consumer group; None if there is none.
        hooks: functions that take every event.
        log: whether events are logged, too.
        elsewhere: returns the partitions of which threads of the program have records.
        given: returns the partitions of what its consumer gave last, if that did not
            tell it with :meth:`gave`; on any thread.

    Attributes:
        ledger: has the holds.
        client_id: as above.
        group_id: likewise.
        is_closed: whether it has ended.

    Thread rules: any thread, but for :meth:`own`, :meth:`leave`, :meth:`identify`,
    :meth:`begin_call`, :meth:`may_give` and :meth:`gave`, which are the polling
    thread's.
    """

    def __init__(  # noqa: PLR0913 - as a consumer has settings
        self,
        *,
        client_id: str | None,
        group_id: str | None,
        hooks: Iterable[Hook],
        log: bool,
        elsewhere: Callable[[], Iterable[OtherPartition]],
        given: Callable[[], Iterable[TopicPartition]] = tuple,
    ) -> None:
        if callable(hooks) or not isinstance(hooks, Iterable):
            message = (
                f"hooks takes a list of functions, hooks=[function], not {hooks!r}"
            )
            raise HookTypeError(message)
        if log:
            prepare()
        hooks = (*([log_event] if log else ()), *hooks)
        self.client_id, self.group_id = client_id, group_id
        self.is_closed = False
        self.ledger = PauseLedger(hooks, client_id=client_id, group_id=group_id)
        self._elsewhere, self._given = elsewhere, given
        self._identity = ("", -1)
        self._in_hand = _NONE
        self._polled_at: float | None = None
        self._after_joins: list[Callable[[], object]] = []
        self._control: GroupControl | None = None

    # ------------------------------------------------------------ group control asks

    def membership(self) -> tuple[str, int]:
        """Return Kafka's member id and the generation, as of the last :meth:`identify`."""
        return self._identity

    def busy(self) -> Collection[TopicPartition]:
        """Return the partitions of the records that the last call gave to the program."""
        # In this order: its consumer says what it gave before it ends may_give's claim.
        return self._in_hand.union(self._given())

    def busy_elsewhere(self) -> Iterable[TopicPartition]:
        """Return the partitions that the program's threads work on; it may raise anything."""
        return [(one.topic, one.partition) for one in self._elsewhere()]

    def recreated(self) -> Collection[str]:
        """Return nothing: only kafka-python's members find out about recreated topics."""
        return ()

    def call_after_joins(self, call: Callable[[], object]) -> None:
        """Have a function called after each change of the membership."""
        self._after_joins.append(call)

    def note_broker_time(self, at: float, sent: float, received: float) -> None:
        """Do nothing: only kafka-python's members keep journals."""

    def carry_out(self, _resets: object) -> bool:
        """Return False: only kafka-python's members move to the offsets of a reset."""
        return False

    # ------------------------------------------------------------ metrics ask

    def polled_at(self) -> float | None:
        """Return when its consumer last asked for records, since the epoch, or nearly so."""
        at = self._polled_at
        now, wall = self.ledger.now()
        return None if at is None else wall - (now - at)

    @property
    def is_caught_up(self) -> bool | None:
        """Whether the holds topic is read to its end; None: it obeys none."""
        return None if self._control is None else self._control.is_caught_up

    # ------------------------------------------------------------ its consumer tells

    def control_of(self, control: Control, clients: ControlClients) -> GroupControl:
        """
        Return what :meth:`obey` starts.

        Raises:
            ControlSettingError: ``control`` is no ``Control``, has settings that are
                for kafka-python, or there is no group.
        """
        if not isinstance(control, Control):
            message = f"control takes a Control(), not {control!r}"
            raise ControlSettingError(message)
        if control.client_configs:
            message = (
                "client_configs= are kafka-python's settings: this member reaches the "
                "control topics with its own client's settings; leave them out"
            )
            raise ControlSettingError(message)
        return GroupControl(control, self, clients)

    def obey(self, control: Control, clients: ControlClients) -> None:
        """
        Obey the holds of the group from now on, and report; nothing is assigned yet.

        Raises:
            ControlSettingError: as :meth:`control_of`.
            ControlTopicError: the settings of the holds topic would let Kafka delete
                holds; no thread is left running.
        """
        attached = self.control_of(control, clients)
        attached.start()
        self._control = attached

    @property
    def obeys(self) -> bool:
        """Whether it obeys holds of the group, and reports."""
        return self._control is not None

    def own(
        self,
        gained: Iterable[TopicPartition],
        cause: Cause,
        *,
        all_: bool = False,
        departed: Collection[TopicPartition] = (),
    ) -> None:
        """
        Note ownerships that begin; those under control are quiet until holds are read.

        The event of a completed join has the identity of the last :meth:`identify`.

        Args:
            gained: their partitions.
            cause: why.
            all_: whether nothing else is owned now.
            departed: the partitions of ownerships that have ended.
        """
        before = self.ledger.table()
        kept = (
            {}
            if all_
            else {tp: one for tp, one in before.owned.items() if tp not in departed}
        )
        self.ledger.assign({**kept, **{tp: object() for tp in gained}}, cause)
        if cause is Cause.JOINED:
            member_id, generation = self._identity
            self.ledger.emit(
                RebalanceCompleted,
                member_id=member_id,
                generation=generation,
                **rebalanced(before, self.ledger.table()),
            )
        self.ledger.deliver()

    def identify(self, member_id: str, generation: int) -> None:
        """Note Kafka's member id and the generation."""
        if self._identity != (member_id, generation):
            self._identity = member_id, generation
            for call in self._after_joins:
                call()

    # ------------------------------------------------------------ its consumer asks

    def quiet(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions of which nothing may be given now."""
        return self.ledger.quiet()

    def begin_call(self) -> None:
        """Note that the program asks for records, or waits on: it needs no earlier ones."""
        self._polled_at, _ = self.ledger.now()
        done, self._in_hand = self._in_hand, _NONE
        if done and not done.isdisjoint(self.quiet()) and self._control is not None:
            self._control.report_soon()
        self.ledger.deliver()

    def may_give(
        self, partitions: Collection[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Return those of some partitions of which records may be given now."""
        # They are in hand before the check: a report between the two says busy, and one
        # before them does not say quiet.
        self._in_hand = frozenset(partitions)
        return self._in_hand - self.quiet()

    def gave(self, partitions: Iterable[TopicPartition]) -> None:
        """Note of which partitions the program was given records."""
        self._in_hand = frozenset(partitions)

    # ------------------------------------------------------------ the program's calls

    def place(
        self,
        targets: Iterable[Target],
        *,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
        lifetime: Lifetime = Lifetime.UNTIL_RESUMED,
    ) -> None:
        """
        Hold the targets, all or none.

        Raises:
            TargetTypeError, ScopeSyntaxError, HoldSettingError: as ``SafeConsumer.pause``.
        """
        found = [_scope_of(one) for one in targets]
        owner, reason = checked_placer(owner), checked_reason(reason)
        seconds = checked_duration(for_)
        if found:
            self.ledger.place(
                found, owner=owner, reason=reason, for_=seconds, lifetime=lifetime
            )

    def lift(self, targets: Iterable[Target], owner: str) -> tuple[Hold, ...]:
        """
        Lift an owner's holds of the targets; return those that still cover them.

        Raises:
            TargetTypeError, ScopeSyntaxError, HoldSettingError: as
                ``SafeConsumer.resume``.
        """
        checked_owner(owner)
        keys = [(_scope_of(one), owner) for one in targets]
        return self.ledger.remove(keys, by_application=owner == APP)

    def holds(self) -> tuple[Hold, ...]:
        """Return every hold, those of what is not assigned here, too."""
        return tuple(
            sorted(
                self.ledger.view().holds, key=lambda one: (str(one.scope), one.owner)
            )
        )

    def explain(self, target: Target) -> tuple[str, ...]:
        """
        Return why a partition is quiet, one line per hold; none if it flows.

        Raises:
            HoldSettingError: the target is not one partition.
            TargetTypeError, ScopeSyntaxError: as ``SafeConsumer.explain``.
        """
        scope = _scope_of(target)
        if not isinstance(scope, Partition):
            message = f"explain() takes a partition, like 'orders:3', not {target!r}"
            raise HoldSettingError(message)
        return explain_lines(self.ledger.view(), (scope.topic, scope.partition))

    # ------------------------------------------------------------ the end

    def end_control(self) -> None:
        """
        Send a last report, and end the threads and clients of group control.

        A program that closes its consumer has done with the records that it had.
        """
        self.is_closed = True
        self._in_hand = _NONE
        if self._control is not None:
            self._control.close()

    def give_up_control(self) -> None:
        """End group control of a member that could not start; it may :meth:`obey` again."""
        control, self._control = self._control, None
        self._after_joins.clear()
        if control is not None:
            control.close()

    def close(self) -> None:
        """End the assignment, and all holds but those of operators."""
        self._in_hand = _NONE
        self.ledger.close()
        self.ledger.deliver()


def _scope_of(target: Any) -> Scope:  # noqa: ANN401 - whatever the program gives
    if hasattr(target, "topic") and hasattr(target, "partition"):
        return scopes.partition(target.topic, target.partition)
    return scopes.of(target)
