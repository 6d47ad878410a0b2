"""Places and lifts holds: reads the typed input, previews the change, and writes it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from attrs import evolve, frozen
from kafka.errors import KafkaError
from starlette.requests import Request
from starlette.responses import Response

from safeconsumer.console import asking
from safeconsumer.console.asking import IsWanted
from safeconsumer.console.forms import Outcome, agreement
from safeconsumer.console.problems import Problem
from safeconsumer.console.state import State, state_of
from safeconsumer.errors.base import (
    ControlTopicError,
    ControlWriteError,
    HoldSettingError,
    MissingExtraError,
    ScopeSyntaxError,
)
from safeconsumer.group import preview
from safeconsumer.group.documents import hold_document
from safeconsumer.group.extending import longer
from safeconsumer.group.facts import NO_GROUP, HoldRecord
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.operator import Operator
from safeconsumer.group.preview import Lifting, Objection, Placing, Preview, Wish
from safeconsumer.group.publisher import Acknowledged, Change
from safeconsumer.group.troubles import Kind, kind_of, said
from safeconsumer.group.view import View, skew_of

# Seconds to wait after an acknowledgement until the next page shows the change.
_SEEN_WITHIN = 2.0

T = TypeVar("T")


@frozen(kw_only=True)
class Submission:
    """
    A form or a call that changes something.

    Attributes:
        state: the console's state.
        owner: who sent it.
        given: its fields.
        is_wanted: returns whether the client still waits for the answer.
    """

    state: State
    owner: str
    given: Mapping[str, str]
    is_wanted: IsWanted


async def submit(
    request: Request,
    given: Mapping[str, str],
    change: Callable[[Submission], Response],
) -> Response:
    """Carry out what a request submits, on a thread that may wait for the cluster."""
    state = state_of(request)
    owner = state.auth.owner_of(request)

    def answer(is_wanted: IsWanted) -> Response:
        sent = Submission(state=state, owner=owner, given=given, is_wanted=is_wanted)
        return change(sent)

    return await asking.answer(request, answer)


def typed(given: Mapping[str, str]) -> dict[str, str]:
    """Return the input for placing a hold, from a form or a query."""
    names = ("group", "scopes", "reason", "for", "extends")
    found = {name: given.get(name, "").strip() for name in names}
    # A group's name may begin or end with a blank.
    return {**found, "group": given.get("group", "")}


# ---------------------------------------------------------------- placing


def previewed(
    state: State, owner: str, snapshot: Snapshot, wish: Mapping[str, str]
) -> Preview:
    """
    Preview placing a hold; asks the cluster for what the snapshot lacks.

    Args:
        state: the console's state.
        owner: the owner of the hold.
        snapshot: what is known.
        wish: the input; with ``extends``, the offset of the hold to make last longer.

    Raises:
        Problem: an input is not acceptable; the message says why.
    """
    if not wish["scopes"]:
        raise Problem(400, "give a scope to hold: orders:3, orders, re:ord.* or @all")
    view = _view(snapshot, wish["group"])
    try:
        asked = preview.wish_of(
            group=wish["group"],
            owner=owner,
            texts=wish["scopes"].split(),
            reason=wish["reason"],
            for_=wish["for"] or None,
        )
        wanted = _laid(state, view, asked)
    except (HoldSettingError, MissingExtraError, ScopeSyntaxError) as error:
        raise Problem(400, str(error)) from error
    state.follower.watch(view.group)
    cluster = _Asked(state, snapshot)
    return preview.preview(cluster, *_judged(cluster, wanted, wish["extends"]))


def _laid(state: State, view: View, wish: Wish) -> Placing:
    return preview.placing(
        view,
        wish,
        skew=state.follower.settings.clock_skew,
        host=state.setup.host,
        principal=state.setup.principal,
    )


def _judged(
    cluster: "_Asked", wanted: Placing, extends: str
) -> tuple[Placing, tuple[Objection, ...]]:
    """Return what to place, and what must be agreed to first."""
    if not extends:
        return wanted, tuple(preview.objections(cluster, wanted))
    return _extending(wanted, extends), ()


def _extending(wanted: Placing, offset: str) -> Placing:
    """Let one's own hold last longer: it keeps its id and its reason."""
    wish = wanted.wish
    own = [one for one in wanted.own.values() if str(one.offset) == offset]
    if len(wanted.changes) != 1 or not own:
        why = "it was lifted, replaced or extended, or it ended: look at the group"
        raise Problem(409, "the hold has changed", why)
    if wish.seconds is None:
        raise Problem(400, "say for how long, counted from now")
    try:
        (change,) = longer(wanted.view, wish.owner, map(str, wish.scopes), wish.seconds)
    except HoldSettingError as error:
        raise Problem(400, str(error)) from error
    return evolve(wanted, changes=(change,), own={change: own[0]}, is_extending=True)


