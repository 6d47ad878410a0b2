"""
Placing and lifting holds: what was typed, what it would do, and doing it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from attrs import evolve, frozen
from kafka import TopicPartition
from kafka.errors import KafkaError

from safeconsumer.console.desk import Desk
from safeconsumer.console.problems import Problem
from safeconsumer.errors import (
    ControlTopicError,
    ControlWriteError,
    HoldSettingError,
    MissingExtraError,
    ScopeSyntaxError,
)
from safeconsumer.group import preview
from safeconsumer.group.facts import NO_GROUP, Standing
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.operator import OPERATOR, Operator
from safeconsumer.group.picture import Picture
from safeconsumer.group.preview import Lifting, Preview
from safeconsumer.group.publisher import Acknowledged, Change
from safeconsumer.group.troubles import Kind, kind_of, said

# So long after an acknowledgement the page that follows shows the change.
_SEEN_WITHIN = 2.0

T = TypeVar("T")


def typed(given: Mapping[str, str]) -> dict[str, str]:
    """
    Return what somebody typed who wants to hold something, of a form or a query.
    """
    names = ("group", "scopes", "reason", "for", "until")
    return {name: given.get(name, "").strip() for name in names}


# ---------------------------------------------------------------- placing


def told(desk: Desk, snapshot: Snapshot, wish: Mapping[str, str]) -> Preview:
    """
    Say what placing it would do; asks the cluster what the snapshot does not tell.

    Raises:
        Problem: what was typed is no good; says why.
    """
    if not wish["scopes"]:
        raise Problem(400, "say what to hold: orders:3, orders, re:ord.* or @all")
    picture = _picture(snapshot, wish["group"])
    try:
        wanted = preview.placing(
            picture,
            preview.wish_of(
                group=wish["group"],
                owner=desk.owner,
                texts=wish["scopes"].split(),
                reason=wish["reason"],
                for_=wish["for"] or None,
                until=wish["until"] or None,
            ),
            skew=desk.follower.settings.clock_skew,
            host=desk.host,
            principal=desk.principal,
        )
    except (HoldSettingError, MissingExtraError, ScopeSyntaxError) as error:
        raise Problem(400, str(error)) from error
    desk.follower.view(picture.group)
    asked = _Asked(desk, snapshot, picture)
    return preview.preview(asked, wanted, preview.objections(asked, wanted))


def _picture(snapshot: Snapshot, group: str) -> Picture:
    known = snapshot.pictures.get(group) or Picture(
        group=group,
        facts=NO_GROUP,
        standing=(),
        reports=(),
        ends=None,
        lags={},
        now=snapshot.now,
        taken_at=snapshot.heard_at,
        unread=snapshot.unread,
    )
    missing: tuple[str, ...] = ()
    if snapshot.trouble:
        missing = (f"what has changed meanwhile. {snapshot.trouble.said}",)
    elif not snapshot.is_complete:
        missing = ("what the console has not read yet",)
    return evolve(known, now=snapshot.now, unread=(*known.unread, *missing))


@frozen
class _Asked:
    """
    Tells what previews need: what the console knows, or else asks for.
    """

    desk: Desk
    snapshot: Snapshot
    picture: Picture

    def groups(self) -> Sequence[str]:
        pictures = self.snapshot.pictures.items()
        return tuple(name for name, one in pictures if one.facts.is_known)

    def topics(self) -> Sequence[str]:
        return self._asked(("topics",), Operator.topics, ())

    def lags(self, *_: object) -> Mapping[TopicPartition, int]:
        return self.picture.lags

    def retention(self, names: Sequence[str]) -> Mapping[str, float | None]:
        found: Mapping[str, float | None] = self._asked(
            ("retention", *names), lambda operator: operator.retention(names), {}
        )
        return found

    def _asked(
        self, key: tuple[str, ...], ask: Callable[[Operator], T], otherwise: T
    ) -> T:
        if self.snapshot.trouble:
            return otherwise
        try:
            return self.desk.asked(key, ask)
        except (ControlTopicError, KafkaError, OSError):
            return otherwise


def place(
    desk: Desk, seen: Preview, given: Mapping[str, str]
) -> tuple[Acknowledged, ...]:
    """
    Write what was previewed and does not stand; it is acknowledged on return.

    Raises:
        Problem: somebody must agree first, and ``agreed`` is not ``yes`` in what was
            given; or it could not be written, or not all of it.
    """
    if seen.to_agree and given.get("agreed") != "yes":
        why = "".join(f"{one.what}. " for one in seen.objections if one.what)
        detail = f"{why}Agree first: {seen.to_agree}."
        raise Problem(409, "Nothing was placed.", detail)
    todo = seen.placing.todo(is_replacing=bool(seen.placing.replaces))
    return _write(desk, OPERATOR, todo) if todo else ()


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


def lifting(snapshot: Snapshot, hold: Standing) -> Lifting:
    """
    Say what lifting a hold would do.
    """
    return preview.lifting(_picture(snapshot, hold.key.group), hold)


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
    try:
        with desk.operator() as operator:
            operator.check()
            done = operator.write(source, wanted)
            topic = operator.topic_of(source)
    except ControlWriteError as error:
        raise Problem(_http(error.__cause__), str(error)) from error
    except (ControlTopicError, KafkaError, OSError) as error:
        raise Problem(_http(error), "Nothing was written.", said(error)) from error
    last = max(one.offset for one in done)
    desk.follower.wait_for(topic, last, _SEEN_WITHIN)
    return done


def _http(error: BaseException | None) -> int:
    return 403 if kind_of(error) is Kind.REFUSED else 503
