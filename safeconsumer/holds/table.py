"""
Decides what is quiet: one table of holds, gates and assigned partitions.

A table never changes. Each change makes another one, and the difference of the two says
which partitions became quiet or flow; it is looked for only where the change reaches.

| change | what it ends besides what it names |
|---|---|
| a ``resume`` of the application | whole pauses, and plain pauses of what is away |
| a whole pause expires | plain pauses under it of what is away |
| a completed join | plain pauses of partitions that it leaves out |
| ``assign``, ``unsubscribe`` | those, and whole pauses |
| the partition departs, for whatever reason | what is bound to its assignment |
| a join is prepared, or the membership lost | nothing else: the next join decides |
| ``close`` | all but the holds of operators and of the group |

**Gates.** A caller who held everything before a ``poll`` could not hold what came during
it (KAFKA-13463), so a gate stands in for the holds that were in force when it began. It
opens when the call returns, when all of those holds have been lifted, or when an owner
names the partition in a ``resume`` and only that owner's holds are left of them. If
nothing is assigned when a call begins, the holds of the last call that found something
still stand: the loss of a membership must not look like a resume. A hold that ends
because its partition departs was not lifted, and stands too. Another gate keeps what is
gained quiet until the control topics are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from attrs import evolve

from safeconsumer.events import consumer as events
from safeconsumer.events.base import Event, sorted_partitions
from safeconsumer.holds.hold import APP, WHOLE, Hold, HoldKey, Lifetime, is_routine
from safeconsumer.holds.ownership import (
    Cause,
    Owned,
    Reassignment,
    difference,
    still,
)
from safeconsumer.holds.plain import end_of, may_travel, placed_over, travels
from safeconsumer.holds.scope import Partition, Scope, Topic, TopicPartition
from safeconsumer.holds.view import NOTHING, Assigned, Holds, View, affected_by

NEVER = math.inf

CALL_GATE = "gained during a poll() that began all paused"
CONTROL_GATE = "waits until the control topics are read"

# The most partitions that left quiet and are remembered: under a hold of everything,
# topics with ever new names would fill the memory. A page of a million bytes.
MOST_LEFT = 10_000

_NONE: frozenset[TopicPartition] = frozenset()
NOTHING_OWNED: Owned = {}

EventParts = tuple[type[Event], dict[str, Any]]
"""
A kind of event, and its fields but when and whose it is.
"""


class Step(NamedTuple):
    """
    The result of one change.

    Attributes:
        table: what holds from then on.
        events: the events, in the order in which things happened.
        ended: partitions that were quiet and flow now, or have departed.
        is_moved: whether partitions became quiet or began to flow.
        is_seen: whether readers of holds find anything changed.
        what: the difference of the old and the new assignment.
    """

    table: Table
    events: tuple[EventParts, ...] = ()
    ended: tuple[TopicPartition, ...] = ()
    is_moved: bool = False
    is_seen: bool = True
    what: Reassignment = Reassignment()


class Table(NamedTuple):
    """
    What is held, gated and assigned at one moment. It never changes.

    Each change returns the :class:`Step` to another one; ``now`` is in seconds on the
    monotonic clock.

    Attributes:
        holds: the holds.
        due: when the first of them expires, on the monotonic clock, or earlier.
        ends_more: whether a resume may end more than it names; it is looked for once,
            so that a loop of resumes is linear.
        owned: the owned partitions; another object after each change of them.
        assigned: the same partitions, by topic.
        undecided: ownerships that ended while no completed join has said whether their
            partitions are given back.
        lost: those of them that ended, or may have, because the membership was lost.
        gated: partitions that wait for the ``poll`` under way to return.
        unread: partitions that wait for the control topics.
        in_call: whether a ``poll`` is under way for which ``stood`` counts.
        stood: the holds by which the last ``poll`` that found something assigned found
            everything quiet, but those lifted since; None: something flowed, or all of
            them were lifted.
        stood_on: what was assigned then.
        left_quiet: partitions that departed while they were quiet, and are held still,
            and whether the membership was lost with them; the last ones stand last.
        left_alone: whole pauses that were reported since nothing by name is left of
            their topic, by topic.
    """

    holds: Holds = Holds()
    due: float = NEVER
    ends_more: bool = True
    owned: Owned = NOTHING_OWNED
    assigned: Assigned = NOTHING
    undecided: Owned = NOTHING_OWNED
    lost: frozenset[TopicPartition] = _NONE
    gated: frozenset[TopicPartition] = _NONE
    unread: frozenset[TopicPartition] = _NONE
    in_call: bool = False
    stood: Holds | None = None
    stood_on: Assigned = NOTHING
    left_quiet: Mapping[TopicPartition, bool] = {}
    left_alone: Mapping[str, Hold] = {}

    # ------------------------------------------------------------ questions

    def view(self) -> View:
        """Return the view that every reader is shown."""
        holds, assigned = self.holds, self.assigned
        quiet = holds.covered(assigned) if holds else set()
        if not self.gated and not self.unread:
            return View(holds, assigned, {}, frozenset(quiet))
        gates = {
            **dict.fromkeys(self.gated, CALL_GATE),
            **dict.fromkeys(self.unread, CONTROL_GATE),
        }
        return View(holds, assigned, gates, frozenset(quiet.union(gates)))

    def is_quiet(self, tp: TopicPartition) -> bool:
        """Tell whether a hold or a gate covers a partition."""
        return tp in self.gated or tp in self.unread or self.holds.covers(tp)

    @property
    def is_gating(self) -> bool:
        """Whether what is gained now will be gated."""
        return self.in_call and self.stood is not None

    def remaining(self, keys: Collection[HoldKey]) -> tuple[Hold, ...]:
        """Return the holds that cover what was to be lifted, as far as is known."""
        holds = self.holds
        # A worker lifts its own many times a second and does not use the answer.
        if not holds or all(is_routine(owner) for _, owner in keys):
            return ()
        found = {hold.key: hold for one, _ in keys for hold in holds.overlapping(one)}
        return tuple(found.values())

    def reached(self, holds: Iterable[Hold]) -> dict[TopicPartition, None]:
        """Return the assigned partitions that holds cover, each once."""
        assigned = self.assigned
        return dict.fromkeys(
            [tp for hold in holds for tp in affected_by(assigned, hold.scope)]
        )

    def flowing(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[TopicPartition, ...]:
        """
        Return those of some partitions that neither a hold nor a gate covers.

        Asked about what a change reaches, this is the difference of two quiet sets:
        before a hold is placed, what becomes quiet by it; after one is lifted, or a
        gate has opened, what flows.
        """
        gated, unread, is_held = self.gated, self.unread, self.holds.covers
        found = [
            tp for tp in partitions if not (is_held(tp) or tp in gated or tp in unread)
        ]
        return sorted_partitions(found)

    # ------------------------------------------------------------ placing

    def placed(
        self,
        wanted: Iterable[Hold],
        *,
        topics: tuple[str, ...] | None = None,
        idle: Collection[Scope] = (),
        whole: Callable[[Holds], Iterable[Hold]] | None = None,
        is_taken_over: bool = False,
    ) -> Step:
        """
        Place holds.

        If patterns are among them, ``topics`` are the known topics that they cover, and
        ``idle`` the patterns that cover none. ``whole`` returns the whole pauses that
        they complete.
        """
        known = self.holds.get
        if whole is not None:
            wanted = (*wanted, *whole(self.holds))
        placed = tuple(
            [
                one
                for hold in wanted
                if (one := placed_over(known(hold.key), hold)) is not None
            ]
        )
        if not placed:
            return Step(self, is_seen=False)
        ends_more = self.ends_more or any(map(self._ends_with_any_resume, placed))
        due = _sooner(self.due, placed)
        after = Table(self.holds.including(placed), due, ends_more, *self[3:])
        quiet = self.flowing(self.reached(placed))
        parts: dict[str, Any] = {"holds": placed, "quiet": quiet}
        if topics is not None or is_taken_over:
            parts |= {"topics": topics, "is_taken_over": is_taken_over}
        reported: list[EventParts] = [(events.HoldsPlaced, parts)]
        if idle and (nothing := tuple(one for one in placed if one.scope in idle)):
            reported.append((events.PatternCoversNothing, {"holds": nothing}))
        return Step(after, tuple(reported), (), bool(quiet))

    def left_to(self, owned: Owned, holds: Iterable[Hold]) -> tuple[Hold, ...]:
        """Return those left to ownerships that go on, without a pause of their own."""
        scopes = {Partition(*tp) for tp in still(self.owned, owned)}
        known = self.holds.get
        return tuple(
            one for one in holds if one.scope in scopes and known(one.key) is None
        )

    def moved(self, wanted: Iterable[Hold]) -> Step:
        """Give holds new deadlines; those that are others by now are left alone."""
        moved = [
            evolve(known, deadline=hold.deadline)
            for hold in wanted
            if (known := self.holds.get(hold.key)) is not None and known == hold
        ]
        due = _sooner(self.due, moved)
        return Step(self._replace(holds=self.holds.including(moved), due=due))

    # ------------------------------------------------------------ lifting

    def removed(
        self,
        keys: Collection[HoldKey],
        now: float,
        *,
        by_application: bool = False,
        is_all: bool = False,
    ) -> Step:
        """Lift holds, all of their owner or some; the application ends more by it."""
        more: tuple[Hold, ...] = ()
        if by_application and self.ends_more:
            more = tuple(filter(self._ends_with_any_resume, self.holds))
        ending = dict.fromkeys(keys)
        back: tuple[Hold, ...] = ()
        if more:
            back = _restored_after(
                (hold for hold in more if hold.key not in ending), now
            )
            ending.update((hold.key, None) for hold in more)
        known = self.holds.get
        gone = tuple([hold for key in ending if (hold := known(key)) is not None])
        after = self._without(ending, back) if gone else self
        if by_application and self.ends_more:
            after = after._replace(ends_more=False)
        # With nothing assigned a resume can name nothing of what was paused.
        if self.stood is not None:
            bare = (APP, WHOLE) if by_application and not self.assigned else ()
            after = after.lifted(ending, all_of=bare)
        flowing = after.flowing(self.reached(gone))
        remaining = after.remaining(keys)
        reported: list[EventParts] = []
        if gone:
            parts = {"holds": gone, "flowing": flowing, "remaining": remaining}
            # One that names nothing, or all of its owner's, means all of them.
            if more and keys and not is_all:
                parts["besides"] = ended_besides(more, keys, flowing)
                parts["waiting"] = ended_unnamed(more, keys)
            reported.append((events.HoldsRemoved, parts))
        elif remaining:
            reported.append((events.StillHeld, {"holds": remaining}))
        return self._step_to(after, reported, back, flowing, "resumed")

    def expired(self, now: float) -> Step:
        """End what is over, and the plain pauses that lasted by a whole one of that."""
        over = tuple(one for one in self.holds if end_of(one) <= now)
        topics = {_topic_of(one) for one in over if one.owner == WHOLE}
        here = self.owned.keys() | self.undecided.keys()
        keys = [one.key for one in over]
        ended = tuple(
            one
            for one in self.holds.without(keys)
            if _topic_of(one) in topics and _is_away(one, here)
        )
        back = _restored_after((*over, *ended), now)
        after = self._without([*keys, *(one.key for one in ended)], back)
        after = after._replace(due=_sooner(NEVER, after.holds)).lifted(keys)
        flowing = after.flowing(self.reached(over))
        reported: list[EventParts] = []
        if over:
            reported.append((events.HoldsExpired, {"holds": over, "flowing": flowing}))
        if ended:
            reported.append((events.HoldsEnded, {"holds": ended, "departed": ()}))
        return self._step_to(after, reported, back, flowing, "a hold has expired")

    def _ends_with_any_resume(self, hold: Hold) -> bool:
        # whatever a resume of the application names.
        return hold.owner == WHOLE or _is_away(hold, self.owned)

    def _without(self, keys: Iterable[HoldKey], back: Collection[Hold]) -> Table:
        holds = self.holds.without(keys, back)
        # Not of what is left: to look through it for each one lifted is quadratic.
        due = _sooner(self.due, back) if holds else NEVER
        return Table(holds, due, *self[2:])

    def _step_to(
        self,
        after: Table,
        reported: list[EventParts],
        back: Collection[Hold],
        flowing: tuple[TopicPartition, ...],
        why: str,
    ) -> Step:
        # With what flows because gates opened, which is in no other event.
        if back:
            reported += _placed_back(back)
        is_seen = after.holds is not self.holds
        if (after.gated, after.unread) != (self.gated, self.unread):
            is_seen = True
            closed = (self.gated | self.unread).difference(flowing)
            if opened := after.flowing(closed):
                reported.append(
                    (events.GatesChanged, {"flowing": opened, "reason": why})
                )
                flowing += opened
        return Step(after, tuple(reported), flowing, bool(flowing), is_seen)

    # ------------------------------------------------------------ gates

    def begun(self, view: View) -> Table:
        """Note the start of a call; this table itself, if it gates nothing, as most do."""
        stood, stood_on = self.stood, self.stood_on
        if self.assigned:
            is_held = view.is_quiet_throughout() and all(
                map(self.holds.covers, view.gates)
            )
            stood, stood_on = (self.holds if is_held else None), self.assigned
        if stood is None and self.stood is None and not self.in_call:
            return self
        return self._replace(in_call=True, stood=stood, stood_on=stood_on)

    def ended(self) -> Step:
        """Note the end of a call: its gates open, and nothing is gated from now on."""
        after = self._replace(in_call=False, gated=_NONE if self.gated else self.gated)
        return self._step_to(
            after, [], (), (), "the poll that gained them has returned"
        )

    def read(self, owned: Owned) -> Step:
        """Note that the control topics are read, for those ownerships that go on."""
        unread = self.unread - still(self.owned, owned)
        after = self if unread == self.unread else self._replace(unread=unread)
        return self._step_to(after, [], (), (), "the control topics are read")

    def chosen_anew(self) -> Step:
        """Note that something else is consumed: with nothing owned no hold stands."""
        if self.assigned or self.in_call:
            return Step(self, is_seen=False)
        return Step(self._replace(stood=None, stood_on=NOTHING), is_seen=False)

    def lifted(self, keys: Iterable[HoldKey], *, all_of: Collection[str] = ()) -> Table:
        """
        Note that owners lifted holds, or that these expired: gates may open.

        Keys count that were named, whether a hold existed or not; of the owners in
        ``all_of`` nothing stands any more.
        """
        if self.stood is None:
            return self
        named = list(keys)
        more = (one.key for one in self.stood if one.owner in all_of) if all_of else ()
        stood = self.stood.without([*named, *more])
        if not stood.cover_any(self.stood_on):
            return self._replace(stood=None, stood_on=NOTHING, gated=_NONE)
        if not self.gated:
            return self._replace(stood=stood)
        found = map(stood.covering, View(stood, self.stood_on).partitions())
        owners = {hold.owner for several in found for hold in several}
        gated = self.gated
        for scope, owner in named if len(owners) == 1 else ():
            if owner in owners:
                gated = gated.difference(affected_by(self.assigned, scope))
        return self._replace(stood=stood, gated=gated)

    # ------------------------------------------------------------ the assignment

    def reassigned(
        self,
        owned: Owned,
        cause: Cause,
        now: float,
        *,
        carried: frozenset[TopicPartition] | None,
        is_watched: bool,
    ) -> Step:
        """
        Move to a new assignment.

        The application's pauses of ``carried`` partitions go to their next owners; None:
        none does. What is gained waits for the control topics if ``is_watched``.
        """
        what = difference(self.owned, owned)
        if not (what.gained or what.departed):
            owned = self.owned
        change = _AssignmentChange(cause, owned, what.departed, carried)
        ended = tuple(hold for hold in self.holds if self.ends(hold, change))
        undecided, lost = self._undecided(change)
        is_decided = (undecided, lost) != (self.undecided, self.lost)
        if not (what.gained or what.departed or ended or is_decided):
            return Step(self, is_seen=False, what=what)
        back = () if cause is Cause.CLOSED else _restored_after(ended, now)
        is_same = owned.keys() == self.owned.keys()
        after = self._without([hold.key for hold in ended], back) if ended else self
        after = after._replace(
            owned=owned,
            assigned=self.assigned if is_same else by_topic(owned),
            undecided=undecided,
            lost=lost,
            ends_more=True,
        )
        after = after.gating(what, is_watched=is_watched)
        gone = what.departed - owned.keys()
        left = tuple(filter(self.is_quiet, gone))
        new = what.gained - self.owned.keys()
        after, held = after.assigned_while_held(new, left, cause)
        reached = after.reached(ended)
        flowing = after.flowing([tp for tp in reached if tp in what.kept])
        reported = [*_ended(ended, change, flowing), *_placed_back(back), *held]
        if carried is not None:
            holds = after.holds if cause.is_called else self.holds
            reported += _left_behind(holds, gone, carried)
        ended_quiet = (*left, *flowing)
        return Step(after, tuple(reported), ended_quiet, is_moved=True, what=what)

    def _undecided(
        self, change: _AssignmentChange
    ) -> tuple[Owned, frozenset[TopicPartition]]:
        if not change.cause.is_passing:
            return NOTHING_OWNED, _NONE
        gone = {tp: self.owned[tp] for tp in change.departed - change.owned.keys()}
        undecided = {**self.undecided, **gone}
        is_lost = change.cause is Cause.LOST
        return undecided, frozenset(undecided) if is_lost else self.lost

    def ends(self, hold: Hold, change: _AssignmentChange) -> bool:
        """Tell whether a hold ends as the assignment changes."""
        scope, cause = hold.scope, change.cause
        if cause is Cause.CLOSED:
            return not hold.is_remote
        if hold.owner == WHOLE:
            return cause.is_called
        if hold.lifetime is Lifetime.WHILE_ASSIGNED:
            is_here = any(map(scope.covers, change.owned))
            return not is_here and any(map(scope.covers, change.departed))
        if not isinstance(scope, Partition) or cause.is_passing:
            return False  # only lost, or about to join: nothing is decided yet
        tp = scope.topic, scope.partition
        if tp in change.owned or (
            not cause.is_called and self.holds.get((Topic(tp[0]), WHOLE)) is not None
        ):
            return False
        has_been = tp in change.departed or tp in self.undecided
        # A join that assigns nothing decides nothing for what has never been here: the
        # first one of a leader without metadata is such.
        is_decided = cause.is_called or bool(change.owned) or has_been
        is_over = hold.lifetime is Lifetime.PLAIN and is_decided
        return is_over or (has_been and change.carries(hold))

    def gating(self, what: Reassignment, *, is_watched: bool) -> Table:
        """Drop the gates of departed partitions, and gate the gained ones."""
        gated, unread = self.gated - what.departed, self.unread - what.departed
        return self._replace(
            gated=gated | what.gained if self.is_gating else gated,
            unread=unread | what.gained if is_watched else unread,
        )

    def assigned_while_held(
        self,
        gained: Collection[TopicPartition],
        left: Iterable[TopicPartition],
        cause: Cause,
    ) -> tuple[Table, list[EventParts]]:
        """
        Note which partitions departed and were quiet; report gained ones that are held.

        A gained partition is reported if it left quiet and is held, or if it comes
        under a whole pause. A whole pause of which nothing by name is left is reported
        once, with all that it keeps quiet.
        """
        holds = self.holds
        is_lost = cause is Cause.LOST
        left_quiet = {**self.left_quiet, **dict.fromkeys(left, is_lost)}
        alone = self.left_alone if cause.is_passing else self._alone()
        known = self.left_alone.get
        news = {topic for topic, one in alone.items() if known(topic) is not one}
        looked_at = {*gained, *(tp for topic in news for tp in self.assigned[topic])}
        held: list[TopicPartition] = []
        holding: dict[HoldKey, Hold] = {}
        for tp in sorted(looked_at):
            covering = holds.covering(tp)
            is_whole = any(hold.owner == WHOLE for hold in covering)
            if covering and (is_whole or tp in left_quiet):
                held.append(tp)
                holding.update((hold.key, hold) for hold in covering)
        still = [tp for tp in left_quiet if tp not in gained and holds.covers(tp)]
        after = self._replace(
            left_quiet={tp: left_quiet[tp] for tp in still[-MOST_LEFT:]},
            left_alone=alone,
        )
        parts = {
            "partitions": tuple(held),
            "holds": tuple(holding.values()),
            "is_left_alone": bool(news),
            "lost": tuple(tp for tp in held if tp in gained and left_quiet.get(tp)),
        }
        return after, [(events.AssignedWhileHeld, parts)] if held else []

    def _alone(self) -> dict[str, Hold]:
        # Whole pauses of topics of which something is here, and nothing by name. One
        # with nothing here at all stays what it was.
        holds, alone = self.holds, {}
        for topic in {*self.assigned, *self.left_alone}:
            whole = holds.get((Topic(topic), WHOLE))
            if whole is None:
                continue
            here = self.assigned.get(topic, ())
            is_named = any(holds.get((Partition(tp[0], tp[1]), APP)) for tp in here)
            if not is_named and (here or self.left_alone.get(topic) is whole):
                alone[topic] = whole
        return alone


class _AssignmentChange(NamedTuple):
    # Why and how an assignment changes.
    cause: Cause
    owned: Owned
    departed: frozenset[TopicPartition]
    carried: frozenset[TopicPartition] | None

    def carries(self, hold: Hold) -> bool:
        """Tell whether the pause of a departed partition goes to the next owner."""
        scope = hold.scope
        return (
            not self.cause.is_called  # no join carries anything then
            and isinstance(scope, Partition)
            and (scope.topic, scope.partition) in (self.carried or ())
            and may_travel(hold)
        )


def rebalanced(before: Table, after: Table) -> dict[str, Any]:
    """
    Return what a completed join changed, as ``RebalanceCompleted`` has it.

    ``before`` is the table to which its assignment was applied: that knows what was given
    up while the join was prepared, and what others may have owned meanwhile.
    """
    what = difference({**before.undecided, **before.owned}, after.owned)
    view, lost = after.view(), before.lost
    on_gained = {
        hold.key: hold
        for tp in sorted(what.gained & view.quiet)
        for hold in view.holds.covering(tp)
    }
    return {
        "kept": sorted_partitions(what.kept),
        "gained": sorted_partitions(what.gained),
        "revoked": sorted_partitions(what.departed - after.owned.keys() - lost),
        "lost": sorted_partitions(lost),
        "quiet": sorted_partitions(view.quiet),
        "holds_on_gained": tuple(on_gained.values()),
    }


def by_topic(tps: Iterable[TopicPartition]) -> Assigned:
    """Return an assignment by topic, with the very partitions that it names."""
    found: dict[str, dict[TopicPartition, TopicPartition]] = {}
    for tp in tps:
        found.setdefault(tp[0], {})[tp] = tp
    return found


def ended_besides(
    ended: Iterable[Hold],
    keys: Collection[HoldKey],
    flowing: Collection[TopicPartition],
) -> tuple[Hold, ...]:
    """
    Return the whole pauses that a resume ends, though it is one of something else.

    It names nothing of their topic, or more of that flows than it names.
    """
    names = {
        (one.topic, one.partition) for one, _ in keys if isinstance(one, Partition)
    }
    wide = [one for one, _ in keys if not isinstance(one, Partition)]
    topics = {topic for topic, _ in names}
    more = {tp[0] for tp in flowing if tp not in names}
    return tuple(
        hold
        for hold in ended
        if hold.owner == WHOLE
        and isinstance(hold.scope, Topic)
        and (hold.scope.topic not in topics or hold.scope.topic in more)
        and not any(one.covers((hold.scope.topic, 0)) for one in wide)
    )


def ended_unnamed(ended: Iterable[Hold], keys: Collection[HoldKey]) -> tuple[Hold, ...]:
    """
    Return the pauses by name, of what is not assigned, that a resume of others ends.

    A resume of a whole pause names all that was paused under it.
    """
    named = {scope for scope, _ in keys}
    wide = [scope for scope in named if not isinstance(scope, Partition)]
    ended = tuple(ended)
    whole = {_topic_of(hold) for hold in ended if hold.owner == WHOLE}
    return tuple(
        hold
        for hold in ended
        if isinstance(hold.scope, Partition)
        and hold.scope not in named
        and hold.scope.topic not in whole
        and not any(
            one.covers((hold.scope.topic, hold.scope.partition)) for one in wide
        )
    )


def _ended(
    ended: tuple[Hold, ...],
    change: _AssignmentChange,
    flowing: tuple[TopicPartition, ...],
) -> list[EventParts]:
    if not ended:
        return []
    travelled = {
        (one.scope.topic, one.scope.partition)
        for one in ended
        if isinstance(one.scope, Partition) and change.carries(one)
    }
    parts = {
        "holds": ended,
        "flowing": flowing,
        "departed": sorted_partitions(change.departed),
        "handed_over": sorted_partitions(travelled),
        "is_called": change.cause.is_called,
    }
    return [(events.HoldsEnded, parts)]


def _left_behind(
    holds: Holds, gone: Iterable[TopicPartition], carried: Collection[TopicPartition]
) -> list[EventParts]:
    # Of what has departed while it was paused, and is paused at no next owner by that.
    found: dict[bool, list[TopicPartition]] = {False: [], True: []}
    for tp in sorted(gone):
        whole = holds.get((Topic(tp[0]), WHOLE))
        if whole is not None and whole.expires_at is None:
            found[True].append(tp)
        elif tp not in carried and travels(holds, tp):
            found[False].append(tp)
    return [
        (events.PauseNotHandedOver, {"partitions": tuple(tps), "is_whole": is_whole})
        for is_whole, tps in found.items()
        if tps
    ]


def _placed_back(back: Collection[Hold]) -> list[EventParts]:
    # What was beneath pauses that have ended; no partition becomes quiet by it.
    return [(events.HoldsPlaced, {"holds": tuple(back)})] if back else []


def _restored_after(ended: Iterable[Hold], now: float) -> tuple[Hold, ...]:
    # The strict holds beneath pauses that have ended by themselves: in force again.
    found = (hold.beneath for hold in ended)
    return tuple(one for one in found if one is not None and end_of(one) > now)


def _sooner(due: float, holds: Iterable[Hold]) -> float:
    for hold in holds:
        if hold.deadline is not None and hold.deadline < due:
            due = hold.deadline
    return due


def _topic_of(hold: Hold) -> str | None:
    scope = hold.scope
    return scope.topic if isinstance(scope, Partition | Topic) else None


def _is_away(hold: Hold, owned: Collection[TopicPartition]) -> bool:
    scope = hold.scope
    return (
        hold.lifetime is Lifetime.PLAIN
        and isinstance(scope, Partition)
        and (scope.topic, scope.partition) not in owned
    )
