"""
Decides what placing, extending or lifting holds would do, before anything is written.

A wish is what somebody typed or clicked: :class:`Place`, :class:`Extend`, :class:`Lift`
or :class:`ResetTo`. :func:`plan_of` compares it with a view of the group, and returns a
:class:`Plan`: the records to write, what the operator must agree to first, and sentences
about it. No clock is asked: the view has the time. A :class:`Cluster` is asked for names
that may have been meant; the same view and wish give the same records and digest, whatever
it answers.

=====================================  ================================================
The owner's hold of the same scope     What the wish to place one does
=====================================  ================================================
none                                   it is placed
of the same reason and duration        nothing: it is unchanged
the same, and it ended or may have     it is placed again: it is renewed
the same, and the topic has lost it    it is placed again: it is renewed
another one                            it is replaced, which needs the owner's consent
another one, and it ended              it is replaced
=====================================  ================================================

A plan that stands already (:attr:`Plan.is_done`) writes nothing: the second time that a form
is sent, or that a loop runs a command. A digest tells whether a plan still is what was shown;
:mod:`safeconsumer.group.carry_out` compares it right before it writes.
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
from safeconsumer.group.durations import seconds_of, words_of
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.movements import Movement, movements, movers, obstacle
from safeconsumer.group.partitions import covered, names, partitions_text
from safeconsumer.group.publisher import Change, changes, new_hold
from safeconsumer.group.report_wire import STREAM
from safeconsumer.group.reset_to import Places
from safeconsumer.group.targets import targets_of
from safeconsumer.group.verdicts import Level
from safeconsumer.group.view import View
from safeconsumer.group.wire import (
    MAX_VALUE_BYTES,
    ControlHold,
    ControlKey,
    Reset,
    encode_hold,
)
from safeconsumer.holds.explain import counted, utc
from safeconsumer.holds.hold import OPERATOR, checked_reason
from safeconsumer.holds.scope import Everything, Scope

# A level (``note``, ``waiting``, ``unknown`` or ``alarm``) and a sentence.
Point = tuple[str, str]

GONE = "it was lifted, it ended, or it has another owner"
"""
Why a hold that was named may not be there.
"""

LACKED = "the holds topic was made again and lacks it"
"""
Why a hold is written again that members obey.
"""


class Cluster(Protocol):
    """Answers what no view has; it is asked only if a scope or a group looks mistyped."""

    def groups(self) -> Sequence[str]:
        """Return the names of all groups."""

    def topics(self) -> Sequence[str]:
        """Return the names of all topics."""


# ---------------------------------------------------------------- wishes


@frozen(kw_only=True)
class Place:
    """
    What an operator wants to hold, checked as far as that needs no cluster.

    Attributes:
        group: the group that shall obey.
        owner: the owner of the holds.
        scopes: what to hold.
        reason: why, as text for people.
        seconds: for how long, counted from when it is placed; None until it is resumed.
        changes: the records of these holds, one for each scope.
    """

    group: str
    owner: str
    scopes: tuple[Scope, ...]
    reason: str
    seconds: float | None
    changes: tuple[Change, ...]

    def written_by(self, host: str | None, principal: str | None) -> "Place":
        """Return the wish with where it is written, and by which login, for people."""
        signed = (
            evolve(one, hold=evolve(one.hold, host=host, principal=principal))
            for one in self.changes
            if one.hold is not None
        )
        return evolve(self, changes=tuple(signed))


def wish_of(
    *,
    group: str,
    owner: str,
    texts: Iterable[str],
    reason: str,
    for_: str | None,
) -> Place:
    """
    Read what was typed to hold something.

    Args:
        group: the group that shall obey.
        owner: the owner of the holds.
        texts: the scopes as they were typed.
        reason: why, as text for people.
        for_: for how long, as it was typed; None for no end.

    Raises:
        HoldSettingError: the group, the reason or the duration is not acceptable.
        ScopeSyntaxError: a scope is not one, or there is no scope.
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


def duration_of(for_: str) -> float:
    """
    Return the seconds of ``--for`` as it was typed.

    Raises:
        HoldSettingError: it is not a duration.
    """
    try:
        return seconds_of(for_)
    except ValueError as error:
        message = f"for: {error}"
        raise HoldSettingError(message) from error


