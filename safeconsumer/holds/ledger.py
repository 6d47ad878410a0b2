"""
Keeps the holds of one consumer and their effect on its assignment.

One lock guards them. A signal handler that interrupted a change on its own thread leaves
its change in a queue; the owner of the lock applies the queue before anybody looks. What
is quiet is one frozenset, made again at the next look after a change. Lock order:
upstream's subscription lock, then this one; nothing is called under it but patterns'
expressions. design/0013 has the rules.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

from attrs import define, evolve, field

from safeconsumer import events
from safeconsumer.events.counts import Counts
from safeconsumer.events.dispatch import Dispatcher, Hook, Outbox
from safeconsumer.holds.bites import Bite, Bites
from safeconsumer.holds.gates import Gates
from safeconsumer.holds.hold import (
    APP,
    WHOLE,
    Hold,
    HoldKey,
    Lifetime,
    is_routine,
)
from safeconsumer.holds.ownership import Cause, Ownership, Reassignment, reassign
from safeconsumer.holds.plain import (
    Edition,
    Named,
    end_of,
    ended_by_assignment,
    ended_by_expiry,
    ended_by_resume,
)
from safeconsumer.holds.scope import Partition, Pattern, Scope, Topic, TopicPartition
from safeconsumer.holds.view import Assigned, Holds, View, affected_by

Watcher = Callable[[Mapping[TopicPartition, int]], object]
"""
It is called with the gained partitions, already behind a gate, and their epochs.
"""

_NEVER = math.inf

# A change that raises so often is given up: every look would raise. Signal handlers that
# interrupt it so often in a row are none.
_MOST_TRIES = 10


@define(eq=False)
class _Change:
    # One change: what applies it, and, of a new assignment, what came of that.
    apply: Callable[[_Change], None]
    tries: int = 0
    is_applied: bool = False
    is_announced: bool = False
    what: Reassignment = field(factory=Reassignment)
    epochs: Mapping[TopicPartition, int] = field(factory=dict)


class PauseLedger:
    """
    Keeps the holds of one consumer, applies them to its assignment, lets them expire.

    Thread rules: every method may be called from any thread and from a signal handler,
    :meth:`begin_call` and :meth:`end_call` from the polling thread. A handler that
    interrupts a change on its own thread is answered with what was applied last; its
    own change is applied when that thread goes on.
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
        # Called when partitions become quiet or flow; lock-free.
        self.wakers: list[Callable[[], None]] = []
        # Called at each change, before the call that made it goes on; under none of our
        # locks.
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
        self.on_reassigned: Callable[[Reassignment], object] | None = None
        self._ids = {"client_id": client_id, "group_id": group_id}
        self._clock = clock or time.monotonic
        self._wall = wall or time.time
        # Re-entrant for signal handlers: whether they interrupted a change is told by
        # _changer, the thread that changes something.
        self._lock = threading.RLock()
        self._changer: int | None = None
        self._queue: deque[_Change] = deque()
        # Reassignments that their own call could not announce.
        self._left: dict[int, _Change] = {}
        # An exception came before all who look at holds had seen a change.
        self._is_behind = False
        self._version = 0  # of everything that is looked at
        self._moves = 0  # how often partitions became quiet or began to flow
        self._outbox = Outbox(self.dispatcher)
        self._holds = Holds()
        self._due = _NEVER
        self._ownership = Ownership()
        self._assigned: Assigned = {}
        self._gates = Gates()
        self._view = View()
        self._is_stale = False  # the view is older than the holds
        self._named = Named()
        self._bites = Bites()
        # What has left, while no completed join says whether it is given back.
        self._undecided: frozenset[TopicPartition] = frozenset()
        # In which ownership the application last spoke of a partition by itself.
        self._spoken: dict[TopicPartition, int] = {}
        self._watcher: Watcher | None = None
        self._polled_at: float | None = None

    # ------------------------------------------------------------ reading

    def quiet(self) -> frozenset[TopicPartition]:
        """
        Return the assigned partitions that are quiet at this moment.

        The set never changes; call this again at the moment of use.
        """
        due = self._due
        # Each step of an iteration asks; if nothing expires, no clock is needed.
        if self._is_stale or self._queue or (due != _NEVER and self._clock() >= due):
            return self.view().quiet
        return self._view.quiet

    def view(self) -> View:
        """Return the holds and the quiet partitions of this moment, together."""
        if self._is_stale or self._queue or self._clock() >= self._due:
            self._settle(shows=True)
        return self._view

    def peek(self) -> View:
        """
        Return what was applied last; it takes no lock, and lets nothing expire.

        For who only counts: while another thread changes something, holds and gates may
        be of before and after.
        """
        holds, closed, assigned = self._holds, self._gates.closed(), self._assigned
        quiet = holds.covered(assigned) if holds else set()
        if closed:
            for partitions in assigned.values():
                quiet.update(filter(closed.__contains__, partitions))
        return View(holds, assigned, closed, frozenset(quiet))

    def wake(self) -> None:
        """Wake the threads that wait for a change of the quiet partitions."""
        for wake in self.wakers:
            wake()

    def seconds_to_next_expiry(self) -> float:
        """Return the seconds until the next hold expires; infinite if none expires."""
        return self._due - self._clock()

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
        named: Iterable[tuple[Scope, Edition]] = (),
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
            lifetime: what else ends them; ``PLAIN`` is that of single partitions only,
                others are held until they are resumed then.
            known_topics: returns topic names, so that the caller learns which a pattern
                covers; called only if there is a pattern.
            named: partitions among them that were named as ``assignment()`` returned
                them, each with all that it returned then.

        Raises:
            Exception: what an expression raised; nothing was placed then.
        """
        scopes = tuple(scopes)
        patterns = [scope for scope in scopes if isinstance(scope, Pattern)]
        topics, idle = None, frozenset[Scope]()
        if patterns:
            names = sorted({*known_topics(), *self._assigned})
            matched = {
                one: [name for name in names if one.ask(name)] for one in patterns
            }
            idle = frozenset(one for one in patterns if not matched[one])
            found = {name for several in matched.values() for name in several}
            found.update(
                one.topic for one in scopes if isinstance(one, Partition | Topic)
            )
            topics = tuple(sorted(found))
        holds = self._made(scopes, owner, reason, for_, lifetime)
        named = tuple(named)
        self._change(
            lambda it: self._place(it, holds, topics=topics, idle=idle, named=named)
        )
        self.deliver()

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
        scopes = [Partition(tp[0], tp[1]) for tp in epochs]
        holds = self._made(scopes, APP, reason, None, Lifetime.UNTIL_RESUMED)
        if holds:
            self._change(lambda it: self._place(it, holds, left_to=epochs))
            self.deliver()

    def remove(
        self, keys: Iterable[HoldKey], *, by_application: bool = False
    ) -> tuple[Hold, ...]:
        """
        Lift the named holds, all at once; those that are not there are no error.

        Args:
            keys: the holds' scopes and owners.
            by_application: whether this is a ``resume`` of the application, which ends
                whole pauses too, and plain pauses of what is not assigned.

        Returns:
            The holds that still cover the same scopes, as far as is known.
        """
        keys = tuple(keys)
        by_application = by_application or any(owner == WHOLE for _, owner in keys)
        self._change(lambda it: self._remove(it, keys, by_application=by_application))
        self.deliver()
        scopes = [] if _is_routine(keys) else [one for one, _ in keys]
        return _overlapping(self._holds, scopes)

    def remove_owner(self, owner: str) -> tuple[Hold, ...]:
        """
        Lift every hold of an owner, all at once.

        Returns:
            The holds of others that still cover the same scopes, as far as is known.
        """
        scopes = [hold.scope for hold in self._holds if hold.owner == owner]
        is_app = owner == APP
        self._change(
            lambda it: self._remove(it, (), by_application=is_app, all_of=owner)
        )
        self.deliver()
        return _overlapping(self._holds, scopes)

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
        if holds:
            self._change(lambda it: self._place(it, holds))
        if keys:
            self._change(lambda it: self._remove(it, keys))

    def move(self, holds: Iterable[Hold]) -> None:
        """
        Give holds new deadlines, when their expiry is known better than before.

        Args:
            holds: the holds with their new deadlines; those that do not exist, or were
                placed again meanwhile, are left alone.
        """
        moved = tuple(holds)
        self._change(lambda it: self._move(it, moved))

    # ------------------------------------------------------------ the assignment

    def ownership(self) -> Ownership:
        """Return the owned partitions with their epochs."""
        return self._ownership

    def assign(
        self, assignment: Iterable[TopicPartition], cause: Cause = Cause.JOINED
    ) -> Reassignment:
        """
        Take over a new assignment; held partitions are quiet from this instant.

        May be called under upstream's subscription lock: events wait for
        :meth:`deliver`.

        Args:
            assignment: what is owned from now on.
            cause: decides which pauses end.

        Returns:
            What it changed. In a signal handler that interrupted another change it is
            empty, and the assignment is applied after that change.
        """
        assigned = tuple(assignment)
        change = _Change(lambda it: self._reassign(it, assigned, cause))
        key = id(change)
        try:
            self._enter(change)
            self._announce(change)
        finally:
            if not change.is_announced:  # who goes on, or who looks next, does it
                self._left[key], self._is_stale = change, True
        return change.what

    def close(self) -> None:
        """End the assignment; it cannot be used afterwards. As :meth:`assign` of nothing."""
        self.assign((), Cause.PASSING)

    def begin_call(self) -> bool:
        """
        Mark the start of a ``poll``.

        If everything assigned is held now, partitions gained before :meth:`end_call`
        are gated until then: a caller who held everything before the call has had no
        chance yet to hold them (KAFKA-13463).

        Returns:
            Whether gained partitions will be gated.
        """
        self._polled_at = self._clock()
        self._named = Named()
        self._gate(self._begun)
        return self._gates.is_gating

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
        why = "the poll that gained them has returned"
        self._gate(Gates.ended, why)

    def choose_anew(self) -> None:
        """
        Note that the application changed what it consumes, outside of a ``poll``.

        With nothing assigned, the earlier holds no longer keep gained partitions gated:
        they belonged to the previous choice.
        """
        self._gate(self._chosen_anew)

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
        why = "the control topics are read"
        self._gate(lambda gates: self._read(gates, epochs), why)
        self.deliver()

    def control_gates(self) -> frozenset[TopicPartition]:
        """Return the partitions that wait for the control topics."""
        return self._gates.control

    # ------------------------------------------------------------ events

    def emit(self, kind: type[events.Event], **fields: object) -> None:
        """Queue an event for the next :meth:`deliver`; safe under any lock."""
        self._outbox.waiting.append(self._event(kind, **fields))

    def pass_on(self, event: events.Event) -> None:
        """Hand an event that another ledger made to the hooks, as a hook of that ledger."""
        self._outbox.waiting.append(event)
        self.deliver()

    def deliver(self) -> bool:
        """
        Hand all queued events to the hooks. Never call it under a lock.

        Returns:
            Whether there were any and hooks ran here, which takes time. If another
            thread is handing out events, it also hands out those queued now.
        """
        if self._changer == threading.get_ident():
            return False  # in a signal handler that interrupted a change
        return self._outbox.deliver()

    def is_telling_here(self) -> bool:
        """Tell whether this thread is handing an event to the hooks."""
        return self._outbox.is_at_work_here()

    def hook_failures(self) -> dict[str, int]:
        """Return how often each hook has raised so far, by its ``repr``."""
        return dict(self.dispatcher.failures)

    # ------------------------------------------------------------ the one way in

    def _change(self, apply: Callable[[_Change], None]) -> None:
        self._enter(_Change(apply))

    def _enter(self, change: _Change) -> None:
        # The change is applied when this returns, by whichever thread, but in a signal
        # handler that interrupted another one on this thread. The versions are noted
        # first: another thread may apply it at once, and this one must not go on before
        # all who look at holds have seen it.
        before = self._version, self._moves
        self._queue.append(change)
        self._settle(before)

    def _settle(
        self, before: tuple[int, int] | None = None, *, shows: bool = False
    ) -> None:
        here = threading.get_ident()
        before = before or (self._version, self._moves)
        try:
            while True:
                with self._lock:
                    if self._changer == here:  # in a signal handler
                        if shows and self._is_stale:
                            self._show()
                        return
                    self._changer = here
                    try:
                        self._apply_all()
                        if shows and self._is_stale:
                            self._show()
                    finally:
                        self._changer = None
                if not self._queue:  # else a handler's, as the lock was given back
                    break
            self._show_others(before)
        except BaseException:  # a signal handler's, say: the next look goes on here
            self._is_behind = self._is_stale = True
            raise

    def _show_others(self, before: tuple[int, int]) -> None:
        if self._is_behind:
            self._is_behind, before = False, (-1, -1)
        version, moves = before
        for key, change in tuple(self._left.items()):
            change.tries += 1
            if change.tries < _MOST_TRIES:
                self._announce(change)
            if change.is_announced or change.tries >= _MOST_TRIES:
                self._left.pop(key, None)
        if self._version != version:
            for look in tuple(self.lookers):
                look()
        if self._moves != moves:
            self.wake()

    def _apply_all(self) -> None:
        while True:
            if self._clock() >= self._due:  # first: what is over counts for no change
                self._expire()
            if not self._queue:
                return
            change = self._queue[0]
            if not change.is_applied:
                self._apply(change)
            self._queue.popleft()

    def _apply(self, change: _Change) -> None:
        # An exception may be a signal handler's: the change stays, and the next look
        # applies it.
        change.tries += 1
        try:
            change.apply(change)
        except BaseException:
            if change.tries >= _MOST_TRIES:
                self._queue.popleft()
            raise

    def _announce(self, change: _Change) -> None:
        if not change.is_applied:
            return
        what = change.what
        if what.gained or what.departed:
            if self.on_reassigned is not None:
                self.on_reassigned(what)
            if self._watcher is not None and what.gained:
                self._watcher({tp: change.epochs[tp] for tp in what.gained})
        change.is_announced = True

    # ------------------------------------------------------------ under the lock

    def _commit(  # noqa: PLR0913 - whatever a change may change
        self,
        change: _Change,
        told: Iterable[events.Event] = (),
        *,
        holds: Holds | None = None,
        due: float | None = None,
        gates: Gates | None = None,
        ownership: Ownership | None = None,
        assigned: Assigned | None = None,
        bites: Bites | None = None,
        undecided: frozenset[TopicPartition] | None = None,
        is_moved: bool = False,
        is_seen: bool = True,
    ) -> None:
        # An interrupt comes either before or after all of this: Python checks for
        # signals when a Python function begins, after calls and at backward jumps.
        put = self._outbox.waiting.extend
        if holds is not None:
            self._holds = holds
        if due is not None:
            self._due = due
        if gates is not None:
            self._gates = gates
        if ownership is not None:
            self._ownership = ownership
        if assigned is not None:
            self._assigned = assigned
        if bites is not None:
            self._bites = bites
        if undecided is not None:
            self._undecided = undecided
        if is_seen:
            self._is_stale = True
        self._version += is_seen
        self._moves += is_moved
        change.is_applied = True
        put(told)

    def _show(self) -> None:
        self._view, self._is_stale = self.peek(), False

    def _is_quiet(self, tp: TopicPartition) -> bool:
        return (
            tp in self._gates.call
            or tp in self._gates.control
            or self._holds.covers(tp)
        )

    def _affected(self, scopes: Iterable[Scope]) -> dict[TopicPartition, None]:
        assigned = self._assigned
        return dict.fromkeys(tp for one in scopes for tp in affected_by(assigned, one))

    def _made(
        self,
        scopes: Iterable[Scope],
        owner: str,
        reason: str | None,
        for_: float | None,
        lifetime: Lifetime,
    ) -> tuple[Hold, ...]:
        now, at = self.now()
        until = None if for_ is None else at + for_
        deadline = None if for_ is None else now + for_
        strict = Lifetime.UNTIL_RESUMED if lifetime is Lifetime.PLAIN else lifetime
        return tuple(
            Hold(
                scope=scope,
                owner=owner,
                reason=reason,
                placed_at=at,
                expires_at=until,
                lifetime=lifetime if isinstance(scope, Partition) else strict,
                deadline=deadline,
            )
            for scope in scopes
        )

    # ------------------------------------------------------------ changes of holds

    def _place(  # noqa: PLR0913 - what a call of pause() has
        self,
        change: _Change,
        wanted: tuple[Hold, ...],
        *,
        topics: tuple[str, ...] | None = None,
        idle: Collection[Scope] = (),
        named: Collection[tuple[Scope, Edition]] = (),
        left_to: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        if left_to is not None:
            wanted = tuple(one for one in wanted if self._is_left(one, left_to))
        else:
            self._note_spoken(hold.key for hold in wanted)
        if named:
            plain = next(one for one in wanted if one.lifetime is Lifetime.PLAIN)
            made = self._named.whole(named, plain, self._clock())
            wanted = (
                *wanted,
                *(
                    whole
                    for whole, is_of_one_call in made
                    if is_of_one_call or self._holds.get(whole.key) is None
                ),
            )
        placed = tuple(hold for one in wanted if (hold := self._news(one)) is not None)
        if not placed:
            change.is_applied = True
            return
        for hold in placed:
            if isinstance(hold.scope, Pattern):
                self._ask(hold.scope, self._assigned)
        affected = self._affected(hold.scope for hold in placed)
        quieted = tuple(tp for tp in affected if not self._is_quiet(tp))
        holds = self._holds.including(placed)
        told = [
            self._event(events.HoldsPlaced, holds=placed, quiet=quieted, topics=topics)
        ]
        nothing = tuple(hold for hold in placed if hold.scope in idle)
        if nothing:
            told.append(self._event(events.PatternCoversNothing, holds=nothing))
        due = min(self._due, _soonest(placed))
        self._commit(change, told, holds=holds, due=due, is_moved=bool(quieted))

    def _news(self, hold: Hold) -> Hold | None:
        # The hold as it is to be placed; None if that would change nothing.
        known = self._holds.get(hold.key)
        if known is None:
            return hold
        if hold.lifetime is Lifetime.PLAIN and known.lifetime is not Lifetime.PLAIN:
            # A plain pause never weakens what was asked for by name, which may end
            # before it.
            is_longer = end_of(hold) > end_of(known)
            if known.lifetime is Lifetime.WHILE_ASSIGNED:  # a lost membership ends it
                return hold if is_longer else evolve(known, lifetime=hold.lifetime)
            return evolve(hold, lifetime=known.lifetime) if is_longer else None
        return None if hold.asks_the_same_as(known) else hold

    def _is_left(self, hold: Hold, left_to: Mapping[TopicPartition, int]) -> bool:
        # By the previous owner, to this ownership, of which the application said nothing.
        scope = hold.scope
        assert isinstance(scope, Partition)  # noqa: S101 - nothing else travels
        tp = scope.topic, scope.partition
        epoch = left_to[tp]
        if self._holds.get(hold.key) is not None:
            return False  # its own pause, which a lost membership has not ended
        return self._ownership.epochs.get(tp) == epoch and self._spoken.get(tp) != epoch

    def _remove(
        self,
        change: _Change,
        keys: tuple[HoldKey, ...],
        *,
        by_application: bool = False,
        all_of: str | None = None,
    ) -> None:
        if all_of is not None:
            keys = tuple(hold.key for hold in self._holds if hold.owner == all_of)
            if all_of == APP:
                self._note_spoken(
                    (Partition(tp[0], tp[1]), APP) for tp in self._ownership.epochs
                )
        self._note_spoken(keys)
        ending = dict.fromkeys(keys)
        if by_application:
            self._named.take_back(keys)
            owned = self._ownership.epochs
            ending.update(dict.fromkeys(ended_by_resume(self._holds, owned)))
        removed = tuple(
            hold for key in ending if (hold := self._holds.get(key)) is not None
        )
        # With nothing assigned a resume can name nothing of what was paused.
        is_app = by_application and not self._ownership.epochs
        lifted_by = {APP, WHOLE} if is_app else frozenset[str]()
        gates = self._gates.lifted(ending, self._assigned, all_of=lifted_by)
        has_opened = gates.call is not self._gates.call
        scopes = [scope for scope, _ in keys]
        is_silent = not keys or _is_routine(keys)
        holds = self._holds.without(ending) if removed else self._holds
        remaining = () if is_silent else _overlapping(holds, scopes)
        flowing = self._flowing((hold.scope for hold in removed), holds, gates)
        told = []
        if removed or remaining:
            told.append(
                self._event(
                    events.HoldsRemoved,
                    holds=removed,
                    flowing=flowing,
                    remaining=remaining,
                )
            )
        told += self._opened(gates, holds, "resumed", besides=flowing)
        self._commit(
            change,
            told,
            holds=holds,
            gates=gates,
            is_moved=bool(flowing) or has_opened,
            is_seen=bool(removed) or has_opened,
        )

    def _move(self, change: _Change, wanted: tuple[Hold, ...]) -> None:
        moved = [
            evolve(known, deadline=hold.deadline)
            for hold in wanted
            if (known := self._holds.get(hold.key)) is not None and known == hold
        ]
        due = min(self._due, _soonest(moved))
        self._commit(change, holds=self._holds.including(moved), due=due)

    def _expire(self) -> None:
        now = self._clock()
        expired = tuple(one for one in self._holds if end_of(one) <= now)
        keys = [hold.key for hold in expired]
        holds = self._holds.without(keys)
        here = self._ownership.epochs.keys() | self._undecided
        ended = ended_by_expiry(holds, here, expired)
        holds = holds.without(hold.key for hold in ended)
        gates = self._gates.lifted(keys, self._assigned)
        flowing = self._flowing((hold.scope for hold in expired), holds, gates)
        told = []
        if expired:
            told.append(
                self._event(events.HoldsExpired, holds=expired, flowing=flowing)
            )
        if ended:
            told.append(self._event(events.HoldsEnded, holds=ended, departed=()))
        told += self._opened(gates, holds, "a hold has expired", besides=flowing)
        self._commit(
            _Change(_nothing),
            told,
            holds=holds,
            due=_soonest(holds),
            gates=gates,
            is_moved=bool(flowing) or gates.call is not self._gates.call,
        )

    def _flowing(
        self, scopes: Iterable[Scope], holds: Holds, gates: Gates
    ) -> tuple[TopicPartition, ...]:
        # What was quiet by these scopes, and flows once the holds are as they will be.
        return tuple(
            tp
            for tp in self._affected(scopes)
            if not holds.covers(tp) and tp not in gates.call and tp not in gates.control
        )

    def _note_spoken(self, keys: Iterable[HoldKey]) -> None:
        if self.is_carried is None:
            return
        owned = self._ownership.epochs
        for scope, owner in keys:
            if owner == APP and isinstance(scope, Partition):
                tp = scope.topic, scope.partition
                if tp in owned:
                    self._spoken[tp] = owned[tp]

    # ------------------------------------------------------------ gates

    def _gate(self, change: Callable[[Gates], Gates], why: str = "") -> None:
        self._change(lambda it: self._set_gates(it, change(self._gates), why))

    def _set_gates(self, change: _Change, gates: Gates, why: str) -> None:
        known = self._gates
        is_seen = (gates.call, gates.control) != (known.call, known.control)
        told = self._opened(gates, self._holds, why)
        self._commit(change, told, gates=gates, is_moved=bool(told), is_seen=is_seen)

    def _begun(self, gates: Gates) -> Gates:
        if self._is_stale:
            self._show()
        return gates.begun(self._view)

    def _chosen_anew(self, gates: Gates) -> Gates:
        if self._ownership.epochs or gates.in_call:
            return gates
        return evolve(gates, began=None, standing=None)

    def _read(self, gates: Gates, epochs: Mapping[TopicPartition, int]) -> Gates:
        owned = self._ownership.epochs
        read = {tp for tp, epoch in epochs.items() if owned.get(tp) == epoch}
        return evolve(gates, control=gates.control - read)

    def _opened(
        self,
        gates: Gates,
        holds: Holds,
        reason: str,
        besides: Collection[TopicPartition] = (),
    ) -> list[events.Event]:
        # What flows because gates open; it is in no other event.
        if gates.call is self._gates.call and gates.control is self._gates.control:
            return []
        before, after = self._gates.closed(), gates.closed()
        flowing = tuple(
            tp
            for tp in before
            if tp not in after and tp not in besides and not holds.covers(tp)
        )
        if not flowing:
            return []
        return [
            self._event(events.GatesChanged, quiet=(), flowing=flowing, reason=reason)
        ]

    # ------------------------------------------------------------ a new assignment

    def _reassign(
        self, change: _Change, wanted: tuple[TopicPartition, ...], cause: Cause
    ) -> None:
        ownership, what = reassign(self._ownership, wanted)
        ended = ended_by_assignment(
            self._holds,
            cause,
            owned=ownership.epochs,
            departed=what.departed,
            undecided=self._undecided,
            travels=self._travels,
        )
        is_passing = cause is Cause.PASSING
        undecided = self._undecided.union(what.departed) if is_passing else frozenset()
        if not (what.gained or what.departed or ended or undecided != self._undecided):
            change.what, change.epochs = what, ownership.epochs
            change.is_applied = True
            return
        holds = self._holds.without(hold.key for hold in ended)
        assigned: dict[str, dict[TopicPartition, TopicPartition]] = {}
        for tp in wanted:
            assigned.setdefault(tp[0], {})[tp] = tp
        for pattern in holds.patterns():
            self._ask(pattern, assigned)
        is_watched = self._watcher is not None
        gates = self._gates.reassigned(
            what.gained, what.departed, is_watched=is_watched
        )
        left = filter(self._is_quiet, what.departed)
        bites, bite = self._bites.after(
            what, holds, assigned, left=left, is_passing=is_passing
        )
        told = [
            *self._departure_told(what, ended),
            *self._bite_told(bite),
            *self._freed_told(what, ended, holds, gates),
        ]
        for tp in what.departed:
            self._spoken.pop(tp, None)
        change.what, change.epochs = what, ownership.epochs
        self._commit(
            change,
            told,
            holds=holds,
            gates=gates,
            ownership=ownership,
            assigned=assigned,
            bites=bites,
            undecided=undecided,
            is_moved=True,
        )

    def _travels(self, hold: Hold, tp: TopicPartition) -> bool:
        return (
            self.is_carried is not None
            and hold.owner == APP
            and hold.lifetime is not Lifetime.WHILE_ASSIGNED
            and hold.expires_at is None
            and self.is_carried(tp)
        )

    def _ask(self, pattern: Pattern, topics: Iterable[str]) -> None:
        for topic in topics:
            error = pattern.failure(topic)
            if error is not None:
                pattern.assume_match(topic)
                self.emit(
                    events.PatternFailed,
                    pattern=str(pattern),
                    topic=topic,
                    error=repr(error),
                )

    def _departure_told(
        self, what: Reassignment, ended: tuple[Hold, ...]
    ) -> list[events.Event]:
        if not ended:
            return []
        departed = events.sorted_partitions(what.departed)
        return [self._event(events.HoldsEnded, holds=ended, departed=departed)]

    def _bite_told(self, bite: Bite) -> list[events.Event]:
        if not bite.partitions:
            return []
        return [
            self._event(
                events.HoldsBit,
                partitions=tuple(bite.partitions),
                holds=bite.holds(),
                is_left_alone=bite.is_left_alone,
            )
        ]

    def _freed_told(
        self, what: Reassignment, ended: tuple[Hold, ...], holds: Holds, gates: Gates
    ) -> list[events.Event]:
        # What stays, and flows because holds ended with what left.
        freed = tuple(
            tp
            for tp in self._flowing((one.scope for one in ended), holds, gates)
            if tp in what.kept and self._is_quiet(tp)
        )
        if not freed:
            return []
        why = "holds ended with the assignment"
        return [self._event(events.GatesChanged, quiet=(), flowing=freed, reason=why)]

    def _event(self, kind: type[events.Event], **fields: object) -> events.Event:
        # mypy cannot check the fields of a class that is only known as a type; each
        # call is covered by a test of the event that it makes.
        return kind(at=self._wall(), **self._ids, **fields)  # type: ignore[arg-type]  # the reason stands above


def _soonest(holds: Iterable[Hold]) -> float:
    return min(map(end_of, holds), default=_NEVER)


def _overlapping(holds: Holds, scopes: Iterable[Scope]) -> tuple[Hold, ...]:
    # Those that still cover what was to be lifted, as far as is known.
    found = {hold.key: hold for one in scopes for hold in holds.overlapping(one)}
    return tuple(found.values())


def _is_routine(keys: Collection[HoldKey]) -> bool:
    # A worker lifts its own holds many times a second and does not use the answer.
    return bool(keys) and all(is_routine(owner) for _, owner in keys)


def _no_member() -> tuple[str, int]:
    return "", -1


def _nothing(_: _Change) -> None:
    pass
