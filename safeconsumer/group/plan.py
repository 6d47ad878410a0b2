"""
Determines the effect of a change to holds before any record is written.

An operator types or clicks an action: :class:`Place`, :class:`Extend`, :class:`Lift`,
or a reset (:class:`safeconsumer.group.reset_to.ResetTo`). :func:`plan_of` compares the
action with a view of the group, and returns a :class:`Plan`: the records to write, the
points that the operator must agree to first, and sentences about the plan. The module
does not read any clock, because the view contains the time. It queries a
:class:`Cluster` only to suggest similar names, so the same view and action always give
the same records and digest.

=====================================  ================================================
The owner's hold of the same scope     Effect of placing a hold
=====================================  ================================================
no hold                                the hold is placed
same reason and duration               none: the hold is unchanged
same reason, but longer (extended)     none, unless ``Place.replaces``
one of these that ended or may have    the hold is placed again: renewed
the same, and the topic has lost it    the hold is placed again: renewed
another hold                           it is replaced, if the owner agrees
another hold that has ended            it is replaced
=====================================  ================================================

A plan whose result exists already (:attr:`Plan.is_done`) does not write any records,
for example if a form was sent twice or a loop repeats a command. A digest shows whether
a plan is still the one that the operator agreed to; :mod:`safeconsumer.group.carry_out`
compares digests right before it writes.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Protocol

from attrs import evolve, frozen
from kafka import TopicPartition

from safeconsumer.errors.base import HoldSettingError
from safeconsumer.group import patterns, scopes
from safeconsumer.group.documents import hold_document
from safeconsumer.group.durations import duration_text, parse_duration
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.movements import reasons, unmoved
from safeconsumer.group.partitions import (
    covered,
    folded_cells,
    meeting,
    names,
    partitions_text,
    scopes_text,
)
from safeconsumer.group.publisher import Change, changes, new_hold
from safeconsumer.group.report_wire import KeptHold
from safeconsumer.group.verdicts import Level
from safeconsumer.group.view import View, reasons_of
from safeconsumer.group.wire import VERSION, ControlKey
from safeconsumer.holds.explain import counted, utc
from safeconsumer.holds.hold import OPERATOR, checked_reason
from safeconsumer.holds.scope import Everything, Scope

# A level (``note``, ``waiting``, ``unknown`` or ``alarm``), and a sentence.
Point = tuple[str, str]

GONE = "it was lifted, it ended, or it has another owner"
"""The reasons why a named hold may not exist."""

LACKED = "the holds topic was recreated and lacks it"
"""The reason for writing again a hold that members obey."""


# Seconds within which a second form to extend a hold counts as a repetition; a later
# form requests a new expiry.
_SENT_AGAIN = 60.0


class Cluster(Protocol):
    """Lists the cluster's groups and topics, for suggestions if a name looks mistyped."""

    def groups(self) -> Sequence[str]:
        """Return the names of all groups."""

    def topics(self) -> Sequence[str]:
        """Return the names of all topics."""