@frozen(kw_only=True)
class Extend:
    """
    Which existing holds of an owner shall last longer.

    Attributes:
        group: the group that obeys them.
        owner: their owner.
        scopes: their scopes.
        seconds: for how long, counted from when that is written.
        offset: the offset of the hold as it was shown; None if none was shown.
    """

    group: str
    owner: str
    scopes: tuple[Scope, ...]
    seconds: float
    offset: int | None = None


@frozen(kw_only=True)
class Named:
    """
    One hold that shall be lifted.

    Attributes:
        scope: its scope, as text.
        owner: its owner.
        id: its id, if it was shown; else None.
        offset: its offset, if it was shown; else None.
    """

    scope: str
    owner: str
    id: str | None = None
    offset: int | None = None

    @property
    def was_shown(self) -> bool:
        """Whether it names one record, and not whatever the owner holds there."""
        return self.id is not None or self.offset is not None

    def names(self, one: HoldRecord) -> bool:
        """Tell whether this very record was shown; True if none was."""
        is_id = self.id in {None, one.hold.hold_id if one.hold else ""}
        return is_id and self.offset in {None, one.offset}


@frozen(kw_only=True)
class Lift:
    """
    Which holds of a group shall be lifted.

    Attributes:
        group: the group that obeys them.
        holds: the holds.
        by: who lifts them, and must type the scopes of others' holds; None for somebody
            who names the owner anyway.
    """

    group: str
    holds: tuple[Named, ...]
    by: str | None = None


@frozen(kw_only=True)
class ResetTo:
    """
    To which offsets a group shall be moved, under holds that its operator has.

    Attributes:
        group: the group.
        owner: the owner of the holds.
        scopes: what shall be moved.
        asked: where to, as it was typed.
        places: by partition, where it can be moved and where to, as brokers have answered.
        topic_ids: topics with their ids, as Kafka writes them.
    """

    group: str
    owner: str
    scopes: tuple[Scope, ...]
    asked: str
    places: Places
    topic_ids: Mapping[str, str]


Wish = Place | Extend | Lift | ResetTo


# ---------------------------------------------------------------- plans


class Consent(Enum):
    """How an operator agrees: by a flag of that name, by a click, or by typing."""

    FUTURE = "future"
    REPLACE = "replace"
    EVERYTHING = "everything"
    TYPED = "typed"
    FORCE = "force"
    NONE = "none"


@frozen(kw_only=True)
class Need:
    """
    Why a plan is not carried out unless the operator agrees.

    Attributes:
        consent: how to agree; ``NONE`` if the wish itself must be another one.
        why: the reason as text; empty if the operator knows it.
        ask: the text that is agreed to, or what to do.
        about: what is agreed to, for the digest.
    """

    consent: Consent
    why: str
    ask: str
    about: tuple[str, ...] = ()


