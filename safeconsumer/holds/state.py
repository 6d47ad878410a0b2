"""Decides what a change does to holds, gates and assignment, and with which events."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from attrs import evolve

from safeconsumer.events import consumer as events
from safeconsumer.events.consumer import sorted_partitions
from safeconsumer.holds.bites import Bites
from safeconsumer.holds.gates import Gates
from safeconsumer.holds.hold import APP, WHOLE, Hold, HoldKey, is_routine
from safeconsumer.holds.ownership import (
    Cause,
    Ownership,
    Reassignment,
    reassign,
    renew,
)
from safeconsumer.holds.plain import (
    bared,
    end_of,
    ended_besides,
    ended_by_assignment,
    ended_by_expiry,
    ended_by_resume,
    ended_unnamed,
    placed_over,
    travels,
)
from safeconsumer.holds.scope import Partition, Scope, TopicPartition
from safeconsumer.holds.view import NOTHING, Assigned, Holds, View, affected_by

NEVER = math.inf

Told = tuple[type[events.Event], dict[str, Any]]
"""
A kind of event, and its fields but when and whose it is.
"""


class Step(NamedTuple):
    """
    What a change came to.

    Attributes:
        state: what is so from then on.
        told: the events, in the order in which things happened.
        left: what has departed and was quiet.
        is_moved: whether partitions became quiet or began to flow.
        is_seen: whether those who look at holds find anything changed.
    """

    state: State
    told: tuple[Told, ...] = ()
    left: tuple[TopicPartition, ...] = ()
    is_moved: bool = False
    is_seen: bool = True


class State(NamedTuple):
    """
    What is held, gated and assigned at one moment. It never changes.

    Each method returns the :class:`Step` to another one; ``now`` is on the monotonic
    clock.

    Attributes:
        holds: the holds.
        due: when the first of them expires, on the monotonic clock, or earlier.
        gates: the closed gates.
        ownership: the owned partitions with their epochs.
        assigned: the same partitions, by topic.
        bites: what is remembered to tell whether a hold bites.
        undecided: what has left, while no completed join says whether it is given back.
        ends_more: whether a resume may end more than it names; it is looked for once,
            so that a loop of resumes is linear.
    """

    holds: Holds = Holds()
    due: float = NEVER
    gates: Gates = Gates()
    ownership: Ownership = Ownership()
    assigned: Assigned = NOTHING
    bites: Bites = Bites()
    undecided: frozenset[TopicPartition] = frozenset()
    ends_more: bool = True

    # ------------------------------------------------------------ questions

    def view(self) -> View:
        holds, closed, assigned = self.holds, self.gates.closed(), self.assigned
        quiet = holds.covered(assigned) if holds else set()
        if closed:
            for partitions in assigned.values():
                quiet.update(filter(closed.__contains__, partitions))
        return View(holds, assigned, closed, frozenset(quiet))

    def is_quiet(self, tp: TopicPartition) -> bool:
        gates = self.gates
        return tp in gates.call or tp in gates.control or self.holds.covers(tp)

    def remaining(self, keys: Collection[HoldKey]) -> tuple[Hold, ...]:
        """Return the holds that cover what was to be lifted, as far as is known."""
        # A worker lifts its own many times a second and does not use the answer.
        if all(is_routine(owner) for _, owner in keys):
            return ()
        holds = self.holds
        found = {hold.key: hold for one, _ in keys for hold in holds.overlapping(one)}
        return tuple(found.values())

    def _affected(self, scopes: Iterable[Scope]) -> dict[TopicPartition, None]:
        assigned = self.assigned
        return dict.fromkeys(tp for one in scopes for tp in affected_by(assigned, one))

    # ------------------------------------------------------------ holds

    def placed(
        self,
        wanted: Iterable[Hold],
        *,
        topics: tuple[str, ...] | None = None,
        idle: Collection[Scope] = (),
        is_taken_over: bool = False,
    ) -> Step:
        """
        Place holds.

        If patterns are among them, ``topics`` are the known topics that they cover, and
        ``idle`` the patterns that cover none.
        """
        placed = tuple(
            hold
            for one in wanted
            if (hold := placed_over(self.holds.get(one.key), one)) is not None
        )
        if not placed:
            return Step(self, is_seen=False)
        affected = self._affected(hold.scope for hold in placed)
        quiet = sorted_partitions(tp for tp in affected if not self.is_quiet(tp))
        fields = {"topics": topics, "is_taken_over": is_taken_over}
        told: list[Told] = [
            (events.HoldsPlaced, {"holds": placed, "quiet": quiet, **fields})
        ]
        if nothing := tuple(hold for hold in placed if hold.scope in idle):
            told.append((events.PatternCoversNothing, {"holds": nothing}))
        more = bool(ended_by_resume(placed, self.ownership.epochs))
        state = self._replace(
            holds=self.holds.including(placed),
            due=min(self.due, _soonest(placed)),
            ends_more=self.ends_more or more,
        )
        return Step(state, tuple(told), is_moved=bool(quiet))

    def left_to(
        self, epochs: Mapping[TopicPartition, int], holds: Iterable[Hold]
    ) -> tuple[Hold, ...]:
        """Return those left to ownerships that go on, without a pause of their own."""
        still = {Partition(*tp) for tp in self.ownership.still(epochs)}
        return tuple(
            one
            for one in holds
            if one.scope in still and self.holds.get(one.key) is None
        )

    def removed(
        self,
        keys: tuple[HoldKey, ...],
        now: float,
        *,
        by_application: bool = False,
        is_all: bool = False,
    ) -> Step:
        """Lift holds, all of their owner or some; the application ends more by it."""
        ending, owned = dict.fromkeys(keys), self.ownership.epochs
        aside: tuple[Hold, ...] = ()
        if by_application and self.ends_more:
            aside = ended_by_resume(self.holds, owned)
        back = bared((hold for hold in aside if hold.key not in ending), now)
        ending.update((hold.key, None) for hold in aside)
        removed = tuple(
            hold for key in ending if (hold := self.holds.get(key)) is not None
        )
        # With nothing assigned a resume can name nothing of what was paused.
        bare = (APP, WHOLE) if by_application and not owned else ()
        holds = self.holds.without(ending, back) if removed else self.holds
        state = self._replace(
            holds=holds,
            due=self._due(holds, back),
            gates=self.gates.lifted(ending, self.assigned, all_of=bare),
            ends_more=self.ends_more and not by_application,
        )
        flowing = self._flowing(removed, state)
        remaining = state.remaining(keys)
        told: list[Told] = []
        if removed:
            besides = () if is_all else ended_besides(removed, keys, flowing)
            fields = {
                "holds": removed,
                "flowing": flowing,
                "remaining": remaining,
                "besides": besides,
                "waiting": () if is_all else ended_unnamed(aside, keys),
            }
            told = [(events.HoldsRemoved, fields)]
        elif remaining:
            told = [(events.StillHeld, {"holds": remaining})]
        told += [*_placed_back(back), *self._opened(state, "resumed", flowing)]
        has_opened = state.gates.call is not self.gates.call
        return Step(
            state,
            tuple(told),
            is_moved=bool(flowing) or has_opened,
            is_seen=bool(removed) or has_opened,
        )

    def moved(self, wanted: Iterable[Hold]) -> Step:
        """Give holds new deadlines; those that are others by now are left alone."""
        moved = [
            evolve(known, deadline=hold.deadline)
            for hold in wanted
            if (known := self.holds.get(hold.key)) is not None and known == hold
        ]
        due = min(self.due, _soonest(moved))
        return Step(self._replace(holds=self.holds.including(moved), due=due))

    def expired(self, now: float) -> Step:
        expired = tuple(one for one in self.holds if end_of(one) <= now)
        keys = [hold.key for hold in expired]
        here = self.ownership.epochs.keys() | self.undecided
        ended = ended_by_expiry(self.holds.without(keys), here, expired)
        back = bared((*expired, *ended), now)
        holds = self.holds.without([*keys, *(hold.key for hold in ended)], back)
        gates = self.gates.lifted(keys, self.assigned)
        state = self._replace(holds=holds, due=_soonest(holds), gates=gates)
        flowing = self._flowing(expired, state)
        told: list[Told] = []
        if expired:
            told.append((events.HoldsExpired, {"holds": expired, "flowing": flowing}))
        if ended:
            told.append((events.HoldsEnded, {"holds": ended, "departed": ()}))
        told += _placed_back(back)
        told += self._opened(state, "a hold has expired", flowing)
        is_moved = bool(flowing) or gates.call is not self.gates.call
        return Step(state, tuple(told), is_moved=is_moved)

    def _flowing(
        self, ended: Iterable[Hold], state: State
    ) -> tuple[TopicPartition, ...]:
        # What was quiet by these holds, and flows then.
        affected = self._affected(hold.scope for hold in ended)
        return sorted_partitions(tp for tp in affected if not state.is_quiet(tp))

    def _due(self, holds: Holds, back: Iterable[Hold]) -> float:
        # Not of what is left: to look through it for each one lifted is quadratic.
        return min(self.due, _soonest(back)) if holds else NEVER

    # ------------------------------------------------------------ gates

    def gated(self, gates: Gates, why: str = "") -> Step:
        """Close and open gates, for a reason that people read."""
        known = self.gates
        is_seen = (gates.call, gates.control) != (known.call, known.control)
        state = self._replace(gates=gates)
        told = self._opened(state, why) if is_seen else ()
        return Step(state, tuple(told), is_moved=bool(told), is_seen=is_seen)

    def _opened(
        self, state: State, reason: str, besides: Collection[TopicPartition] = ()
    ) -> list[Told]:
        # What flows because gates open; it is in no other event.
        before, gates = self.gates, state.gates
        if gates.call is before.call and gates.control is before.control:
            return []
        flowing = sorted_partitions(
            tp for tp in before.closed() if not state.is_quiet(tp) and tp not in besides
        )
        fields = {"flowing": flowing, "reason": reason}
        return [(events.GatesChanged, fields)] if flowing else []

    # ------------------------------------------------------------ the assignment

    def reassigned(
        self,
        wanted: tuple[TopicPartition, ...],
        cause: Cause,
        now: float,
        *,
        is_carried: Callable[[TopicPartition], bool] | None,
        is_watched: bool,
    ) -> tuple[Reassignment, Step]:
        """
        Move to a new assignment; return what it changes of that, and the step.

        ``is_carried`` tells whether the application's pause of a partition goes to its
        next owner; what is gained waits for the control topics if ``is_watched``.
        """
        ownership, what = reassign(self.ownership, wanted)
        ended = ended_by_assignment(
            self.holds,
            cause,
            owned=ownership.epochs,
            departed=what.departed,
            undecided=self.undecided,
            is_carried=is_carried,
        )
        undecided = (
            self.undecided.union(what.departed) if cause.is_passing else frozenset()
        )
        if not (what.gained or what.departed or ended or undecided != self.undecided):
            return what, Step(self, is_seen=False)
        back = () if cause is Cause.CLOSED else bared(ended, now)
        holds = self.holds.without((hold.key for hold in ended), back)
        assigned = by_topic(wanted)
        left = tuple(filter(self.is_quiet, what.departed))
        bites, bite = self.bites.after(what, holds, assigned, left=left, cause=cause)
        gates = self.gates.reassigned(what.gained, what.departed, is_watched=is_watched)
        due = self._due(holds, back)
        state = State(holds, due, gates, ownership, assigned, bites, undecided)
        flowing = tuple(
            tp
            for tp in self._flowing(ended, state)
            if tp in what.kept and self.is_quiet(tp)
        )
        told: list[Told] = [
            *_departure_told(what, ended, flowing, cause, is_carried),
            *_placed_back(back),
            *([(events.HoldsBit, bite)] if bite else []),
        ]
        return what, Step(state, tuple(told), left, is_moved=True)

    def renewed(
        self, partitions: Iterable[TopicPartition], *, is_watched: bool
    ) -> tuple[Reassignment, Step]:
        """
        Begin new ownerships of partitions whose topics were made again.

        Every hold stays: nothing was revoked.
        """
        ownership, what = renew(self.ownership, partitions)
        if not what.gained:
            return what, Step(self, is_seen=False)
        gates = self.gates.reassigned(what.gained, what.departed, is_watched=is_watched)
        state = self._replace(ownership=ownership, gates=gates)
        return what, Step(state, is_moved=True)


def by_topic(tps: Iterable[TopicPartition]) -> Assigned:
    found: dict[str, dict[TopicPartition, TopicPartition]] = {}
    for tp in tps:
        found.setdefault(tp[0], {})[tp] = tp
    return found


def _soonest(holds: Iterable[Hold]) -> float:
    return min(map(end_of, holds), default=NEVER)


def _placed_back(back: tuple[Hold, ...]) -> list[Told]:
    # What was beneath pauses that have ended; no partition becomes quiet by it.
    return [(events.HoldsPlaced, {"holds": back})] if back else []


def _departure_told(
    what: Reassignment,
    ended: tuple[Hold, ...],
    flowing: tuple[TopicPartition, ...],
    cause: Cause,
    is_carried: Callable[[TopicPartition], bool] | None,
) -> list[Told]:
    if not ended:
        return []
    travelled = {
        (one.scope.topic, one.scope.partition)
        for one in ended
        if isinstance(one.scope, Partition) and travels(one, one.scope, is_carried)
    }
    fields = {
        "holds": ended,
        "flowing": flowing,
        "departed": sorted_partitions(what.departed),
        "handed_over": sorted_partitions(travelled),
        "is_called": cause.is_called,
    }
    return [(events.HoldsEnded, fields)]
