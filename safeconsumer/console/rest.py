"""Lists the routes and parameters for programs, and answers programs in JSON."""

import json
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from safeconsumer.console import background
from safeconsumer.console.problems import JSON, Problem, is_program, kind_of_body
from safeconsumer.console.state import state_of
from safeconsumer.group.follower import Snapshot

_MOST_FORM_BYTES = 64 * 1024
_MOST_BODY_BYTES = 256 * 1024
HOLD_FIELDS = ("group", "scopes", "reason", "for", "extends")
LIFT_FIELDS = ("group", "scope", "owner", "id", "offset")
RESET_FIELDS = ("group", "scopes", "to")


CALLS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "GET /": (
        ("q", "held", "sort"),
        """``groups``: a row for each group, as ``status -o json`` prints them. ``q``
        is a part of their names, ``held=1`` leaves out groups that flow, ``sort=lag`` puts
        groups with the most lag first.""",
    ),
    "GET /group": (
        ("group",),
        """A group with its holds, members and partitions, as ``status --group ... -o
        json`` prints it; for an unknown group the status is 404, and 503 while not
        everything can be read.""",
    ),
    "GET /history": (
        ("group",),
        """``records``: the changes to holds, oldest first, each as ``history
        --follow -o json`` prints it; ``is_cut`` if there were more than the console
        keeps.""",
    ),
    "GET /place": (
        HOLD_FIELDS,
        """The plan of ``POST /place``, as ``pause --dry-run -o json`` prints it, and its
        ``agreement``.""",
    ),
    "POST /place": (
        (*HOLD_FIELDS, "agreed"),
        """Place holds, or extend the hold with the offset ``extends``; answer once all
        replicas have acknowledged each hold, as ``pause -o json`` prints it.
        If the operator must agree first, the status is 409: send the ``agreement`` of
        its ``preview`` as ``agreed``. If repeated while its holds are in force, the
        call changes nothing: ``is_done_already`` is true. A hold that has or may have
        ended, or that the holds topic lost when it was recreated, is ``renewed``.""",
    ),
    "GET /lift": (
        LIFT_FIELDS,
        "The plan of ``POST /lift``.",
    ),
    "POST /lift": (
        (*LIFT_FIELDS, "typed"),
        """Lift the hold with this id and offset; answer as ``resume -o json`` prints
        it. Another owner's hold needs its id or offset, and its scope as ``typed``. If the
        hold with this id or offset is lifted, ``is_done_already`` is true; without both,
        the status is 404.""",
    ),
    "GET /reset": (
        RESET_FIELDS,
        """The plan of ``POST /reset``, with the names of ``reset-offsets --dry-run -o
        json`` except ``dry_run``; how much is ``known``, and its ``agreement``.""",
    ),
    "POST /reset": (
        (*RESET_FIELDS, "agreed"),
        """Move the offsets of a group under holds of yours. ``to`` is as for
        ``reset-offsets``, and is looked up when the preview is made: it is carried out only
        with the ``agreement`` of that preview as ``agreed``, and answered with 409 and a
        preview otherwise. Members move their partitions after that: ``resets`` of
        ``/group`` shows the moved ones. If repeated with the same ``agreed`` while the
        holds are in force, ``is_done_already`` is true.""",
    ),
}
"""
Each route for programs, by method and path.

Each value has the parameters that the route accepts (others are refused), and describes
the route's effect and answer.
"""


def check_query(request: Request, snapshot: Snapshot) -> None:
    """
    Check that a program's query can be answered.

    Raises:
        Problem: the query has an unknown parameter, or the holds have not been read
            yet, so that an empty answer would look like a cluster without holds.
    """
    _refuse_unknown(request, request.query_params)
    if not snapshot.is_complete:
        raise Problem(503, "the holds are not known yet", snapshot.lack)


def joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return fields by name; values of checkboxes with the same name are joined by spaces."""
    found: dict[str, str] = {}
    for name, value in pairs:
        found[name] = f"{found[name]} {value}" if name in found else value
    return found


async def body_of(request: Request) -> dict[str, str]:
    """
    Return the fields that a form or a program sends.

    Raises:
        Problem: a form does not belong to this console, or a program's body is not a
            JSON object of strings, or has a field that the route does not accept.
    """
    if is_program(request):
        return await _json_of(request)
    body = await background.body_of(request, _MOST_FORM_BYTES)
    given = joined(parse_qsl(body.decode("utf-8", "replace")))
    auth = state_of(request).auth
    if not auth.is_form_of(auth.owner_of(request), given.get("form", "")):
        raise Problem(
            403, "this form does not belong to this console", "load the page again"
        )
    return given


async def _json_of(request: Request) -> dict[str, str]:
    if request.query_params:
        raise Problem(
            400, f"{request.url.path} accepts no query", "send it in the body"
        )
    if kind_of_body(request) != JSON:
        raise Problem(415, "the body must be JSON", f"content-type: {JSON}")
    body = await background.body_of(request, _MOST_BODY_BYTES)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from error
    is_text = isinstance(document, dict) and all(
        isinstance(one, str) for one in document.values()
    )
    if not is_text:
        raise Problem(400, "the body must be a JSON object whose values are strings")
    _refuse_unknown(request, document)
    return dict(document)


def _refuse_unknown(request: Request, given: Mapping[str, str]) -> None:
    # If a misspelt ``for`` were ignored, the hold would never expire.
    method = "POST" if request.method == "POST" else "GET"  # or HEAD
    takes = CALLS[f"{method} {request.url.path}"][0]
    for name in given:
        if name not in takes:
            title = f"{name[:60]!r} is not a parameter of {request.url.path}"
            raise Problem(400, title, f"it accepts {', '.join(takes)}")


def answer(snapshot: Snapshot, **members: object) -> Response:
    """Answer with a document that also shows the age and completeness of the data."""
    known = {
        "version": snapshot.version,
        "age": round(snapshot.age, 3),
        "is_complete": snapshot.is_complete,
        "trouble": snapshot.trouble.sentence if snapshot.trouble else None,
        "unread": list(snapshot.unread),
        "now": snapshot.times.now,
        "remade": list(snapshot.remade),
    }
    return JSONResponse({"known": known, **members})
