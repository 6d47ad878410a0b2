"""Places and lifts holds: reads the typed input, previews the change, and writes it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from attrs import evolve, frozen
from kafka.errors import KafkaError

from safeconsumer.console.asking import IsWanted
from safeconsumer.console.forms import Outcome, agreement
from safeconsumer.console.problems import Problem
from safeconsumer.console.state import State
from safeconsumer.errors import (
    ControlTopicError,
    ControlWriteError,
    HoldSettingError,
    JournalError,
    MissingExtraError,
    ScopeSyntaxError,
)
from safeconsumer.group import preview
from safeconsumer.group.documents import standing_document
from safeconsumer.group.facts import NO_GROUP, Standing
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.operator import OPERATOR, Operator
from safeconsumer.group.picture import Picture
from safeconsumer.group.preview import Lifting, Preview
from safeconsumer.group.publisher import Acknowledged, Change
from safeconsumer.group.troubles import Kind, kind_of, said

# Seconds to wait after an acknowledgement until the next page shows the change.
_SEEN_WITHIN = 2.0

T = TypeVar("T")


def typed(given: Mapping[str, str]) -> dict[str, str]:
    """Return the input for placing a hold, from a form or a query."""
    names = ("group", "scopes", "reason", "for", "until")
    found = {name: given.get(name, "").strip() for name in names}
    # A group's name may begin or end with a blank.
    return {**found, "group": given.get("group", "")}


# ---------------------------------------------------------------- placing


def previewed(state: State, snapshot: Snapshot, wish: Mapping[str, str]) -> Preview:
    """
    Preview placing a hold; asks the cluster for what the snapshot lacks.

    Raises:
        Problem: an input is not acceptable; the message says why.
    """
    if not wish["scopes"]:
        raise Problem(400, "give a scope to hold: orders:3, orders, re:ord.* or @all")
    picture = _picture(snapshot, wish["group"])
    try:
        wanted = preview.placing(
            picture,
            preview.wish_of(
                group=wish["group"],
                owner=state.owner,
                texts=wish["scopes"].split(),
                reason=wish["reason"],
                for_=wish["for"] or None,
                until=wish["until"] or None,
            ),
            skew=state.follower.settings.clock_skew,
            host=state.host,
            principal=state.principal,
        )
    except (HoldSettingError, MissingExtraError, ScopeSyntaxError) as error:
        raise Problem(400, str(error)) from error
    state.follower.view(picture.group)
    asked = _Asked(state, snapshot, picture)
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
    return evolve(known, now=_time_of(snapshot), unread=(*known.unread, *missing))


def _time_of(snapshot: Snapshot) -> float | None:
    # If the broker does not answer, its last known time is out of date.
    return None if snapshot.trouble else snapshot.now


@frozen
class _Asked:
    """Answers a preview's questions from what the console knows, or by asking."""

    state: State
    snapshot: Snapshot
    picture: Picture

    def groups(self) -> Sequence[str]:
        pictures = self.snapshot.pictures.items()
        return tuple(name for name, one in pictures if one.facts.is_known)

    def topics(self) -> Sequence[str]:
        return self._asked(("topics",), Operator.topics, ())

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
            return self.state.asked(key, ask)
        except (ControlTopicError, KafkaError, OSError, Problem):
            return otherwise


def place(
    state: State, seen: Preview, given: Mapping[str, str], is_wanted: IsWanted
) -> Outcome:
    """
    Write the previewed holds that do not exist; return when they are acknowledged.

    Existing holds are read first, and the agreement must be to what was shown.

    Raises:
        Refused: the agreement is missing, or was to something else.
        Problem: the holds could not be written, or only some of them.
    """
    return _carry_out(
        state, given, is_wanted, lambda operator: _placing(state, operator, seen, given)
    )


def _placing(
    state: State, operator: Operator, shown: Preview, given: Mapping[str, str]
) -> "_Decided":
    snapshot, old = state.snapshot(), shown.placing
    picture = evolve(old.picture, now=_time_of(snapshot))
    picture = _with_standing(state, operator, picture)
    wanted = preview.placing(
        picture, old.wish, skew=old.skew, host=state.host, principal=state.principal
    )
    against = preview.objections(_Asked(state, snapshot, picture), wanted)
    seen = evolve(shown, placing=wanted, objections=tuple(against))
    agreed, plan = given.get("agreed") or None, document(given, seen)
    if agreed != plan["agreement"]:
        raise Refused(seen, plan, "Nothing was placed.", _why_not(seen, agreed))
    same = wanted.unchanged
    todo = tuple(one for one in wanted.changes if wanted.own.get(one) not in same)
    return _Decided(source=OPERATOR, todo=todo, plan=plan)


def _why_not(seen: Preview, agreed: str | None) -> str:
    changed = "This is not what was agreed to. " if agreed else ""
    if seen.to_agree is None:
        return f"{changed}There is nothing to agree to now."
    what = "".join(f"{one.what}. " for one in seen.objections if one.what)
    return f"{changed}{what}Agree first: {seen.to_agree}."


def document(given: Mapping[str, str], seen: Preview) -> dict[str, Any]:
    """Return a preview as plain JSON values, with the agreement it needs."""
    return {**seen.document(), "agreement": agreement(typed(given), seen)}


# ---------------------------------------------------------------- lifting


def find(picture: Picture | None, given: Mapping[str, str]) -> Standing:
    """
    Return the hold that a query names.

    Raises:
        Problem: there is no such hold.
    """
    for one in () if picture is None else picture.standing:
        named = (given.get("scope"), given.get("owner"), given.get("source", OPERATOR))
        if (one.key.scope, one.key.owner, one.source) == named:
            return one
    raise Problem(
        404,
        "that hold does not exist",
        "it was lifted, it expired, or it has another owner",
    )


