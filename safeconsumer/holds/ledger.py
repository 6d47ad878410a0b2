"""
Placing and lifting holds: one lock for writers, a snapshot for readers.

Readers take no lock: they look into an immutable view that writers replace. Lock
order: upstream's subscription lock, then this one; nothing is called under it, and
whatever patterns will be looked at there are asked before it is taken.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager

from rpds import HashTrieMap

from safeconsumer import events
from safeconsumer.events.dispatch import Dispatcher, Hook
from safeconsumer.holds import ownership as rebalance
from safeconsumer.holds import signals as _signals
from safeconsumer.holds import state as ledger
from safeconsumer.holds.changes import Place, Remove, open_questions, remaining_after
from safeconsumer.holds.expiry import Deadlines
from safeconsumer.holds.hold import APP, Hold, HoldKey, Lifetime
from safeconsumer.holds.patterns import Patterns, Question, in_force
from safeconsumer.holds.scope import Partition, Pattern, Scope, TopicPartition
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
Is told of gained partitions, already behind a gate, with their ownership epochs.
"""

_CONTROL_GATE = "waits until the control topics are read"


class PauseLedger:
    """
    Keeps the holds of one consumer and what they mean for its assignment.

    Thread rules: every method may be called from any thread, :meth:`begin_call` and
    :meth:`end_call` from the polling one; :meth:`place` and :meth:`remove` from a
    signal handler too, where they only leave a note that the next look-up applies.
    """

    def __init__(
        self,
        hooks: Iterable[Hook] = (),
        *,
        client_id: str | None = None,
        group_id: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.dispatcher = Dispatcher(hooks)
        self.wakers: list[Callable[[], None]] = []
        self._ids = {"client_id": client_id, "group_id": group_id}
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._view = PauseView()
        self._inbox: deque[Place | Remove] = deque()
        self._outbox: deque[events.Event] = deque()
        self._deadlines = Deadlines()
        self._patterns = Patterns(clock, self._emit)
        self._holder: int | None = None
        self._ownership = rebalance.Ownership()
        # left quiet, and a hold still covers it
        self._departed_quiet: frozenset[TopicPartition] = frozenset()
        self._in_call = False
        self._began_quiet = False
        self._call_gates: dict[TopicPartition, str] = {}
        self._control_gates: dict[TopicPartition, str] = {}
        self._watcher: Watcher | None = None
        # whether the application's pause of a partition goes where the partition goes
        self.is_carried: Callable[[TopicPartition], bool] | None = None
        # told of each change of the assignment, as a watcher is
        self.on_reassigned: Callable[[rebalance.Reassignment], object] | None = None

    # ------------------------------------------------------------ reading

    def quiet(self) -> PartitionSet:
        """
        Return the assigned partitions that are quiet at this moment.

        Applies what signal handlers left and what has expired. The set never
        changes; ask again at the moment of use.
        """
        if self._inbox or self._clock() >= self._deadlines.next:
            self._settle()
        return self._view.quiet

    def view(self) -> PauseView:
        """
        Return holds and quiet partitions of this moment, together.

        In a signal handler it is computed on the side, without a lock.
        """
        if not self._inbox and self._clock() < self._deadlines.next:
            return self._view
        if self._must_not_lock():
            return self._preview()
        self._settle()
        return self._view

    def view_about(self, topic: str) -> PauseView:
        """
        Return :meth:`view`, all of whose patterns have been asked about the topic.
        """
        view = self.view()
        self._patterns.ask_safely((one, topic) for one in in_force(view.state))
        return view

    def asked(self, scopes: Iterable[Scope]) -> tuple[Scope, ...]:
        """
        Return the scopes with their patterns asked about what is assigned.

        Raises:
            Exception: whatever an expression raises.
        """
        return self._patterns.asked(scopes, self._view.assigned)

    def seconds_to_next_expiry(self) -> float:
        """
        Return the seconds until a hold expires; infinite if none will.
        """
        return self._deadlines.next - self._clock()

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

        Args:
            scopes: what to hold.
            owner: whose holds they are.
            reason: for people.
            for_: seconds until they expire, or None.
            lifetime: when they end by themselves.
            known_topics: gives names, to tell the caller which a pattern covers; asked
                only if there is a pattern.

        Raises:
            Exception: whatever an expression raises; nothing was placed then.
        """
        scopes = self.asked(scopes)
        topics = None
        if any(isinstance(scope, Pattern) for scope in scopes):
            names = {*known_topics(), *self._view.assigned}
            topics = self._patterns.topics_of(scopes, names)
        now, at = self._clock(), self._wall()
        self._submit(
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
                has_patterns=topics is not None,
            )
        )

    def remove(self, keys: Iterable[HoldKey]) -> tuple[Hold, ...]:
        """
        Lift the named holds, all at once; those that are not there are no error.

        Returns:
            The holds that still cover the same scopes, as far as is known.
        """
        keys = tuple(keys)
        has_patterns = any(isinstance(scope, Pattern) for scope, _ in keys)
        if has_patterns:
            keys = self._patterns.shared_keys(keys)
        change = Remove(keys, has_patterns)
        self._submit(change)
        view = self.view()
        if len(view.state.patterns):
            self._patterns.ask_safely(open_questions(view, [change]))
        return remaining_after(view.state, change)

    def follow(self, place: Iterable[Hold], remove: Iterable[HoldKey]) -> None:
        """
        Do what somebody else decided: place some holds, and then lift others.

        Events wait for :meth:`deliver`.

        Args:
            place: whole holds, with their deadlines.
            remove: keys of holds to lift; those that are not there are no error.
        """
        holds = tuple(place)
        placed = Place(
            holds, None, any(isinstance(one.scope, Pattern) for one in holds)
        )
        new = {hold.key for hold in holds}
        keys = tuple(key for key in remove if key not in new)
        lifted = Remove(keys, any(isinstance(scope, Pattern) for scope, _ in keys))
        with self._locked((placed, lifted)):
            # In this order: readers take no lock, and see what is between the two.
            if placed.holds:
                self._apply_place(placed)
            if lifted.keys:
                self._apply_remove(lifted)

    def now(self) -> tuple[float, float]:
        """
        Return the moment on the monotonic clock and on the wall's.
        """
        return self._clock(), self._wall()

    # ------------------------------------------------------------ the assignment

    def watch(self, watcher: Watcher) -> None:
        """
        Close a gate on whatever is gained from now on, until :meth:`open_gates`.

        Args:
            watcher: called on the thread that assigns, under upstream's locks but not
                under ours: it must be quick, block on nothing and raise nothing.
        """
        self._watcher = watcher

    def open_gates(self, epochs: Mapping[TopicPartition, int]) -> None:
        """
        Open the gates of those partitions that are still owned as they were then.
        """
        with self._locked():
            owned = self._ownership.epochs
            for tp, epoch in epochs.items():
                if owned.get(tp) == epoch:
                    self._control_gates.pop(tp, None)
            self._view, shift = with_gates(self._view, self._gates())
            self._tell_gates(shift, "the control topics are read")
        self.deliver()

    def control_gates(self) -> frozenset[TopicPartition]:
        """
        Return the partitions that wait for the control topics.
        """
        return frozenset(self._control_gates)

    def hook_failures(self) -> Mapping[str, int]:
        """
        Return how often each hook raised, by its ``repr``.
        """
        return dict(self.dispatcher.failures)

    def ownership(self) -> rebalance.Ownership:
        """
        Return the owned partitions with their epochs.
        """
        return self._ownership

    def assign(self, assignment: Iterable[TopicPartition]) -> rebalance.Reassignment:
        """
        Take over a new assignment; what is held is quiet from this instant.

        May be called under upstream's subscription lock: events wait for
        :meth:`deliver`.
        """
        assigned = tuple(assignment)
        away = self._departed_quiet
        topics = {tp[0] for tp in (*assigned, *away)}
        with self._locked(topics=topics):
            ownership, change = rebalance.reassign(self._ownership, assigned)
            self._ownership = ownership
            if not change.gained and not change.departed:
                return change
            self._depart(change, assigned)
            gates = self._gates_after(change)
            self._view, shift = with_assignment(self._view, assigned, gates)
            self._tell_assignment(change)
            self._departed_quiet -= change.gained.union(
                tp for tp in away if not self._view.state.covers(tp)
            )
            self._tell_gates(shift, "holds ended with the assignment")
        if self.on_reassigned is not None:
            self.on_reassigned(change)
        if self._watcher is not None and change.gained:
            self._watcher({tp: ownership.epochs[tp] for tp in change.gained})
        return change

    def begin_call(self) -> bool:
        """
        Mark the start of a ``poll``.

        If everything assigned is quiet now, what is gained before :meth:`end_call`
        is gated until then: whoever paused all of it before the call has had no
        chance yet to pause the rest (KAFKA-13463). With nothing assigned, what held
        when there last was something still counts: the loss of a membership must
        not look like a resume.

        Returns:
            Whether what is gained will be gated.
        """
        now = self.view()
        if now.assigned:
            self._began_quiet = now.is_quiet_throughout()
        self._in_call = True
        return self._began_quiet

    def end_call(self) -> None:
        """
        Mark the end of a ``poll`` and open the gates that its start asked for.
        """
        self._in_call = False
        if self._call_gates:
            with self._locked():
                self._call_gates.clear()
                self._view, shift = with_gates(self._view, self._gates())
                self._tell_gates(shift, "the poll that gained them has returned")

    def choose_anew(self) -> None:
        """
        Note that the application chose what it consumes; outside of a ``poll``.

        With nothing assigned, what held when there last was something no longer
        counts: that was another choice.
        """
        if not self._view.assigned and not self._in_call:
            self._began_quiet = False

    # ------------------------------------------------------------ events

    def emit(self, kind: type[events.Event], **fields: object) -> None:
        """
        Queue an event for the next :meth:`deliver`; safe under any lock.
        """
        self._emit(kind, **fields)

    def deliver(self) -> bool:
        """
        Hand all queued events to the hooks. Never call it under a lock.

        Returns:
            Whether there were any, and hooks have taken their time.
        """
        delivered = False
        while self._outbox:
            try:
                event = self._outbox.popleft()
            except IndexError:  # another thread was quicker
                break
            delivered = True
            self.dispatcher.dispatch(event)
        return delivered

    # ------------------------------------------------------------ inside

    def _submit(self, change: Place | Remove) -> None:
        if self._must_not_lock():
            self._inbox.append(change)
            return
        with self._locked((change,)):
            self._apply(change)
        self.deliver()

    def _must_not_lock(self) -> bool:
        # The second test covers handlers that cannot be recognised, for example
        # those of extension modules: then this thread may hold the lock itself.
        return self._holder == threading.get_ident() or _signals.in_signal_handler()

    def _settle(self) -> None:
        with self._locked():
            pass  # entering applies what waits

    @contextmanager
    def _locked(
        self, changes: Sequence[Place | Remove] = (), topics: Collection[str] = ()
    ) -> Iterator[None]:
        # The lock is given back as often as there is something to ask: meanwhile
        # another thread may place a pattern or change the assignment.
        quiet = self._view.quiet
        while True:
            with self._lock:
                self._holder = threading.get_ident()
                try:
                    questions = self._open_questions(changes, topics)
                    if not questions:
                        self._expire()
                        self._drain_inbox(changes, topics)
                        yield
                        self._drain_inbox()
                        break
                finally:
                    self._holder = None
            self._patterns.ask_safely(questions)
        if self._view.quiet is not quiet:
            for wake in self.wakers:
                wake()

    def _open_questions(
        self, changes: Sequence[Place | Remove] = (), topics: Collection[str] = ()
    ) -> Collection[Question]:
        has_patterns = any(change.has_patterns for change in changes)
        if not (has_patterns or self._inbox or len(self._view.state.patterns)):
            return ()
        return open_questions(self._view, (*self._inbox, *changes), topics)

    def _drain_inbox(
        self, changes: Sequence[Place | Remove] = (), topics: Collection[str] = ()
    ) -> None:
        # A signal may come at any moment. What it notes now, and what cannot be applied
        # without asking, before or with what else is to be done, waits for the next
        # look-up.
        while self._inbox and not self._open_questions(changes, topics):
            self._apply(self._inbox.popleft())

    def _apply(self, change: Place | Remove) -> None:
        if isinstance(change, Place):
            self._apply_place(change)
        else:
            self._before_removal()
            self._apply_remove(change)

    def _apply_place(self, change: Place) -> None:
        state, placed = ledger.place(self._view.state, change.holds)
        if not placed:
            return
        self._view, shift = with_state(
            self._view, state, (hold.scope for hold in placed)
        )
        self._deadlines.add(placed, state)
        self._emit(
            events.HoldsPlaced, holds=placed, quiet=shift.quiet, topics=change.topics
        )
        if change.topics == ():
            self._emit(events.PatternCoversNothing, holds=placed)

    def _before_removal(self) -> None:
        # With nothing assigned, what held last counts for the next poll, unless
        # somebody resumes.
        if not self._view.assigned:
            self._began_quiet = False

    def _apply_remove(self, change: Remove) -> None:
        self._open_call_gates(change.keys)
        state, removed = ledger.remove(self._view.state, change.keys)
        if not removed:
            self._tell_remaining(change)
            return
        remaining = remaining_after(state, change)
        self._view, shift = with_state(self._view, state, change.scopes())
        self._emit(
            events.HoldsRemoved,
            holds=removed,
            flowing=shift.flowing,
            remaining=remaining,
        )

    def _tell_remaining(self, change: Remove) -> None:
        remaining = remaining_after(self._view.state, change)
        if remaining:
            targets = tuple(map(str, change.scopes()))
            self._emit(events.HoldsRemain, targets=targets, remaining=remaining)

    def _expire(self) -> None:
        now = self._clock()
        if now < self._deadlines.next:
            return
        due = self._deadlines.take_due(now)
        state, expired = ledger.expire(self._view.state, due, now)
        if expired:
            self._view, shift = with_state(
                self._view, state, (hold.scope for hold in expired)
            )
            self._emit(events.HoldsExpired, holds=expired, flowing=shift.flowing)
            self._before_removal()
            self._open_call_gates(hold.key for hold in expired)

    def _open_call_gates(self, keys: Iterable[HoldKey]) -> None:
        if not self._call_gates:
            return
        for scope, owner in keys:
            # The gate stands in for the owners that hold the rest; one that lifts its
            # own holds speaks for itself only.
            if not self._is_held_but_by(owner):
                for tp in self._view.affected_by(scope):
                    self._call_gates.pop(tp, None)
        self._view, shift = with_gates(self._view, self._gates())
        self._tell_gates(shift, "resumed")

    def _is_held_but_by(self, owner: str) -> bool:
        return any(
            hold.owner != owner
            and any(True for _ in self._view.affected_by(hold.scope))
            for hold in self._view.state
        )

    def _depart(
        self, change: rebalance.Reassignment, assigned: tuple[TopicPartition, ...]
    ) -> None:
        self._departed_quiet |= {tp for tp in change.departed if tp in self._view.quiet}
        state, ended = ledger.end_assignment(
            self._view.state, change.departed, assigned
        )
        state, carried = ledger.remove(state, self._carried(change))
        ended += carried
        if ended:
            self._view, _ = with_state(
                self._view, state, (hold.scope for hold in ended)
            )
            self._emit(
                events.HoldsEnded,
                holds=ended,
                departed=events.sorted_partitions(change.departed),
            )

    def _carried(self, change: rebalance.Reassignment) -> list[HoldKey]:
        if self.is_carried is None:
            return []
        return [
            hold.key
            for tp in change.departed
            if self.is_carried(tp)
            for hold in self._view.state.of(Partition(tp[0], tp[1]))
            if hold.owner == APP
            and hold.lifetime is Lifetime.UNTIL_RESUMED
            and hold.expires_at is None
        ]

    def _gates_after(
        self, change: rebalance.Reassignment
    ) -> HashTrieMap[TopicPartition, str]:
        for tp in change.departed:
            self._call_gates.pop(tp, None)
            self._control_gates.pop(tp, None)
        if self._in_call and self._began_quiet:
            why = "gained during a poll() that began all paused"
            self._call_gates.update(dict.fromkeys(change.gained, why))
        if self._watcher is not None:
            self._control_gates.update(dict.fromkeys(change.gained, _CONTROL_GATE))
        return self._gates()

    def _gates(self) -> HashTrieMap[TopicPartition, str]:
        return HashTrieMap.convert({**self._call_gates, **self._control_gates})

    def _tell_assignment(self, change: rebalance.Reassignment) -> None:
        quiet = [tp for tp in change.gained if tp in self._view.quiet]
        self._emit(
            events.AssignmentChanged,
            gained=events.sorted_partitions(change.gained),
            departed=events.sorted_partitions(change.departed),
            quiet=events.sorted_partitions(quiet),
        )
        back = {
            tp: self._view.state.covering(tp)
            for tp in quiet
            if tp in self._departed_quiet
        }
        holds = {hold.key: hold for holds in back.values() for hold in holds}
        if holds:
            self._emit(
                events.HoldsBit,
                partitions=events.sorted_partitions(tp for tp in back if back[tp]),
                holds=tuple(holds.values()),
            )

    def _tell_gates(self, shift: Shift, reason: str) -> None:
        if shift.quiet or shift.flowing:
            self._emit(
                events.GatesChanged,
                quiet=shift.quiet,
                flowing=shift.flowing,
                reason=reason,
            )

    def _preview(self) -> PauseView:
        seen = self._view
        for change in tuple(self._inbox):
            if isinstance(change, Place):
                state, _ = ledger.place(seen.state, change.holds)
            else:
                state, _ = ledger.remove(seen.state, change.keys)
            seen, _ = with_state(seen, state, change.scopes())
        return seen

    def _emit(self, kind: type[events.Event], **fields: object) -> None:
        # mypy cannot check fields of a class it knows as a type only; each call is
        # covered by a test of the event it makes.
        self._outbox.append(kind(at=self._wall(), **self._ids, **fields))  # type: ignore[arg-type]  # the reason stands above
