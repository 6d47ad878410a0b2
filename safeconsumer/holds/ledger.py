"""
Keeps the holds of one consumer and their effect on its assignment.

Every change waits in one inbox, and the thread that has the lock applies all that is
there, in that order. Readers take no lock: they look into an immutable view that is
replaced as a whole, once the inbox is empty. Lock order: upstream's subscription lock,
then this one. Nothing is called under it; patterns are asked before it is taken.
design/0013 has the proofs.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

from rpds import HashTrieMap

from safeconsumer import events
from safeconsumer.events.counts import Counts
from safeconsumer.events.dispatch import Dispatcher, Hook, Outbox
from safeconsumer.holds import ownership as rebalance
from safeconsumer.holds import state as ledger
from safeconsumer.holds.changes import (
    Assign,
    Change,
    Move,
    OpenCallGates,
    OpenGates,
    Place,
    Remove,
    RemoveOwner,
    TakeOver,
    open_questions,
    previewed,
    remaining_after,
)
from safeconsumer.holds.departed import DepartedQuiet, staying_behind
from safeconsumer.holds.expiry import Deadlines
from safeconsumer.holds.gates import CallGates
from safeconsumer.holds.hold import APP, Hold, HoldKey, Lifetime, is_routine
from safeconsumer.holds.patterns import Patterns, Question, in_force
from safeconsumer.holds.scope import Partition, Pattern, Scope, Topic, TopicPartition
from safeconsumer.holds.signals import in_signal_handler, meet_handlers
from safeconsumer.holds.view import (
    PartitionSet,
    PauseView,
    Shift,
    with_assignment,
    with_gates,
    with_state,
)

Watcher = Callable[[Mapping[TopicPartition, int]], object]
"""
It is called with the gained partitions, already behind a gate, and their epochs.
"""

# Seconds after which a polling consumer looks again which signal handlers there are.
_HANDLERS_EVERY = 1.0

_NEVER = math.inf

_CONTROL_GATE = "waits until the control topics are read"


class PauseLedger:
    """
    Keeps the holds of one consumer, applies them to its assignment, lets them expire.

    Thread rules: every method may be called from any thread, :meth:`begin_call` and
    :meth:`end_call` from the polling one. :meth:`place`, :meth:`remove`,
    :meth:`remove_owner` and :meth:`view` also from a signal handler: there they take no
    lock, the next look-up applies what they left, and the next :meth:`deliver` reports
    it.
    """

    def __init__(
        self,
        hooks: Iterable[Hook] = (),
        *,
        client_id: str | None = None,
        group_id: str | None = None,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self.counts = Counts()  # first, so that other hooks find an event counted
        self.dispatcher = Dispatcher((self.counts, *hooks))
        self.wakers: list[Callable[[], None]] = []
        # Called at each change of holds, before the call that made it goes on; under
        # none of our locks. They may look only at what is applied.
        self.lookers: list[Callable[[], None]] = []
        # Returns the partitions of which a worker's handlers have something in hand.
        self.busy: Callable[[], Collection[TopicPartition]] = frozenset
        # Returns Kafka's member id and the generation; empty and -1 outside a group.
        self.membership: Callable[[], tuple[str, int]] = _no_member
        # Called after each completed join; it must be quick, upstream's locks are held.
        self.on_joined: Callable[[], object] = _no_member
        # Whether the application's pause of a partition is handed over to its next
        # owner.
        self.is_carried: Callable[[TopicPartition], bool] | None = None
        # Called at each change of the assignment, as a watcher is.
        self.on_reassigned: Callable[[rebalance.Reassignment], object] | None = None
        self._ids = {"client_id": client_id, "group_id": group_id}
        self._clock = clock or time.monotonic
        self._wall = wall or time.time
        # Re-entrant for signal handlers that cannot be recognised (those of extension
        # modules): if one interrupts a change in this thread, that change applies its
        # own.
        self._lock = threading.RLock()
        self._is_changing = False
        self._inbox: deque[Change] = deque()
        self._outbox = Outbox(self.dispatcher)
        self._view = PauseView()
        self._ownership = rebalance.Ownership()
        self._deadlines = Deadlines()
        self._patterns = Patterns(self._clock, self.emit)
        self._departed_quiet = DepartedQuiet()
        self._call_gates = CallGates()
        self._control_gates: HashTrieMap[TopicPartition, str] = HashTrieMap()
        # In which ownership the application last spoke of a partition by itself.
        self._said: HashTrieMap[TopicPartition, int] = HashTrieMap()
        self._watcher: Watcher | None = None
        self._handlers_due = -math.inf
        self._polled_at: float | None = None

    # ------------------------------------------------------------ reading

    def quiet(self) -> PartitionSet:
        """
        Return the assigned partitions that are quiet at this moment.

        It first applies what signal handlers left and what has expired. The set never
        changes; call this again at the moment of use.
        """
        due = self._deadlines.next
        # Each step of an iteration asks; if nothing expires, no clock is needed.
        if self._inbox or (due != _NEVER and self._clock() >= due):
            return self.view().quiet
        return self._view.quiet

    def view(self) -> PauseView:
        """
        Return the holds and the quiet partitions of this moment, together.

        In a signal handler it is computed on the side, without a lock.
        """
        if not self._inbox and self._clock() < self._deadlines.next:
            return self._view
        if in_signal_handler() or not self._settle():
            return self._preview()
        return self._view

    def applied(self) -> PauseView:
        """Return the view that was applied last, without what waits; takes no lock."""
        return self._view

    def wake(self) -> None:
        """Wake the threads that wait for a change of the quiet partitions."""
        for wake in self.wakers:
            wake()

    def view_about(self, topic: str) -> PauseView:
        """Return :meth:`view`, after all of its patterns have been asked about the topic."""
        view = self.view()
        self._ask_and_tell((one, topic) for one in in_force(view.state))
        return view

    def asked(self, scopes: Iterable[Scope]) -> tuple[Scope, ...]:
        """
        Return the scopes, their patterns asked about the assigned topics.

        Raises:
            Exception: whatever an expression raises.
        """
        return self._patterns.asked(scopes, self._view.assigned)

    def seconds_to_next_expiry(self) -> float:
        """Return the seconds until the next hold expires; infinite if none expires."""
        return self._deadlines.next - self._clock()

    def now(self) -> tuple[float, float]:
        """Return the time now in seconds, on the monotonic clock and since the epoch."""
        return self._clock(), self._wall()

    # ------------------------------------------------------------ placing and lifting

    def place(  # noqa: PLR0913 - a hold has that many properties
        self,
        scopes: Iterable[Scope],
        *,
        owner: str,
        reason: str | None = None,
        for_: float | None = None,
        lifetime: Lifetime = Lifetime.UNTIL_RESUMED,
        known_topics: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """
        Place one hold per scope, all at once; unchanged ones are left alone.

        Once it has returned the holds are obeyed. The hooks have had the event, or
        another thread that is calling them gives it to them next.

        Args:
            scopes: what to hold.
            owner: whose holds they are.
            reason: text for people.
            for_: seconds until they expire; None for no limit.
            lifetime: what else ends them.
            known_topics: returns topic names, so that the caller learns which a pattern
                covers; called only if there is a pattern.

        Raises:
            Exception: what an expression raised; nothing was placed then.
        """
        scopes = self.asked(scopes)
        topics = None
        nothing: tuple[Scope, ...] = ()
        if any(isinstance(scope, Pattern) for scope in scopes):
            names = {*known_topics(), *self._view.assigned}
            found = {
                scope: self._patterns.topics_of([scope], names)
                for scope in scopes
                if isinstance(scope, Pattern)
            }
            nothing = tuple(scope for scope in found if not found[scope])
            named = {name for several in found.values() for name in several}
            named.update(
                scope.topic for scope in scopes if isinstance(scope, Partition | Topic)
            )
            topics = tuple(sorted(named))
        now, at = self.now()
        self._submit_call(
            Place(
                tuple(
                    Hold(
                        scope=scope,
                        owner=owner,
                        reason=reason,
                        placed_at=at,
                        expires_at=None if for_ is None else at + for_,
                        lifetime=lifetime,
                        deadline=None if for_ is None else now + for_,
                    )
                    for scope in scopes
                ),
                topics,
                nothing,
            )
        )

    def take_over(self, epochs: Mapping[TopicPartition, int], reason: str) -> None:
        """
        Place the application's pauses that previous owners of partitions left.

        Nothing is placed on a partition that the application itself has paused or
        resumed in this ownership: its last call counts.

        Args:
            epochs: the partitions, with the ownerships that the pauses were left to;
                nothing is placed where the ownership is another by now.
            reason: text for people.
        """
        if not epochs:
            return
        _, at = self.now()
        holds = tuple(
            Hold(
                scope=Partition(tp[0], tp[1]),
                owner=APP,
                reason=reason,
                placed_at=at,
                expires_at=None,
                lifetime=Lifetime.UNTIL_RESUMED,
                deadline=None,
            )
            for tp in epochs
        )
        self._submit_call(TakeOver(holds, epochs))

    def remove(self, keys: Iterable[HoldKey]) -> tuple[Hold, ...]:
        """
        Lift the named holds, all at once; those that are not there are no error.

        Returns:
            The holds that still cover the same scopes, as far as is known.
        """
        keys = self._patterns.shared_keys(keys)
        self._submit_call(Remove(keys))
        return () if _is_routine(keys) else self._remaining([one for one, _ in keys])

    def remove_owner(self, owner: str) -> tuple[Hold, ...]:
        """
        Lift every hold of an owner, all at once.

        Returns:
            The holds of others that still cover the same scopes, as far as is known.
        """
        change = RemoveOwner(owner)
        scopes = change.on(self.view().state).scopes()
        self._submit_call(change)
        return self._remaining(scopes)

    def follow(self, place: Iterable[Hold], remove: Iterable[HoldKey]) -> None:
        """
        Apply what the control topics say: place some holds, and then lift others.

        Holds are placed first, since readers see the state between the two. Events wait
        for :meth:`deliver`.

        Args:
            place: whole holds, with their deadlines.
            remove: keys of holds to lift; those that are not there are no error.
        """
        holds = tuple(place)
        new = {hold.key for hold in holds}
        keys = tuple(key for key in remove if key not in new)
        changes: list[Change] = []
        if holds:
            changes.append(Place(holds))
        if keys:
            changes.append(Remove(keys))
        self._submit(*changes)

    def move(self, holds: Iterable[Hold]) -> None:
        """
        Give holds new deadlines, when their expiry is known better than before.

        Args:
            holds: the holds with their new deadlines; those that do not exist, or were
                placed again meanwhile, are left alone.
        """
        self._submit(Move(tuple(holds)))

    # ------------------------------------------------------------ the assignment

    def ownership(self) -> rebalance.Ownership:
        """Return the owned partitions with their epochs."""
        return self._ownership

    def assign(self, assignment: Iterable[TopicPartition]) -> rebalance.Reassignment:
        """
        Take over a new assignment; held partitions are quiet from this instant.

        May be called under upstream's subscription lock: events wait for
        :meth:`deliver`.

        Returns:
            What it changed. In a signal handler that interrupted another change it is
            empty, and the assignment is applied after that change.
        """
        return self._assign(Assign(tuple(assignment)))

    def close(self) -> None:
        """End the assignment; it cannot be used afterwards. As :meth:`assign` of nothing."""
        self._assign(Assign((), is_final=True))

    def begin_call(self) -> bool:
        """
        Mark the start of a ``poll``.

        If everything assigned is held now, partitions gained before :meth:`end_call`
        are gated until then: a caller who held everything before the call has had no
        chance yet to hold them (KAFKA-13463). If nothing is assigned, the holds that
        were in force when something last was assigned still count: the loss of a
        membership must not look like a resume.

        Returns:
            Whether gained partitions will be gated.
        """
        self.view()  # applies what waits
        self._polled_at = now = self._clock()
        if now >= self._handlers_due:
            self._handlers_due = now + _HANDLERS_EVERY
            meet_handlers()
        with self._lock:
            self._call_gates = self._call_gates.begin(self._view)
            return self._call_gates.is_gating

    def goes_on(self) -> None:
        """Note that a ``poll`` still waits: its member has just served the group again."""
        self._polled_at = self._clock()

    def polled_at(self) -> float | None:
        """
        Return when a ``poll`` last began or went on waiting; None: none has begun.

        It is in seconds since the epoch. Kafka counts ``max.poll.interval.ms`` from
        there, so a ``poll`` that waits counts as alive.
        """
        at = self._polled_at
        now = self._clock()  # first: what is returned is never before the poll
        return None if at is None else self._wall() - (now - at)

    def end_call(self) -> None:
        """Mark the end of a ``poll`` and open the gates that its start asked for."""
        with self._lock:
            self._call_gates = self._call_gates.end()
            has_gates = bool(self._call_gates.closed)
        if has_gates:
            self._submit(OpenCallGates())

    def choose_anew(self) -> None:
        """
        Note that the application changed what it consumes.

        Call it outside of a ``poll``.

        With nothing assigned, the earlier holds no longer keep gained partitions gated:
        they belonged to the previous choice.
        """
        with self._lock:
            self._call_gates = self._call_gates.choose_anew(self._view)

    def watch(self, watcher: Watcher) -> None:
        """
        Close a gate on every partition gained from now on, until :meth:`open_gates`.

        Args:
            watcher: called on the thread that assigns, under upstream's locks but not
                under ours: it must be quick, block on nothing and raise nothing.
        """
        self._watcher = watcher

    def open_gates(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Open the gates of the partitions whose ownership has still the same epoch."""
        self._submit(OpenGates(epochs))
        self.deliver()

    def control_gates(self) -> frozenset[TopicPartition]:
        """Return the partitions that wait for the control topics."""
        return frozenset(self._control_gates)

    # ------------------------------------------------------------ events

    def emit(self, kind: type[events.Event], **fields: object) -> None:
        """Queue an event for the next :meth:`deliver`; safe under any lock."""
        self._outbox.waiting.append(self._event(kind, **fields))

    def pass_on(self, event: events.Event) -> None:
        """
        Hand an event that another ledger made to the hooks.

        It is a hook of that ledger.
        """
        self._outbox.waiting.append(event)
        self.deliver()

    def deliver(self) -> bool:
        """
        Hand all queued events to the hooks. Never call it under a lock.

        Returns:
            Whether there were any and hooks ran here, which takes time. If another
            thread is handing out events, it also hands out those queued now.
        """
        return self._outbox.deliver()

    def is_telling_here(self) -> bool:
        """Tell whether this thread is handing an event to the hooks."""
        return self._outbox.is_at_work_here()

    def hook_failures(self) -> dict[str, int]:
        """Return how often each hook has raised so far, by its ``repr``."""
        return dict(self.dispatcher.failures)

    # ------------------------------------------------------------ the one way in

    def _submit_call(self, change: Change) -> None:
        # A change that the application's call asks for. In a signal handler it is only
        # queued: neither our lock nor a hook's may be taken there.
        if in_signal_handler():
            self._inbox.append(change)
        elif self._submit(change):
            self.deliver()

    def _submit(self, *changes: Change) -> bool:
        # The change is applied when this returns, by whichever thread. If it returns
        # False, this thread applies it once it goes on with the change that a signal
        # handler interrupted. The view before is noted first: another thread may apply
        # the change at once, and this one must not go on before all readers have seen
        # it.
        before = self._view
        self._inbox.extend(changes)
        return self._settle(before)

    def _settle(self, before: PauseView | None = None) -> bool:
        """
        Apply all waiting changes, and wake waiters if the quiet partitions changed.

        Returns:
            False if this thread is in the middle of it already: this is a signal
            handler, and its changes will be applied when the handler has returned.
        """
        before = self._view if before is None else before
        while (questions := self._apply_all()) or self._inbox:
            if questions is None:
                return False
            self._patterns.ask_safely(questions)
        if questions is None:
            return False
        if self._view is not before:
            for look in tuple(self.lookers):
                look()
        if self._view.quiet is not before.quiet:
            self.wake()
        return True

    def _apply_all(self) -> list[Question] | None:
        # Returns what patterns must be asked first, without the lock: meanwhile another
        # thread may change anything, so everything is checked again.
        left: list[Assign] = []
        with self._lock:
            if self._is_changing:
                return None
            self._is_changing = True
            try:
                self._expire()
                while self._inbox:
                    change = self._inbox[0]
                    try:
                        questions = self._open_questions(change)
                    except Exception:
                        self._inbox.popleft()  # otherwise it would fail every look-up
                        raise
                    if questions:
                        return questions
                    self._apply_first(change)
                    if isinstance(change, Assign) and change.is_left:
                        left.append(change)
            finally:
                self._is_changing = False
        for one in left:
            self._announce(one)
        return []

    def _apply_first(self, change: Change) -> None:
        # The change leaves the inbox only when it is applied: a reader on the side may
        # apply it twice, which changes nothing, but never misses it. After an interrupt
        # it is still there for the next look-up.
        try:
            self._apply(change)
        except Exception:
            self._inbox.popleft()
            raise
        self._inbox.popleft()

    def _preview(self) -> PauseView:
        while True:
            before, was_gated = view, gates = self._view, self._call_gates
            try:
                waiting = tuple(self._inbox)
            except RuntimeError:  # another thread changed it meanwhile
                continue
            if self._view is before and self._call_gates is was_gated:
                break
        for change in waiting:
            view, gates = previewed(view, gates, change)
        return with_gates(view, self._closed(gates))[0]

    def _open_questions(self, change: Change) -> list[Question]:
        view = self._view
        match change:
            case Place() | TakeOver() | Remove():
                return open_questions(view, change.scopes())
            case Assign():
                topics = {tp[0] for tp in change.assigned}
                named = self._call_gates.patterns()
                found = [(one, topic) for one in named for topic in topics]
                topics |= self._departed_quiet.topics()
                return open_questions(view, (), topics) + [
                    (one, topic) for one, topic in found if not one.knows(topic)
                ]
        return []

    def _remaining(self, scopes: Collection[Scope]) -> tuple[Hold, ...]:
        view = self.view()
        if len(view.state.patterns):
            self._ask_and_tell(open_questions(view, scopes))
        return remaining_after(view.state, scopes)

    def _ask_and_tell(self, questions: Iterable[Question]) -> None:
        # For an application's call; never called under a lock.
        self._patterns.ask_safely(questions)
        if not in_signal_handler():
            self.deliver()

    # ------------------------------------------------------------ under the lock

    def _apply(self, change: Change) -> None:
        if self.is_carried is not None:
            self._note_said(change)
        match change:
            case Place():
                self._place(change)
            case TakeOver():
                self._take_over(change)
            case Move():
                self._move(change)
            case Remove():
                self._remove(change, self._call_gates.lifted(change.keys, self._view))
            case RemoveOwner():
                gates = self._call_gates.given_up(change.owner)
                self._remove(change.on(self._view.state), gates)
            case Assign():
                self._reassign(change)
            case OpenGates():
                self._open_control_gates(change)
            case OpenCallGates():
                gates = self._call_gates.all_open()
                why = "the poll that gained them has returned"
                self._commit(*self._gated(self._view, gates, why), gates)

    def _commit(
        self,
        view: PauseView,
        told: Iterable[events.Event],
        gates: CallGates | None = None,
        ownership: rebalance.Ownership | None = None,
    ) -> None:
        # An interrupt comes either before or after all of this: Python checks for
        # signals when a Python function begins, after calls and at backward jumps.
        owned = self._ownership if ownership is None else ownership
        gates = self._call_gates if gates is None else gates
        put = self._outbox.waiting.extend
        self._ownership, self._view, self._call_gates = owned, view, gates
        put(told)

    def _place(self, change: Place) -> None:
        state, placed = ledger.place(self._view.state, change.holds)
        if not placed:
            return
        view, shift = with_state(self._view, state, (hold.scope for hold in placed))
        told = [
            self._event(
                events.HoldsPlaced,
                holds=placed,
                quiet=shift.quiet,
                topics=change.topics,
            )
        ]
        idle = tuple(hold for hold in placed if hold.scope in change.nothing)
        if idle:
            told.append(self._event(events.PatternCoversNothing, holds=idle))
        self._deadlines.add(placed, state)
        self._commit(view, told)

    def _take_over(self, change: TakeOver) -> None:
        owned, said = self._ownership.epochs, self._said
        left = {
            Partition(tp[0], tp[1])
            for tp, epoch in change.epochs.items()
            if owned.get(tp) == epoch and said.get(tp) != epoch
        }
        self._place(Place(tuple(hold for hold in change.holds if hold.scope in left)))

    def _note_said(self, change: Change) -> None:
        owned, said = self._ownership.epochs, self._said
        keys: Iterable[HoldKey] = ()
        match change:
            case Place():
                keys = (hold.key for hold in change.holds)
            case Remove():
                keys = change.keys
            case RemoveOwner() if change.owner == APP:
                said = HashTrieMap(owned)
        for scope, owner in keys:
            if owner == APP and isinstance(scope, Partition):
                tp = (scope.topic, scope.partition)
                if tp in owned:
                    said = said.insert(tp, owned[tp])
        self._said = said

    def _move(self, change: Move) -> None:
        state, moved = ledger.move(self._view.state, change.holds)
        if moved:
            scopes = (hold.scope for hold in moved)
            view, _ = with_state(self._view, state, scopes)
            self._deadlines.add(moved, state)
            self._commit(view, ())

    def _remove(self, change: Remove, gates: CallGates) -> None:
        view, told = self._gated(self._view, gates, "resumed")
        state, removed = ledger.remove(view.state, change.keys)
        is_routine = _is_routine(change.keys)
        remaining = () if is_routine else remaining_after(state, change.scopes())
        if removed:
            view, shift = with_state(view, state, change.scopes())
            told.append(
                self._event(
                    events.HoldsRemoved,
                    holds=removed,
                    flowing=shift.flowing,
                    remaining=remaining,
                )
            )
        elif remaining:
            told.append(self._event(events.HoldsRemoved, holds=(), remaining=remaining))
        self._commit(view, told, gates)

    def _expire(self) -> None:
        now = self._clock()
        if now < self._deadlines.next:
            return
        due = self._deadlines.take_due(now)
        state, expired = ledger.expire(self._view.state, due, now)
        if not expired:
            return
        view, shift = with_state(self._view, state, (one.scope for one in expired))
        told = [
            self._event(events.HoldsExpired, holds=expired, flowing=shift.flowing),
        ]
        gates = self._call_gates.lifted((hold.key for hold in expired), view)
        view, opened = self._gated(view, gates, "a hold has expired")
        self._commit(view, told + opened, gates)

    def _open_control_gates(self, change: OpenGates) -> None:
        owned = self._ownership.epochs
        for tp, epoch in change.epochs.items():
            if owned.get(tp) == epoch:
                self._control_gates = self._control_gates.discard(tp)
        why, gates = "the control topics are read", self._call_gates
        self._commit(*self._gated(self._view, gates, why))

    def _gated(
        self, view: PauseView, gates: CallGates, reason: str
    ) -> tuple[PauseView, list[events.Event]]:
        closed = self._closed(gates)
        if len(closed) == len(view.gates):  # none opens and closes at once
            return view, []
        view, shift = with_gates(view, closed)
        return view, self._gates_told(shift, reason)

    def _closed(self, gates: CallGates) -> HashTrieMap[TopicPartition, str]:
        return gates.closed.update(self._control_gates)

    def _gates_told(self, shift: Shift, reason: str) -> list[events.Event]:
        if not shift.quiet and not shift.flowing:
            return []
        return [
            self._event(
                events.GatesChanged,
                quiet=shift.quiet,
                flowing=shift.flowing,
                reason=reason,
            )
        ]

    # ------------------------------------------------------------ a new assignment

    def _assign(self, change: Assign) -> rebalance.Reassignment:
        if not self._submit(change) and change.outcome is None:
            change.is_left = True
            return rebalance.Reassignment()
        return self._announce(change)

    def _announce(self, change: Assign) -> rebalance.Reassignment:
        assert change.outcome is not None  # noqa: S101 - it has been applied
        what, ownership = change.outcome
        if what.gained or what.departed:
            if self.on_reassigned is not None:
                self.on_reassigned(what)
            if self._watcher is not None and what.gained:
                self._watcher({tp: ownership.epochs[tp] for tp in what.gained})
        return what

    def _reassign(self, change: Assign) -> None:
        if change.outcome is not None and change.outcome[1] is self._ownership:
            return  # applied, but interrupted before it was taken out
        before = self._view
        ownership, what = rebalance.reassign(self._ownership, change.assigned)
        if not what.gained and not what.departed:
            change.outcome = what, ownership
            return
        self._departed_quiet.leave(what.departed, before)
        state, ended = ledger.end_assignment(
            before.state, what.departed, change.assigned
        )
        state, carried = ledger.remove(state, self._carried(state, what))
        held, _ = with_state(before, state, (hold.scope for hold in (*ended, *carried)))
        gates = self._gates_after(what)
        view, shift = with_assignment(held, change.assigned, self._closed(gates))
        told = [
            *self._departure_told(change, what, (*ended, *carried), state),
            *self._arrival_told(what, view),
            *self._gates_told(shift, "holds ended with the assignment"),
        ]
        self._departed_quiet.settle(what.gained, state)
        change.outcome = what, ownership
        self._commit(view, told, gates, ownership)

    def _carried(
        self, state: ledger.LedgerState, what: rebalance.Reassignment
    ) -> list[HoldKey]:
        if self.is_carried is None:
            return []
        return [
            hold.key
            for tp in what.departed
            if self.is_carried(tp)
            for hold in state.of(Partition(tp[0], tp[1]))
            if hold.owner == APP
            and hold.lifetime is Lifetime.UNTIL_RESUMED
            and hold.expires_at is None
        ]

    def _gates_after(self, what: rebalance.Reassignment) -> CallGates:
        control = self._control_gates
        for tp in what.departed:
            control = control.discard(tp)
            self._said = self._said.discard(tp)
        if self._watcher is not None:
            control = control.update(dict.fromkeys(what.gained, _CONTROL_GATE))
        self._control_gates = control
        return self._call_gates.reassign(what.gained, what.departed)

    def _departure_told(
        self,
        change: Assign,
        what: rebalance.Reassignment,
        ended: tuple[Hold, ...],
        state: ledger.LedgerState,
    ) -> list[events.Event]:
        told: list[events.Event] = []
        departed = events.sorted_partitions(what.departed)
        if ended:
            told.append(
                self._event(
                    events.HoldsEnded,
                    holds=ended,
                    departed=departed,
                )
            )
        behind = {} if change.is_final else staying_behind(departed, state)
        if behind:
            told.append(
                self._event(
                    events.HoldsStayBehind,
                    holds=tuple(behind.values()),
                    partitions=tuple(behind),
                )
            )
        return told

    def _arrival_told(
        self, what: rebalance.Reassignment, view: PauseView
    ) -> list[events.Event]:
        quiet = events.sorted_partitions(tp for tp in what.gained if tp in view.quiet)
        back = self._departed_quiet.returned(quiet, view.state)
        if not back:
            return []
        holds = {hold.key: hold for found in back.values() for hold in found}
        return [
            self._event(
                events.HoldsBit, partitions=tuple(back), holds=tuple(holds.values())
            )
        ]

    # ------------------------------------------------------------ inside

    def _event(self, kind: type[events.Event], **fields: object) -> events.Event:
        # mypy cannot check the fields of a class that is only known as a type; each
        # call is covered by a test of the event that it makes.
        return kind(at=self._wall(), **self._ids, **fields)  # type: ignore[arg-type]  # the reason stands above


def _is_routine(keys: Collection[HoldKey]) -> bool:
    # A worker lifts its own holds many times a second and does not use the answer.
    return bool(keys) and all(is_routine(owner) for _, owner in keys)


def _no_member() -> tuple[str, int]:
    return "", -1
