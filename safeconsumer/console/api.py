"""Serves REST under ``/api/v1``: the documents of the commands' ``--json``, and changes."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any

from attrs import asdict, evolve, frozen
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from safeconsumer.console import asking, changing, checking
from safeconsumer.console.asking import IsWanted
from safeconsumer.console.changing import typed
from safeconsumer.console.desk import Desk
from safeconsumer.console.forms import Outcome
from safeconsumer.console.problems import Problem
from safeconsumer.console.views import GroupRow, PartitionRow
from safeconsumer.group.documents import standing_document, status_document
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.why import Level

LOOK_EVERY = 0.1
# Seconds that a waiting call may take to look once, however short its timeout is.
_ONE_LOOK = 5.0
_MOST_BODY_BYTES = 256 * 1024
_LONGEST_WAIT = 600.0

Handler = Callable[[Request], Any]


@frozen(kw_only=True)
class Call:
    """One call of the API, for routing and for the OpenAPI document."""

    path: str
    handler: Handler
    what: str
    takes: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    method: str = "GET"
    changes: bool = False


def routes(*, is_read_only: bool) -> list[Route]:
    """Return the routes; with ``is_read_only``, only those that change nothing."""
    calls = [one for one in CALLS if not (is_read_only and one.changes)]
    found = [Route(one.path, one.handler, methods=[one.method]) for one in calls]
    return [*found, Route("/openapi.json", lambda _: JSONResponse(openapi(calls)))]


# ---------------------------------------------------------------- looking


def _look(request: Request) -> tuple[Desk, Snapshot]:
    call = _call(request)
    known = _names(call) if call.method == "GET" else ()
    _refuse_unknown(call, request.query_params, known)
    desk: Desk = request.app.state.desk
    return desk, desk.snapshot()


def _known(request: Request) -> tuple[Desk, Snapshot]:
    # An empty list would say that nothing is held.
    desk, snapshot = _look(request)
    if not snapshot.is_complete:
        raise Problem(503, "what is held is not known yet", _unheard(snapshot))
    return desk, snapshot


def _call(request: Request) -> Call:
    return next(one for one in CALLS if one.handler is request.scope["endpoint"])


def _names(call: Call) -> tuple[str, ...]:
    return (*call.wants, *call.takes)


def _refuse_unknown(call: Call, given: Iterable[str], known: Sequence[str]) -> None:
    # If a misspelt limit were ignored, the hold would have no end.
    for name in given:
        if name not in known:
            where = "query" if call.method == "GET" else "body"
            names = ", ".join(_names(call)) or "nothing"
            raise Problem(
                400,
                f"{name[:60]!r} is not a parameter of {call.path}",
                f"its {where} may have {names}",
            )


def _group_of(request: Request) -> str:
    group = request.query_params.get("group", "")
    if not group:
        raise Problem(400, "give the name of a group", "?group=billing")
    return group


def _json(snapshot: Snapshot, **members: object) -> Response:
    known = {
        "version": snapshot.version,
        "age": round(snapshot.age, 3),
        "is_complete": snapshot.is_complete,
        "trouble": snapshot.trouble.said if snapshot.trouble else None,
        "unread": list(snapshot.unread),
        "now": snapshot.now,
        "remade": list(snapshot.remade),
    }
    return JSONResponse({"known": known, **members})


def groups(request: Request) -> Response:
    """Return all groups, one row each."""
    desk, snapshot = _known(request)
    rows = [_row_document(one) for one in desk.rows(snapshot)]
    return _json(snapshot, groups=rows)


def group(request: Request) -> Response:
    """Return the document of ``safeconsumer status --json``, and the verdict."""
    desk, snapshot = _known(request)
    name = _group_of(request)
    view = desk.view(snapshot, name)
    return _json(
        snapshot,
        verdict=_row_document(view.row),
        **status_document(evolve(snapshot.pictures[name], now=snapshot.now)),
    )


def partitions(request: Request) -> Response:
    """Return all partitions of a group, each with why it is quiet or flows."""
    desk, snapshot = _known(request)
    view = desk.view(snapshot, _group_of(request))
    return _json(snapshot, partitions=list(map(_partition_document, view.partitions)))


def explain(request: Request) -> Response:
    """Return why one partition is quiet or flows, and the questions that led to it."""
    desk, snapshot = _known(request)
    wanted = request.query_params.get("partition", "")
    one = desk.partition(snapshot, _group_of(request), wanted)
    asked = [{"question": text, "is_it": outcome} for text, outcome in one.questions]
    return _json(snapshot, **_partition_document(one), asked=asked)


def holds(request: Request) -> Response:
    """Return the holds in force, of one group or of all."""
    desk, snapshot = _known(request)
    name = request.query_params.get("group")
    if name is not None:
        desk.view(snapshot, name)
    found = [
        standing_document(one)
        for group, picture in snapshot.pictures.items()
        if name in {None, group}
        for one in picture.standing
    ]
    return _json(snapshot, holds=found)


def history(request: Request) -> Response:
    """Return the document of ``safeconsumer history --json``."""
    desk, snapshot = _known(request)
    name = request.query_params.get("group")
    found = snapshot.history(name)
    if name is not None and not found:
        desk.view(snapshot, name)
    return _json(snapshot, records=list(map(standing_document, found)))


async def doctor(request: Request) -> Response:
    """Find what would keep a hold from working; this asks the cluster."""
    desk, snapshot = _look(request)
    name = request.query_params.get("group")

    def look(is_wanted: asking.IsWanted) -> Response:
        found = checking.rows(desk, name, is_wanted)
        return _json(snapshot, findings=[asdict(one) for one in found])

    return await asking.answer(request, desk.doctors, look)


class _News:
    """
    The snapshots that the follower publishes after a call began.

    They include all changes that were acknowledged before the call.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._desk: Desk = request.app.state.desk
        self._version = -1
        self.began = time.monotonic()
        self._desk.follower.ask_now()

    async def next(self, until: float) -> Snapshot | None:
        """
        Wait for the next snapshot; return None if there is none by then.

        Raises:
            Problem: the client has gone, or the console is closing.
        """
        while True:
            snapshot = self._desk.snapshot()
            is_well = snapshot.is_complete and snapshot.trouble is None
            is_new = snapshot.version != self._version
            if is_well and is_new and snapshot.heard_at > self.began:
                self._version = snapshot.version
                return snapshot
            if self._desk.is_closing or await self._request.is_disconnected():
                raise Problem(503, "the request was abandoned")
            if time.monotonic() >= until:
                return None
            await asyncio.sleep(LOOK_EVERY)


