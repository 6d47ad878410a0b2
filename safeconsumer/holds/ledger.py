"""
Keeps the holds of one consumer and their effect on its assignment.

One lock guards them. A signal handler that interrupted a change on its own thread leaves
its change in a queue; the owner of the lock applies the queue before anybody looks. What
is quiet is one frozenset, made again at the next look after a change. Lock order:
upstream's subscription lock, then this one; nothing is called under it but patterns'
expressions. design/pausing.md has the rules.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from safeconsumer import events
from safeconsumer.events.counts import Counts
from safeconsumer.events.dispatch import Dispatcher, Hook, Outbox
from safeconsumer.holds.hold import APP, WHOLE, Hold, HoldKey, Lifetime, made
from safeconsumer.holds.ownership import Cause, Ownership, Reassignment
from safeconsumer.holds.plain import Edition, Named
from safeconsumer.holds.scope import (
    Partition,
    Pattern,
    Scope,
    TopicPartition,
    matched,
)
from safeconsumer.holds.table import MOST_LEFT, NEVER, Step, Table
from safeconsumer.holds.view import View

Watcher = Callable[[Mapping[TopicPartition, int]], object]
"""
It is called with the gained partitions, already behind a gate, and their epochs.
"""

# A change that raises so often is given up: every look would raise. Signal handlers that
# interrupt it so often in a row are none.
_MOST_TRIES = 10


class _Change:
    # One change: what makes a step of a table, and the step that was put in place.

    tries = 0
    step: Step | None = None
    is_announced = False

    def __init__(self, apply: Callable[[Table], Step]) -> None:
        self.apply = apply


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
        # Called at each change, before its call goes on; under none of our locks.
        self.lookers: list[Callable[[], None]] = []
        # Whether the application's pause of a partition goes to its next owner.
        self.is_carried: Callable[[TopicPartition], bool] | None = None
        # Called at each change of the assignment, as a watcher is.
        self.on_reassigned: Callable[[Reassignment], object] | None = None
        self._watcher: Watcher | None = None
        self._ids: dict[str, Any] = {"client_id": client_id, "group_id": group_id}
        self._clock = clock or time.monotonic
        self._wall = wall or time.time
        self._polled_at: float | None = None
        self._outbox = Outbox(self.dispatcher)
        self._begin()

    def _begin(self) -> None:
        # Re-entrant for signal handlers: whether they interrupted a change is told by
        # _changer, the thread that changes something.
        self._lock = threading.RLock()
        self._changer: int | None = None
        self.queue: deque[_Change] = deque()
        # Reassignments that their own call could not announce.
        self._left: dict[int, _Change] = {}
        # An exception came before all who look at holds had seen a change.
        self._is_behind = False
        self._version = 0  # of everything that is looked at
        self._moves = 0  # how often partitions became quiet or began to flow
        self._table = Table()
        # What all who look are shown; None: to be made anew of the state.
        self._view: View | None = View()
        # What is quiet in it; None if a look has to make it anew, or something expires.
        self.settled: frozenset[TopicPartition] | None = frozenset()
        self._named = Named()
        # What was quiet, by the number of moves at which it was so no longer, until
        # a broker has its position.
        self._unconfirmed: dict[TopicPartition, int] = {}

    # ------------------------------------------------------------ reading

    def quiet(self) -> frozenset[TopicPartition]:
        """
        Return the assigned partitions that are quiet at this moment.

        The set never changes; call this again at the moment of use.
        """
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

    # ------------------------------------------------------------ valid positions

    @property
    def moves(self) -> int:
        """How often partitions have become quiet or begun to flow."""
        return self._moves

    def was_held(self, tp: TopicPartition) -> bool:
        """Tell whether a partition was quiet at any time since its last valid position."""
        return tp in self.quiet() or tp in self._unconfirmed

    def unconfirmed(self, moves: int) -> list[TopicPartition]:
        """Return what was held before so many moves, and has had no valid position since."""
        since = self._unconfirmed
        return [tp for tp, at in tuple(since.items()) if at <= moves] if since else []

    def confirm(self, partitions: Collection[TopicPartition], moves: int) -> None:
        """
        Note that brokers had the positions that partitions had after so many moves.

        What has been quiet since then counts as held until it is confirmed again.
        """
        if partitions:
            self._enter(_Change(partial(self._confirmed, partitions, moves)))

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
            lifetime: ``PLAIN`` is that of single partitions only: others are held until
                they are resumed then.
            known_topics: returns topic names, so that the caller learns which a pattern
                covers; called only if there is a pattern.
            named: partitions among them that were named as ``assignment()`` returned
                them, each with all that it returned then.
        """
        named = tuple(named)
        topics: tuple[str, ...] | None = None
        idle: Collection[Scope] = ()
        holds = made(
            scopes,
            owner=owner,
            reason=reason,
            for_=for_,
            lifetime=lifetime,
            times=(self._clock(), self._wall()),
        )
        patterns = [one.scope for one in holds if isinstance(one.scope, Pattern)]
        if patterns:
            names = {*known_topics(), *self._table.assigned}
            topics, idle = matched([one.scope for one in holds], names)

        self._enter(_Change(partial(self._placed, holds, topics, idle, named)))
        self.deliver()

    def take_over(self, epochs: Mapping[TopicPartition, int], reason: str) -> None:
        """
        Place the application's pauses that previous owners of partitions left.

        ``epochs`` has the ownerships that they were left to: nothing is placed where
        it is another by now, or where the application has a pause of its own.
        """
        scopes = [Partition(tp[0], tp[1]) for tp in epochs]
        holds = made(scopes, owner=APP, reason=reason, times=self.now())
        if holds:
            self._enter(
                _Change(
                    lambda it: it.placed(it.left_to(epochs, holds), is_taken_over=True)
                )
            )
            self.deliver()

    def remove(
        self, keys: Iterable[HoldKey], *, by_application: bool = False
    ) -> tuple[Hold, ...]:
        """
        Lift the named holds, all at once; those that are not there are no error.

        A ``resume`` of the application (``by_application``) ends whole pauses too, and
        plain pauses of what is not assigned.

        Returns:
            The holds that still cover the same scopes, as far as is known.
        """
        keys = tuple(keys)
        by_application = by_application or any(owner == WHOLE for _, owner in keys)
        remove = partial(self._removed, keys=keys, by_application=by_application)
        self._enter(_Change(remove))
        self.deliver()
        return self._table.remaining(keys)

    def remove_owner(self, owner: str) -> tuple[Hold, ...]:
        """Lift all holds of an owner; return none, since nothing of theirs is left."""
        self._enter(_Change(partial(self._removed_owner, owner)))
        self.deliver()
        return ()

    def follow(self, place: Iterable[Hold], remove: Iterable[HoldKey]) -> None:
        """
        Apply what the control topics say: place some holds, and then lift others.

        Holds are placed first, since readers see the state between the two. Events wait
        for :meth:`deliver`.
        """
        holds = tuple(place)
        new = {hold.key for hold in holds}
        keys = tuple(key for key in remove if key not in new)
        if holds:
            self._enter(_Change(lambda it: it.placed(holds)))
        if keys:
            self._enter(_Change(lambda it: it.removed(keys, self._clock())))

    def move(self, holds: Iterable[Hold]) -> None:
        """
        Give holds new deadlines, when their expiry is known better than before.

        Those that do not exist, or were placed again meanwhile, are left alone.
        """
        moved = tuple(holds)
        self._enter(_Change(lambda it: it.moved(moved)))

    # ------------------------------------------------------------ the assignment

    def ownership(self) -> Ownership:
        return self._table.ownership

    def assign(
        self, assignment: Iterable[TopicPartition], cause: Cause = Cause.JOINED
    ) -> None:
        """
        Take over a new assignment; held partitions are quiet from this instant.

        The cause decides which pauses end. It may be called under upstream's
        subscription lock: events wait for :meth:`deliver`. In a signal handler that
        interrupted another change it is applied after that change.
        """
        assigned = tuple(assignment)
        self._announced(_Change(partial(self._reassigned, assigned, cause)))

    def _announced(self, change: _Change) -> None:
        key = id(change)
        try:
            self._enter(change)
            self._announce(change)
        finally:
            if not change.is_announced:  # who goes on, or who looks next, does it
                self._left[key], self._view, self.settled = change, None, None

    def renew(self, partitions: Iterable[TopicPartition]) -> None:
        """
        Begin new ownerships of partitions whose topics were made again; holds stay.

        It may be called under upstream's subscription lock, as :meth:`assign`.
        """
        again = tuple(partitions)
        self._announced(_Change(partial(self._renewed, again)))

    def close(self) -> None:
        """End the assignment, and all holds but those of operators and of the group."""
        self.assign((), Cause.CLOSED)

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
        view, table = self.view(), self._table
        if self.queue or table.begun(view) is not table:
            self._enter(_Change(self._begun))
        return self._table.is_gating

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
        if self.queue or self._table.in_call:
            self._enter(_Change(Table.ended))

    def choose_anew(self) -> None:
        """
        Note that the application changed what it consumes, outside of a ``poll``.

        With nothing assigned, the earlier holds no longer keep gained partitions gated:
        they belonged to the previous choice.
        """
        self._enter(_Change(Table.chosen_anew))

    def watch(self, watcher: Watcher) -> None:
        """
        Close a gate on every partition gained from now on, until :meth:`open_gates`.

        The watcher is called on the thread that assigns, under upstream's locks but not
        under ours: it must be quick, block on nothing and raise nothing.
        """
        self._watcher = watcher

    def open_gates(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Open the gates of the partitions whose ownership has still the same epoch."""
        self._enter(_Change(lambda it: it.read(epochs)))
        self.deliver()

    def control_gates(self) -> frozenset[TopicPartition]:
        return self._table.unread

    # ------------------------------------------------------------ events

    def emit(self, kind: type[events.Event], **fields: object) -> None:
        """Queue an event for the next :meth:`deliver`; safe under any lock."""
        made: dict[str, Any] = {"at": self._wall(), **self._ids, **fields}
        self._outbox.waiting.append(kind(**made))

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

    def is_in_hook(self) -> bool:
        """Tell whether this thread is handing an event to the hooks."""
        return self._outbox.is_at_work_here()

    def hook_failures(self) -> dict[str, int]:
        return dict(self.dispatcher.failures)

    # ------------------------------------------------------------ the one way in

    def _enter(self, change: _Change | None = None, *, shows: bool = False) -> None:
        # The change is applied when this returns, by whichever thread, but in a signal
        # handler that interrupted another one on this thread. The versions are noted
        # first: another thread may apply it at once, and this one must not go on before
        # all who look at holds have seen it.
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
            self._tell_of_changes(version, moves)
        except BaseException:  # a signal handler's, say: the next look goes on here
            self._is_behind, self._view, self.settled = True, None, None
            raise

    def _tell_of_changes(self, version: int, moves: int) -> None:
        if self._is_behind:
            self._is_behind = False
            version = moves = -1
        if self._left:
            self._announce_left()
        if self._version != version:
            for look in tuple(self.lookers):
                look()
        if self._moves != moves:
            self.wake()

    def _announce_left(self) -> None:
        for key, change in tuple(self._left.items()):
            change.tries += 1
            if change.tries < _MOST_TRIES:
                self._announce(change)
            if change.is_announced or change.tries >= _MOST_TRIES:
                self._left.pop(key, None)

    def _announce(self, change: _Change) -> None:
        if change.step is None:
            return
        what, epochs = change.step.what, change.step.table.ownership.epochs
        if what.gained or what.departed:
            if self.on_reassigned is not None:
                self.on_reassigned(what)
            if self._watcher is not None and what.gained:
                self._watcher({tp: epochs[tp] for tp in what.gained})
        change.is_announced = True

    # ------------------------------------------------------------ under the lock

    def _apply_all(self) -> None:
        now = self._clock()
        if now >= self._table.due:  # first: what is over counts for no change
            self._put_in_place(_Change(_same), self._table.expired(now))
        while self.queue:
            # An exception may be a signal handler's: the change stays, and the next
            # look applies it.
            change = self.queue[0]
            change.tries += 1
            try:
                if change.step is None:
                    self._put_in_place(change, change.apply(self._table))
            except BaseException:
                if change.tries >= _MOST_TRIES:
                    self.queue.popleft()
                raise
            self.queue.popleft()

    def _put_in_place(self, change: _Change, step: Step) -> None:
        told: Iterable[events.Event] = ()
        if step.events:
            at, ids = self._wall(), self._ids
            told = [kind.of({"at": at, **ids, **parts}) for kind, parts in step.events]
        if step.ended:
            self._was_quiet(step.ended, step.table)
        # An interrupt comes either before or after all of this: Python checks for
        # signals when a Python function begins, after calls and at backward jumps.
        put = self._outbox.waiting.extend
        view, settled = (None, None) if step.is_seen else (self._view, self.settled)
        seen = self._version + step.is_seen
        self._table, self._view, self.settled = step.table, view, settled
        self._version = seen
        self._moves += step.is_moved
        change.step = step
        put(told)

    def _was_quiet(self, partitions: Iterable[TopicPartition], table: Table) -> None:
        # They are, until the change under way is in place; to note it twice is harmless.
        # Of those that are away the last are remembered.
        marks, owned = self._unconfirmed, table.ownership.epochs
        moves = self._moves + 1
        for tp in partitions:
            marks[tp] = moves
        if len(marks) > len(owned) + MOST_LEFT:
            away = sorted((at, tp) for tp, at in marks.items() if tp not in owned)
            for _, tp in away[: -(MOST_LEFT // 2)]:
                marks.pop(tp, None)

    def _confirmed(
        self, valid: Collection[TopicPartition], moves: int, table: Table
    ) -> Step:
        for tp in valid:
            if self._unconfirmed.get(tp, NEVER) <= moves:  # else quiet meanwhile
                del self._unconfirmed[tp]
        return _same(table)

    def _show(self) -> View:
        view, due = self.peek(), self._table.due
        settled = view.quiet if due == NEVER else None
        self._view, self.settled = view, settled
        return view

    # ------------------------------------------------------------ steps of a table

    def _begun(self, table: Table) -> Step:
        return Step(table.begun(self._view or self._show()), is_seen=False)

    def _placed(
        self,
        wanted: tuple[Hold, ...],
        topics: tuple[str, ...] | None,
        idle: Collection[Scope],
        named: Collection[tuple[Scope, Edition]],
        table: Table,
    ) -> Step:
        # What a pause asks for, and the whole pauses that it completes.
        if named:
            plain = next(one for one in wanted if one.lifetime is Lifetime.PLAIN)
            made = self._named.whole(named, plain, self._clock())
            wanted += tuple(
                whole
                for whole, is_of_one_call in made
                if is_of_one_call or table.holds.get(whole.key) is None
            )
        return table.placed(wanted, topics=topics, idle=idle)

    def _removed(
        self, table: Table, keys: Collection[HoldKey], *, by_application: bool
    ) -> Step:
        if by_application:
            self._named.take_back(keys)
        return table.removed(keys, self._clock(), by_application=by_application)

    def _removed_owner(self, owner: str, table: Table) -> Step:
        keys = tuple(one.key for one in table.holds if one.owner == owner)
        is_app = owner == APP
        if is_app:
            self._named.take_back(keys)
        return table.removed(keys, self._clock(), by_application=is_app, is_all=True)

    def _reassigned(
        self, wanted: tuple[TopicPartition, ...], cause: Cause, table: Table
    ) -> Step:
        return table.reassigned(
            wanted,
            cause,
            self._clock(),
            is_carried=self.is_carried,
            is_watched=self._watcher is not None,
        )

    def _renewed(self, again: tuple[TopicPartition, ...], table: Table) -> Step:
        return table.renewed(again, is_watched=self._watcher is not None)


def _same(table: Table) -> Step:
    return Step(table, is_seen=False)
