"""
Decides which partitions are quiet, with a table of holds, gates and assignments.

Theory of operation
-------------------

A :class:`Table` is immutable. Each change returns a :class:`Step` with the next table,
the events, and the partitions that are no longer quiet. The partitions that became
quiet, or are no longer quiet, are found by comparing two tables, but only for the
partitions that the change affects. The ledger stores the tables one after another.

Four kinds of things have a state.

**1. A hold**, identified by its scope and its owner.

| state | transition | next state |
|---|---|---|
| absent | its owner places it | in force |
| in force | its owner places it again | in force, with the new reason, lifetime and end |
| in force | its owner lifts it, it expires, or it ends (below) | absent |
| in force, strict | a plain pause that lasts longer is placed over it | beneath that pause |
| beneath | the pause ends without a resume | in force, unless it has expired |
| beneath | the pause is lifted by name | absent |

Some changes end holds that they do not name.

| change | holds that it ends |
|---|---|
| a ``resume`` of the application | whole pauses, and plain pauses of absent partitions |
| a whole pause expires | plain pauses of absent partitions of its topic |
| a completed join | plain pauses of partitions that it leaves out |
| ``assign``, ``unsubscribe`` | the same plain pauses, and whole pauses |
| the partition departs, for any reason | holds that are bound to its assignment |
| a join is prepared, or the membership is lost | no others; the next join decides |
| ``close`` | all holds except those of operators and of the group |

**2. An assigned partition.** It is *quiet* if it is held or gated, or both.

| state | transition | next state |
|---|---|---|
| not assigned | it is gained, and a hold covers it | held |
| not assigned | it is gained by a ``poll`` that gates, or is watched | gated |
| not assigned | it is gained otherwise | not quiet |
| not quiet | a hold that covers it is placed | held |
| held | the last hold that covers it is lifted, expires or ends | not quiet |
| gated | its gate opens (below) | held, or not quiet |
| any | it departs | not assigned |

**3. An ownership that has ended.** A join that is prepared, or a lost membership,
leaves the ownership *undecided*: the next completed join either gives the partition
back or confirms that it is gone. After any other cause, an ownership that has ended is
gone immediately.

**4. A poll.** If a program held everything before a ``poll``, it had no opportunity to
hold partitions that it gained during the ``poll`` (KAFKA-13463). For these partitions a
gate replaces the holds that were in force when the ``poll`` started. The gate opens
when the ``poll`` returns, or when all of those holds have been lifted. It also opens
when an owner names the partition in a ``resume``, if all of those holds that are still
in force belong to that owner. If nothing is assigned when a ``poll`` starts, the holds
from the last ``poll`` with an assignment still count, because the loss of a membership
must not look like a resume. A hold that ends because its partition departs was not
lifted, so it still counts. A second gate keeps gained partitions quiet until the
control topics have been read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from attrs import evolve

from safeconsumer.events import consumer as events
from safeconsumer.events.base import Event, sorted_partitions
from safeconsumer.holds.hold import (
    APP,
    WHOLE,
    Hold,
    HoldKey,
    Lifetime,
    end_of,
    is_routine,
)
from safeconsumer.holds.ownership import (
    Cause,
    Owned,
    Reassignment,
    difference,
    still,
)
from safeconsumer.holds.plain import can_be_handed_over, is_handed_over, placed_over
from safeconsumer.holds.scope import Partition, Scope, Topic, TopicPartition
from safeconsumer.holds.view import NOTHING, Assigned, Holds, View, affected_by

NEVER = math.inf

CALL_GATE = "gained during a poll() that started with everything paused"
CONTROL_GATE = "waits until the control topics are read"

# The maximum number of departed partitions that are remembered because they were quiet,
# about 1 MB. Without a limit, endless new topic names would fill the memory under a
# hold of everything.
MOST_LEFT = 10_000

_NONE: frozenset[TopicPartition] = frozenset()
NOTHING_OWNED: Owned = {}

EventParts = tuple[type[Event], dict[str, Any]]
"""
The class of an event, and its fields except the time and the consumer's ids.
"""


class Step(NamedTuple):
    """
    The result of one change.

    Attributes:
        table: the table after the change.
        events: the events, in chronological order.
        ended: partitions that were quiet, and now are not, or have departed.
        is_moved: whether partitions became quiet, or ceased to be quiet.
        is_visible: whether the change is visible to readers of holds.
        reassignment: the difference between the old and the new assignment.
    """

    table: Table
    events: tuple[EventParts, ...] = ()
    ended: tuple[TopicPartition, ...] = ()
    is_moved: bool = False
    is_visible: bool = True
    reassignment: Reassignment = Reassignment()


class Table(NamedTuple):
    """
    The holds, gates and assigned partitions at one point in time; immutable.

    Each change returns a :class:`Step` with the next table. ``now`` is in seconds on
    the monotonic clock.

    Attributes:
        holds: the holds.
        due: a time on the monotonic clock; no hold expires before it.
        ends_more: whether a resume must search for holds that it ends without naming
            them. It is False after one search, so that a loop of resumes takes linear
            time.
        owned: the owned partitions; each change creates a new object.
        assigned: the same partitions, by topic.
        undecided: ownerships that have ended, and whose partitions the next completed
            join may give back.
        lost: undecided ownerships that ended, or may have ended, because the membership
            was lost.
        gated: partitions that wait for the current ``poll`` to return.
        unread: partitions that wait until the control topics have been read.
        in_call: whether the program is in a ``poll`` that may gate partitions.
        gating_holds: the holds that a gate replaces. These are the holds that kept
            everything quiet when the last ``poll`` with an assignment started, except
            those that were lifted since. None if some partition was not quiet then, or
            if all of these holds were lifted.
        gating_assigned: the partitions that were assigned when that ``poll`` started.
        left_quiet: the partitions that departed while quiet and are still held, the
            most recent ones last; the value is whether the membership was lost.
        left_alone: maps topics to their whole pauses, if the application has paused
            none of the topic's assigned partitions by name; these were reported.
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
    gating_holds: Holds | None = None
    gating_assigned: Assigned = NOTHING
    left_quiet: Mapping[TopicPartition, bool] = {}
    left_alone: Mapping[str, Hold] = {}

    # ------------------------------------------------------------ queries

    def view(self) -> View:
        """Return the view that readers get."""
        holds, assigned = self.holds, self.assigned
        quiet = holds.covered(assigned) if holds else set()
        gates = {
            **dict.fromkeys(self.gated, CALL_GATE),
            **dict.fromkeys(self.unread, CONTROL_GATE),
        }
        quiet.update(gates)
        return View(holds, assigned, gates, frozenset(quiet))

    def is_quiet(self, tp: TopicPartition) -> bool:
        """Return whether a hold or a gate covers a partition."""
        return tp in self.gated or tp in self.unread or self.holds.covers(tp)

    @property
    def is_gating(self) -> bool:
        """Whether partitions that are gained now must be gated."""
        return self.in_call and self.gating_holds is not None

    def remaining(self, keys: Collection[HoldKey]) -> tuple[Hold, ...]:
        """Return the holds that still cover the scopes of lifted holds with these keys."""
        holds = self.holds
        # A worker lifts its own holds many times a second, and does not use the result.
        if not holds or all(is_routine(owner) for _, owner in keys):
            return ()
        found = [holds.overlapping(one) for one in {scope: None for scope, _ in keys}]
        if len(found) == 1:  # the usual case
            return found[0]
        several = {hold.key: hold for held in found for hold in held}
        return tuple(several.values())

    def reached(self, holds: Iterable[Hold]) -> dict[TopicPartition, None]:
        """Return the assigned partitions that holds cover, without duplicates."""
        assigned = self.assigned
        return dict.fromkeys(
            [tp for hold in holds for tp in affected_by(assigned, hold.scope)]
        )

    def flowing(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[TopicPartition, ...]:
        """
        Return the given partitions that neither a hold nor a gate covers.

        For the partitions that a change affects, the result is the difference between
        two quiet sets. Before a hold is placed, it contains the partitions that the
        hold will make quiet. After a hold was lifted or a gate was opened, it contains
        the partitions that are no longer quiet.
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

        If some holds are on patterns, ``topics`` are the known topics that the holds
        cover, and ``idle`` are the patterns that cover no topic. ``whole`` is called
        with the current holds, and returns the whole pauses that must be placed in
        addition.
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
            return Step(self, is_visible=False)
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

    def to_take_over(self, owned: Owned, holds: Iterable[Hold]) -> tuple[Hold, ...]:
        """
        Return those holds that are to be taken over from partitions' previous owners.

        The result leaves out a hold if the ownership of its partition has changed
        since, or if the application has already paused the partition.
        """
        scopes = {Partition(*tp) for tp in still(self.owned, owned)}
        known = self.holds.get
        return tuple(
            one for one in holds if one.scope in scopes and known(one.key) is None
        )

    def moved(self, wanted: Iterable[Hold]) -> Step:
        """Change the deadlines of holds, except holds that were replaced in the meantime."""
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
        """
        Lift holds. A resume by the application also ends holds that it does not name.

        ``is_all`` means that the keys are those of all holds of one owner.
        """
        more: tuple[Hold, ...] = ()
        if by_application and self.ends_more:
            more = tuple(filter(self._ends_with_any_resume, self.holds))
        ending = dict.fromkeys(keys)
        restored: tuple[Hold, ...] = ()
        if more:
            restored = _restored_after(
                (hold for hold in more if hold.key not in ending), now
            )
            ending.update((hold.key, None) for hold in more)
        known = self.holds.get
        gone = tuple([hold for key in ending if (hold := known(key)) is not None])
        after = self._without(ending, restored) if gone else self
        if by_application and self.ends_more:
            after = after._replace(ends_more=False)
        # If no partition is assigned, a resume cannot name the partitions that were
        # paused.
        if self.gating_holds is not None:
            bare = (APP, WHOLE) if by_application and not self.assigned else ()
            after = after.after_lifting(ending, all_of=bare)
        flowing = after.flowing(self.reached(gone))
        remaining = after.remaining(keys)
        reported: list[EventParts] = []
        if gone:
            parts = {"holds": gone, "flowing": flowing, "remaining": remaining}
            # Side effects are not reported if the resume has no targets, or lifts all
            # holds of its owner.
            if more and keys and not is_all:
                parts["besides"] = ended_besides(more, keys, flowing)
                parts["waiting"] = ended_unnamed(more, keys)
            reported.append((events.HoldsRemoved, parts))
        elif remaining:
            reported.append((events.StillHeld, {"holds": remaining}))
        return self._step_to(after, reported, restored, flowing, "resumed")

    def expired(self, now: float) -> Step:
        """End expired holds, and plain pauses that only an expired whole pause has kept."""
        over = tuple(one for one in self.holds if end_of(one) <= now)
        topics = {_topic_of(one) for one in over if one.owner == WHOLE}
        here = self.owned.keys() | self.undecided.keys()
        keys = [one.key for one in over]
        ended = tuple(
            one
            for one in self.holds.without(keys)
            if _topic_of(one) in topics and _is_away(one, here)
        )
        restored = _restored_after((*over, *ended), now)
        after = self._without([*keys, *(one.key for one in ended)], restored)
        after = after._replace(due=_sooner(NEVER, after.holds)).after_lifting(keys)
        flowing = after.flowing(self.reached(over))
        reported: list[EventParts] = []
        if over:
            reported.append((events.HoldsExpired, {"holds": over, "flowing": flowing}))
        if ended:
            reported.append((events.HoldsEnded, {"holds": ended, "departed": ()}))
        return self._step_to(after, reported, restored, flowing, "a hold has expired")

    def _ends_with_any_resume(self, hold: Hold) -> bool:
        # Returns whether any resume by the application ends the hold.
        return hold.owner == WHOLE or _is_away(hold, self.owned)

    def _without(self, keys: Iterable[HoldKey], restored: Collection[Hold]) -> Table:
        holds = self.holds.without(keys, restored)
        # The remaining holds are not searched for the next expiry, because to search
        # them after each lifted hold would take quadratic time.
        due = _sooner(self.due, restored) if holds else NEVER
        return Table(holds, due, *self[2:])

    def _step_to(
        self,
        after: Table,
        reported: list[EventParts],
        restored: Collection[Hold],
        flowing: tuple[TopicPartition, ...],
        why: str,
    ) -> Step:
        # If gates were opened, an additional event lists the partitions that are no
        # longer quiet because of that.
        if restored:
            reported += _placed_back(restored)
        is_visible = after.holds is not self.holds
        if (after.gated, after.unread) != (self.gated, self.unread):
            is_visible = True
            closed = (self.gated | self.unread).difference(flowing)
            if opened := after.flowing(closed):
                reported.append(
                    (events.GatesChanged, {"flowing": opened, "reason": why})
                )
                flowing += opened
        return Step(after, tuple(reported), flowing, bool(flowing), is_visible)

    # ------------------------------------------------------------ gates

    def poll_begun(self, view: View) -> Table:
        """Record that a ``poll`` starts; one that cannot gate partitions changes nothing."""
        holds, assigned = self.gating_holds, self.gating_assigned
        if self.assigned:
            is_held = view.is_all_quiet() and all(map(self.holds.covers, view.gates))
            holds, assigned = (self.holds if is_held else None), self.assigned
        if holds is None and self.gating_holds is None and not self.in_call:
            return self
        return self._replace(in_call=True, gating_holds=holds, gating_assigned=assigned)

    def poll_ended(self) -> Step:
        """Record that a ``poll`` returns: open its gates, and stop gating partitions."""
        after = self._replace(in_call=False, gated=_NONE if self.gated else self.gated)
        return self._step_to(
            after, [], (), (), "the poll that gained them has returned"
        )

    def control_read(self, owned: Owned) -> Step:
        """Record that the control topics were read for these ownerships; skip ended ones."""
        unread = self.unread - still(self.owned, owned)
        after = self if unread == self.unread else self._replace(unread=unread)
        return self._step_to(after, [], (), (), "the control topics are read")

    def subscription_changed(self) -> Step:
        """Clear ``gating_holds``, unless a partition is assigned or ``in_call`` is true."""
        if self.assigned or self.in_call:
            return Step(self, is_visible=False)
        after = self._replace(gating_holds=None, gating_assigned=NOTHING)
        return Step(after, is_visible=False)

    def after_lifting(
        self, keys: Iterable[HoldKey], *, all_of: Collection[str] = ()
    ) -> Table:
        """
        Open gates that are no longer needed, after holds were lifted or have expired.

        A key counts as lifted if an owner has named it, even if the hold did not exist.
        All holds of the owners in ``all_of`` count as lifted, too.
        """
        if self.gating_holds is None:
            return self
        named, holds, assigned = list(keys), self.gating_holds, self.gating_assigned
        more = (one.key for one in holds if one.owner in all_of) if all_of else ()
        holds = holds.without([*named, *more])
        if not holds.cover_any(assigned):
            return self._replace(
                gating_holds=None, gating_assigned=NOTHING, gated=_NONE
            )
        if not self.gated:
            return self._replace(gating_holds=holds)
        found = map(holds.covering, View(holds, assigned).partitions())
        owners = {hold.owner for several in found for hold in several}
        gated = self.gated
        for scope, owner in named if len(owners) == 1 else ():
            if owner in owners:
                gated = gated.difference(affected_by(self.assigned, scope))
        return self._replace(gating_holds=holds, gated=gated)

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

        The application's pauses of ``carried`` partitions are handed over to the
        partitions' next owners. If ``carried`` is None, pauses are not handed over. If
        ``is_watched`` (the ledger has a watcher), gained partitions are gated until the
        control topics are read.
        """
        what = difference(self.owned, owned)
        if not (what.gained or what.departed):
            owned = self.owned
        change = _AssignmentChange(cause, owned, what.departed, carried)
        ended = tuple(hold for hold in self.holds if self.ends(hold, change))
        undecided, lost = self._undecided(change)
        is_decided = (undecided, lost) != (self.undecided, self.lost)
        if not (what.gained or what.departed or ended or is_decided):
            return Step(self, is_visible=False, reassignment=what)
        restored = () if cause is Cause.CLOSED else _restored_after(ended, now)
        is_same = owned.keys() == self.owned.keys()
        after = self._without([hold.key for hold in ended], restored) if ended else self
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
        reported = [*_ended(ended, change, flowing), *_placed_back(restored), *held]
        if carried is not None:
            holds = after.holds if cause.is_called else self.holds
            reported += _left_behind(holds, gone, carried)
        ended_quiet = (*left, *flowing)
        return Step(
            after, tuple(reported), ended_quiet, is_moved=True, reassignment=what
        )

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
        """Return whether a change of the assignment ends a hold."""
        scope, cause = hold.scope, change.cause
        if cause is Cause.CLOSED:
            return not hold.is_remote
        if hold.owner == WHOLE:
            return cause.is_called
        if hold.lifetime is Lifetime.WHILE_ASSIGNED:
            is_here = any(map(scope.covers, change.owned))
            return not is_here and any(map(scope.covers, change.departed))
        if not isinstance(scope, Partition) or cause.is_passing:
            return False  # the next join decides
        tp = scope.topic, scope.partition
        if tp in change.owned or (
            not cause.is_called and self.holds.get((Topic(tp[0]), WHOLE)) is not None
        ):
            return False
        has_been = tp in change.departed or tp in self.undecided
        # A join that assigns nothing does not end the pause of a partition that was
        # never assigned here: the first join may have been led by a member that had no
        # metadata.
        is_decided = cause.is_called or bool(change.owned) or has_been
        is_over = hold.lifetime is Lifetime.PLAIN and is_decided
        return is_over or (has_been and change.carries(hold))

    def gating(self, what: Reassignment, *, is_watched: bool) -> Table:
        """Remove the gates of departed partitions, and gate the gained ones."""
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
        Record which partitions departed while quiet; report gained ones that are held.

        A gained partition is reported if it is held and was quiet when its last
        ownership here ended, or if a whole pause covers it. If a topic has a whole
        pause, but none of its partitions is paused by name, this is reported once, with
        all partitions that the whole pause keeps quiet.
        """
        holds = self.holds
        is_lost = cause is Cause.LOST
        left_quiet = {**self.left_quiet, **dict.fromkeys(left, is_lost)}
        alone = self.left_alone if cause.is_passing else self._alone()
        known = self.left_alone.get
        newly_alone = {topic for topic, one in alone.items() if known(topic) is not one}
        candidates = {
            *gained,
            *(tp for topic in newly_alone for tp in self.assigned[topic]),
        }
        held: list[TopicPartition] = []
        holding: dict[HoldKey, Hold] = {}
        for tp in sorted(candidates):
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
            "is_left_alone": bool(newly_alone),
            "lost": tuple(tp for tp in held if tp in gained and left_quiet.get(tp)),
        }
        return after, [(events.AssignedWhileHeld, parts)] if held else []

    def _alone(self) -> dict[str, Hold]:
        # Returns the whole pauses of topics of which no assigned partition is paused by
        # name. If a topic has no assigned partitions, its last state is kept.
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
    # A change of the assignment, and its cause.
    cause: Cause
    owned: Owned
    departed: frozenset[TopicPartition]
    carried: frozenset[TopicPartition] | None

    def carries(self, hold: Hold) -> bool:
        """Return whether the pause of a departed partition is handed to the next owner."""
        scope = hold.scope
        return (
            not self.cause.is_called  # there is no join then
            and isinstance(scope, Partition)
            and (scope.topic, scope.partition) in (self.carried or ())
            and can_be_handed_over(hold)
        )


def rebalanced(before: Table, after: Table) -> dict[str, Any]:
    """
    Return the fields of ``RebalanceCompleted`` for a completed join.

    ``before`` is the table before its assignment was applied. It still contains the
    partitions that were given up while the join was prepared, and those that other
    members may have owned since.
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
    """Group partitions by topic; the result has the same partition objects."""
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
    Return the whole pauses that a resume ends although it does not name the topic.

    The result includes a topic's whole pause if the resume names some of the topic's
    partitions, but not all of those that are no longer quiet afterwards.
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
    Return the pauses of unassigned partitions that a resume ends without naming them.

    These pauses would have taken effect once their partitions were assigned. A resume
    that ends a whole pause counts as naming all of the topic's partitions.
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
    # Reports departed partitions whose pause is not handed over to the next owner.
    found: dict[bool, list[TopicPartition]] = {False: [], True: []}
    for tp in sorted(gone):
        whole = holds.get((Topic(tp[0]), WHOLE))
        if whole is not None and whole.expires_at is None:
            found[True].append(tp)
        elif tp not in carried and is_handed_over(holds, tp):
            found[False].append(tp)
    return [
        (events.PauseNotHandedOver, {"partitions": tuple(tps), "is_whole": is_whole})
        for is_whole, tps in found.items()
        if tps
    ]


def _placed_back(restored: Collection[Hold]) -> list[EventParts]:
    # Returns an event about holds that are in force again because the pauses above them
    # have ended. The partitions stay quiet.
    return [(events.HoldsPlaced, {"holds": tuple(restored)})] if restored else []


def _restored_after(ended: Iterable[Hold], now: float) -> tuple[Hold, ...]:
    # Returns the strict holds that are in force again, because the pauses above them
    # have ended without a resume.
    found = (hold.beneath for hold in ended)
    return tuple(one for one in found if one is not None and end_of(one) > now)


def _sooner(due: float, holds: Iterable[Hold]) -> float:
    return min((due, *map(end_of, holds)))


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