async def wait(request: Request) -> Response:
    """Wait until all held partitions of a group are quiet; look at least once."""
    desk, _ = _look(request)
    name, limit = _group_of(request), _limit(request)
    news, row = _News(request), None
    until = news.began + max(limit, _ONE_LOOK)
    while (snapshot := await news.next(until)) is not None:
        row = (await run_in_threadpool(desk.view, snapshot, name)).row
        if not row.holds:
            raise Problem(409, f"nothing of {name} is held", "hold it first")
        if row.level is Level.QUIET:
            return _json(snapshot, verdict=_row_document(row))
        until = news.began + limit
    if row is None:
        raise Problem(408, "not quiet in time", _unheard(desk.snapshot()))
    verdict = {"verdict": _row_document(row)}
    raise Problem(408, "not quiet in time", row.sentence, verdict)


def _limit(request: Request) -> float:
    try:
        limit = float(request.query_params.get("timeout", "60"))
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise Problem(400, "timeout must be a number of seconds")
    return min(limit, _LONGEST_WAIT)


async def ready(request: Request) -> Response:
    """Answer 200 if the console's data is complete and current, otherwise 503."""
    desk, snapshot = _look(request)
    if snapshot.is_complete and snapshot.trouble is None:
        news = _News(request)
        found = await news.next(news.began + _ONE_LOOK)
        if found is not None:
            return _json(found)
    raise Problem(503, "not ready", _unheard(desk.snapshot()))


def _unheard(snapshot: Snapshot) -> str:
    if snapshot.trouble:
        return snapshot.trouble.said
    if not snapshot.is_complete:
        return "the control topics are being read"
    return "the cluster has not answered since the request"


# ---------------------------------------------------------------- changing


async def preview(request: Request) -> Response:
    """Return the document of ``safeconsumer pause --dry-run --json``; change nothing."""
    given = await _body(request)
    askers = _look(request)[0].askers
    return await asking.answer(request, askers, lambda _: _preview(request, given))


def _preview(request: Request, given: dict[str, str]) -> Response:
    desk, snapshot = _look(request)
    seen = changing.previewed(desk, snapshot, typed(given))
    return _json(snapshot, dry_run=True, **changing.document(given, seen))


async def pause(request: Request) -> Response:
    """Place holds; answer once all replicas have acknowledged each of them."""
    given = await _body(request)
    askers = _look(request)[0].askers
    return await asking.answer(
        request, askers, lambda is_wanted: _pause(request, given, is_wanted)
    )


def _pause(request: Request, given: dict[str, str], is_wanted: IsWanted) -> Response:
    desk, snapshot = _look(request)
    seen = changing.previewed(desk, snapshot, typed(given))
    return _written(desk, changing.place(desk, seen, given, is_wanted))


async def resume(request: Request) -> Response:
    """Lift one hold; another owner's hold needs its id, and its scope as ``typed``."""
    given = await _body(request)
    askers = _look(request)[0].askers
    return await asking.answer(
        request, askers, lambda is_wanted: _resume(request, given, is_wanted)
    )


def _resume(request: Request, given: dict[str, str], is_wanted: IsWanted) -> Response:
    desk, _ = _look(request)
    return _written(
        desk, changing.lift(desk, {"owner": desk.owner, **given}, is_wanted)
    )


