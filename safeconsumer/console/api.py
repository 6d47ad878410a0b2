"""
REST under ``/api/v1``: what the commands print with ``--json``, and their verbs.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any

from attrs import asdict, evolve, frozen
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from safeconsumer.console import changing, checking
from safeconsumer.console.callers import Caller, answered
from safeconsumer.console.changing import typed
from safeconsumer.console.desk import Desk
from safeconsumer.console.forms import Outcome
from safeconsumer.console.problems import Problem
from safeconsumer.console.views import GroupRow, PartitionRow
from safeconsumer.group.documents import standing_document, status_document
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.why import Level

LOOK_EVERY = 0.1
# Ages on a page move, too, where nothing else does.
_TICK = 10.0
_MOST_BODY_BYTES = 256 * 1024
_LONGEST_WAIT = 600.0

Handler = Callable[[Request], Any]


@frozen(kw_only=True)
class Call:
    """
    One call: for routing, and for the OpenAPI document.
    """

    path: str
    handler: Handler
    what: str
    takes: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    method: str = "GET"
    changes: bool = False


def routes(*, is_read_only: bool) -> list[Route]:
    """
    Return the routes; without those that change anything if so.
    """
    calls = [one for one in CALLS if not (is_read_only and one.changes)]
    found = [Route(one.path, one.handler, methods=[one.method]) for one in calls]
    return [*found, Route("/openapi.json", lambda _: JSONResponse(openapi(calls)))]


# ---------------------------------------------------------------- looking


def _look(request: Request) -> tuple[Desk, Snapshot]:
    desk: Desk = request.app.state.desk
    return desk, desk.snapshot()


def _group_of(request: Request) -> str:
    group = request.query_params.get("group", "")
    if not group:
        raise Problem(400, "name a group", "?group=billing")
    return group


def _json(snapshot: Snapshot, **members: object) -> Response:
    known = {
        "version": snapshot.version,
        "age": round(time.monotonic() - snapshot.heard_at, 3),
        "is_complete": snapshot.is_complete,
        "trouble": snapshot.trouble.said if snapshot.trouble else None,
        "unread": list(snapshot.unread),
        "now": snapshot.now,
        "remade": list(snapshot.remade),
    }
    return JSONResponse({"known": known, **members})


def groups(request: Request) -> Response:
    """
    Return all groups, each in a line.
    """
    desk, snapshot = _look(request)
    rows = [_row_document(one) for one in desk.rows(snapshot)]
    return _json(snapshot, groups=rows)


def group(request: Request) -> Response:
    """
    Return what ``safeconsumer status --json`` prints, and the verdict.
    """
    desk, snapshot = _look(request)
    name = _group_of(request)
    view = desk.view(snapshot, name)
    return _json(
        snapshot,
        verdict=_row_document(view.row),
        **status_document(evolve(snapshot.pictures[name], now=snapshot.now)),
    )


def partitions(request: Request) -> Response:
    """
    Return all partitions of a group, each with why it is quiet or flows.
    """
    desk, snapshot = _look(request)
    view = desk.view(snapshot, _group_of(request))
    return _json(snapshot, partitions=list(map(_partition_document, view.partitions)))


def explain(request: Request) -> Response:
    """
    Return why one partition is quiet or flows, and what was asked to know it.
    """
    desk, snapshot = _look(request)
    wanted = request.query_params.get("partition", "")
    one = desk.partition(snapshot, _group_of(request), wanted)
    asked = [{"question": text, "is_it": outcome} for text, outcome in one.questions]
    return _json(snapshot, **_partition_document(one), asked=asked)


def holds(request: Request) -> Response:
    """
    Return the holds in force, of one group or of all.
    """
    _, snapshot = _look(request)
    name = request.query_params.get("group")
    found = [
        standing_document(one)
        for group, picture in snapshot.pictures.items()
        if name in {None, group}
        for one in picture.standing
    ]
    return _json(snapshot, holds=found)


def history(request: Request) -> Response:
    """
    Return what ``safeconsumer history --json`` prints.
    """
    _, snapshot = _look(request)
    name = request.query_params.get("group")
    found = [
        standing_document(one)
        for one in snapshot.records
        if name in {None, one.key.group}
    ]
    return _json(snapshot, records=found)


def doctor(request: Request) -> Response:
    """
    Look for what would keep a hold from working; asks the cluster.
    """
    desk, snapshot = _look(request)
    found = checking.rows(desk, request.query_params.get("group"))
    return _json(snapshot, findings=[asdict(one) for one in found])


async def wait(request: Request) -> Response:
    """
    Wait until everything of a group that is held is quiet.
    """
    desk, _ = _look(request)
    name = _group_of(request)
    try:
        limit = min(float(request.query_params.get("timeout", "60")), _LONGEST_WAIT)
    except ValueError as error:
        raise Problem(400, "timeout is a number of seconds") from error
    until = time.monotonic() + limit
    while True:
        snapshot = desk.snapshot()
        row = desk.view(snapshot, name).row
        if snapshot.is_complete and not row.holds:
            raise Problem(409, f"nothing of {name} is held", "hold it first")
        is_fresh = snapshot.is_complete and not snapshot.trouble
        if is_fresh and row.level is Level.QUIET:
            return _json(snapshot, verdict=_row_document(row))
        if time.monotonic() >= until:
            raise Problem(
                408, "not quiet in time", row.sentence, {"verdict": _row_document(row)}
            )
        await asyncio.sleep(LOOK_EVERY)


async def events(request: Request) -> Response:
    """
    Send an event whenever there is something new to look at.
    """
    desk, _ = _look(request)

    async def told() -> AsyncIterator[bytes]:
        shown, at = desk.snapshot().version, time.monotonic()
        yield b"retry: 1000\n\n"
        while not desk.is_closing:
            await asyncio.sleep(LOOK_EVERY)
            snapshot = desk.snapshot()
            if snapshot.version != shown or time.monotonic() - at > _TICK:
                shown, at = snapshot.version, time.monotonic()
                yield b"event: change\ndata: %d\n\n" % shown

    return StreamingResponse(told(), media_type="text/event-stream")


def ready(request: Request) -> Response:
    """
    Answer 200 if what is shown is what the cluster says, else 503.
    """
    _, snapshot = _look(request)
    if not snapshot.is_complete or snapshot.trouble:
        said = snapshot.trouble.said if snapshot.trouble else "topics are being read"
        raise Problem(503, "not ready", said)
    return _json(snapshot)


# ---------------------------------------------------------------- changing


async def preview(request: Request) -> Response:
    """
    Return what ``safeconsumer pause --dry-run --json`` prints, and do nothing.
    """
    given = await _body(request)
    return await run_in_threadpool(_preview, request, given)


def _preview(request: Request, given: dict[str, str]) -> Response:
    desk, snapshot = _look(request)
    seen = changing.told(desk, snapshot, typed(given))
    return _json(snapshot, dry_run=True, **changing.document(given, seen))


async def pause(request: Request) -> Response:
    """
    Place holds; each is acknowledged by all replicas in the answer.
    """
    given = await _body(request)
    return await answered(request, lambda caller: _pause(request, given, caller))


def _pause(request: Request, given: dict[str, str], caller: Caller) -> Response:
    desk, snapshot = _look(request)
    seen = changing.told(desk, snapshot, typed(given))
    return _written(desk, changing.place(desk, seen, given, caller))


async def resume(request: Request) -> Response:
    """
    Lift one hold; where it is another's by its id, and its scope as ``typed``.
    """
    given = await _body(request)
    return await answered(request, lambda caller: _resume(request, given, caller))


def _resume(request: Request, given: dict[str, str], caller: Caller) -> Response:
    desk, _ = _look(request)
    return _written(desk, changing.lift(desk, {"owner": desk.owner, **given}, caller))


def _written(desk: Desk, outcome: Outcome) -> Response:
    acknowledged = [
        {"scope": one.change.key.scope, "offset": one.offset, "at_ms": one.at_ms}
        for one in outcome.done
    ]
    return _json(desk.snapshot(), acknowledged=acknowledged, preview=outcome.told)


async def _body(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "say it in JSON", "content-type: application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY_BYTES:
            raise Problem(413, "that is too much")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"that is no JSON: {error}") from error
    is_text = isinstance(document, dict) and all(
        isinstance(one, str) for one in document.values()
    )
    if not is_text:
        raise Problem(400, "the body is a JSON object whose members are texts")
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
    Call(path="/groups", handler=groups, what="All groups, each in a line."),
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
        what="Answers once everything that is held is quiet; 408 if not in time.",
    ),
    Call(path="/events", handler=events, what="Server-sent events: look again."),
    Call(path="/ready", handler=ready, what="Whether what is shown is complete."),
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
        what="Place holds. Where a preview has an agreement, it is sent as agreed. "
        "The same call with the same key is done once.",
        changes=True,
    ),
    Call(
        path="/resume",
        handler=resume,
        method="POST",
        wants=("group", "scope"),
        takes=("owner", "source", "id", "offset", "typed", "key"),
        what="Lift a hold: the one of this id and offset, or none. Another's needs its "
        "id, and its scope as typed. The same call with the same key is done once.",
        changes=True,
    ),
)


def openapi(calls: list[Call]) -> dict[str, Any]:
    """
    Return the OpenAPI document of so many calls.
    """
    problem = {
        "description": "Not done; the document says why.",
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
                            "content": {_media_type(one): {}},
                        },
                        "default": problem,
                    },
                }
            }
            for one in calls
        },
    }


def _media_type(call: Call) -> str:
    return "text/event-stream" if call.handler is events else "application/json"


def _input(call: Call) -> dict[str, Any]:
    names = (*call.wants, *call.takes)
    if call.method == "GET":
        return {
            "parameters": [
                {
                    "name": name,
                    "in": "query",
                    "required": name in call.wants,
                    "schema": {"type": "string"},
                }
                for name in names
            ]
        }
    schema = {
        "type": "object",
        "required": list(call.wants),
        "properties": {name: {"type": "string"} for name in names},
        "additionalProperties": False,
    }
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    }