@frozen(kw_only=True)
class Plan:
    """
    What a wish would do.

    Attributes:
        view: the group, as the plan was made from it.
        wish: the wish.
        changes: the records to write; empty if everything stands already.
        needs: what the operator must agree to first.
        says: sentences about it, each with a level.
        covers: the partitions of the group that the holds cover now.
        own: the existing holds of the same owners and scopes.
        unchanged: those of ``own`` that are what the wish asks for, and stay.
        renewed: those that are, and that have ended, or may have, or that the holds
            topic lacks.
        others: the other holds that cover some of these partitions, or the same scopes.
        is_done: whether nothing is left to do.
    """

    view: View
    wish: Wish
    changes: tuple[Change, ...]
    needs: tuple[Need, ...] = ()
    says: tuple[Point, ...] = ()
    covers: tuple[TopicPartition, ...] = ()
    own: tuple[HoldRecord, ...] = ()
    unchanged: tuple[HoldRecord, ...] = ()
    renewed: tuple[HoldRecord, ...] = ()
    others: tuple[HoldRecord, ...] = ()
    is_done: bool = False

    @property
    def replaced(self) -> tuple[HoldRecord, ...]:
        """The existing holds that end because another one takes their place."""
        stays = {one.key for one in (*self.unchanged, *self.renewed)}
        return tuple(one for one in self.own if one.key not in stays)

    @property
    def to_agree(self) -> str | None:
        """The text of what the operator must agree to first; None if nothing."""
        return "; ".join(one.ask for one in self.needs) or None

    @cached_property
    def digest(self) -> str:
        """
        A text that two plans share if they do the same, over the same existing holds.

        It leaves out what changes by itself: sentences, times, and which partitions
        there are, since an agreement to ``@all`` is valid for all of them.
        """
        wish = self.wish
        needs = [(one.consent.value, *one.about) for one in self.needs]
        over = [_identity(one) for one in (*self.renewed, *self.replaced)]
        text = json.dumps([type(wish).__name__, _facts(wish), needs, over])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def with_retention(self, limits: Mapping[str, float | None]) -> "Plan":
        """
        Return the plan with sentences on whether records are deleted before it ends.

        Args:
            limits: after how many seconds topics delete records; None for never.
                Topics of which that is unknown are left out.
        """
        return evolve(self, says=(*self.says, *_kept(self, limits)))

    def document(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        points = [{"level": level, "sentence": text} for level, text in self.says]
        if isinstance(self.wish, ResetTo):
            return {"points": points, "moves": _moves_document(self, self.wish)}
        covers = flowing(self) if isinstance(self.wish, Lift) else self.covers
        found = {
            "points": points,
            "covers": names(covers),
            "waiting": waiting(self.view, covers),
            "others": list(map(hold_document, self.others)),
            "to_agree": self.to_agree,
        }
        if isinstance(self.wish, Lift):
            return found
        return {
            **found,
            "replaces": list(map(hold_document, self.replaced)),
            "unchanged": list(map(hold_document, self.unchanged)),
            "renewed": list(map(hold_document, self.renewed)),
            "seconds": self.wish.seconds,
        }


def _moves_document(plan: Plan, wish: ResetTo) -> list[dict[str, object]]:
    committed = plan.view.facts.committed
    return [
        {
            "partition": f"{tp.topic}:{tp.partition}",
            "from": committed.get(tp),
            "to": at.offset,
            "start": at.start,
            "end": at.end,
        }
        for tp, at in wish.places.items()
    ]


def plan_of(view: View, wish: Wish, cluster: Cluster) -> Plan:
    """
    Return what a wish would do.

    Args:
        view: the group.
        wish: the wish.
        cluster: answers which groups and topics there are, if something looks mistyped.

    Raises:
        HoldSettingError: a hold cannot be extended; the message says why.
    """
    if isinstance(wish, Place):
        return place(view, wish, cluster)
    if isinstance(wish, ResetTo):
        return reset(view, wish)
    return extend(view, wish) if isinstance(wish, Extend) else lift(view, wish)


# ---------------------------------------------------------------- placing


def place(view: View, wish: Place, cluster: Cluster) -> Plan:
    """Return what placing holds would do; arguments as of :func:`plan_of`."""
    own = _own(view, (one.key for one in wish.changes))
    unchanged, renewed, todo = [], [], []
    for change in wish.changes:
        there = own.get(change.key)
        is_same = there is not None and _is_same(change, there)
        if there is not None and is_same and _is_lasting(view, there):
            unchanged.append(there)
            continue
        if there is not None and is_same:
            renewed.append(there)
        todo.append(change if there is None else change.held_since(there.since))
    covers = covered(wish.scopes, view.consumed)
    plan = Plan(
        view=view,
        wish=wish,
        changes=tuple(todo),
        covers=covers,
        own=tuple(own.values()),
        unchanged=tuple(unchanged),
        renewed=tuple(renewed),
        others=_others(view, own, map(str, wish.scopes), covers),
        is_done=not todo,
    )
    plan = evolve(plan, needs=tuple(_needs(plan, wish, cluster)))
    return evolve(plan, says=tuple(_placed(plan, wish.seconds)))


def _own(view: View, keys: Iterable[ControlKey]) -> dict[ControlKey, HoldRecord]:
    holds = {one.key: one for one in view.holds}
    return {key: holds[key] for key in keys if key in holds}


def _others(
    view: View,
    own: Mapping[ControlKey, HoldRecord],
    named: Iterable[str],
    covers: Sequence[TopicPartition],
) -> tuple[HoldRecord, ...]:
    texts = frozenset(named)
    return tuple(
        one
        for one in view.holds
        if one.key not in own
        and (one.key.scope in texts or any(one.covers(tp) for tp in covers))
    )


def _is_same(change: Change, one: HoldRecord) -> bool:
    wanted, hold = change.hold, one.hold
    if wanted is None or hold is None:
        return False
    return (wanted.reason, wanted.ttl_ms) == (hold.reason, hold.ttl_ms)


def _is_lasting(view: View, one: HoldRecord) -> bool:
    """Tell whether a hold is on the holds topic, and has ended by no clock."""
    if view.is_outlived(one):
        return False
    if one.hold is None or one.hold.ttl_ms is None:
        return True
    return one.expires_at is not None and not one.is_over(view.times.here)


def _needs(plan: Plan, wish: Place, cluster: Cluster) -> Iterator[Need]:
    # What stands already needs no consent: a loop that repeats a command is not asked.
    view, group = plan.view, wish.group
    keys = {one.key.scope for one in plan.changes}
    todo = [one for one in wish.scopes if str(one) in keys]
    if todo and not view.is_known:
        meant = scopes.near(group, cluster.groups()) or "; look for a typing error"
        yield Need(
            consent=Consent.FUTURE,
            why=f"no group {group!r} here{meant}",
            ask=f"Hold {group} before it exists",
        )
    elif said := scopes.mistakes(view, todo, cluster.topics):
        yield Need(
            consent=Consent.FUTURE,
            why=said,
            ask="Hold what the group does not consume now",
            about=tuple(map(str, scopes.covering_nothing(view, todo))),
        )
    if lasting := [one for one in plan.replaced if not one.is_over(view.times.proven)]:
        rows = "; ".join(" ".join(one.cells()) for one in lasting)
        named = ", ".join(one.key.scope for one in lasting)
        yield Need(
            consent=Consent.REPLACE,
            why=f"held already: {rows}",
            ask=f"Replace what you hold already: {named}",
        )
    if moving := [one.key.scope for one in plan.replaced if _reset_of(one)]:
        yield Need(
            consent=Consent.NONE,
            why=f"the group is being moved under it: {', '.join(moving)}",
            ask="resume it first",
        )
    if any(isinstance(one, Everything) for one in todo):
        yield Need(
            consent=Consent.EVERYTHING,
            why="",
            ask=f"Hold all {counted(len(plan.covers), 'partition')} of {group}",
        )


# ---------------------------------------------------------------- extending


def extend(view: View, wish: Extend) -> Plan:
    """
    Return what lets an owner's holds of these scopes end later.

    The holds keep their id, their reason, and the time at which they were placed. If no
    member reports the broker's time they may last longer than wished, and never shorter
    than before.

    One that the holds topic has lost is written to it again, if it would end no earlier.

    Raises:
        HoldSettingError: one does not exist, has ended or may have, has no end, or ends
            later than that.
    """
    keys = [ControlKey(wish.group, wish.owner, str(one)) for one in wish.scopes]
    own = _own(view, keys)
    covers = covered(wish.scopes, view.consumed)
    plan = Plan(
        view=view,
        wish=wish,
        changes=(),
        covers=covers,
        own=tuple(own.values()),
        others=_others(view, own, map(str, wish.scopes), covers),
    )
    is_shown = all(key in own and own[key].offset == wish.offset for key in keys)
    if wish.offset is not None and not is_shown:
        return _extended_since(plan, wish, [own.get(key) for key in keys])
    todo = tuple(_longer(key, own.get(key), wish.seconds, view) for key in keys)
    says = (*_placed(plan, wish.seconds), *_lacking(plan))
    return evolve(plan, changes=todo, says=says)


def _lacking(plan: Plan) -> Iterator[Point]:
    """Yield which of the holds to extend members obey though the topic has lost them."""
    for one in plan.own:
        if plan.view.is_outlived(one):
            yield (
                "note",
                f"would be written again, as {LACKED}: {' '.join(one.cells())}",
            )


def _extended_since(plan: Plan, wish: Extend, own: Sequence[HoldRecord | None]) -> Plan:
    """Return the plan if another record stands where the one that was shown stood."""
    ttl_ms = new_hold(None, wish.seconds).ttl_ms
    shown = -1 if wish.offset is None else wish.offset
    is_done = all(
        one is not None
        and one.hold is not None
        and one.offset > shown
        and one.hold.ttl_ms == ttl_ms
        and _is_lasting(plan.view, one)
        for one in own
    )
    if is_done:  # this form was sent before
        rows = (" ".join(one.cells()) for one in plan.own)
        says = tuple(("note", f"extended already: {one}") for one in rows)
        return evolve(plan, is_done=True, unchanged=plan.own, says=says)
    why = Need(
        consent=Consent.NONE,
        why="the hold has changed",
        ask="it was lifted, replaced or extended, or it ended: look at the group",
    )
    return evolve(plan, needs=(why,))


def _longer(
    key: ControlKey, own: HoldRecord | None, seconds: float, view: View
) -> Change:
    times = view.times
    if own is None or own.hold is None:
        message = (
            f"{key.scope} is not held by {key.owner}: place it, or name its owner. "
            "Nothing was changed"
        )
        raise HoldSettingError(message)
    if over := _over(own, view):
        message = f"{key.scope} {over}: pause places it again. Nothing was changed"
        raise HoldSettingError(message)
    end = own.expires_at
    is_later = end is not None and times.here + seconds < end
    if view.is_outlived(own) and (is_later or own.hold.ttl_ms is None):
        message = (
            f"{key.scope} would end earlier, and {LACKED}: pause places it again. "
            "Nothing was changed"
        )
        raise HoldSettingError(message)
    if own.hold.ttl_ms is None:
        message = f"{key.scope} is held until it is resumed. Nothing was changed"
        raise HoldSettingError(message)
    if end is not None and is_later:
        message = (
            f"{key.scope} is held until {utc(end)}, which is later. Nothing was "
            "changed: replace it to make it shorter"
        )
        raise HoldSettingError(message)
    if end is not None:
        # The broker counts from its own time, which is no earlier than what is proven.
        seconds = max(seconds, end - times.proven)
    hold = evolve(own.hold, ttl_ms=new_hold(own.hold.reason, seconds).ttl_ms)
    return Change(key, hold).held_since(own.since)


def _over(own: HoldRecord, view: View) -> str:
    """Return that a hold has ended, or may have; empty if neither clock has it ended."""
    end, lifted = own.expires_at, view.lifted_by([own])
    if end is not None and lifted is not None:
        return f"ended at {utc(end)}, and members lift it until {utc(lifted)}"
    if end is not None and own.is_over(view.times.here):
        return f"may have ended at {utc(end)}"
    return ""


# ---------------------------------------------------------------- lifting


def lift(view: View, wish: Lift) -> Plan:
    """
    Return what lifting holds would do.

    It is done already if the holds were shown, and none of them is there any more; the
    hold may have been all that is known of its group.
    """
    keys = [ControlKey(wish.group, one.owner, one.scope) for one in wish.holds]
    own = _own(view, keys)
    reads = (patterns.read(key.scope) for key in keys)
    covers = covered((one.scope for one in reads if one is not None), view.consumed)
    plan = Plan(
        view=view,
        wish=wish,
        changes=tuple(dict.fromkeys(Change(key, None) for key in keys)),
        covers=covers,
        own=tuple(own.values()),
        others=_others(view, own, (key.scope for key in keys), covers),
        is_done=not own and _are_gone(view, wish),
    )
    plan = evolve(plan, needs=tuple(_lift_needs(plan, wish)))
    return evolve(plan, says=tuple(_lifted(plan)))


def _are_gone(view: View, wish: Lift) -> bool:
    """
    Tell whether the holds were shown, and are there no more, of no other owner.

    One that members obey though the topic has lost it is there.
    """
    kept = {(one.owner, one.scope) for one in view.kept}
    if any((OPERATOR + one.owner, one.scope) in kept for one in wish.holds):
        return False
    return all(one.was_shown for one in wish.holds) and not any(
        hold.key.scope == one.scope and one.names(hold)
        for hold in view.holds
        for one in wish.holds
    )


def _lift_needs(plan: Plan, wish: Lift) -> Iterator[Need]:
    there = {(one.key.scope, one.key.owner): one for one in plan.own}
    found = [(one, there.get((one.scope, one.owner))) for one in wish.holds]
    if (lacking := gone(plan)) and not plan.is_done:
        rest = ": check whether you want to lift the rest" if plan.own else ""
        yield Need(
            consent=Consent.NONE,
            why=f"not held: {', '.join(lacking)}",
            ask=f"{GONE}{rest}",
        )
    for one, hold in found:
        if hold is not None and not one.names(hold):
            yield Need(
                consent=Consent.NONE,
                why=f"the hold on {one.scope} has changed",
                ask="it was replaced or extended: check whether you still want to lift it",
            )
    if undone := _unmoved(plan):
        yield Need(
            consent=Consent.FORCE,
            why="; ".join(f"{one.name} is not moved yet: {one.why}" for one in undone),
            ask="resume --force lifts it: what is not moved stays where it was",
        )
    if others := anothers(plan):
        texts = tuple(one.key.scope for one in others)
        owners = ", ".join(dict.fromkeys(one.key.owner for one in others))
        why = f"{' '.join(texts)} {_verb(texts, 'is', 'are')} held by {owners}"
        ask = f"type {' '.join(texts)} to lift {_verb(texts, 'it', 'them')}"
        yield Need(consent=Consent.TYPED, why=why, ask=ask, about=texts)
        if not all(one.was_shown for one in wish.holds):
            ask = "give the hold's id or offset too"
            yield Need(consent=Consent.NONE, why=why, ask=ask)


def gone(plan: Plan) -> list[str]:
    """Return the holds that a wish to lift names and that are not there, as text."""
    there = {(one.key.scope, one.key.owner) for one in plan.own}
    holds = plan.wish.holds if isinstance(plan.wish, Lift) else ()
    lacking = (one for one in holds if (one.scope, one.owner) not in there)
    return [f"{one.scope} of {one.owner}" for one in lacking]


def of_later_version(plan: Plan) -> tuple[HoldRecord, ...]:
    """Return the holds to lift whose keys a later version wrote: only that lifts them."""
    holds = plan.wish.holds if isinstance(plan.wish, Lift) else ()
    named = {(one.scope, one.owner) for one in holds}
    return tuple(one for one in plan.others if (one.key.scope, one.key.owner) in named)


def anothers(plan: Plan) -> tuple[HoldRecord, ...]:
    """Return the holds to lift that belong to somebody else than who lifts them."""
    by = plan.wish.by if isinstance(plan.wish, Lift) else None
    return tuple(one for one in plan.own if by not in {None, one.key.owner})


def flowing(plan: Plan) -> tuple[TopicPartition, ...]:
    """Return the partitions that begin to flow when the holds are lifted."""
    kept = frozenset(covered(plan.others, plan.covers))
    return tuple(tp for tp in plan.covers if tp not in kept)


def _unmoved(plan: Plan) -> list[Movement]:
    """Return what the holds that shall be lifted were to move, and have not yet."""
    owners = {one.owner for one in plan.own if _reset_of(one)}
    covers = [one.scope for one in plan.own if _reset_of(one)]
    if not covers:
        return []
    found = movements(plan.view, covers)
    return [one for one in found if one.by in owners and not one.is_moved]


def _reset_of(one: HoldRecord) -> Reset | None:
    return None if one.hold is None else one.hold.reset


# ---------------------------------------------------------------- moving offsets


def reset(view: View, wish: ResetTo) -> Plan:
    """
    Return what moving a group to other offsets would do.

    The targets are written into the holds of the owner that cover them, which lose their
    end by that.
    """
    own = [one for one in view.lasting if one.key.owner == wish.owner]
    wanted = _wanted(wish)
    todo: dict[ControlKey, dict[TopicPartition, int]] = {}
    for tp, offset in wanted.items():
        under = next((one for one in own if one.covers(tp)), None)
        if under is not None:
            todo.setdefault(under.key, {})[tp] = offset
    holds = {one.key: one for one in own}
    plan = Plan(
        view=view,
        wish=wish,
        changes=tuple(_moved_by(holds[key], to, wish) for key, to in todo.items()),
        covers=tuple(sorted(wish.places)),
        own=tuple(holds[key] for key in todo),
    )
    plan = evolve(plan, is_done=bool(wanted) and _stands(view, wish, wanted))
    plan = evolve(plan, needs=tuple(_reset_needs(plan, wish)))
    return evolve(plan, says=tuple(_reset_says(plan)))


def _wanted(wish: ResetTo) -> dict[TopicPartition, int]:
    return {tp: at.offset for tp, at in wish.places.items() if at.offset is not None}


def _moved_by(
    own: HoldRecord, to: Mapping[TopicPartition, int], wish: ResetTo
) -> Change:
    known = _reset_of(own) or Reset(())
    places = {(topic, number): at for topic, number, at in known.to}
    places |= {(tp.topic, tp.partition): at for tp, at in to.items()}
    ids = {**dict(known.topic_ids), **wish.topic_ids}
    topics = {topic for topic, _ in places}
    written = Reset(
        tuple((*tp, at) for tp, at in sorted(places.items())),
        tuple(sorted((name, one) for name, one in ids.items() if name in topics)),
        wish.asked,
    )
    hold = own.hold or ControlHold()
    changed = Change(own.key, evolve(hold, reset=written, ttl_ms=None))
    return changed.held_since(own.since)


def _stands(view: View, wish: ResetTo, wanted: Mapping[TopicPartition, int]) -> bool:
    known, owner = targets_of(view.lasting), OPERATOR + wish.owner
    return all(
        (one := known.get(tp)) is not None
        and (one.owner, one.offset) == (owner, at)
        and one.topic_id == wish.topic_ids.get(tp.topic)
        for tp, at in wanted.items()
    )


def _reset_needs(plan: Plan, wish: ResetTo) -> Iterator[Need]:
    view, nothing = plan.view, Consent.NONE
    if not wish.places:
        named = " ".join(map(str, wish.scopes))
        yield Need(
            consent=nothing, why=f"nothing of {named} is consumed", ask="name it"
        )
    held = [one for one in view.lasting if one.key.owner == wish.owner]
    bare = [tp for tp in wish.places if not any(one.covers(tp) for one in held)]
    if bare:
        why = f"{partitions_text(bare)} is not held by {wish.owner}"
        yield Need(consent=nothing, why=why, ask="pause it first, and wait until quiet")
    if unset := [tp for tp, at in wish.places.items() if at.offset is None]:
        why = f"nothing is committed of {partitions_text(unset)} to count from"
        yield Need(consent=nothing, why=why, ask="give an offset, or a time")
    for tp, at in wish.places.items():
        if at.is_outside:
            why = f"{tp.topic}:{tp.partition} has offsets {at.start:,} to {at.end:,}"
            yield Need(consent=nothing, why=why, ask=f"not {at.offset:,}")
    for one in movements(view, wish.scopes):
        if one.by != OPERATOR + wish.owner and not one.is_moved:
            why = f"{one.name} is still moved by {one.by}: {one.why}"
            yield Need(consent=nothing, why=why, ask="wait until it is moved")
    if any(_is_too_long(one) for one in plan.changes):
        why = "so many partitions do not fit into the record of one hold"
        yield Need(consent=nothing, why=why, ask="place a hold for each topic")
    yield from _not_moving(plan)


def _not_moving(plan: Plan) -> Iterator[Need]:
    found: dict[str, list[TopicPartition]] = {}
    for tp in plan.covers:
        for one in movers(plan.view, tp):
            if why := obstacle(one):
                found.setdefault(why, []).append(tp)
    for why, tps in found.items():
        said = f"{partitions_text(tps)} would not be moved: {why}"
        ask = f"move the others and leave {partitions_text(tps)}"
        about = tuple(f"{tp.topic}:{tp.partition}" for tp in tps)
        yield Need(consent=Consent.FORCE, why=said, ask=ask, about=about)


def _is_too_long(one: Change) -> bool:
    return one.hold is not None and len(encode_hold(one.hold)) > MAX_VALUE_BYTES


def _reset_says(plan: Plan) -> Iterator[Point]:
    for one in plan.own:
        if one.expires_at is not None:
            end = f"your hold of {one.key.scope} ends at {utc(one.expires_at)}"
            yield "waiting", f"{end}: that is taken away, and it stays until resumed"
    yield from (("waiting", one.why) for one in plan.needs if one.why)
    for one_stream in (one for one in plan.view.reports if one.kind == STREAM):
        yield "note", f"{one_stream.client_id} is a stream: its offsets do not move"


def reset_row(view: View, tp: TopicPartition, offset: int | None) -> str:
    """Return from where to where a partition is moved, as text."""
    known = view.facts.committed.get(tp)
    before = "nothing committed" if known is None else f"{known:,}"
    after = "nowhere" if offset is None else f"{offset:,}"
    more = ""
    if known is not None and offset is not None:
        count = abs(known - offset)
        kind = "again" if offset < known else "passed over"
        more = f"   {count:,} {kind}" if count else "   stays"
    return f"{tp.topic}:{tp.partition}  {before} -> {after}{more}"


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
    for one in plan.unchanged:
        yield "note", f"held already, and stays as it is: {' '.join(one.cells())}"
    for one in plan.renewed:
        cells, why = " ".join(one.cells()), "it may have ended"
        why = LACKED if view.is_outlived(one) else why
        yield "note", f"would be renewed, as {why}: {cells}"
    if not plan.is_done:
        yield _end(view, seconds)


def _end(view: View, seconds: float | None) -> Point:
    if seconds is None:
        return "waiting", "would last until it is resumed"
    now = view.times.now
    at = "" if now is None else f", until {utc(now + seconds)}"
    late = f", or {words_of(view.skew)} longer" if view.skew >= 1 else ""
    return "note", f"would last {words_of(seconds)}{at}{late}"


def _disobeying(view: View, covers: Sequence[TopicPartition]) -> Iterator[Point]:
    wanted = frozenset(covers)
    for one in view.everybody if covers else ():
        if one.is_behind:  # it obeys what it has read, and reads on
            yield "waiting", f"would obey later: {one.name} {one.verdict.sentence}"
        elif not one.obeys:
            owned = one.owned & wanted
            flows = f"; {partitions_text(owned)} may go on flowing" if owned else ""
            is_loud = owned and one.verdict.level is Level.UNKNOWN
            said = f"would not obey: {one.name} {one.verdict.sentence}{flows}"
            yield "alarm" if is_loud else "waiting", said
    if covers and view.unsettled:
        yield "unknown", f"who obeys is unknown: {view.unsettled}"
    for why in view.unread:
        yield "unknown", f"unknown: {why}"


def _kept(plan: Plan, limits: Mapping[str, float | None]) -> Iterator[Point]:
    """Yield whether records of the covered topics are deleted before the hold ends."""
    if plan.is_done:  # when what stands ends, its own sentence says
        return
    limited = {one: kept for one, kept in limits.items() if kept is not None}
    if limited:
        topic, kept = min(limited.items(), key=lambda one: one[1])
        yield _retention(plan, topic, kept)
    topics = dict.fromkeys(tp.topic for tp in plan.covers)
    if unread := [name for name in topics if name not in limits]:
        names = ", ".join(unread)
        yield "unknown", f"how long records are kept is unknown for {names}"


def _retention(plan: Plan, topic: str, kept: float) -> Point:
    said = f"{topic} deletes records after {words_of(kept)}"
    if waiting(plan.view, plan.covers) != 0:
        said += "; records that wait now go first"
    wish = plan.wish
    seconds = None if isinstance(wish, Lift | ResetTo) else wish.seconds
    if seconds is None or seconds + plan.view.skew >= kept:
        return "waiting", f"retention ends BEFORE the hold does: {said}"
    return "note", f"retention by age ends later: {said}"


def _lifted(plan: Plan) -> Iterator[Point]:
    free = flowing(plan)
    if free:
        said = f"{counted(len(free), 'partition')} {_verb(free, 'flows', 'flow')} again"
        yield "note", f"{said}: {partitions_text(free)}"
        yield _waiting(waiting(plan.view, free), "come{} at once")
    else:
        yield "waiting", "nothing begins to flow by it now"
    if kept := covered(plan.others, plan.covers):
        said = f"{counted(len(kept), 'partition')} {_verb(kept, 'stays', 'stay')}"
        yield "waiting", f"{said} held by others"


def waiting(view: View, partitions: Sequence[TopicPartition]) -> int | None:
    """
    Return how many records wait in partitions, after the committed offsets.

    None if that could not be read for every one of them.
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


# ---------------------------------------------------------------- the digest


def _facts(wish: Wish) -> list[Any]:
    """Return what was wished, without the ids that the records were given."""
    if isinstance(wish, Lift):
        holds = [(one.scope, one.owner, one.id, one.offset) for one in wish.holds]
        return [wish.group, wish.by, holds]
    if isinstance(wish, ResetTo):
        to = sorted((*tp, at.offset or 0) for tp, at in wish.places.items())
        return [wish.group, wish.owner, to, sorted(wish.topic_ids.items())]
    common = [wish.group, wish.owner, list(map(str, wish.scopes)), wish.seconds]
    return [*common, wish.reason if isinstance(wish, Place) else wish.offset]


def _identity(one: HoldRecord) -> tuple[str, str, str | None, int]:
    hold_id = one.hold.hold_id if one.hold else None
    return one.key.owner, one.key.scope, hold_id, one.offset
