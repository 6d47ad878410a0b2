"""Serves REST under ``/api/v1``: groups and holds, pause and resume, and readiness."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import frozen
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from safeconsumer.console import asking, changing
from safeconsumer.console.changing import Submission, typed
from safeconsumer.console.problems import Problem
from safeconsumer.console.state import State, state_of
from safeconsumer.group.carry_out import Done
from safeconsumer.group.documents import group_document, hold_document
from safeconsumer.group.follower import Snapshot

_MOST_BODY_BYTES = 256 * 1024


@frozen(kw_only=True)
class Call:
    """One call of the API; those by ``POST`` change something."""

    path: str
    handler: Callable[[Request], Any]
    takes: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    method: str = "GET"

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that it may be given."""
        return (*self.wants, *self.takes)


def routes(*, is_read_only: bool) -> list[Route]:
    """Return the routes; with ``is_read_only``, only those that change nothing."""
    return [
        Route(one.path, one.handler, methods=[one.method])
        for one in CALLS
        if not (is_read_only and one.method == "POST")
    ]


# ---------------------------------------------------------------- looking


def groups(request: Request) -> Response:
    """Return all groups, one row each."""
    state, snapshot = _known(request)
    rows = [group_document(one) for one in state.rows(snapshot)]
    return _json(snapshot, groups=rows)


def holds(request: Request) -> Response:
    """Return the holds in force, of one group or of all."""
    state, snapshot = _known(request)
    name = request.query_params.get("group")
    if name is not None:
        state.view(snapshot, name)
    found = [
        hold_document(one)
        for group, view in snapshot.views.items()
        if name in {None, group}
        for one in view.holds
    ]
    return _json(snapshot, holds=found)


def ready(request: Request) -> Response:
    """Answer 200 if the console's data is complete and current, otherwise 503; ask nobody."""
    _, snapshot = _look(request)
    if unheard := _unheard(snapshot):
        raise Problem(503, "not ready", unheard)
    return _json(snapshot)


def _known(request: Request) -> tuple[State, Snapshot]:
    # An empty list would say that nothing is held.
    state, snapshot = _look(request)
    if not snapshot.is_complete:
        raise Problem(503, "what is held is not known yet", _unheard(snapshot))
    return state, snapshot


def _look(request: Request) -> tuple[State, Snapshot]:
    call = _call(request)
    _refuse_unknown(call, request.query_params, call.names)
    state = state_of(request)
    return state, state.snapshot()


def _unheard(snapshot: Snapshot) -> str:
    if snapshot.trouble:
        return f"{snapshot.trouble.said} {snapshot.trouble.detail}".strip()
    return "" if snapshot.is_complete else "the control topics are being read"


# ---------------------------------------------------------------- changing


async def pause(request: Request) -> Response:
    """
    Place holds; answer once all replicas have acknowledged each of them.

    What must be agreed to first is answered with 409: send the `agreement` of its
    `preview` as `agreed`. Repeated while its holds stand, it changes nothing:
    `is_done_already` is true. A hold that ended, or may have, is `renewed`.
    """
    return await _changed(request, _pause)


def _pause(sent: Submission) -> Done:
    wish = changing.wish_to_hold(sent.state, sent.owner, typed(sent.given))
    return changing.change(sent, wish)


async def resume(request: Request) -> Response:
    """
    Lift the hold with this id and offset.

    Another owner's hold needs its id or offset, and its scope as `typed`. If the hold
    with this id or offset is lifted, `is_done_already` is true; without both, 404 answers.
    """
    return await _changed(request, _resume)


def _resume(sent: Submission) -> Done:
    holds = [{"owner": sent.owner, **sent.given}]
    wish = changing.wish_to_lift(sent.owner, sent.given.get("group", ""), holds)
    return changing.change(sent, wish)


async def _changed(request: Request, change: Callable[[Submission], Done]) -> Response:
    def answer(sent: Submission) -> Response:
        done = change(sent)
        acknowledged = [
            {"scope": one.change.key.scope, "offset": one.offset, "at_ms": one.at_ms}
            for one in done.acknowledged
        ]
        snapshot = sent.state.snapshot()
        return _json(
            snapshot,
            acknowledged=acknowledged,
            is_done_already=done.plan.is_done,
            preview=changing.document(done.plan),
        )

    return await changing.submit(request, await _body(request), answer)


async def _body(request: Request) -> dict[str, str]:
    call = _call(request)
    _refuse_unknown(call, request.query_params, ())
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "the body must be JSON", "content-type: application/json")
    body = await asking.body_of(request, _MOST_BODY_BYTES)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from error
    is_text = isinstance(document, dict) and all(
        isinstance(one, str) for one in document.values()
    )
    if not is_text:
        raise Problem(400, "the body must be a JSON object whose values are strings")
    _refuse_unknown(call, document, call.names)
    return dict(document)


# ---------------------------------------------------------------- both


def _call(request: Request) -> Call:
    return next(one for one in CALLS if one.handler is request.scope["endpoint"])


def _refuse_unknown(call: Call, given: Iterable[str], known: Sequence[str]) -> None:
    # If a misspelt limit were ignored, the hold would have no end.
    for name in given:
        if name not in known:
            where = "query" if call.method == "GET" else "body"
            names = ", ".join(call.names) or "nothing"
            raise Problem(
                400,
                f"{name[:60]!r} is not a parameter of {call.path}",
                f"its {where} may have {names}",
            )


def _json(snapshot: Snapshot, **members: object) -> Response:
    known = {
        "version": snapshot.version,
        "age": round(snapshot.age, 3),
        "is_complete": snapshot.is_complete,
        "trouble": snapshot.trouble.said if snapshot.trouble else None,
        "unread": list(snapshot.unread),
        "now": snapshot.times.now,
        "remade": list(snapshot.remade),
    }
    return JSONResponse({"known": known, **members})


# ---------------------------------------------------------------- the table

CALLS = (
    Call(path="/groups", handler=groups),
    Call(path="/holds", handler=holds, takes=("group",)),
    Call(path="/ready", handler=ready),
    Call(
        path="/pause",
        handler=pause,
        method="POST",
        wants=("group", "scopes", "reason"),
        takes=("for", "agreed"),
    ),
    Call(
        path="/resume",
        handler=resume,
        method="POST",
        wants=("group", "scope"),
        takes=("owner", "id", "offset", "typed"),
    ),
)
