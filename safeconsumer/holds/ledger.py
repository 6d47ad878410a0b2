"""
Keeps the holds of one consumer and their effect on its assignment.

One lock guards them. A signal handler that interrupted a change on its own thread leaves
its change in a queue, and the interrupted thread applies it before anybody looks. The
quiet partitions are one frozenset, made again at the next look after a change. Lock
order: upstream's subscription lock, then this one; nothing is called under it but
patterns' expressions. design/pausing.md has the rules.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from safeconsumer import events
from safeconsumer.events.counts import Counts
from safeconsumer.events.dispatch import Dispatcher, Hook, Outbox
from safeconsumer.holds.hold import APP, WHOLE, Hold, HoldKey, Lifetime, made
from safeconsumer.holds.marks import QuietMarks
from safeconsumer.holds.ownership import Cause, Owned, Reassignment
from safeconsumer.holds.plain import NamedPartitions, Snapshot
from safeconsumer.holds.scope import (
    Partition,
    Pattern,
    Scope,
    TopicPartition,
    matched,
)
from safeconsumer.holds.table import NEVER, Step, Table
from safeconsumer.holds.view import View

Watcher = Callable[[Owned], object]
"""
It is called with the ownerships that begin, already behind a gate.
"""

# A change that raises so often is given up: every look would raise. Signal handlers that
# interrupt it so often in a row are none.
_MOST_TRIES = 10


class _QueuedChange:
    # One change: the function that makes a step of a table, and the step once it is
    # stored.

    __slots__ = ("args", "is_announced", "kwargs", "make", "step", "tries")

    def __init__(self, make: Callable[..., Step], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - of the function
        self.make, self.args, self.kwargs = make, args, kwargs
        self.tries, self.is_announced = 0, False
        self.step: Step | None = None


class PauseLedger:
    """
    Keeps the holds of one consumer, applies them to its assignment, lets them expire.

    Thread rules: every method may be called from any thread and from a signal handler,
    :meth:`begin_call` and :meth:`end_call` from the polling thread. A handler that
    interrupts a change on its own thread is answered with what was applied last; its
    own change is applied when that thread goes on.

    Attributes:
        wakers: called, under no lock, when partitions become quiet or begin to flow.
        observers: called, under no lock of ours, at each change, before its call goes on.
        on_reassigned: called at each change of the assignment, as a watcher is.
        carried: the partitions whose pauses the group knows, so that their next owners
            get them; None: no pause is handed over.
        outbox: events that wait for the hooks.
        queue: changes that wait to be applied.
        settled: the quiet partitions; None if the next look has to make the set again.
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
        self.outbox = Outbox(self.dispatcher)
        self._ids: dict[str, Any] = {"client_id": client_id, "group_id": group_id}
        self._clock, self._wall = clock or time.monotonic, wall or time.time
        self.wakers: list[Callable[[], None]] = []
        self.observers: list[Callable[[], None]] = []
        self.on_reassigned: Callable[[Reassignment], object] | None = None
        self.carried: frozenset[TopicPartition] | None = None
        self._watcher: Watcher | None = None
        # Re-entrant for signal handlers. _changer is the thread that changes something,
        # so that a handler knows whether it interrupted a change.
        self._lock = threading.RLock()
        self._changer: int | None = None
        self.queue: deque[_QueuedChange] = deque()
        # Reassignments of which an exception kept the observers from hearing.
        self._unannounced: dict[int, _QueuedChange] = {}
        # An exception came before all observers had seen a change.
        self._is_behind = False
        self._version = 0  # of everything that is looked at
        self._moves = 0  # how often partitions became quiet or began to flow
        self._table = Table()
        # The view that every look is shown; None: to be made anew of the table.
        self._view: View | None = View()
        self.settled: frozenset[TopicPartition] | None = frozenset()
        self._named = NamedPartitions()
        self._marks = QuietMarks()

    # ------------------------------------------------------------ reading

    def quiet(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions that are quiet now; ask again at each use."""
        # Each step of an iteration asks, in C the same way. The queue comes first: a
        # change leaves it when it has unsettled the other.
        if not self.queue and (quiet := self.settled) is not None:
            return quiet
        return self.view().quiet

    def view(self) -> View:
        """Return the holds and the quiet partitions of this moment, together."""
        view = self._view
        if view is None or self.queue or self._clock() >= self._table.due:
            self._enter(shows=True)
            # None: in a signal handler that interrupted a change, or where another
            # thread has changed something since.
            view = self._view or self.peek()
        return view

    def peek(self) -> View:
        """Return what was applied last; it takes no lock, and lets nothing expire."""
        return self._table.view()

    def control_gates(self) -> frozenset[TopicPartition]:
        return self._table.unread

    def wake(self) -> None:
        """Wake the threads that wait for a change of the quiet partitions."""
        for wake in self.wakers:
            wake()

    def seconds_to_next_expiry(self) -> float:
        """Return the seconds until the next hold expires; infinite if none expires."""
        return self._table.due - self._clock()

    def now(self) -> tuple[float, float]:
        """Return the time now in seconds, on the monotonic clock and since the epoch."""
        return self._clock(), self._wall()

    @property
    def moves(self) -> int:
        """How often partitions have become quiet or begun to flow."""
        return self._moves

    def was_held(self, tp: TopicPartition) -> bool:
        """Tell whether a partition was quiet at any time since its last valid position."""
        return tp in self.quiet() or tp in self._marks

    def unconfirmed(self, moves: int) -> list[TopicPartition]:
        """Return what was held before so many moves, and has had no valid position since."""
        return self._marks.before(moves)

    def confirm(self, partitions: Collection[TopicPartition], moves: int) -> None:
        """Note that brokers had the positions that partitions had after so many moves."""
        if partitions:
            self._enter(_QueuedChange(self._confirmed, partitions, moves))

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
        named: Collection[tuple[Scope, Snapshot]] = (),
    ) -> None:
        """
        Place one hold per scope, all at once; unchanged ones are left alone.

        Once it has returned the holds are obeyed. The hooks have had the event, or
        another thread that is calling them gives it to them next. The event of a
        pattern's hold has the ``known_topics`` that it covers; ``named`` are the scopes
        that ``assignment()`` returned, each with all that it returned then.
        """
        now = self._clock()
        holds = made(
            scopes,
            owner=owner,
            reason=reason,
            for_=for_,
            lifetime=lifetime,
            times=(now, self._wall()),
        )
        more: dict[str, Any] = {}
        if [one for one in holds if type(one.scope) is Pattern]:
            names = {*known_topics(), *self._table.assigned}
            more["topics"], more["idle"] = matched([one.scope for one in holds], names)
        if named:
            more["whole"] = partial(self._named.whole, named, holds, now)
        self._enter(_QueuedChange(Table.placed, holds, **more))
        self.deliver()

    def take_over(self, owned: Owned, reason: str) -> None:
        """
        Place the application's pauses that previous owners of partitions left.

        ``owned`` has the ownerships that they were left to: nothing is placed where
        it is another by now, or where the application has a pause of its own.
        """
        scopes = [Partition(tp[0], tp[1]) for tp in owned]
        holds = made(scopes, owner=APP, reason=reason, times=self.now())

        def place(table: Table) -> Step:
            return table.placed(table.left_to(owned, holds), is_taken_over=True)

        if holds:
            self._enter(_QueuedChange(place))
            self.deliver()

    def remove(
        self, keys: Iterable[HoldKey], *, by_application: bool = False
    ) -> tuple[Hold, ...]:
        """
        Lift the named holds, all at once; return those that still cover the scopes.

        A ``resume`` of the application (``by_application``) ends whole pauses too, and
        plain pauses of what is not assigned.
        """
        keys = tuple(keys)
        by_application = by_application or any(owner == WHOLE for _, owner in keys)
        self._enter(_QueuedChange(self._removed, keys, by_application=by_application))
        self.deliver()
        return self._table.remaining(keys)

    def remove_owner(self, owner: str) -> None:
        """Lift all holds of an owner."""
        self._enter(_QueuedChange(self._removed_owner, owner))
        self.deliver()

    def follow(self, place: Iterable[Hold], remove: Iterable[HoldKey]) -> None:
        """
        Place some holds of control topics, and then lift others.

        Readers see the state between the two. Events wait for :meth:`deliver`.
        """
        holds = tuple(place)
        new = {hold.key for hold in holds}
        keys = tuple(key for key in remove if key not in new)
        if holds:
            self._enter(_QueuedChange(Table.placed, holds))
        if keys:
            self._enter(_QueuedChange(self._removed, keys))

    def move(self, holds: Iterable[Hold]) -> None:
        """Give holds new deadlines, but for those that were placed again meanwhile."""
        self._enter(_QueuedChange(Table.moved, tuple(holds)))

    # ------------------------------------------------------------ the assignment

    def owned(self) -> Owned:
        """Return the ownerships of now; another object after each change of them."""
        return self._table.owned

    def given_up(self) -> Owned:
        """Return what ended as a join was prepared, unless others may have owned it since."""
        table = self._table
        return {tp: one for tp, one in table.undecided.items() if tp not in table.lost}

    def table(self) -> Table:
        """Return all that is decided by now, to be compared with a later table."""
        self.view()
        return self._table

    def assign(self, owned: Owned, cause: Cause = Cause.JOINED) -> None:
        """
        Take over a new assignment; held partitions are quiet from this instant.

        The cause decides which pauses end. It may be called under upstream's
        subscription lock: events wait for :meth:`deliver`.
        """
        change = _QueuedChange(
            Table.reassigned,
            dict(owned),
            cause,
            self._clock(),
            carried=self.carried,
            is_watched=self._watcher is not None,
        )
        key = id(change)
        try:
            self._enter(change)
            self._announce(change)
        finally:
            if not change.is_announced:  # the next look does it
                self._unannounced[key] = change
                self._view = self.settled = None

    def close(self) -> None:
        """End the assignment, and all holds but those of operators and of the group."""
        self.assign({}, Cause.CLOSED)

    def begin_call(self) -> bool:
        """
        Mark the start of a ``poll``; tell whether what is gained in it will be gated.

        It will if everything assigned is held now: the caller has had no chance yet to
        hold what comes (KAFKA-13463).
        """
        self._named = NamedPartitions()
        view, table = self.view(), self._table
        if self.queue or table.begun(view) is not table:
            self._enter(_QueuedChange(self._begun))
        return self._table.is_gating

    def end_call(self) -> None:
        """Mark the end of a ``poll`` and open the gates that its start asked for."""
        if self.queue or self._table.in_call:
            self._enter(_QueuedChange(Table.ended))

    def choose_anew(self) -> None:
        """Note that the application changed what it consumes, outside of a ``poll``."""
        self._enter(_QueuedChange(Table.chosen_anew))

    def watch(self, watcher: Watcher) -> None:
        """
        Close a gate on every partition gained from now on, until :meth:`open_gates`.

        The watcher is called on the thread that assigns, under upstream's locks but not
        under ours: it must be quick, block on nothing and raise nothing.
        """
        self._watcher = watcher

    def open_gates(self, owned: Owned) -> None:
        """Open the gates of the ownerships that go on."""
        self._enter(_QueuedChange(Table.read, owned))
        self.deliver()

    # ------------------------------------------------------------ events

    def emit(self, kind: type[events.Event], **fields: object) -> None:
        """Queue an event for the next :meth:`deliver`; safe under any lock."""
        made: dict[str, Any] = {"at": self._wall(), **self._ids, **fields}
        self.outbox.waiting.append(kind(**made))

    def forward(self, event: events.Event) -> None:
        """Deliver an event of another ledger, whose hook this is, to the hooks here."""
        self.outbox.waiting.append(event)
        self.deliver()

    def deliver(self) -> bool:
        """
        Hand all queued events to the hooks, under no lock; tell whether hooks ran here.

        A thread that is handing out events also hands out those queued now.
        """
        if self._changer == threading.get_ident():
            return False  # in a signal handler that interrupted a change
        return self.outbox.deliver()

    # ------------------------------------------------------------ the one way in

    def _enter(
        self, change: _QueuedChange | None = None, *, shows: bool = False
    ) -> None:
        # The change is applied when this returns, by whichever thread, but in a signal
        # handler that interrupted another one on this thread. The versions are noted
        # first: another thread may apply it at once, and this one must not go on before
        # all observers have seen it.
        here, version, moves = threading.get_ident(), self._version, self._moves
        if change is not None:
            self.queue.append(change)
        try:
            while True:
                with self._lock:
                    if self._changer == here:  # in a signal handler
                        return
                    self._changer = here
                    try:
                        self._apply_all()
                        if shows and self._view is None:
                            self._show()
                    finally:
                        self._changer = None
                if not self.queue:  # else a handler's, as the lock was given back
                    break
            self._notify(version, moves)
        except BaseException:  # a signal handler's, for example: the next look goes on
            self._is_behind, self._view, self.settled = True, None, None
            raise

    def _notify(self, version: int, moves: int) -> None:
        if self._is_behind:
            self._is_behind = False
            version = moves = -1
        if self._unannounced:
            self._announce_rest()
        if self._version != version:
            for look in tuple(self.observers):
                look()
        if self._moves != moves:
            self.wake()

    def _announce_rest(self) -> None:
        for key, change in tuple(self._unannounced.items()):
            change.tries += 1
            if change.tries < _MOST_TRIES:
                self._announce(change)
            if change.is_announced or change.tries >= _MOST_TRIES:
                self._unannounced.pop(key, None)

    def _announce(self, change: _QueuedChange) -> None:
        if change.step is None:
            return
        what, owned = change.step.what, change.step.table.owned
        if what.gained or what.departed:
            if self.on_reassigned is not None:
                self.on_reassigned(what)
            if self._watcher is not None and what.gained:
                self._watcher({tp: owned[tp] for tp in what.gained})
        change.is_announced = True

    # ------------------------------------------------------------ under the lock

    def _apply_all(self) -> None:
        now = self._clock()
        if now >= self._table.due:  # first: a hold that is over counts for no change
            self._store(self._table.expired(now), None)
        while self.queue:
            # An exception may be a signal handler's: the change stays, and the next
            # look applies it.
            change = self.queue[0]
            change.tries += 1
            try:
                if change.step is None:
                    made = change.make(self._table, *change.args, **change.kwargs)
                    self._store(made, change)
            except BaseException:
                if change.tries >= _MOST_TRIES:
                    self.queue.popleft()
                raise
            self.queue.popleft()

    def _store(self, step: Step, change: _QueuedChange | None) -> None:
        queued: Iterable[events.Event] = ()
        if step.events:
            at, ids = self._wall(), self._ids
            queued = [kind.of({"at": at, **ids, **it}) for kind, it in step.events]
        if step.ended:  # they are quiet until the change is stored
            self._marks.note(step.ended, self._moves + 1, step.table.owned)
        # An interrupt comes either before or after all of this: Python checks for
        # signals when a Python function begins, after calls and at backward jumps.
        put = self.outbox.waiting.extend
        view, settled = (None, None) if step.is_seen else (self._view, self.settled)
        seen = self._version + step.is_seen
        self._table, self._view, self.settled = step.table, view, settled
        self._version = seen
        self._moves += step.is_moved
        if change is not None:
            change.step = step
        put(queued)

    def _show(self) -> View:
        view, due = self.peek(), self._table.due
        settled = view.quiet if due == NEVER else None
        self._view, self.settled = view, settled
        return view

    # ------------------------------------------------------------ steps of a table

    def _begun(self, table: Table) -> Step:
        return Step(table.begun(self._view or self._show()), is_seen=False)

    def _confirmed(
        self, table: Table, valid: Collection[TopicPartition], moves: int
    ) -> Step:
        self._marks.confirm(valid, moves)
        return Step(table, is_seen=False)

    def _removed(
        self,
        table: Table,
        keys: Collection[HoldKey],
        *,
        by_application: bool = False,
        is_all: bool = False,
    ) -> Step:
        if by_application:
            self._named.forget(keys)
        return table.removed(
            keys, self._clock(), by_application=by_application, is_all=is_all
        )

    def _removed_owner(self, table: Table, owner: str) -> Step:
        keys = tuple(one.key for one in table.holds if one.owner == owner)
        is_app = owner == APP
        return self._removed(table, keys, by_application=is_app, is_all=True)
