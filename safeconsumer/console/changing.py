"""
Placing and lifting holds: what a wish would do, and doing it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import kafka.errors as kafka_errors
from attrs import frozen
from kafka import TopicPartition

from safeconsumer.console.desk import Desk
from safeconsumer.console.problems import Problem
from safeconsumer.errors import (
    ControlTopicError,
    ControlWriteError,
    HoldSettingError,
    MissingExtraError,
    ScopeSyntaxError,
)
from safeconsumer.group import patterns, wire
from safeconsumer.group.durations import seconds_of, words_of
from safeconsumer.group.facts import Standing
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.judging import Judge, partitions_text
from safeconsumer.group.operator import OPERATOR
from safeconsumer.group.picture import Picture
from safeconsumer.group.publisher import Acknowledged, Change, changes, new_hold
from safeconsumer.holds.explain import utc
from safeconsumer.holds.hold import checked_reason
from safeconsumer.holds.scope import Everything, Scope

_REFUSED = (
    kafka_errors.AuthorizationError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.TopicAuthorizationFailedError,
    ControlTopicError,
)
# So long after an acknowledgement the page that follows shows the change.
_SEEN_WITHIN = 2.0


@frozen(kw_only=True)
class Wish:
    """
    What somebody typed who wants to hold something.
    """

    group: str = ""
    scopes: str = ""
    reason: str = ""
    for_: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Wish":
        """
        Read a form, or a query.
        """
        return cls(
            group=given.get("group", "").strip(),
            scopes=given.get("scopes", "").strip(),
            reason=given.get("reason", "").strip(),
            for_=given.get("for", "").strip(),
        )


@frozen(kw_only=True)
class Plan:
    """
    A wish that can be fulfilled.
    """

    wish: Wish
    scopes: tuple[Scope, ...]
    seconds: float | None
    changes: tuple[Change, ...]


@frozen(kw_only=True)
class Preview:
    """
    What placing or lifting would do.

    Attributes:
        points: sentences, each with how much it matters: ``note``, ``waiting``,
            ``unknown`` or ``alarm``.
        covers: the partitions of the group that it is about.
        others: holds that cover some of them too.
        replaces: holds of the same owner and scope.
        to_agree: what somebody must agree to first; None if nothing.
    """

    points: tuple[tuple[str, str], ...]
    covers: tuple[TopicPartition, ...]
    others: tuple[Standing, ...]
    replaces: tuple[Standing, ...] = ()
    to_agree: str | None = None


# ---------------------------------------------------------------- placing


def plan(desk: Desk, wish: Wish) -> Plan:
    """
    Check what was typed.

    Raises:
        Problem: it is no good; says why.
    """
    if not wire.is_group(wish.group):
        raise Problem(400, "a group is printable text of 1 to 1024 characters")
    try:
        scopes = tuple(map(patterns.parse, dict.fromkeys(wish.scopes.split())))
        seconds = seconds_of(wish.for_) if wish.for_ else None
        reason = checked_reason(wish.reason)
        hold = new_hold(reason, seconds, desk.host, desk.principal)
    except (
        HoldSettingError,
        MissingExtraError,
        ScopeSyntaxError,
        ValueError,
    ) as error:
        raise Problem(400, str(error)) from error
    if not scopes:
        raise Problem(400, "say what to hold: orders:3, orders, re:ord.* or @all")
    if not reason or not reason.strip():
        raise Problem(400, "say why: whoever is on call will want to know")
    return Plan(
        wish=wish,
        scopes=scopes,
        seconds=seconds,
        changes=changes(wish.group, desk.owner, map(str, scopes), hold),
    )


def preview(desk: Desk, snapshot: Snapshot, plan: Plan) -> Preview:
    """
    Say what a plan would do.
    """
    picture = snapshot.pictures.get(plan.wish.group)
    covers = () if picture is None else _covered(picture, plan.scopes)
    standing = () if picture is None else picture.standing
    keys = {one.key for one in plan.changes}
    points = [
        *_covering(snapshot, plan, covers),
        *([] if picture is None else _disobeying(picture, covers)),
        _ending(desk, snapshot, plan),
    ]
    replaces = tuple(
        one for one in standing if one.source == OPERATOR and one.key in keys
    )
    return Preview(
        points=tuple(points),
        covers=covers,
        others=tuple(
            one for one in _overlapping(standing, covers) if one not in replaces
        ),
        replaces=replaces,
        to_agree="; ".join(_to_agree(plan, picture, covers, replaces)) or None,
    )


def place(
    desk: Desk, plan: Plan, told: Preview, given: Mapping[str, str]
) -> tuple[Acknowledged, ...]:
    """
    Write a plan; every hold is acknowledged on return.

    Raises:
        Problem: somebody must agree first, and ``agreed`` is not ``yes`` in what was
            given; or it could not be written, or not all of it.
    """
    if told.to_agree and given.get("agreed") != "yes":
        raise Problem(409, "Nothing was placed.", f"Agree first: {told.to_agree}.")
    return _write(desk, OPERATOR, plan.changes)


def _covered(picture: Picture, scopes: Iterable[Scope]) -> tuple[TopicPartition, ...]:
    scopes = tuple(scopes)
    return tuple(
        tp for tp in picture.facts.partitions if any(one.covers(tp) for one in scopes)
    )


def _overlapping(
    standing: Iterable[Standing], covers: Sequence[TopicPartition]
) -> Iterator[Standing]:
    return (one for one in standing if any(one.covers(tp) for tp in covers))


def _covering(
    snapshot: Snapshot, plan: Plan, covers: Sequence[TopicPartition]
) -> Iterator[tuple[str, str]]:
    if snapshot.trouble:
        yield "unknown", "The broker does not answer, so this is what was known before."
    picture = snapshot.pictures.get(plan.wish.group)
    if picture is None:
        yield "waiting", f"There is no group {plan.wish.group} yet."
        return
    for one in plan.scopes:
        here = [tp for tp in covers if one.covers(tp)]
        if here:
            yield "note", f"{one} covers {_count(here)} now: {partitions_text(here)}."
        else:
            yield "waiting", f"{one} covers nothing that the group consumes now."
    lags = [picture.lags.get(tp) for tp in covers]
    if covers and None not in lags:
        waiting = sum(one or 0 for one in lags)
        yield "note", f"{waiting:,} records wait there already; what comes is added."


def _count(partitions: Sequence[TopicPartition]) -> str:
    many = "" if len(partitions) == 1 else "s"
    return f"{len(partitions):,} partition{many}"


def _disobeying(
    picture: Picture, covers: Sequence[TopicPartition]
) -> Iterator[tuple[str, str]]:
    for seat in Judge(picture).members:
        owned = sorted(seat.facts.assigned.intersection(covers) if seat.facts else ())
        if owned and not seat.obeys:
            level = "alarm" if seat.obeys is None else "waiting"
            said = partitions_text(owned)
            yield level, f"{seat.name} {seat.why}; {said} may go on flowing."


def _ending(desk: Desk, snapshot: Snapshot, plan: Plan) -> tuple[str, str]:
    if plan.seconds is None:
        return "waiting", "It holds until somebody lifts it."
    lasts = words_of(plan.seconds)
    skew = words_of(desk.follower.settings.clock_skew)
    if snapshot.now is None:
        return "note", f"It ends {lasts} after the broker has it, {skew} later at most."
    at = utc(snapshot.now + plan.seconds)
    return "note", f"It ends by itself after {lasts}, at {at}, or {skew} later at most."


def _to_agree(
    plan: Plan,
    picture: Picture | None,
    covers: Sequence[TopicPartition],
    replaces: Sequence[Standing],
) -> Iterator[str]:
    group = plan.wish.group
    if picture is None:
        yield f"Hold it before there is a group {group}"
    elif not all(any(one.covers(tp) for tp in covers) for one in plan.scopes):
        yield "Hold what the group does not consume now"
    elif any(isinstance(one, Everything) for one in plan.scopes):
        yield f"Stop all {_count(covers)} of {group}"
    if replaces:
        said = ", ".join(one.key.scope for one in replaces)
        yield f"Replace what you hold already: {said}"


# ---------------------------------------------------------------- lifting


def find(snapshot: Snapshot, given: Mapping[str, str]) -> Standing:
    """
    Return the hold that a query names.

    Raises:
        Problem: there is none.
    """
    picture = snapshot.pictures.get(given.get("group", ""))
    for one in () if picture is None else picture.standing:
        named = (given.get("scope"), given.get("owner"), given.get("source", OPERATOR))
        if (one.key.scope, one.key.owner, one.source) == named:
            return one
    raise Problem(
        404,
        "that is not held",
        "somebody lifted it, or it expired, or it is somebody else's",
    )


def preview_of_lifting(snapshot: Snapshot, hold: Standing) -> Preview:
    """
    Say what lifting a hold would do.
    """
    picture = snapshot.pictures[hold.key.group]
    covers = tuple(tp for tp in picture.facts.partitions if hold.covers(tp))
    others = tuple(one for one in _overlapping(picture.standing, covers) if one != hold)
    free = [tp for tp in covers if not any(one.covers(tp) for one in others)]
    points = []
    if free:
        said = f"{_count(free)} flow again: {partitions_text(free)}."
        points.append(("note", said))
        lags = [picture.lags.get(tp) for tp in free]
        if None not in lags:
            waiting = sum(one or 0 for one in lags)
            points.append(("note", f"{waiting:,} records come at once."))
    else:
        points.append(("waiting", "Nothing begins to flow by it now."))
    if len(free) < len(covers):
        kept = _count(covers[len(free) :])
        points.append(("waiting", f"{kept} stay held by others."))
    return Preview(points=tuple(points), covers=tuple(free), others=others)


def lift(desk: Desk, hold: Standing, typed: str) -> tuple[Acknowledged, ...]:
    """
    Lift a hold; it is acknowledged on return.

    Raises:
        Problem: it is another's, and its scope was not typed; or the write failed.
    """
    if is_anothers(desk, hold) and typed != hold.key.scope:
        raise Problem(
            409,
            f"{hold.key.scope} is held by {hold.key.owner}",
            f"type {hold.key.scope} to lift it all the same",
        )
    return _write(desk, hold.source, (Change(hold.key, None),))


def is_anothers(desk: Desk, hold: Standing) -> bool:
    """
    Tell whether somebody else placed it.
    """
    return hold.source != OPERATOR or hold.key.owner != desk.owner


# ---------------------------------------------------------------- writing


def _write(
    desk: Desk, source: str, wanted: Sequence[Change]
) -> tuple[Acknowledged, ...]:
    with _as_problems(), desk.operator() as operator:
        operator.check()
        done = operator.write(source, wanted)
        topic = operator.topic_of(source)
    last = max(one.offset for one in done)
    desk.follower.wait_for(topic, last, _SEEN_WITHIN)
    return done


@contextmanager
def _as_problems() -> Iterator[None]:
    try:
        yield
    except (ControlTopicError, ControlWriteError) as error:
        refused = isinstance(error.__cause__ or error, _REFUSED)
        raise Problem(403 if refused else 503, str(error)) from error
    except (kafka_errors.KafkaError, OSError) as error:
        said = str(error)[:300] or type(error).__name__
        if isinstance(error, _REFUSED):
            raise Problem(403, "the broker refuses", said) from error
        raise Problem(503, "no answer from the broker", said) from error