def _written(desk: Desk, outcome: Outcome) -> Response:
    acknowledged = [
        {"scope": one.change.key.scope, "offset": one.offset, "at_ms": one.at_ms}
        for one in outcome.done
    ]
    return _json(desk.snapshot(), acknowledged=acknowledged, preview=outcome.plan)


async def _body(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "the body must be JSON", "content-type: application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY_BYTES:
            raise Problem(413, "the body is too long")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from error
    is_text = isinstance(document, dict) and all(
        isinstance(one, str) for one in document.values()
    )
    if not is_text:
        raise Problem(400, "the body must be a JSON object whose values are strings")
    call = _call(request)
    _refuse_unknown(call, document, _names(call))
    return dict(document)


# ---------------------------------------------------------------- documents


def _row_document(row: GroupRow) -> dict[str, object]:
    return {
        "group": row.group,
        "level": row.level,
        "words": row.words,
        "sentence": row.sentence,
        "state": row.state,
        "members": row.members,
        "reporting": row.reporting,
        "holds": len(row.holds),
        "held": row.held,
        "quiet": row.quiet,
        "flowing": list(row.flowing),
        "next_expiry": row.next_expiry,
        "lag": row.lag,
    }


def _partition_document(one: PartitionRow) -> dict[str, object]:
    return {
        "partition": one.name,
        "level": one.level,
        "words": one.words,
        "sentence": one.sentence,
        "owner": one.owner,
        "committed": one.committed,
        "lag": one.lag,
        "holds": list(map(standing_document, one.holds)),
    }


# ---------------------------------------------------------------- the table

_GROUP = ("group",)
_WISH = ("group", "scopes", "reason")

CALLS = (
    Call(path="/groups", handler=groups, what="All groups, one row each."),
    Call(path="/group", handler=group, wants=_GROUP, what="The status of a group."),
    Call(
        path="/partitions",
        handler=partitions,
        wants=_GROUP,
        what="All partitions of a group, and why each is quiet or flows.",
    ),
    Call(
        path="/explain",
        handler=explain,
        wants=("group", "partition"),
        what="Why one partition is quiet or flows.",
    ),
    Call(path="/holds", handler=holds, takes=_GROUP, what="The holds in force."),
    Call(
        path="/history",
        handler=history,
        takes=_GROUP,
        what="What was placed and lifted, oldest first.",
    ),
    Call(
        path="/doctor",
        handler=doctor,
        takes=_GROUP,
        what="What would keep a hold from working.",
    ),
    Call(
        path="/wait",
        handler=wait,
        wants=_GROUP,
        takes=("timeout",),
        what="Answers once all held partitions are quiet; 408 if that takes too long.",
    ),
    Call(
        path="/ready",
        handler=ready,
        what="Answers 200 if the console's data is complete and current.",
    ),
    Call(
        path="/preview",
        handler=preview,
        method="POST",
        wants=_WISH,
        takes=("for", "until"),
        what="What a pause would do.",
    ),
    Call(
        path="/pause",
        handler=pause,
        method="POST",
        wants=_WISH,
        takes=("for", "until", "agreed", "key"),
        what="Place holds. If the preview has an agreement, send it as agreed. A "
        "repeated call with the same key is carried out only once.",
        changes=True,
    ),
    Call(
        path="/resume",
        handler=resume,
        method="POST",
        wants=("group", "scope"),
        takes=("owner", "source", "id", "offset", "typed", "key"),
        what="Lift the hold with this id and offset. Another owner's hold needs its "
        "id, and its scope as typed. A repeated call with the same key is carried out "
        "only once.",
        changes=True,
    ),
)
CHANGING = tuple(one.path for one in CALLS if one.changes)


def openapi(calls: list[Call]) -> dict[str, Any]:
    """Return the OpenAPI document of these calls."""
    problem = {
        "description": "Nothing was done; the document says why.",
        "content": {"application/problem+json": {"schema": {"type": "object"}}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "safeconsumer console", "version": version("safeconsumer")},
        "servers": [{"url": "/api/v1"}],
        "paths": {
            one.path: {
                one.method.lower(): {
                    "operationId": one.path.strip("/"),
                    "summary": one.what,
                    **_input(one),
                    "responses": {
                        "200": {
                            "description": "Done.",
                            "content": {"application/json": {}},
                        },
                        "default": problem,
                    },
                }
            }
            for one in calls
        },
    }


def _input(call: Call) -> dict[str, Any]:
    names = _names(call)
    if call.method == "GET":
        return {
            "parameters": [
                {
                    "name": name,
                    "in": "query",
                    "required": name in call.wants,
                    "schema": _schema(call, name),
                }
                for name in names
            ]
        }
    schema = {
        "type": "object",
        "required": list(call.wants),
        "properties": {name: _schema(call, name) for name in names},
        "additionalProperties": False,
    }
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    }


def _schema(call: Call, name: str) -> dict[str, Any]:
    return {"type": "string", **({"minLength": 1} if name in call.wants else {})}