def _view(snapshot: Snapshot, group: str) -> View:
    known = snapshot.views.get(group) or View(
        group=group, facts=NO_GROUP, unread=snapshot.unread
    )
    missing: tuple[str, ...] = ()
    if snapshot.trouble:
        missing = (f"what has changed meanwhile. {snapshot.trouble.said}",)
    elif not snapshot.is_complete:
        missing = ("what the console has not read yet",)
    known = evolve(known, unread=(*known.unread, *missing))
    return _timed(known, snapshot)


def _timed(view: View, snapshot: Snapshot) -> View:
    # If the broker does not answer, its last known time is out of date.
    now = None if snapshot.trouble else snapshot.times.now
    return evolve(view, times=evolve(view.times, now=now))


@frozen
class _Asked:
    """Answers a preview's questions from what the console knows, or by asking."""

    state: State
    snapshot: Snapshot

    def groups(self) -> Sequence[str]:
        views = self.snapshot.views.items()
        return tuple(name for name, one in views if one.is_known)

    def topics(self) -> Sequence[str]:
        return self._asked(("topics",), lambda operator: operator.topics(), ())

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
            return self.state.questions.asked(key, ask)
        except (ControlTopicError, KafkaError, OSError, Problem):
            return otherwise


def place(sent: Submission, shown: Preview) -> Outcome:
    """
    Write the previewed holds that do not exist; return when they are acknowledged.

    Existing holds are read first, and the agreement must be to what was shown.

    Raises:
        Refused: the agreement is missing, or was to something else.
        Problem: the holds could not be written, or only some of them.
    """
    return _carry_out(sent, lambda operator: _placing(sent, operator, shown))


def _placing(sent: Submission, operator: Operator, shown: Preview) -> "_Decided":
    state, snapshot = sent.state, sent.state.snapshot()
    known = _read(state, operator, _timed(shown.placing.view, snapshot))
    cluster = _Asked(state, snapshot)
    wanted = _laid(state, known, shown.placing.wish)
    wanted, against = _judged(cluster, wanted, typed(sent.given)["extends"])
    seen = evolve(shown, placing=wanted, objections=against)
    agreed, shows = sent.given.get("agreed"), agreement(typed(sent.given), seen)
    plan = {**seen.document(), "agreement": shows}
    is_agreed = agreed == shows or (agreed is None and not against)
    if not is_agreed:
        raise Refused(seen, plan, "Nothing was placed.", _why_not(seen, agreed))
    same = wanted.unchanged
    todo = tuple(one for one in wanted.changes if wanted.own.get(one) not in same)
    return _Decided(todo=todo, plan=plan)


def _why_not(seen: Preview, agreed: str | None) -> str:
    changed = "This is not what was previewed. " if agreed else ""
    if seen.to_agree is None:
        return f"{changed}Look at what it would do now."
    what = "".join(f"{one.what}. " for one in seen.objections if one.what)
    return f"{changed}{what}Agree first: {seen.to_agree}."


# ---------------------------------------------------------------- lifting


def find(view: View, given: Mapping[str, str]) -> HoldRecord | None:
    """Return the hold that a query names; None if there is no such hold."""
    named = (given.get("scope"), given.get("owner"))
    for one in view.holds:
        if (one.key.scope, one.key.owner) == named:
            return one
    return None


def lifting(
    snapshot: Snapshot, group: str, wanted: Sequence[Mapping[str, str]]
) -> tuple[Lifting, Problem | None]:
    """
    Preview lifting the holds that a query names; also return which do not exist any more.

    Raises:
        Problem: none of them exists.
    """
    return _lifted(_view(snapshot, group), wanted)


def _lifted(
    view: View, wanted: Sequence[Mapping[str, str]]
) -> tuple[Lifting, Problem | None]:
    found = [find(view, one) for one in wanted]
    holds = tuple(one for one in found if one is not None)
    lacking = None
    if gone := [
        f"{one.get('scope', '')} of {one.get('owner', '')}"
        for one, hold in zip(wanted, found, strict=True)
        if hold is None
    ]:
        lacking = Problem(
            409 if holds else 404,
            f"not held: {', '.join(gone)}",
            "it was lifted, it ended, or it has another owner",
        )
        if not holds:
            raise lacking
    return preview.lifting(view, holds), lacking


