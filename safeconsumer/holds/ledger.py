"""
Keeps the holds of one consumer and their effect on its assignment.

One lock guards the ledger. If a signal handler interrupts a change on its own thread,
it queues its own change, and the interrupted thread applies that before any reader gets
a result. The quiet partitions are a frozenset, which the first reader after a change
rebuilds. Lock order: upstream's subscription lock, then the ledger's lock. The only
foreign code that runs under the ledger's lock is the matching of topic names against
patterns. design/pausing.md explains the rules.
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
from safeconsumer.holds.hold import (
    APP,
    WHOLE,
    Hold,
    HoldKey,
    Lifetime,
    make_holds,
    with_beneath,
)
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
A function that is called with new ownerships, after their gates are closed.
"""

# After this many exceptions the ledger drops a change, because otherwise every reader
# would get the exception. Signal handlers hardly ever interrupt the same change this
# often.
_MAX_TRIES = 10


class _QueuedChange:
    # ``make`` computes a step from a table; ``step`` is that step, once it is stored.

    __slots__ = ("args", "is_announced", "kwargs", "make", "step", "tries")

    def __init__(self, make: Callable[..., Step], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - of the function
        self.make, self.args, self.kwargs = make, args, kwargs
        self.tries, self.is_announced = 0, False
        self.step: Step | None = None


class PauseLedger:
    """
    Keeps the holds of one consumer, applies them to its assignment and expires them.

    Thread rules: every method may be called from any thread and from a signal handler,
    but :meth:`begin_call` and :meth:`end_call` only from the polling thread. A handler
    that interrupts a change on its own thread reads the state before that change. A
    change that the handler makes is applied when the interrupted thread continues.

    Attributes:
        wakers: functions that are called, without a lock, when partitions become quiet
            or are no longer quiet.
        observers: functions that are called at each change, without the ledger's lock,
            before the call that made the change returns.
        on_reassigned: a function that is called at each change of the assignment, under
            the same locks as in :meth:`watch`.
        carried: the partitions that the group's leader marked as paused in the last
            join, so that their next owners receive the pauses; None if pauses are not
            handed over.
        outbox: the events that wait to be delivered to the hooks.
        queue: the changes that wait to be applied.
        settled: the quiet partitions; None if the next reader must rebuild the set.
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
        self.counts = Counts()  # comes first, to count events before hooks run
        self.dispatcher = Dispatcher((self.counts, *hooks))
        self.outbox = Outbox(self.dispatcher)
        self._ids: dict[str, Any] = {"client_id": client_id, "group_id": group_id}
        self._clock, self._wall = clock or time.monotonic, wall or time.time
        self.wakers: list[Callable[[], None]] = []
        self.observers: list[Callable[[], None]] = []
        self.on_reassigned: Callable[[Reassignment], object] | None = None
        self.carried: frozenset[TopicPartition] | None = None
        self._watcher: Watcher | None = None
        # The lock is re-entrant because of signal handlers. The thread that makes a
        # change is recorded, so that a handler can detect that it has interrupted a
        # change.
        self._lock = threading.RLock()
        self._changing_thread: int | None = None
        self.queue: deque[_QueuedChange] = deque()
        # Reassignments that have not been announced yet because of an exception.
        self._unannounced: dict[int, _QueuedChange] = {}
        # Whether some observers were not called because of an exception.
        self._is_behind = False
        self._version = 0  # the number of changes that readers can see
        # how many times partitions became quiet, or ceased to be quiet
        self._moves = 0
        self._table = Table()
        # The view that readers get; if it is None, the next reader creates it.
        self._view: View | None = View()
        self.settled: frozenset[TopicPartition] | None = frozenset()
        self._named = NamedPartitions()
        self._marks = QuietMarks()

    # ------------------------------------------------------------ reading

    def quiet(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions that are quiet now. Do not keep the result."""
        # Each step of an iteration calls this method; the C code reimplements it. The
        # queue is read first, because ``settled`` is set to None before a change leaves
        # the queue.
        if not self.queue and (quiet := self.settled) is not None:
            return quiet
        return self.view().quiet

    def view(self) -> View:
        """Return a consistent view of the current holds and quiet partitions."""
        view = self._view
        if view is None or self.queue or self._clock() >= self._table.due:
            self._apply(makes_view=True)
            # The view is still None in a signal handler that has interrupted a change,
            # or after another thread's change.
            view = self._view or self.peek()
        return view

    def every_hold(self) -> tuple[Hold, ...]:
        """Return the sorted holds, each followed by the strict hold beneath it."""
        found = with_beneath(self.view().holds, self._clock())
        return tuple(sorted(found, key=lambda one: (str(one.scope), one.owner)))

    def peek(self) -> View:
        """Return the view after the last change; takes no lock, and expires no holds."""
        return self._table.view()

    def control_gates(self) -> frozenset[TopicPartition]:
        return self._table.unread

    def wake(self) -> None:
        """Wake the threads that wait for a change of the quiet partitions."""
        for wake in self.wakers:
            wake()

    def seconds_to_next_expiry(self) -> float:
        """Return the seconds until the next hold expires; infinity if none does."""
        return self._table.due - self._clock()

    def now(self) -> tuple[float, float]:
        """Return the current time in seconds: on the monotonic clock, and since 1970."""
        return self._clock(), self._wall()

    @property
    def moves(self) -> int:
        """How many times partitions became quiet, or ceased to be quiet."""
        return self._moves

    def was_held(self, tp: TopicPartition) -> bool:
        """Return whether a partition was ever quiet after its position was last confirmed."""
        return tp in self.quiet() or tp in self._marks

    def unconfirmed(self, moves: int) -> list[TopicPartition]:
        """
        Return the partitions that were last quiet up to this value of :attr:`moves`.

        Since then no broker has confirmed these partitions' positions.
        """
        return self._marks.before(moves)

    def confirm(self, partitions: Collection[TopicPartition], moves: int) -> None:
        """Record that a broker confirmed positions at this value of :attr:`moves`."""
        if partitions:
            self._apply(_QueuedChange(self._confirmed, partitions, moves))

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
        Place one hold per scope in a single change; existing equal holds are kept.

        The holds are in force once this method has returned. By then the hooks have
        received the event, or the thread that is currently calling the hooks will
        deliver it. If a hold is on a pattern, the event names those ``known_topics``
        that the pattern matches. ``named`` contains the scopes of partitions that
        ``assignment()`` returned, each with the whole result of that call.
        """
        now = self._clock()
        holds = make_holds(
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
        self._apply(_QueuedChange(Table.placed, holds, **more))
        self.deliver()

    def take_over(self, owned: Owned, reason: str) -> None:
        """
        Place the application's pauses that partitions' previous owners handed over.

        ``owned`` contains the ownerships that take over a pause. A partition is left
        out if its ownership has changed since, or if the application has already paused
        it.
        """
        scopes = [Partition(tp[0], tp[1]) for tp in owned]
        holds = make_holds(scopes, owner=APP, reason=reason, times=self.now())

        def place(table: Table) -> Step:
            return table.placed(table.to_take_over(owned, holds), is_taken_over=True)

        if holds:
            self._apply(_QueuedChange(place))
            self.deliver()

    def remove(
        self, keys: Iterable[HoldKey], *, by_application: bool = False
    ) -> tuple[Hold, ...]:
        """
        Lift the named holds together; return the holds that still cover their scopes.

        A ``resume`` by the application (``by_application``) also ends whole pauses, and
        plain pauses of partitions that are not assigned.
        """
        keys = tuple(keys)
        by_application = by_application or any(owner == WHOLE for _, owner in keys)
        self._apply(_QueuedChange(self._removed, keys, by_application=by_application))
        self.deliver()
        return self._table.remaining(keys)

    def remove_owner(self, owner: str) -> None:
        """Lift all holds of an owner."""
        self._apply(_QueuedChange(self._removed_owner, owner))
        self.deliver()

    def follow(self, place: Iterable[Hold], remove: Iterable[HoldKey]) -> None:
        """
        Place holds that were read from control topics, and then lift others.

        Readers may see the state between the two steps. Events wait for
        :meth:`deliver`.
        """
        holds = tuple(place)
        new = {hold.key for hold in holds}
        keys = tuple(key for key in remove if key not in new)
        if holds:
            self._apply(_QueuedChange(Table.placed, holds))
        if keys:
            self._apply(_QueuedChange(self._removed, keys))

    def move(self, holds: Iterable[Hold]) -> None:
        """Change the deadlines of holds, except holds that were replaced in the meantime."""
        self._apply(_QueuedChange(Table.moved, tuple(holds)))

    # ------------------------------------------------------------ the assignment

    def owned(self) -> Owned:
        """Return the current ownerships; each change creates a new mapping."""
        return self._table.owned

    def given_up(self) -> Owned:
        """Return the ownerships that a join in preparation has ended, excluding lost ones."""
        table = self._table
        return {tp: one for tp, one in table.undecided.items() if tp not in table.lost}

    def table(self) -> Table:
        """Apply all queued changes, and return the table, to be compared with a later one."""
        self.view()
        return self._table

    def assign(self, owned: Owned, cause: Cause = Cause.JOINED) -> None:
        """
        Apply a new assignment; partitions that a hold covers become quiet immediately.

        The cause determines which pauses end. Events wait for :meth:`deliver`, because
        this method may be called under upstream's subscription lock.
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
            self._apply(change)
            self._announce(change)
        finally:
            if not change.is_announced:  # the next reader will announce the change
                self._unannounced[key] = change
                self._view = self.settled = None

    def close(self) -> None:
        """End the assignment, and all holds except those of operators and of the group."""
        self.assign({}, Cause.CLOSED)

    def begin_call(self) -> bool:
        """
        Record that a ``poll`` starts; return whether to gate partitions that it gains.

        Gained partitions are gated if all assigned partitions are held now, because the
        program could not hold partitions that were not assigned yet (KAFKA-13463).
        """
        self._named = NamedPartitions()
        view, table = self.view(), self._table
        if table.poll_begun(view) is not table:
            self._apply(_QueuedChange(self._poll_begun))
        return self._table.is_gating

    def end_call(self) -> None:
        """Record that a ``poll`` returns, and open its gates."""
        if self.queue or self._table.in_call:
            self._apply(_QueuedChange(Table.poll_ended))

    def subscription_changed(self) -> None:
        """Record that the application has changed its subscription outside a ``poll``."""
        self._apply(_QueuedChange(Table.subscription_changed))

    def watch(self, watcher: Watcher) -> None:
        """
        Gate every partition that is gained from now on, until :meth:`open_gates`.

        The watcher is called on the thread that assigns, under upstream's locks but not
        under the ledger's. It must return quickly, and must neither block nor raise.
        """
        self._watcher = watcher

    def open_gates(self, owned: Owned) -> None:
        """Open the gates of the given ownerships, unless the ownership has ended."""
        self._apply(_QueuedChange(Table.control_read, owned))
        self.deliver()

    # ------------------------------------------------------------ events

    def emit(self, kind: type[events.Event], **fields: object) -> None:
        """Queue an event for the next :meth:`deliver`; safe under any lock."""
        made: dict[str, Any] = {"at": self._wall(), **self._ids, **fields}
        self.outbox.waiting.append(kind(**made))

    def forward(self, event: events.Event) -> None:
        """Deliver an event of another ledger to the hooks of this ledger."""
        self.outbox.waiting.append(event)
        self.deliver()

    def deliver(self) -> bool:
        """
        Deliver queued events without a lock held; return whether this call ran hooks.

        If another thread is already delivering events, it also delivers these.
        """
        if not self.outbox.waiting:
            return False  # the usual case
        if self._changing_thread == threading.get_ident():
            return False  # a signal handler has interrupted a change
        return self.outbox.deliver()

    def is_locked_here(self) -> bool:
        """Return whether this thread holds the ledger's lock; in a signal handler it may."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]  # noqa: SLF001 - as threading.Condition asks it

    # ------------------------------------------------------------ applying changes

    def _apply(
        self, change: _QueuedChange | None = None, *, makes_view: bool = False
    ) -> None:
        # When this method returns, some thread has applied the change, unless a signal
        # handler has interrupted a change on this thread and calls this method.
        # ``_version`` and ``_moves`` are read first: another thread may apply the
        # change immediately, and this thread must still notice that it has to call the
        # observers.
        here, version, moves = threading.get_ident(), self._version, self._moves
        if change is not None:
            self.queue.append(change)
        try:
            while True:
                with self._lock:
                    if self._changing_thread == here:  # in a signal handler
                        return
                    self._changing_thread = here
                    try:
                        self._apply_queue()
                        if makes_view and self._view is None:
                            self._make_view()
                    finally:
                        self._changing_thread = None
                # A signal handler may have queued a change after the lock was released.
                if not self.queue:
                    break
            self._notify(version, moves)
        # for example a signal handler's exception; the next reader applies the queue
        except BaseException:
            self._is_behind, self._view, self.settled = True, None, None
            raise

    def _notify(self, version: int, moves: int) -> None:
        if self._is_behind:
            self._is_behind = False
            version = moves = -1
        if self._unannounced:
            self._announce_rest()
        if self._version != version:
            for observe in tuple(self.observers):
                observe()
        if self._moves != moves:
            self.wake()

    def _announce_rest(self) -> None:
        for key, change in tuple(self._unannounced.items()):
            change.tries += 1
            if change.tries < _MAX_TRIES:
                self._announce(change)
            if change.is_announced or change.tries >= _MAX_TRIES:
                self._unannounced.pop(key, None)

    def _announce(self, change: _QueuedChange) -> None:
        if change.step is None:
            return
        what, owned = change.step.reassignment, change.step.table.owned
        if what.gained or what.departed:
            if self.on_reassigned is not None:
                self.on_reassigned(what)
            if self._watcher is not None and what.gained:
                self._watcher({tp: owned[tp] for tp in what.gained})
        change.is_announced = True

    # ------------------------------------------------------------ under the lock

    def _apply_queue(self) -> None:
        now = self._clock()
        if now >= self._table.due:  # done first, so that no change sees an expired hold
            self._store(self._table.expired(now), None)
        while self.queue:
            # If a signal handler raises, the change stays in the queue, and the next
            # reader applies it.
            change = self.queue[0]
            change.tries += 1
            try:
                if change.step is None:
                    made = change.make(self._table, *change.args, **change.kwargs)
                    self._store(made, change)
            except BaseException:
                if change.tries >= _MAX_TRIES:
                    self.queue.popleft()
                raise
            self.queue.popleft()

    def _store(self, step: Step, change: _QueuedChange | None) -> None:
        queued: Iterable[events.Event] = ()
        if step.events:
            at, ids = self._wall(), self._ids
            queued = [kind.of({"at": at, **ids, **it}) for kind, it in step.events]
        if step.ended:  # they stay quiet until the change is stored
            self._marks.note(step.ended, self._moves + 1, step.table.owned)
        # A signal handler runs either before or after all of these lines. Python checks
        # for signals only when a Python function starts, after calls, and at backward
        # jumps.
        put = self.outbox.waiting.extend
        view, settled = (None, None) if step.is_visible else (self._view, self.settled)
        version = self._version + step.is_visible
        self._table, self._view, self.settled = step.table, view, settled
        self._version = version
        self._moves += step.is_moved
        if change is not None:
            change.step = step
        put(queued)

    def _make_view(self) -> View:
        view, due = self.peek(), self._table.due
        settled = view.quiet if due == NEVER else None
        self._view, self.settled = view, settled
        return view

    # ------------------------------------------------------------ steps of a table

    def _poll_begun(self, table: Table) -> Step:
        return Step(table.poll_begun(self._view or self._make_view()), is_visible=False)

    def _confirmed(
        self, table: Table, valid: Collection[TopicPartition], moves: int
    ) -> Step:
        self._marks.confirm(valid, moves)
        return Step(table, is_visible=False)

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
