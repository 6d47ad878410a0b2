"""
Placing and lifting holds: one lock for writers, a snapshot for readers.

Readers take no lock: they look into an immutable view that writers replace. Lock
order: upstream's subscription lock, then this one; nothing is called under it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from attrs import frozen

from safeconsumer import _signals
from safeconsumer._core import events, ledger
from safeconsumer._core.holds import Hold, HoldKey, Lifetime
from safeconsumer._core.scopes import Pattern, Scope
from safeconsumer._core.view import PartitionSet, PauseView, with_state
from safeconsumer._expiry import Deadlines
from safeconsumer.hooks import Dispatcher, Hook

# One match that takes longer than this stopped every thread for as long: ``re`` does
# not release the interpreter lock. Heartbeats are due every few seconds.
SLOW_MATCH_SECONDS = 0.1


@frozen
class _Place:
    holds: tuple[Hold, ...]
    topics: tuple[str, ...] | None = None

    def scopes(self) -> tuple[Scope, ...]:
        return tuple(hold.scope for hold in self.holds)


@frozen
class _Remove:
    keys: tuple[HoldKey, ...]

    def scopes(self) -> tuple[Scope, ...]:
        return tuple(scope for scope, _ in self.keys)


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
        self._inbox: deque[_Place | _Remove] = deque()
        self._outbox: deque[events.Event] = deque()
        self._deadlines = Deadlines()
        self._holder: int | None = None
        self._prepare()

    def _prepare(self) -> None:
        """
        Make what a subclass needs, before anything can happen.
        """

    def _before_removal(self) -> None:
        """
        Note, under the lock, that somebody lifts holds.
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
        """
        scopes = tuple(scopes)
        topics = self._topics_of(scopes, known_topics)
        now, at = self._clock(), self._wall()
        self._submit(
            _Place(
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
            )
        )

    def remove(self, keys: Iterable[HoldKey]) -> tuple[Hold, ...]:
        """
        Lift the named holds, all at once; those that are not there are no error.

        Returns:
            The holds that still cover the same scopes, as far as is known.
        """
        change = _Remove(tuple(keys))
        self._submit(change)
        return self._remaining(self.view().state, change)

    def follow(self, place: Iterable[Hold], remove: Iterable[HoldKey]) -> None:
        """
        Do what somebody else decided, all at once: lift some holds, place others.

        Events wait for :meth:`deliver`.

        Args:
            place: whole holds, with their deadlines.
            remove: keys of holds to lift; those that are not there are no error.
        """
        placed, lifted = _Place(tuple(place)), _Remove(tuple(remove))
        with self._locked():
            if lifted.keys:
                self._apply_remove(lifted)
            if placed.holds:
                self._apply_place(placed)

    def now(self) -> tuple[float, float]:
        """
        Return the moment on the monotonic clock and on the wall's.
        """
        return self._clock(), self._wall()

    def holds_of(self, owner: str) -> tuple[Hold, ...]:
        """
        Return all holds of one owner.
        """
        return tuple(hold for hold in self.view().state if hold.owner == owner)

    # ------------------------------------------------------------ events

    def emit(self, kind: type[events.Event], **fields: object) -> None:
        """
        Queue an event for the next :meth:`deliver`; safe under any lock.
        """
        self._emit(kind, **fields)

    def deliver(self) -> None:
        """
        Hand all queued events to the hooks. Never call it under a lock.
        """
        while self._outbox:
            try:
                event = self._outbox.popleft()
            except IndexError:  # another thread was quicker
                return
            self.dispatcher.dispatch(event)

    # ------------------------------------------------------------ inside

    def _submit(self, change: _Place | _Remove) -> None:
        if self._must_not_lock():
            self._inbox.append(change)
            return
        with self._locked():
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
    def _locked(self) -> Iterator[None]:
        quiet = self._view.quiet
        with self._lock:
            self._holder = threading.get_ident()
            try:
                self._expire()
                self._drain_inbox()
                yield
                self._drain_inbox()
            finally:
                self._holder = None
        if self._view.quiet is not quiet:
            for wake in self.wakers:
                wake()

    def _drain_inbox(self) -> None:
        while self._inbox:
            self._apply(self._inbox.popleft())

    def _apply(self, change: _Place | _Remove) -> None:
        if isinstance(change, _Place):
            self._apply_place(change)
        else:
            self._apply_remove(change)

    def _apply_place(self, change: _Place) -> None:
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

    def _apply_remove(self, change: _Remove) -> None:
        self._before_removal()
        state, removed = ledger.remove(self._view.state, change.keys)
        if not removed:
            self._tell_remaining(change)
            return
        self._view, shift = with_state(self._view, state, change.scopes())
        self._emit(
            events.HoldsRemoved,
            holds=removed,
            flowing=shift.flowing,
            remaining=self._remaining(state, change),
        )

    def _tell_remaining(self, change: _Remove) -> None:
        remaining = self._remaining(self._view.state, change)
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
            if isinstance(change, _Place):
                state, _ = ledger.place(seen.state, change.holds)
            else:
                state, _ = ledger.remove(seen.state, change.keys)
            seen, _ = with_state(seen, state, change.scopes())
        return seen

    @staticmethod
    def _remaining(state: ledger.LedgerState, change: _Remove) -> tuple[Hold, ...]:
        found = {
            hold.key: hold
            for scope in change.scopes()
            for hold in state.overlapping(scope)
        }
        return tuple(found.values())

    def _topics_of(
        self, scopes: tuple[Scope, ...], known: Callable[[], Iterable[str]]
    ) -> tuple[str, ...] | None:
        patterns = [scope for scope in scopes if isinstance(scope, Pattern)]
        if not patterns:
            return None
        names = {*known(), *self._view.assigned}
        self._warm(patterns, names)
        return tuple(
            sorted(name for name in names if any(one.matches(name) for one in patterns))
        )

    def _warm(self, patterns: Iterable[Pattern], topics: Iterable[str]) -> None:
        # Each expression is asked once per name, before the lock is taken, and timed.
        for pattern in patterns:
            for topic in topics:
                if pattern.knows(topic):
                    continue
                self._ask(pattern, topic)

    def _ask(self, pattern: Pattern, topic: str) -> None:
        start = self._clock()
        pattern.matches(topic)
        seconds = self._clock() - start
        if seconds >= SLOW_MATCH_SECONDS:
            self._emit(
                events.PatternIsSlow,
                pattern=str(pattern),
                topic=topic,
                seconds=seconds,
            )

    def _emit(self, kind: type[events.Event], **fields: object) -> None:
        # mypy cannot check fields of a class it knows as a type only; each call is
        # covered by a test of the event it makes.
        self._outbox.append(kind(at=self._wall(), **self._ids, **fields))  # type: ignore[arg-type]  # the reason stands above