def lift(sent: Submission, wanted: Sequence[Mapping[str, str]]) -> Outcome:
    """
    Lift holds; return when that is acknowledged.

    Args:
        sent: the form or the call, with a group; for other owners' holds their scopes
            once more, as ``typed``.
        wanted: scope and owner of each hold, and the id and offset that were shown.

    Raises:
        Refused: there is another hold now; or one of several is gone; or it is another
            owner's, and its scope was not typed.
        Problem: there is no such hold, or the write failed.
    """
    return _carry_out(sent, lambda operator: _lifting(sent, operator, wanted))


def _lifting(
    sent: Submission, operator: Operator, wanted: Sequence[Mapping[str, str]]
) -> "_Decided":
    view = _view(sent.state.snapshot(), sent.given.get("group", ""))
    seen, lacking = _lifted(_read(sent.state, operator, view), wanted)
    if lacking is not None:
        said: tuple[str, str] | None = (
            f"Nothing was lifted; {lacking.title}",
            f"{lacking.detail}: check whether you want to lift the rest",
        )
    else:
        said = _against(sent, seen.holds, wanted)
    if said is not None:
        plan = {**seen.document(), "holds": list(map(hold_document, seen.holds))}
        raise Refused(seen, plan, *said)
    todo = tuple(Change(one.key, None) for one in seen.holds)
    return _Decided(todo=todo, plan=seen.document())


def _against(
    sent: Submission, holds: Sequence[HoldRecord], wanted: Sequence[Mapping[str, str]]
) -> tuple[str, str] | None:
    is_named = True
    for hold, one in zip(holds, wanted, strict=True):
        stands = {"id": hold.hold.hold_id if hold.hold else ""}
        stands["offset"] = str(hold.offset)
        if any(one.get(name, value) != value for name, value in stands.items()):
            why = "it was replaced or extended: check whether you still want to lift it"
            return f"the hold on {hold.key.scope} has changed", why
        is_named = is_named and bool(stands.keys() & one.keys())
    others = anothers(holds, sent.owner)
    if not others:
        return None
    scopes, owners = consent_to(others)
    if sent.given.get("typed", "").split() != scopes.split():
        return f"{scopes} is held by {owners}", f"type {scopes} to lift it"
    if not is_named:
        return f"{scopes} is held by {owners}", "give the hold's id or offset too"
    return None


def anothers(holds: Iterable[HoldRecord], owner: str) -> list[HoldRecord]:
    """Return the holds that another owner placed."""
    return [one for one in holds if one.key.owner != owner]


def consent_to(others: Iterable[HoldRecord]) -> tuple[str, str]:
    """Return what to type to lift other owners' holds, and the owners."""
    scopes = " ".join(one.key.scope for one in others)
    return scopes, ", ".join(dict.fromkeys(one.key.owner for one in others))


# ---------------------------------------------------------------- writing


def _read(state: State, operator: Operator, view: View) -> View:
    """Read the holds now: the follower may be behind, or cut off and not know it yet."""
    found = operator.holds(view.group)
    newest = max((one.at or 0.0 for one in found), default=0.0)
    times = evolve(view.times, newest=max(view.times.newest, newest))
    skew = skew_of(state.follower.settings.clock_skew, view.reports)
    holds = tuple(one for one in found if one.in_force(times.proven, skew))
    return evolve(view, holds=holds, times=times)


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
    """
    The changes to write.

    Attributes:
        todo: the changes.
        plan: their preview as plain JSON values.
    """

    todo: Sequence[Change]
    plan: Mapping[str, Any]


def _carry_out(sent: Submission, decide: Callable[[Operator], _Decided]) -> Outcome:
    state = sent.state
    try:
        with state.commands.lend() as operator:
            operator.check()
            decided = decide(operator)
            # 1. A lift waits for the broker, and the client gives up. 2. Somebody else
            # lifts the hold, and another one is placed. 3. The broker answers: a write
            # now would lift the new hold.
            if not sent.is_wanted():
                raise Problem(503, "Nothing was written.", "the client has gone")
            done: tuple[Acknowledged, ...] = ()
            if decided.todo:
                done = operator.write(decided.todo)
    except ControlWriteError as error:
        raise Problem(_http(error.__cause__), str(error), "") from error
    except (ControlTopicError, KafkaError, OSError) as error:
        raise Problem(_http(error), "Nothing was written.", said(error)) from error
    last = max((one.offset for one in done), default=-1)
    state.follower.wait_for(last, _SEEN_WITHIN)
    return Outcome(done=done, plan=decided.plan)


def _http(error: BaseException | None) -> int:
    return 403 if kind_of(error) is Kind.REFUSED else 503
