"""
Places, extends and lifts holds, and resets offsets: shows a plan, and carries it out.

An action is read from the fields of a form or an API call. Its plan is shown with a
digest, and carried out only if the current plan still has the digest that the user
agreed to.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from attrs import evolve, frozen
from kafka.errors import KafkaError

from safeconsumer.console.background import IsWanted
from safeconsumer.console.problems import Problem
from safeconsumer.console.state import State
from safeconsumer.errors.base import (
    ControlTopicError,
    ControlWriteError,
    HoldSettingError,
    MissingExtraError,
    ScopeSyntaxError,
)
from safeconsumer.group.carry_out import Done, PlanChangedError, carry_out
from safeconsumer.group.documents import hold_document
from safeconsumer.group.facts import NO_GROUP
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.operator import Operator
from safeconsumer.group.plan import (
    GONE,
    Action,
    Consent,
    Extend,
    Lift,
    NamedHold,
    Need,
    Plan,
    duration_of,
    later_version_scopes,
    not_held,
    place_action,
    plan_of,
)
from safeconsumer.group.reset_to import (
    ResetTo,
    commit_for_empty_group,
    parse_target,
    reset_action,
)
from safeconsumer.group.scopes import checked_group, scopes_of
from safeconsumer.group.troubles import Kind, error_text, kind_of
from safeconsumer.group.view import View
from safeconsumer.holds.hold import OPERATOR, checked_name

# Seconds to wait after an acknowledgement until the next page shows the change.
_SHOWN_WITHIN = 2.0
# Seconds for which a page waits for the cluster's answer; Kafka clients have given up
# by then.
_ANSWER_SECONDS = 30.0
# The number of recent previews whose offsets are kept until the user agrees to them.
_MAX_PREVIEWS = 64
_CLUSTER_ERRORS = (ControlTopicError, KafkaError, OSError)

T = TypeVar("T")
Given = Mapping[str, str]
"""All fields of a form or a call, without blanks around their values."""


@contextmanager
def _input_errors_answered() -> Iterator[None]:
    """Turn errors about invalid values into problems that give the reason."""
    try:
        yield
    except (HoldSettingError, MissingExtraError, ScopeSyntaxError) as error:
        raise Problem(400, str(error)) from error


# ---------------------------------------------------------------- previewed


def hold_action(state: State, owner: str, given: Given) -> Action:
    """
    Return the action that places holds or, with ``extends``, extends a hold.

    Args:
        state: the console's state.
        owner: the owner of the holds.
        given: the typed values; ``extends`` is the offset of the hold to extend.

    Raises:
        Problem: an input is invalid; the message gives the reason.
    """
    texts = _scope_texts(given, "hold")
    if given["extends"] and not given["for"]:
        raise Problem(400, "give a duration, counted from now")
    with _input_errors_answered():
        if given["extends"]:
            return Extend(
                group=given["group"],
                owner=owner,
                scopes=scopes_of(texts, given["group"]),
                seconds=duration_of(given["for"]),
                offset=_number(given["extends"]),
            )
        action = place_action(
            group=given["group"],
            owner=owner,
            texts=texts,
            reason=given["reason"],
            for_=given["for"] or None,
        )
        # A repeated command does not shorten a hold. A person who requests an earlier
        # expiry on a page means it, and is asked to agree.
        action = evolve(action, replaces=True)
        return action.written_by(state.setup.host, state.setup.principal)


def _scope_texts(given: Given, what: str) -> list[str]:
    if texts := given["scopes"].split():
        return texts
    raise Problem(400, f"give a scope to {what}: orders:3, orders, re:ord.* or @all")


def lift_action(_: State, owner: str, given: Given) -> Action:
    """
    Return the action that lifts the holds named in a form or a call.

    Args:
        owner: the operator who lifts them.
        given: for a form, the ticked boxes as ``hold``; for a call, the hold's scope
            and owner, and its id and offset if they were shown.

    Raises:
        Problem: a scope is missing, the group, an owner or a scope cannot be written in
            a record, or an offset is not a number.
    """
    group = given["group"]
    call = {**given, "owner": given["owner"] or owner}
    several = [dict(parse_qsl(one)) for one in given["hold"].split()] or [call]
    if not all(one.get("scope") for one in several):
        raise Problem(400, "give the scope of the hold to lift")
    with _input_errors_answered():
        checked_group(group)
        holds = tuple(map(_named, several))
    return Lift(group=group, by=owner, holds=holds)


def _named(one: Mapping[str, str]) -> NamedHold:
    scope, offset = one["scope"], one.get("offset")
    owner = checked_name(one.get("owner", "")).removeprefix(OPERATOR)
    try:  # not parsed, so that a later version's scope can be lifted
        scope.encode()
    except UnicodeEncodeError as error:
        message = f"a scope must be Unicode text, not {scope[:60]!a}"
        raise HoldSettingError(message) from error
    return NamedHold(
        scope=scope,
        owner=owner,
        id=one.get("id") or None,
        offset=_number(offset) if offset else None,
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise Problem(400, f"an offset is a number, not {text[:60]!r}")
    return int(text)


def move_action(state: State, owner: str, given: Given) -> Action:
    """
    Return the action that resets a group's offsets.

    The offsets are taken from the preview that the user agreed to; without a preview,
    the cluster is queried for them.

    Raises:
        Problem: an input is invalid, or the cluster does not answer.
    """
    group, texts = given["group"], _scope_texts(given, "move")
    with _input_errors_answered():
        to, scopes = parse_target(given["to"]), scopes_of(texts, group)
    shown = state.previewed.get(given["agreed"])
    if shown and (group, owner, scopes, to.text) == (
        (shown.group, shown.owner, shown.scopes, shown.asked)
    ):
        return shown
    view = _view(state, state.snapshot(), group)
    try:
        with state.questions.lend(_ANSWER_SECONDS) as operator:
            # The snapshot is up to a second old, and the group may have committed since.
            view = evolve(view, facts=operator.group(group))
            return reset_action(operator.admin, view, owner=owner, scopes=scopes, to=to)
    except _CLUSTER_ERRORS as error:
        title = "The offsets of this target are unknown."
        raise Problem(_http(error), title, error_text(error)) from error


# ---------------------------------------------------------------- plans


def plan(state: State, snapshot: Snapshot, action: Action) -> Plan:
    """
    Return the plan for an action, based on a snapshot and quick queries.

    Raises:
        Problem: the plan is impossible, or none of the holds to lift exists.
    """
    known = _Lookup(state, snapshot)
    with _input_errors_answered():
        found = plan_of(_view(state, snapshot, action.group), action, known)
    state.follower.watch(action.group)
    if isinstance(action, Lift):
        if not found.own and not found.kept:
            raise _not_there(found)
        return found
    if impossible := _impossible(found):
        raise impossible
    return known.completed(found)


def _impossible(found: Plan) -> Problem | None:
    """Return the problem for a plan that cannot be agreed to; None if it can be."""
    wrong = (one for one in found.needs if one.consent is Consent.NONE)
    need = next(wrong, None)
    return None if need is None else Problem(409, need.why, need.ask)


def _not_there(found: Plan) -> Problem:
    if later := later_version_scopes(found):
        return Problem(409, f"a later version holds {later}", "upgrade first")
    return Problem(404, f"not held: {', '.join(not_held(found))}", GONE)


def _view(state: State, snapshot: Snapshot, group: str) -> View:
    skew = state.skew(snapshot, group)
    nothing = View(group=group, facts=NO_GROUP, unread=snapshot.unread, skew=skew)
    known = snapshot.views.get(group) or nothing
    missing: tuple[str, ...] = ()
    if snapshot.trouble:
        missing = (f"the present state. {snapshot.trouble.sentence}",)
    elif not snapshot.is_complete:
        missing = ("holds that the console has not read yet",)
    # While the broker does not answer, its last known time is out of date.
    now = None if snapshot.trouble else snapshot.times.now
    return evolve(
        known, unread=(*known.unread, *missing), times=evolve(known.times, now=now)
    )


@frozen
class _Lookup:
    """Looks up names for a plan in the snapshot or in the cluster."""

    state: State
    snapshot: Snapshot

    def groups(self) -> Sequence[str]:
        views = self.snapshot.views.items()
        return tuple(name for name, one in views if one.is_known)

    def topics(self) -> Sequence[str]:
        return self._asked(("topics",), lambda operator: operator.topics()) or ()

    def completed(self, found: Plan) -> Plan:
        """Return a plan with its topics' retention; store a reset's offsets for later."""
        if isinstance(found.action, ResetTo):
            previewed = self.state.previewed
            # a plan that is shown again becomes the newest
            previewed.pop(found.digest, None)
            previewed[found.digest] = found.action
            for oldest in list(previewed)[:-_MAX_PREVIEWS]:
                previewed.pop(oldest, None)
            return found
        names = sorted({tp.topic for tp in found.covers})
        key = ("retention", *names)
        limits = self._asked(key, lambda operator: operator.retention(names))
        return evolve(found, limits=limits or {})

    def _asked(self, key: tuple[str, ...], ask: Callable[[Operator], T]) -> T | None:
        if self.snapshot.trouble:
            return None
        return self.state.questions.asked(key, ask, _ANSWER_SECONDS)


# ---------------------------------------------------------------- carrying out


class Refused(Problem):
    """
    Nothing was written, because the user has not agreed to the current plan.

    Attributes:
        plan: the plan as it is now.
    """

    def __init__(self, found: Plan, title: str, detail: str) -> None:
        super().__init__(409, title, detail, {"preview": document(found)})
        self.plan = found


def document(found: Plan) -> dict[str, Any]:
    """Return a plan as plain JSON values, including the values needed to agree to it."""
    if isinstance(found.action, Lift):
        return {**found.document(), "holds": list(map(hold_document, found.own))}
    return {**found.document(), "agreement": found.digest}


def change(
    state: State, action: Action, given: Mapping[str, str], is_wanted: IsWanted
) -> Done:
    """
    Carry out an action; return once it is acknowledged, or if it was already done.

    To place or extend holds, the digest of the shown plan must be sent as ``agreed`` if
    an agreement is needed; to reset offsets, it must always be sent. To lift another
    owner's hold, the hold's id or offset must be sent, and its scope as ``typed``.

    Args:
        state: the console's state.
        action: the requested action.
        given: the fields of the form or call.
        is_wanted: returns whether the client still waits for the answer.

    Raises:
        Refused: the client did not agree to the plan, or agreed to a different one.
        Problem: the hold does not exist, or some or all of the changes could not be
            written.
    """
    snapshot = state.snapshot()
    known, view = _Lookup(state, snapshot), _view(state, snapshot, action.group)
    try:
        with _input_errors_answered(), state.commands.lend() as operator:
            operator.check()
            done = carry_out(
                operator,
                view,
                action,
                known,
                lambda now: _agrees(now, given, is_wanted),
            )
            if isinstance(action, ResetTo):
                # If this commit fails, the group's next member resets the offsets.
                with suppress(*_CLUSTER_ERRORS):
                    view = operator.look(action.group, is_strict=True, has_lags=False)
                    commit_for_empty_group(operator.admin, view, action.scopes)
    except PlanChangedError as error:
        raise _refusal(given, known, error.plan) from error
    except ControlWriteError as error:
        raise Problem(_http(error.__cause__), str(error), "") from error
    except _CLUSTER_ERRORS as error:
        raise Problem(
            _http(error), "Nothing was written.", error_text(error)
        ) from error
    last = max((one.offset for one in done.acknowledged), default=-1)
    state.follower.wait_for(last, _SHOWN_WITHIN)
    return done


def _agrees(now: Plan, given: Mapping[str, str], is_wanted: IsWanted) -> bool:
    agreed = given.get("agreed")
    if isinstance(now.action, Lift):
        is_agreed = all(_is_typed(given, one) for one in now.needs)
    elif agreed is None:  # a client must always agree to offsets that were looked up
        is_agreed = not now.needs and not isinstance(now.action, ResetTo)
    else:
        is_agreed = agreed == now.digest
    # 1. A lift waits for the broker, and the client gives up.
    # 2. Somebody else lifts the hold, and a new hold is placed.
    # 3. The broker answers the lift. If the lift were written now, it would end the new
    # hold.
    if is_agreed and not is_wanted():
        raise Problem(503, "Nothing was written.", "the client has gone")
    return is_agreed


def _is_typed(given: Mapping[str, str], need: Need) -> bool:
    wanted = " ".join(need.about).split()
    is_same = given.get("typed", "").split() == wanted
    return need.consent is Consent.TYPED and is_same


def _refusal(given: Mapping[str, str], known: _Lookup, now: Plan) -> Problem:
    if isinstance(now.action, Lift):
        if not now.own and not now.kept:
            return _not_there(now)
        need = next(one for one in now.needs if not _is_typed(given, one))
        return Refused(now, f"Nothing was lifted; {need.why}", need.ask)
    if impossible := _impossible(now):
        return impossible
    changed = "This is not what was previewed. " if given.get("agreed") else ""
    what = "".join(f"{one.why}. " for one in now.needs if one.why)
    ask = "Look at its effect now."
    if now.to_agree is not None:
        ask = f"Agree first: {now.to_agree}."
    found = known.completed(now)
    return Refused(found, "Nothing was written.", f"{changed}{what}{ask}")


def _http(error: BaseException | None) -> int:
    return 403 if kind_of(error) is Kind.REFUSED else 503