def lifting(snapshot: Snapshot, given: Mapping[str, str]) -> Lifting:
    """
    Preview lifting the hold that a query names.

    Raises:
        Problem: there is no such hold.
    """
    group = given.get("group", "")
    hold = find(snapshot.pictures.get(group), given)
    return preview.lifting(_picture(snapshot, group), hold)


def lift(state: State, given: Mapping[str, str], is_wanted: IsWanted) -> Outcome:
    """
    Lift a hold; return when it is acknowledged.

    Args:
        state: the console's state.
        given: group, scope, owner and source; id and offset of the hold that was shown;
            for another owner's hold its scope once more, as ``typed``.
        is_wanted: returns whether the client still waits.

    Raises:
        Refused: there is another hold now; or it is another owner's, and its scope was
            not typed.
        Problem: there is no such hold, or the write failed.
    """
    return _carry_out(
        state, given, is_wanted, lambda operator: _lifting(state, operator, given)
    )


def _lifting(state: State, operator: Operator, given: Mapping[str, str]) -> "_Decided":
    picture = _picture(state.snapshot(), given.get("group", ""))
    picture = _with_standing(state, operator, picture)
    hold = find(picture, given)
    seen = preview.lifting(picture, hold)
    if said := _against(state, hold, given):
        plan = {**seen.document(), "hold": standing_document(hold)}
        raise Refused(seen, plan, *said)
    todo = (Change(hold.key, None),)
    return _Decided(source=hold.source, todo=todo, plan=seen.document())


def _against(
    state: State, hold: Standing, given: Mapping[str, str]
) -> tuple[str, str] | None:
    scope = hold.key.scope
    stands = {"id": hold.hold.hold_id if hold.hold else "", "offset": str(hold.offset)}
    if any(given.get(name, value) != value for name, value in stands.items()):
        why = "it was replaced or extended: check whether you still want to lift it"
        return f"the hold on {scope} has changed", why
    if not is_anothers(state, hold):
        return None
    if given.get("typed", "").strip() != scope:
        return f"{scope} is held by {hold.key.owner}", f"type {scope} to lift it"
    if not stands.keys() & given.keys():
        why = "give the hold's id or offset too"
        return f"{scope} is held by {hold.key.owner}", why
    return None


def is_anothers(state: State, hold: Standing) -> bool:
    """Tell whether another owner placed it."""
    return hold.source != OPERATOR or hold.key.owner != state.owner


# ---------------------------------------------------------------- writing


class Refused(Problem):
    """
    Nothing was written, since the holds are not those agreed to; has a new preview.

    Attributes:
        seen: the new preview.
    """

    def __init__(
        self, seen: Preview | Lifting, plan: Mapping[str, Any], title: str, detail: str
    ) -> None:
        super().__init__(409, title, detail, {"preview": plan})
        self.seen = seen


@frozen(kw_only=True)
class _Decided:
    """The changes to write, their topic, and their preview as plain JSON values."""

    source: str
    todo: Sequence[Change]
    plan: Mapping[str, Any]


def _carry_out(
    state: State,
    given: Mapping[str, str],
    is_wanted: IsWanted,
    decide: Callable[[Operator], _Decided],
) -> Outcome:
    unwritten = ""
    try:
        with state.commands.lend() as operator:
            known = state.once.outcome(given)
            if known is not None:
                return _journaled(known)
            operator.check()
            decided = decide(operator)
            # 1. A lift waits for the broker, and the client gives up. 2. Somebody else
            # lifts the hold, and another one is placed. 3. The broker answers: a write
            # now would lift the new hold.
            if not is_wanted():
                raise Problem(503, "Nothing was written.", "the client has gone")
            done: tuple[Acknowledged, ...] = ()
            if decided.todo:
                operator.unwritten = ""
                try:
                    done = operator.write(decided.source, decided.todo)
                finally:
                    unwritten = operator.unwritten
            outcome = Outcome(done=done, plan=decided.plan, unwritten=unwritten)
            state.once.remember(given, outcome)
            topic = operator.topic_of(decided.source)
    except JournalError as error:
        raise Problem(500, "Nothing was written.", str(error)) from error
    except ControlWriteError as error:
        lacks = f"It could not be journaled: {unwritten}" if unwritten else ""
        raise Problem(_http(error.__cause__), str(error), lacks) from error
    except (ControlTopicError, KafkaError, OSError) as error:
        raise Problem(_http(error), "Nothing was written.", said(error)) from error
    last = max((one.offset for one in done), default=-1)
    state.follower.wait_for(topic, last, _SEEN_WITHIN)
    return _journaled(outcome)


def _journaled(outcome: Outcome) -> Outcome:
    # A client that sends the same request again gets the same error.
    if outcome.unwritten:
        title = "It was written and acknowledged, but could not be journaled."
        raise Problem(500, title, outcome.unwritten)
    return outcome


def _with_standing(state: State, operator: Operator, picture: Picture) -> Picture:
    # Read the holds now: the follower may be behind, or be cut off and not know it yet.
    found = operator.standing(picture.group)
    # If no member reports the time, it is at least the time of the newest record.
    now = picture.now or max((one.at or 0.0 for one in found), default=0.0)
    skew = state.follower.settings.clock_skew
    standing = tuple(one for one in found if one.in_force(now, skew))
    return evolve(picture, standing=standing)


def _http(error: BaseException | None) -> int:
    return 403 if kind_of(error) is Kind.REFUSED else 503