class Action(Protocol):
    """A change that an operator requests, validated as far as possible without a cluster."""

    @property
    def group(self) -> str:
        """The group whose holds change."""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes whose holds change."""

    def keys(self, view: View, /) -> Iterable[ControlKey]:
        """Return the keys of the records that the action would write."""

    def decide(self, plan: "Plan", cluster: Cluster, /) -> "Plan":
        """
        Return the plan with the records to write and the consents that it needs.

        Args:
            plan: the plan so far, with the partitions and the existing holds that the
                action affects.
            cluster: as for :func:`plan_of`.
        """

    def points(self, plan: "Plan", /) -> Iterator[Point]:
        """Yield sentences about the plan, each with a level."""

    def facts(self) -> list[Any]:
        """Return the parts of the action that a digest covers, without record ids."""

    def document(self, plan: "Plan", /) -> dict[str, Any]:
        """Return the effect of the plan as plain JSON values."""


# ---------------------------------------------------------------- plans


class Consent(Enum):
    """How an operator agrees: with a flag of that name, a click, or typed text."""

    FUTURE = "future"
    REPLACE = "replace"
    EVERYTHING = "everything"
    TYPED = "typed"
    FORCE = "force"
    NONE = "none"


@frozen(kw_only=True)
class Need:
    """
    Something that the operator must agree to before a plan is carried out.

    Attributes:
        consent: how to agree; ``NONE`` if the operator cannot agree and must choose
            another action.
        why: the reason as text; empty if the operator already knows the reason.
        ask: the text that the operator agrees to; advice if ``consent`` is ``NONE``.
        about: the names that the consent covers, for the digest.
    """

    consent: Consent
    why: str
    ask: str
    about: tuple[str, ...] = ()


def refusal(why: str, ask: str) -> Need:
    """Return a need for a consent that nobody can give: its plan is never carried out."""
    return Need(consent=Consent.NONE, why=why, ask=ask)


@frozen(kw_only=True)
class Plan:
    """
    The effect that an action would have on a group's holds.

    Attributes:
        view: the view of the group from which the plan was made.
        action: the action.
        covers: the partitions of the group that the action covers now.
        own: the existing holds with the owners and scopes that the action names.
        others: the other holds that cover some of these partitions or have the same
            scopes.
        changes: the records to write; empty if nothing is left to do.
        needs: what the operator must agree to first.
        unchanged: the holds in ``own`` that already match the request and stay as they
            are.
        renewed: the holds in ``own`` that match the request but are written again,
            because they have ended, may have ended, or are missing from the holds
            topic.
        kept: the holds to lift that the holds topic has lost but members still obey.
        is_done: whether the requested state exists already.
        limits: by topic, the seconds after which the topic deletes records, or None for
            never; topics with unknown retention are left out. ``limits`` is None if the
            broker was not queried.
    """

    view: View
    action: Action
    covers: tuple[TopicPartition, ...] = ()
    own: tuple[HoldRecord, ...] = ()
    others: tuple[HoldRecord, ...] = ()
    changes: tuple[Change, ...] = ()
    needs: tuple[Need, ...] = ()
    unchanged: tuple[HoldRecord, ...] = ()
    renewed: tuple[HoldRecord, ...] = ()
    kept: tuple[KeptHold, ...] = ()
    is_done: bool = False
    limits: Mapping[str, float | None] | None = None

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Sentences about the plan, each with a level."""
        return tuple(self.action.points(self))

    @property
    def replaced(self) -> tuple[HoldRecord, ...]:
        """The existing holds that the plan's holds replace."""
        stays = {one.key for one in (*self.unchanged, *self.renewed)}
        return tuple(one for one in self.own if one.key not in stays)

    @property
    def to_agree(self) -> str | None:
        """The text that the operator must agree to first; None if no consent is needed."""
        return "; ".join(one.ask for one in self.needs) or None

    @property
    def is_refused(self) -> bool:
        """Whether the plan cannot be carried out even if the operator agrees."""
        return any(one.consent is Consent.NONE for one in self.needs)

    @cached_property
    def digest(self) -> str:
        """
        A hash that is equal for two plans that change the same holds in the same way.

        The digest leaves out values that change without an operator's action:
        sentences, times, and the existing partitions, because consent to ``@all``
        covers any partitions.
        """
        action = self.action
        needs = [(one.consent.value, *one.about) for one in self.needs]
        over = [_identity(one) for one in (*self.renewed, *self.replaced)]
        text = json.dumps([type(action).__name__, action.facts(), needs, over])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def document(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        points = [{"level": level, "sentence": text} for level, text in self.points]
        return {"points": points, **self.action.document(self)}


def _identity(one: HoldRecord) -> tuple[str, str, str | None, int]:
    hold_id = one.hold.hold_id if one.hold else None
    return one.key.owner, one.key.scope, hold_id, one.offset


def plan_of(view: View, action: Action, cluster: Cluster) -> Plan:
    """
    Return the plan for an action.

    Args:
        view: the group.
        action: the action.
        cluster: lists groups and topics in case a name looks mistyped.

    Raises:
        HoldSettingError: a hold would last for more than ten years.
    """
    holds = {one.key: one for one in view.holds}
    keys = dict.fromkeys(action.keys(view))
    own = {key: holds[key] for key in keys if key in holds}
    covers = covered(action.scopes, view.consumed)
    texts = {key.scope for key in keys}
    over = {one.key for one in meeting(view.holds, covers)}
    plan = Plan(
        view=view,
        action=action,
        covers=covers,
        own=tuple(own.values()),
        others=tuple(
            one
            for one in view.holds
            if one.key not in own and (one.key.scope in texts or one.key in over)
        ),
    )
    return action.decide(plan, cluster)


# ---------------------------------------------------------------- placing


@frozen(kw_only=True)
class TimedHolds:
    """
    An action that sets the duration of one owner's holds.

    Attributes:
        group: the group that obeys the holds.
        owner: the owner of the holds.
        scopes: their scopes.
        seconds: their duration from the time when they are written; None until resumed.
    """

    group: str
    owner: str
    scopes: tuple[Scope, ...]
    seconds: float | None

    def keys(self, _view: View, /) -> list[ControlKey]:
        """Return a key for each scope."""
        return [ControlKey(self.group, self.owner, str(one)) for one in self.scopes]

    def points(self, plan: Plan, /) -> Iterator[Point]:
        """Yield sentences about the covered partitions, disobeying members and the expiry."""
        return _placed(plan, self.seconds)

    def facts(self) -> list[Any]:
        """Return the parts of the action that a digest covers."""
        return [self.group, self.owner, list(map(str, self.scopes)), self.seconds]

    def document(self, plan: Plan, /) -> dict[str, Any]:
        """Return the covered partitions and the replaced holds as plain JSON values."""
        return {
            **_covers_document(plan, plan.covers),
            "replaced": list(map(hold_document, plan.replaced)),
            "unchanged": list(map(hold_document, plan.unchanged)),
            "renewed": list(map(hold_document, plan.renewed)),
            "seconds": self.seconds,
        }


@frozen(kw_only=True)
class Place(TimedHolds):
    """
    Places holds on scopes.

    Attributes:
        reason: the reason, as text for people.
        changes: the records for these holds, one for each scope.
        replaces: whether to replace even a longer hold with the same reason, for
            example one that was extended.
    """

    reason: str
    changes: tuple[Change, ...]
    replaces: bool = False

    def written_by(self, host: str | None, principal: str | None) -> "Place":
        """Return the action with the host and user that people will see as the writer."""
        signed = (
            evolve(one, hold=evolve(one.hold, host=host, principal=principal))
            for one in self.changes
            if one.hold is not None
        )
        return evolve(self, changes=tuple(signed))

    def decide(self, plan: Plan, cluster: Cluster, /) -> Plan:
        """Return the plan that the table in the module's docstring gives."""
        own = {one.key: one for one in plan.own}
        unchanged, renewed, todo = [], [], []
        for change in self.changes:
            there = own.get(change.key)
            if there is not None and self._is_met(change, there, plan.view):
                if _is_lasting(plan.view, there):
                    unchanged.append(there)
                    continue
                renewed.append(there)
            todo.append(change if there is None else change.held_since(there.since))
        plan = evolve(
            plan,
            changes=tuple(todo),
            unchanged=tuple(unchanged),
            renewed=tuple(renewed),
            is_done=not todo,
        )
        return evolve(plan, needs=tuple(_needs(plan, self, cluster)))

    def _is_met(self, change: Change, one: HoldRecord, view: View) -> bool:
        """Return whether an existing hold is the requested hold, possibly extended."""
        wanted, hold = change.hold, one.hold
        if wanted is None or hold is None or wanted.reason != hold.reason:
            return False
        if wanted.ttl_ms is None or hold.ttl_ms is None or self.replaces:
            return wanted.ttl_ms == hold.ttl_ms
        if view.is_from_earlier_topic(one):  # members obey it until its own expiry
            return wanted.ttl_ms == hold.ttl_ms
        return wanted.ttl_ms <= hold.ttl_ms

    def facts(self) -> list[Any]:
        """Return the parts of the action that a digest covers."""
        return [*TimedHolds.facts(self), self.reason]


def place_action(
    *,
    group: str,
    owner: str,
    texts: Iterable[str],
    reason: str,
    for_: str | None,
) -> Place:
    """
    Return the action that places holds as an operator typed them.

    Args:
        group: the group that must obey the holds.
        owner: the owner of the holds.
        texts: the scopes as they were typed.
        reason: the reason, as text for people.
        for_: the duration as it was typed; None for no expiry.

    Raises:
        HoldSettingError: the group, the reason or the duration is invalid.
        ScopeSyntaxError: a text is not a scope, or there is no scope.
        MissingExtraError: google-re2 is missing, and a scope is a pattern.
    """
    why = checked_reason(reason) or ""
    if not why.strip():
        message = "give a reason: people on call will need it"
        raise HoldSettingError(message)
    found = scopes.scopes_of(texts, group)
    seconds = None if for_ is None else duration_of(for_)
    hold = new_hold(why, seconds)
    return Place(
        group=group,
        owner=owner,
        scopes=found,
        reason=why,
        seconds=seconds,
        changes=changes(group, owner, map(str, found), hold),
    )


def duration_of(for_: str, name: str = "for") -> float:
    """
    Return the typed value of ``--for`` in seconds.

    Args:
        for_: the duration.
        name: the field of a form, or the option, that the message names.

    Raises:
        HoldSettingError: the text is not a duration.
    """
    try:
        return parse_duration(for_)
    except ValueError as error:
        message = f"{name}: {error}"
        raise HoldSettingError(message) from error


def _is_lasting(view: View, one: HoldRecord) -> bool:
    """Return whether a hold is on the holds topic and has not expired by any clock."""
    if view.is_from_earlier_topic(one):
        return False
    if one.hold is None or one.hold.ttl_ms is None:
        return True
    return one.expires_at is not None and not one.is_over(view.times.here)


def _needs(plan: Plan, action: Place, cluster: Cluster) -> Iterator[Need]:
    # An unchanged hold does not need consent, so that a loop can repeat a command.
    view, group = plan.view, action.group
    keys = {one.key.scope for one in plan.changes}
    todo = [one for one in action.scopes if str(one) in keys]
    if todo and not view.is_known:
        meant = (
            scopes.suggestion(group, cluster.groups()) or "; look for a typing error"
        )
        yield Need(
            consent=Consent.FUTURE,
            why=f"unknown group {group!r}{meant}",
            ask=f"Hold {group} before it exists",
        )
    elif why := scopes.mistakes(view, todo, cluster.topics):
        met = frozenset(meeting(todo, view.consumed))
        yield Need(
            consent=Consent.FUTURE,
            why=why,
            ask="Hold what the group does not consume now",
            about=tuple(str(one) for one in todo if one not in met),
        )
    if moving := [one.scope for one in plan.replaced if unmoved(view, [one])]:
        why = f"the group is being moved under it: {scopes_text(moving)}"
        yield refusal(why, "wait until it is moved, or resume it with --force")
    if lasting := [one for one in plan.replaced if not one.is_over(view.times.proven)]:
        named = scopes_text([one.scope for one in lasting])
        yield Need(
            consent=Consent.REPLACE,
            why=f"held already: {'; '.join(_rows(lasting))}",
            ask=f"Replace what you hold already: {named}",
        )
    if any(isinstance(one, Everything) for one in todo):
        yield Need(
            consent=Consent.EVERYTHING,
            why="",
            ask=f"Hold all {counted(len(plan.covers), 'partition')} of {group}",
        )


# ---------------------------------------------------------------- extending


@frozen(kw_only=True)
class Extend(TimedHolds):
    """
    Makes existing holds of one owner last longer.

    The holds keep their id, their reason, and the time at which they were placed. If no
    member reports the broker's time, the holds may last longer than requested, but
    never end earlier than before. A hold that the holds topic has lost is written
    again, unless it would then end earlier.

    Attributes:
        offset: the offset of the hold's record that the operator saw; None if no record
            was shown.
    """

    seconds: float
    offset: int | None = None

    def decide(self, plan: Plan, _cluster: Cluster, /) -> Plan:
        """Return the plan; it is refused if any of the holds cannot be extended."""
        view, shown = plan.view, self.offset
        own = {one.key: one for one in plan.own}
        keys = self.keys(view)
        if shown is not None and any(
            key not in own or own[key].offset != shown for key in keys
        ):
            return self._changed_since(plan, shown, is_all=len(own) == len(keys))
        every = (next(self._refusals(one, own.get(one), plan), None) for one in keys)
        needs = tuple(one for one in every if one is not None)
        longer = () if needs else tuple(self._longer(own[key], view) for key in keys)
        lost = tuple(one for one in plan.own if view.is_from_earlier_topic(one))
        return evolve(plan, needs=needs, changes=longer, renewed=lost)

    def _changed_since(self, plan: Plan, shown: int, *, is_all: bool) -> Plan:
        """Return the plan for holds that have changed since they were shown."""
        ttl_ms = new_hold(None, self.seconds).ttl_ms
        is_done = is_all and all(
            one.hold is not None
            and one.offset > shown
            and one.hold.ttl_ms == ttl_ms
            and _is_lasting(plan.view, one)
            and one.expires_at is not None
            and one.expires_at > plan.view.times.here + self.seconds - _SENT_AGAIN
            for one in plan.own
        )
        if is_done:  # the same form has already been sent
            return evolve(plan, is_done=True, unchanged=plan.own)
        ask = "it was lifted, replaced or extended, or it ended: look at the group"
        return evolve(plan, needs=(refusal("the hold has changed", ask),))

    def _refusals(
        self, key: ControlKey, own: HoldRecord | None, plan: Plan
    ) -> Iterator[Need]:
        """Yield reasons why a hold cannot be extended; only the first is used."""
        scope, view, again = key.scope, plan.view, "pause places it again"
        if is_later(own) or (own is None and later_version_scopes(plan, key)):
            yield refusal(f"a later version holds {scope}", "upgrade first")
        if own is None or own.hold is None:
            why = f"{scope} is not held by {self.owner}"
            yield refusal(why, "place it, or name its owner")
            return
        if over := _over(own, view):
            yield refusal(f"{scope} {over}", again)
        end, is_endless = own.expires_at, own.hold.ttl_ms is None
        times = view.times
        begin = times.here if times.is_by_broker else times.wall
        is_shorter = end is not None and begin + self.seconds < end
        if view.is_from_earlier_topic(own) and (is_shorter or is_endless):
            yield refusal(f"{scope} would end earlier, and {LACKED}", again)
        if is_endless:
            why = f"{scope} is held until it is resumed, so it has no end"
            yield refusal(why, "replace it to give it one")
        if end is not None and is_shorter:
            why = f"{scope} is held until {utc(end)}, which is later"
            yield refusal(why, "replace it to make it shorter")

    def _longer(self, own: HoldRecord, view: View) -> Change:
        hold, end, seconds = own.hold, own.expires_at, self.seconds
        if end is not None:
            # The broker counts the duration from its own time, which is not before
            # ``times.proven``. On a topic with producers' timestamps, the duration
            # counts from this host's time.
            times = view.times
            begin = times.proven if times.is_by_broker else times.wall
            seconds = max(seconds, end - begin)
        ttl_ms = new_hold(None, seconds).ttl_ms
        longer = None if hold is None else evolve(hold, ttl_ms=ttl_ms)
        return Change(own.key, longer).held_since(own.since)

    def points(self, plan: Plan, /) -> Iterator[Point]:
        """Yield sentences about the holds to extend, or about holds extended already."""
        if plan.is_done:
            return (("note", f"extended already: {one}") for one in _rows(plan.own))
        return TimedHolds.points(self, plan)

    def facts(self) -> list[Any]:
        """Return the parts of the action that a digest covers."""
        return [*TimedHolds.facts(self), self.offset]


def _over(own: HoldRecord, view: View) -> str:
    """Say that a hold has or may have ended; empty if no clock is past its expiry."""
    end, lifted = own.expires_at, view.lifted_by([own])
    if end is not None and lifted is not None:
        return f"ended at {utc(end)}, and members lift it until {utc(lifted)}"
    if end is not None and own.is_over(view.times.here):
        return f"may have ended at {utc(end)}"
    return ""


# ---------------------------------------------------------------- lifting


@frozen(kw_only=True)
class NamedHold:
    """
    Identifies a hold to lift.

    Attributes:
        scope: its scope, as text.
        owner: its owner.
        id: its id if the operator saw it, otherwise None.
        offset: its record's offset if the operator saw it, otherwise None.
    """

    scope: str
    owner: str
    id: str | None = None
    offset: int | None = None

    @property
    def was_shown(self) -> bool:
        """Whether this names one shown record, not any hold with this owner and scope."""
        return self.id is not None or self.offset is not None

    def names(self, one: HoldRecord) -> bool:
        """Return whether the operator was shown this record; True if no record was shown."""
        is_id = self.id in {None, one.hold.hold_id if one.hold else ""}
        return is_id and self.offset in {None, one.offset}


@frozen(kw_only=True)
class Lift:
    """
    Lifts holds of a group.

    The lift counts as done if the holds were shown to the operator and none of them
    exists any more. The group may then be unknown, because a hold may have been its
    only trace. A hold that the holds topic has lost but members still obey counts as
    existing.

    Attributes:
        group: the group that obeys them.
        holds: the holds.
        by: the operator who lifts the holds and must type the scopes of other owners'
            holds; None if the operator named every owner explicitly, in which case
            holds that do not exist are allowed.
    """

    group: str
    holds: tuple[NamedHold, ...]
    by: str | None = None

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes of the holds, as far as this version can read them."""
        reads = (patterns.read(one.scope) for one in self.holds)
        return tuple(one.scope for one in reads if one is not None)

    def keys(self, _view: View, /) -> Iterator[ControlKey]:
        """Return the keys of the holds."""
        return (ControlKey(self.group, one.owner, one.scope) for one in self.holds)

    def decide(self, plan: Plan, _cluster: Cluster, /) -> Plan:
        """Return the plan that writes a tombstone for each hold."""
        view = plan.view
        names = {(OPERATOR + one.owner, one.scope) for one in self.holds}
        own = {(one.owner, one.key.scope) for one in plan.own}
        lost = (one for one in view.kept if (one.owner, one.scope) in names - own)
        plan = evolve(
            plan,
            kept=tuple(lost),
            changes=tuple(Change(key, None) for key in dict.fromkeys(self.keys(view))),
        )
        is_there = plan.own or plan.kept or not self._was_lifted(view)
        plan = evolve(plan, is_done=not is_there)
        return evolve(plan, needs=tuple(self._needs(plan)))

    def _was_lifted(self, view: View) -> bool:
        return all(one.was_shown for one in self.holds) and not any(
            hold.key.scope == one.scope and one.names(hold)
            for hold in view.holds
            for one in self.holds
        )

    def _needs(self, plan: Plan) -> Iterator[Need]:
        lacking = () if plan.is_done or self.by is None else not_held(plan)
        if lacking:
            rest = ": check whether you want to lift the rest" if plan.own else ""
            yield refusal(f"not held: {', '.join(lacking)}", f"{GONE}{rest}")
        there = {(one.key.scope, one.key.owner): one for one in plan.own}
        for one in self.holds:
            hold = there.get((one.scope, one.owner))
            if hold is not None and not one.names(hold):
                ask = "it was replaced or extended: check whether you still want to lift it"
                yield refusal(f"the hold on {one.scope} has changed", ask)
        if undone := unmoved(plan.view, plan.own):
            yield Need(
                consent=Consent.FORCE,
                why="; ".join(reasons(undone)),
                ask="resume --force lifts it, and leaves unmoved partitions where they are",
            )
        is_another = [one for one in plan.own if self.by not in {None, one.key.owner}]
        others = {one.key.scope: one.key.owner for one in is_another}
        if self.by is not None:
            mine = OPERATOR + self.by
            kept = [one for one in plan.kept if one.owner != mine]
            others |= {one.scope: one.owner.removeprefix(OPERATOR) for one in kept}
        if others:
            texts, owners = tuple(others), ", ".join(dict.fromkeys(others.values()))
            why = f"{' '.join(texts)} {_verb(texts, 'is', 'are')} held by {owners}"
            ask = f"type {' '.join(texts)} to lift {_verb(texts, 'it', 'them')}"
            yield Need(consent=Consent.TYPED, why=why, ask=ask, about=texts)
            if plan.own and not all(one.was_shown for one in self.holds):
                yield refusal(why, "give the hold's id or offset too")

    def points(self, plan: Plan, /) -> Iterator[Point]:
        """Yield sentences about partitions that flow again or that stay held."""
        for one in plan.kept:
            yield "note", f"kept by members, as the holds topic has lost it: {one.line}"
        if free := flowing(plan):
            flow = f"{counted(len(free), 'partition')} {_verb(free, 'flows', 'flow')} again"
            yield "note", f"{flow}: {partitions_text(free)}"
            yield _waiting(waiting(plan.view, free), "arrive{} immediately")
        else:
            yield "waiting", "no partition starts to flow now"
        if kept := covered(plan.others, plan.covers):
            stay = f"{counted(len(kept), 'partition')} {_verb(kept, 'stays', 'stay')}"
            yield "waiting", f"{stay} held by others"

    def facts(self) -> list[Any]:
        """Return the parts of the action that a digest covers."""
        holds = [(one.scope, one.owner, one.id, one.offset) for one in self.holds]
        return [self.group, self.by, holds]

    def document(self, plan: Plan, /) -> dict[str, Any]:
        """Return the partitions that will be delivered again as plain JSON values."""
        return _covers_document(plan, flowing(plan))


def not_held(plan: Plan) -> list[str]:
    """Return, as text, the holds that a lift names but that do not exist."""
    there = {(one.key.scope, one.key.owner) for one in plan.own}
    there |= {(one.scope, one.owner.removeprefix(OPERATOR)) for one in plan.kept}
    holds = plan.action.holds if isinstance(plan.action, Lift) else ()
    lacking = (one for one in holds if (one.scope, one.owner) not in there)
    return [f"{one.scope} of {one.owner}" for one in lacking]


def is_later(one: HoldRecord | None) -> bool:
    """Return whether a later version wrote the hold; our write would lose its new fields."""
    return one is not None and one.hold is not None and one.hold.version > VERSION


def later_version_scopes(plan: Plan, *keys: ControlKey) -> str:
    """
    Return the scopes whose keys only a later version can write.

    Args:
        plan: the plan.
        keys: the keys to check; if none are given, all keys of the action.
    """
    wanted = keys or plan.action.keys(plan.view)
    named = {(one.scope, one.owner) for one in wanted}
    found = (one.key for one in plan.others if (one.key.scope, one.key.owner) in named)
    return ", ".join(dict.fromkeys(one.scope for one in found))


def flowing(plan: Plan) -> tuple[TopicPartition, ...]:
    """Return the partitions that flow again once the plan's holds are lifted."""
    reads = (patterns.read(one.scope) for one in plan.kept)
    lifted = [*plan.own, *(one.scope for one in reads if one is not None)]
    kept = frozenset(covered(plan.others, plan.covers))
    return tuple(tp for tp in covered(lifted, plan.covers) if tp not in kept)


# ---------------------------------------------------------------- sentences


def _placed(plan: Plan, seconds: float | None) -> Iterator[Point]:
    covers, view = plan.covers, plan.view
    shown = partitions_text(covers) or "nothing yet"
    level = "note" if covers else "waiting"
    does = "covers" if plan.is_done else "would cover"
    yield level, f"{does} {counted(len(covers), 'partition')}: {shown}"
    yield _waiting(waiting(view, covers), "wait{} there already")
    yield from _disobeying(view, covers)
    yield from (("waiting", one.why) for one in plan.needs if one.why)
    for row in _rows(plan.unchanged):
        yield "note", f"held already, and stays unchanged: {row}"
    lacked = [one for one in plan.renewed if view.is_from_earlier_topic(one)]
    over = [one for one in plan.renewed if not view.is_from_earlier_topic(one)]
    for why, several in ((LACKED, lacked), ("it may have ended", over)):
        for row in _rows(several):
            yield "note", f"would be renewed, as {why}: {row}"
    if not plan.is_done:  # else the unchanged hold's sentence shows its expiry
        yield _end(view, seconds)
        yield from _kept(plan, seconds)


def _rows(several: Sequence[HoldRecord]) -> list[str]:
    return [" ".join(filter(None, cells)) for cells in folded_cells(several)]


def _end(view: View, seconds: float | None) -> Point:
    if seconds is None:
        return "waiting", "would last until it is resumed"
    now = view.times.now
    at = "" if now is None else f", until {utc(now + seconds)}"
    late = f", or {duration_text(view.skew)} longer" if view.skew >= 1 else ""
    return "note", f"would last {duration_text(seconds)}{at}{late}"


def _disobeying(view: View, covers: Sequence[TopicPartition]) -> Iterator[Point]:
    wanted = frozenset(covers)
    for one in view.all_members if covers else ():
        if one.is_behind:  # the member obeys the holds that it has read so far
            yield "waiting", f"would obey later: {one.name} {one.verdict.sentence}"
        elif not one.obeys:
            owned = one.owned & wanted
            flows = f"; {partitions_text(owned)} may go on flowing" if owned else ""
            may_flow = owned and one.verdict.level is Level.UNKNOWN
            sentence = f"would not obey: {one.name} {one.verdict.sentence}{flows}"
            yield "alarm" if may_flow else "waiting", sentence
    if covers and view.unsettled:
        yield "unknown", f"which members obey is unknown: {view.unsettled}"
    for why in view.unread:
        yield "unknown", f"unknown: {why}"


def warnings(plan: Plan) -> list[str]:
    """Return sentences about members that may deliver records of a plan's partitions."""
    view, wanted = plan.view, frozenset(plan.covers)
    if not wanted:
        return []
    # A member that is behind will obey as soon as it has read the hold.
    free = [one for one in view.all_members if not (one.obeys or one.is_behind)]
    found = [*reasons_of((one.verdict.sentence, one.name) for one in free)]
    if flows := partitions_text({tp for one in free for tp in one.owned & wanted}):
        found.append(f"{flows} may go on flowing")
    if view.unsettled:
        found.append(f"which members obey is unknown: {view.unsettled}")
    return found


def _kept(plan: Plan, seconds: float | None) -> Iterator[Point]:
    """Yield sentences on whether retention may delete records before the hold ends."""
    if plan.limits is None:
        return
    limited = {one: kept for one, kept in plan.limits.items() if kept is not None}
    if limited:
        topic, kept = min(limited.items(), key=lambda one: one[1])
        limit = f"{topic} deletes records after {duration_text(kept)}"
        if waiting(plan.view, plan.covers) != 0:
            limit += "; it deletes the records that wait now first"
        if seconds is None or seconds + plan.view.skew >= kept:
            yield "waiting", f"retention ends BEFORE the hold does: {limit}"
        else:
            yield "note", f"retention by age ends later: {limit}"
    topics = dict.fromkeys(tp.topic for tp in plan.covers)
    if unread := [name for name in topics if name not in plan.limits]:
        yield "unknown", f"how long records are kept is unknown for {', '.join(unread)}"


def waiting(view: View, partitions: Sequence[TopicPartition]) -> int | None:
    """
    Return the total lag of partitions, in records.

    The result is None if any of the lags is unknown.
    """
    lags = view.lags
    found = [lags[tp] for tp in partitions if tp in lags]
    return sum(found) if len(found) == len(partitions) else None


def _waiting(count: int | None, does: str) -> Point:
    if count is None:
        return "unknown", f"how many records {does.format('')} is unknown"
    return "note", f"{counted(count, 'record')} {does.format('s' * (count == 1))}"


def _verb(several: Sequence[object], one: str, more: str) -> str:
    return one if len(several) == 1 else more


def _covers_document(plan: Plan, covers: Sequence[TopicPartition]) -> dict[str, Any]:
    return {
        "covers": names(covers),
        "waiting": waiting(plan.view, covers),
        "also_held": list(map(hold_document, plan.others)),
        "to_agree": plan.to_agree,
    }
