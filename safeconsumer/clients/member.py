"""Keeps the holds of members that use other client libraries, and changes them."""

import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

from safeconsumer.errors.base import (
    ControlSettingError,
    HookTypeError,
    MemberClosedError,
    TargetTypeError,
)
from safeconsumer.events.consumer import HoldCoversNothing, RebalanceCompleted
from safeconsumer.events.dispatch import Hook
from safeconsumer.events.log import log_event
from safeconsumer.group.control_clients import ControlClients
from safeconsumer.group.member import GroupControl
from safeconsumer.group.settings import Control
from safeconsumer.holds import ranges
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.explain import explain_lines
from safeconsumer.holds.hold import (
    APP,
    Hold,
    HoldKey,
    Lifetime,
    checked_duration,
    checked_owner,
    checked_placer,
    checked_reason,
)
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.scope import Partition, Scope, Topic, TopicPartition
from safeconsumer.holds.table import rebalanced


class OtherPartition(Protocol):
    """A partition, as other libraries represent it."""

    topic: str
    partition: int


Target = scopes.Target | OtherPartition
"""The types that ``hold`` accepts: those of ``SafeConsumer.pause``, and the library's own."""

_NONE: frozenset[TopicPartition] = frozenset()


class Member:
    """
    One consumer with its holds, as ``safeconsumer.group`` needs it.

    The consumer reports each change of its assignment to this object. In return, this
    object tells the consumer which partitions are quiet and which records the program
    may receive.

    Args:
        consumer: the consumer; only a weak reference to it is kept.
        client_id: the consumer's name for people; None if it has none.
        group_id: the consumer group; None if there is none.
        hooks: functions that receive every event.
        log: whether events are logged, too.

    Attributes:
        ledger: the ledger with the holds.
        view: returns the ledger's view.
        client_id: the argument.
        group_id: the argument.
        is_closed: whether the member was closed.
        is_over: whether the member's consumer is closed and all the member's own holds
            were removed.

    Thread rules: any thread, except for :meth:`begin_ownerships`, :meth:`identify`,
    :meth:`begin_call`, :meth:`may_give`, :meth:`may_give_one` and :meth:`note_given`,
    which only the polling thread may call.
    """

    def __init__(
        self,
        consumer: "HoldingConsumer",
        *,
        client_id: str | None,
        group_id: str | None,
        hooks: Iterable[Hook],
        log: bool,
    ) -> None:
        if callable(hooks) or not isinstance(hooks, Iterable):
            message = (
                f"hooks takes a list of functions, hooks=[function], not {hooks!r}"
            )
            raise HookTypeError(message)
        hooks = (*([log_event] if log else ()), *hooks)
        self.client_id, self.group_id = client_id, group_id
        self.is_closed = self.is_over = False
        self.ledger = PauseLedger(hooks, client_id=client_id, group_id=group_id)
        self.view = self.ledger.view
        self._consumer = weakref.ref(consumer)
        # The holds that are compared with the consumed topics once partitions are
        # assigned.
        self._unchecked: deque[HoldKey] = deque()
        self._identity = ("", -1)
        self._in_hand = _NONE
        self._polled_at: float | None = None
        self._after_joins: list[Callable[[], object]] = []
        self._control: GroupControl | None = None
        self._dropping: weakref.finalize[Any, Any] | None = None

    # ------------------------------------------------------------ for group control

    def membership(self) -> tuple[str, int]:
        """Return the member id and the generation from the last :meth:`identify`."""
        return self._identity

    def busy(self) -> Collection[TopicPartition]:
        """Return the partitions whose records the last call for records returned."""
        # The order matters: the consumer remembers its last records before it removes
        # the partitions that may_give() has marked as in hand.
        in_hand, consumer = self._in_hand, self._consumer()
        if consumer is None:
            return in_hand
        return in_hand.union(consumer._last_given())  # noqa: SLF001 - this module's

    def busy_elsewhere(self) -> Iterable[TopicPartition]:
        """Return the result of the program's ``busy`` function, which may raise anything."""
        consumer = self._consumer()
        if consumer is None or consumer.busy is None:
            return ()
        return [(one.topic, one.partition) for one in consumer.busy()]

    def recreated(self) -> Collection[str]:
        """Return nothing, because only kafka-python's members detect recreated topics."""
        return ()

    def call_after_joins(self, call: Callable[[], object]) -> None:
        """Register a function to be called after each change of the membership."""
        self._after_joins.append(call)

    def note_broker_time(self, at: float, sent: float, received: float) -> None:
        """Do nothing, because only kafka-python's members keep journals."""

    def carry_out(self, _resets: object) -> bool:
        """Return False, because only kafka-python's members carry out resets."""
        return False

    # ------------------------------------------------------------ for metrics

    def polled_at(self) -> float | None:
        """Return when the program last requested records, roughly, in epoch seconds."""
        at = self._polled_at
        now, wall = self.ledger.now()
        return None if at is None else wall - (now - at)

    @property
    def is_caught_up(self) -> bool | None:
        """Whether the holds topic has been read to its end; None without group control."""
        return None if self._control is None else self._control.is_caught_up

    # ------------------------------------------------------------ changes of the consumer

    def control_of(self, control: Control, clients: ControlClients) -> GroupControl:
        """
        Return the group control that :meth:`obey` would start.

        Raises:
            ControlSettingError: ``control`` is not a ``Control`` or has settings for
                kafka-python, or there is no group.
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
        Start to obey the group's holds and to report; call this before any assignment.

        Raises:
            ControlSettingError: as for :meth:`control_of`.
            ControlTopicError: the settings of the holds topic would let Kafka delete
                holds; no thread keeps running.
        """
        attached = self.control_of(control, clients)
        attached.start()
        self._control = attached
        if (consumer := self._consumer()) is not None:
            # The threads stop even if the consumer is garbage-collected without being
            # closed.
            self._dropping = weakref.finalize(consumer, attached.abandon)
            self._dropping.atexit = False

    @property
    def obeys(self) -> bool:
        """Whether the member obeys the group's holds and reports."""
        return self._control is not None

    def begin_ownerships(
        self,
        gained: Iterable[TopicPartition],
        cause: Cause,
        *,
        all_: bool = False,
        departed: Collection[TopicPartition] = (),
    ) -> None:
        """
        Register new ownerships; group control keeps them quiet until holds are read.

        The event for a completed join contains the identity from the last
        :meth:`identify`.

        Args:
            gained: the partitions of the new ownerships.
            cause: the reason for the change.
            all_: whether ``gained`` contains all partitions that are owned now.
            departed: the partitions whose earlier ownership has ended, even if ``gained``
                contains them again.
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
        self._report_idle()
        self.ledger.deliver()

    def check_names(self, keys: Iterable[HoldKey]) -> None:
        """Report the given holds that do not cover anything that this consumer consumes."""
        self._unchecked.extend(keys)
        self._report_idle()
        self.ledger.deliver()

    def _report_idle(self) -> None:
        consumer = self._consumer()
        if consumer is None or not self._unchecked or not self.ledger.owned():
            return
        holds, found = self.ledger.view().holds, list[Hold]()
        with suppress(IndexError):  # another thread has taken the remaining holds
            while self._unchecked:
                hold = holds.get(self._unchecked.popleft())
                if hold is not None and consumer._is_idle(hold.scope):  # noqa: SLF001 - this module's
                    found.append(hold)
        if found:
            self.ledger.emit(HoldCoversNothing, holds=tuple(found))

    def identify(self, member_id: str, generation: int) -> None:
        """Store Kafka's member id and the generation."""
        if self._identity != (member_id, generation):
            self._identity = member_id, generation
            for call in self._after_joins:
                call()

    # ------------------------------------------------------------ the consumer's calls

    def quiet(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions whose records must be kept back now."""
        return self.ledger.quiet()

    def begin_call(self) -> None:
        """Handle a request for records: the program is done with the earlier records."""
        self._polled_at, _ = self.ledger.now()
        done, self._in_hand = self._in_hand, _NONE
        control = self._control
        if done and control is not None and not done.isdisjoint(self.quiet()):
            control.report_soon()
        self.ledger.deliver()

    def may_give(
        self, partitions: Collection[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Return those of the partitions whose records may be given to the program now."""
        # The partitions count as in hand before the check. A report that is made
        # between these two steps then shows them as busy, not as quiet.
        self._in_hand = frozenset(partitions)
        return self._in_hand - self.quiet()

    def may_give_one(self, tp: TopicPartition) -> bool:
        """Return whether a record may be given now; if so, mark its partition as in hand."""
        self._in_hand = frozenset((tp,))  # before the check, as in may_give
        if tp not in self.quiet():
            return True
        self._in_hand = _NONE
        return False

    def note_given(self, partitions: Iterable[TopicPartition]) -> None:
        """Store the partitions whose records the program has received."""
        self._in_hand = frozenset(partitions)

    # ------------------------------------------------------------ the end

    def end_control(self) -> None:
        """
        Send a last report, and stop the threads and clients of group control.

        A program that closes its consumer counts as done with the records that it
        received.
        """
        self.is_closed = True
        self._in_hand = _NONE
        self._close_control()

    def give_up_control(self) -> None:
        """Stop group control after a failed start; the member may :meth:`obey` again."""
        self._close_control()
        self._control = None
        self._after_joins.clear()

    def _close_control(self) -> None:
        if self._dropping is not None:
            self._dropping.detach()  # its hooks may reference the consumer
        if self._control is not None:
            self._control.close()

    def close(self) -> None:
        """End the assignment, and remove all holds except those of operators."""
        self._in_hand, self.is_over = _NONE, True
        self.ledger.close()
        self.ledger.deliver()


class HoldingConsumer:
    """
    The methods about holds that are added to the consumers of other libraries.

    Thread rules: any thread may use this.
    """

    busy: Callable[[], Iterable[OtherPartition]] | None = None
    """
    Returns the partitions whose records threads or tasks of the program are processing.

    With ``control=`` a held partition is not reported quiet while it is among these,
    nor until the call for records that follows the last call which returned some of its
    records. Another thread calls this function for each report; if the function raises,
    all assigned partitions count as busy.
    """

    _member: Member

    @property
    def hook_failures(self) -> Mapping[str, int]:
        """How often each hook raised, by the hook's ``repr``; empty if no hook raised."""
        return dict(self._member.ledger.dispatcher.failures)

    def hold(
        self,
        *targets: Target,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
    ) -> None:
        """
        Hold the targets; after the call returns, none of their records is delivered.

        A hold lasts through rebalances, lost membership and changed subscriptions until
        its owner lifts it. The hold also covers partitions that are assigned later, and
        never changes a position. Without targets nothing is held; after an exception
        nothing has changed. If a target is a topic or partition that this client
        certainly does not consume, a warning (``hold_covers_nothing``) is emitted once
        partitions are assigned.

        Args:
            targets: partitions, scopes as text (``orders:3``, ``orders:0-2,5``,
                ``orders``, ``re:ord.*`` for whole names, ``@all``), compiled patterns,
                the scopes of other holds, or :data:`safeconsumer.ALL`.
            owner: the owner of the hold; only this owner's :meth:`lift` lifts it.
            reason: text for people, up to 1,024 bytes.
            for_: seconds, or a timedelta, until the hold expires: never early, and at
                the latest when the program next requests records.

        Raises:
            TargetTypeError: a target has an unsupported type.
            ScopeSyntaxError: a text or pattern is invalid.
            HoldSettingError: the owner, reason or duration is invalid.
            MemberClosedError: the consumer is closed.
        """
        found = self._place(targets, owner=owner, reason=reason, for_=for_)
        self._member.check_names((scope, owner) for scope in found)

    def lift(self, *targets: Target, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's holds on exactly these targets.

        Holds with a wider scope, or by another owner, stay. It is not an error if a
        target is not held. A waiting call returns records from partitions that are no
        longer held; records that had been fetched when the hold was placed come first.

        Returns:
            The holds that still cover the targets or parts of the targets.

        Raises:
            TargetTypeError, ScopeSyntaxError: as for :meth:`hold`.
            HoldSettingError: the owner is invalid, or is an operator.
        """
        checked_owner(owner)
        keys = [(scope, owner) for scope in _scopes_of(targets)]
        return self._member.ledger.remove(keys, by_application=owner == APP)

    def holds(self) -> tuple[Hold, ...]:
        """
        Return every hold, even holds that do not cover any assigned partition.

        If an owner has a plain pause and a strict hold on the same scope, both are
        listed, the pause first.
        """
        return self._member.ledger.every_hold()

    def explain(self, tp: Target) -> tuple[str, ...]:
        """
        Return why a partition is quiet, one line per hold; empty if it is not quiet.

        Raises:
            TargetTypeError: the target is not a single partition.
            ScopeSyntaxError: as :meth:`hold`.
        """
        scope = _scope_of(tp)
        if not isinstance(scope, Partition):
            message = f"explain() takes a partition, like 'orders:3', not {tp!r}"
            raise TargetTypeError(message)
        view = self._member.ledger.view()
        now, _ = self._member.ledger.now()
        return explain_lines(view, (scope.topic, scope.partition), now)

    def _place(
        self,
        targets: Iterable[Target],
        *,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
        lifetime: Lifetime = Lifetime.UNTIL_RESUMED,
    ) -> list[Scope]:
        found = _scopes_of(targets)
        owner, reason = checked_placer(owner), checked_reason(reason)
        seconds = checked_duration(for_)
        if self._member.is_over:
            message = "the consumer is closed, and holds nothing: make a new one"
            raise MemberClosedError(message)
        if found:
            self._member.ledger.place(
                found,
                owner=owner,
                reason=reason,
                for_=seconds,
                lifetime=lifetime,
                known_topics=lambda: self._subscribed() or (),
            )
        return found

    def _is_idle(self, scope: Scope) -> bool:
        """Return whether the client certainly does not consume a topic or partition."""
        if not isinstance(scope, Partition | Topic):
            return False
        topics = self._subscribed()
        if topics is None or any(map(scope.covers, self._member.ledger.owned())):
            return False
        if isinstance(scope, Topic) or scope.topic not in topics:
            return scope.topic not in topics
        numbers = self._known_numbers(scope.topic)
        return numbers is not None and scope.partition not in numbers

    def _subscribed(self) -> Collection[str] | None:
        """Return the subscribed topics; None if unknown."""
        return None

    def _known_numbers(self, topic: str) -> Collection[int] | None:  # noqa: ARG002 - as its siblings
        """Return the numbers of a topic's partitions; None if unknown."""
        return None

    def _pause(self, partitions: Iterable[OtherPartition]) -> None:
        """Pause as the library does, but let the pause last through rebalances."""
        self._place(partitions, lifetime=Lifetime.PLAIN)

    def _last_given(self) -> Iterable[TopicPartition]:
        """Return partitions of records that were given without :meth:`Member.note_given`."""
        return ()


def _scopes_of(targets: Iterable[Target]) -> list[Scope]:
    return [_scope_of(one) for one in ranges.spread_targets(targets)]


def _scope_of(target: Any) -> Scope:  # noqa: ANN401 - any value of the program
    if hasattr(target, "topic") and hasattr(target, "partition"):
        return scopes.partition(target.topic, target.partition)
    return scopes.of(target)
