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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from safeconsumer import events
from safeconsumer.events.dispatch import Dispatcher, Hook
from safeconsumer.holds import signals as _signals
from safeconsumer.holds import state as ledger
from safeconsumer.holds.changes import Place, Remove, open_questions, remaining_after
from safeconsumer.holds.expiry import Deadlines
from safeconsumer.holds.hold import Hold, HoldKey, Lifetime
from safeconsumer.holds.patterns import Patterns, Question, in_force
from safeconsumer.holds.scope import Pattern, Scope
from safeconsumer.holds.view import PartitionSet, PauseView, with_state


class HoldLedger:
    """
    Keeps holds, applies them to an assignment, lets them expire, and tells of it.

    Thread rules: every method may be called from any thread; :meth:`place` and
    :meth:`remove` from a signal handler too, where they only leave a note that the
    next look-up applies.
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
        self._prepare()

    def _prepare(self) -> None:
        """
        Make what a subclass needs, before anything can happen.
        """

    def _before_removal(self) -> None:
        """
        Note, under the lock, that somebody here lifts holds; not that others did.
        """

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

    def _apply_remove(self, change: Remove) -> None:
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
