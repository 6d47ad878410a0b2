"""
Serves the pages: to people, and to programs in JSON.

For people they work without a script, but do not refresh then. What a program may send, and
what it is answered, stands in :mod:`safeconsumer.console.rest`.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from safeconsumer.console import asking, changing, rest
from safeconsumer.console.asking import IsWanted
from safeconsumer.console.changing import Refused, Submission
from safeconsumer.console.problems import Problem, is_program
from safeconsumer.console.state import State, state_of
from safeconsumer.group.carry_out import Done
from safeconsumer.group.documents import group_document, status_document
from safeconsumer.group.durations import words_of
from safeconsumer.group.follower import MOST_RECORDS, Snapshot
from safeconsumer.group.history import entries
from safeconsumer.group.plan import GONE, Plan, Wish, anothers, gone
from safeconsumer.group.report_wire import kept_text
from safeconsumer.group.verdicts import Level, gone_text
from safeconsumer.group.view import Row, View, headline, urgency
from safeconsumer.holds.explain import utc

STATIC = Path(__file__).parent / "static"
SIZE = 100
# Names that a list beside a field has: browsers hold up a person who types with more.
_MOST_LISTED = 1_000
_MOST_FORM_BYTES = 64 * 1024
_JUST_NOW = 2.0
# Seconds between looks at the age of a page; OLD_AFTER is a whole multiple of it.
_TICK = 5.0


def routes(*, is_read_only: bool) -> list[Route]:
    """Return the pages' routes; with ``is_read_only``, only those that change nothing."""
    found = [
        Route("/", _live(groups)),
        Route("/group", _live(group)),
        Route("/history", _live(history)),
    ]
    if not is_read_only:
        found += [
            Route("/place", _live(place, _asked)),
            Route("/place", do_place, methods=["POST"]),
            Route("/lift", lift),
            Route("/lift", do_lift, methods=["POST"]),
        ]
    return found


# ---------------------------------------------------------------- looking


def groups(request: Request) -> Response:
    """Show all groups, the most important first."""
    state, snapshot = _look(request)
    rows = state.rows(snapshot)
    worst, said = headline(rows)
    if not snapshot.is_complete:
        worst, said = Level.UNKNOWN, "What is held is not known yet."
    wanted = request.query_params.get("q", "")
    is_held = "held" in request.query_params
    rows = [
        one
        for one in rows
        if wanted.lower() in one.group.lower()
        and not (is_held and one.verdict.level is Level.FLOWS)
    ]
    order = request.query_params.get("sort", "")
    rows.sort(key=_most_lag if order == "lag" else urgency)
    if is_program(request):
        return rest.answer(snapshot, groups=list(map(group_document, rows)))
    return _page(
        request,
        "groups.html",
        snapshot,
        title="Groups",
        worst=worst,
        headline=said,
        q=wanted,
        is_held=is_held,
        order=order,
        **_paged(request, rows, "rows"),
    )


def _most_lag(view: View) -> tuple[int, str]:
    return -view.least_lag, view.group


def group(request: Request) -> Response:
    """Show one group: holds, members, partitions."""
    return _group_page(request)


def _group_page(request: Request, error: str = "") -> Response:
    state, snapshot = _look(request)
    view = state.view(snapshot, request.query_params.get("group", ""))
    if is_program(request):
        return rest.answer(snapshot, **status_document(view))
    return _page(
        request,
        "group.html",
        snapshot,
        status=400 if error else 200,
        is_live=not error,
        error=error,
        title=view.group,
        view=view,
        gone=list(map(gone_text, view.gone)),
        **_paged(request, _by_topic(view.partitions), "partitions"),
    )


def _by_topic(rows: Sequence[Row]) -> list[Row]:
    """Return rows by topic, the topics by their first row; within one as they were."""
    topics: dict[str, list[Row]] = {}
    for one in rows:
        topics.setdefault(one.tp.topic, []).append(one)
    return [one for several in topics.values() for one in several]


def history(request: Request) -> Response:
    """Show what was placed and lifted, the latest first."""
    state, snapshot = _look(request)
    name = request.query_params.get("group", "")
    skew = state.follower.settings.clock_skew
    past = snapshot.history(name or None)
    times = snapshot.times
    found = entries(past, skew, times.proven, times.here)
    is_cut = len(snapshot.records) >= MOST_RECORDS
    if is_program(request):
        records = [one.document() for one in found]
        return rest.answer(snapshot, is_cut=is_cut, records=records)
    return _page(
        request,
        "history.html",
        snapshot,
        title="History",
        group=name,
        is_cut=is_cut,
        most=MOST_RECORDS,
        **_paged(request, found[::-1], "entries"),
    )


# ---------------------------------------------------------------- changing


def place(request: Request) -> Response:
    """Show the form, and what it would do once it is filled in."""
    state, snapshot = _look(request)
    given, owner = changing.typed(request.query_params), state.auth.owner_of(request)
    if is_program(request):
        wish = changing.wish_to_hold(state, owner, given)
        return _plan_answer(snapshot, changing.plan(state, snapshot, wish))
    plan, error = None, None
    if given["scopes"] and (given["for"] or not given["extends"]):
        try:
            wish = changing.wish_to_hold(state, owner, given)
            plan = changing.plan(state, snapshot, wish)
        except Problem as problem:
            error = problem
    return _place_page(request, given, plan, error)


def _plan_answer(snapshot: Snapshot, plan: Plan) -> Response:
    return rest.answer(snapshot, **changing.document(plan))


async def do_place(request: Request) -> Response:
    """Place what was shown, and show the group."""
    return await _changed(_do_place, request)


def _do_place(request: Request, sent: Submission) -> Response:
    given, wish = changing.typed(sent.given), None
    try:
        wish = changing.wish_to_hold(sent.state, sent.owner, given)
        done = changing.change(sent, wish)
    except Problem as problem:
        if is_program(request):
            raise
        plan = None if wish is None else _plan_after(sent, wish, problem)
        return _place_page(request, given, plan, problem)
    return _done(request, done)


def _done(request: Request, done: Done) -> Response:
    """Say what was written to a program, and show a person the group."""
    snapshot = state_of(request).snapshot()
    if is_program(request):
        return rest.answer(snapshot, **done.document())
    group = done.plan.wish.group
    left = snapshot.views.get(group)  # perhaps only what was lifted made it known
    is_known = left is not None and (left.is_known or left.unread)
    page = "/group?" + urlencode({"group": group}) if is_known else "/"
    return RedirectResponse(page, 303)


def _plan_after(sent: Submission, wish: Wish, problem: Problem) -> Plan | None:
    """Return what to show beside a problem: the plan as it is now, if there is one."""
    if isinstance(problem, Refused):
        return problem.plan
    try:
        return changing.plan(sent.state, sent.state.snapshot(), wish)
    except Problem:
        return None


def _sentence(problem: Problem) -> str:
    return f"{problem.title.rstrip('.')}. {problem.detail}".strip()


def _place_page(
    request: Request,
    wish: Mapping[str, str],
    plan: Plan | None,
    problem: Problem | None,
) -> Response:
    is_live = request.method == "GET"
    views = state_of(request).snapshot().views
    named = [views[wish["group"]]] if wish["group"] in views else views.values()
    topics = {tp.topic for one in named for tp in one.consumed}
    return _page(
        request,
        "place.html",
        state_of(request).snapshot(),
        status=200 if is_live or problem is None else problem.status,
        is_live=is_live,
        title="Extend a hold" if wish["extends"] else "Hold something",
        wish=wish,
        groups=sorted(views)[:_MOST_LISTED],
        topics=sorted(topics)[:_MOST_LISTED],
        plan=plan,
        error=None if problem is None else _sentence(problem),
    )


def lift(request: Request) -> Response:
    """Show what lifting holds would do."""
    state, snapshot = _look(request)
    query, owner = request.query_params, state.auth.owner_of(request)
    boxes = " ".join(query.getlist("hold"))
    wanted = _named(request, owner, query, boxes)
    if not wanted:
        return _group_page(request, "tick at least one hold, to lift it")
    wish = changing.wish_to_lift(owner, query.get("group", ""), wanted)
    plan = changing.plan(state, snapshot, wish)
    if is_program(request):
        return _plan_answer(snapshot, plan)
    lacking = gone(plan)
    error = f"not held: {', '.join(lacking)}. {GONE}"
    return _lift_page(request, plan, error if lacking else None)


async def do_lift(request: Request) -> Response:
    """Lift holds, and show the group."""
    return await _changed(_do_lift, request)


def _do_lift(request: Request, sent: Submission) -> Response:
    given = sent.given
    holds = _named(request, sent.owner, given, given.get("holds", ""))
    wish = changing.wish_to_lift(sent.owner, given.get("group", ""), holds)
    try:
        done = changing.change(sent, wish)
    except Problem as problem:
        plan = None if is_program(request) else _plan_after(sent, wish, problem)
        if plan is None:  # it was lifted, or something else failed
            raise
        return _lift_page(request, plan, _sentence(problem), problem.status)
    return _done(request, done)


def _named(
    request: Request, owner: str, given: Mapping[str, str], boxes: str
) -> list[dict[str, str]]:
    """Return the holds to lift: one of a program, or those in the boxes of a form."""
    if is_program(request):
        return [{"owner": owner, **given}]
    return [dict(parse_qsl(one)) for one in boxes.split()]


def _lift_page(
    request: Request, plan: Plan, error: str | None, status: int = 200
) -> Response:
    scopes = " ".join(one.key.scope for one in plan.own)
    others = anothers(plan)
    return _page(
        request,
        "lift.html",
        state_of(request).snapshot(),
        status=status,
        is_live=False,
        title=f"Lift {scopes}",
        group=plan.wish.group,
        scopes=scopes,
        plan=plan,
        owners=", ".join(dict.fromkeys(one.key.owner for one in others)),
        to_type=" ".join(one.key.scope for one in others),
        error=error,
    )


async def _given(request: Request) -> dict[str, str]:
    if is_program(request):
        return await rest.body_of(request)
    body = await asking.body_of(request, _MOST_FORM_BYTES)
    given = dict(parse_qsl(body.decode("utf-8", "replace")))
    auth = state_of(request).auth
    if not auth.is_form_of(auth.owner_of(request), given.get("form", "")):
        raise Problem(
            403, "this form does not belong to this console", "load the page again"
        )
    return given


# ---------------------------------------------------------------- rendering


def _look(request: Request) -> tuple[State, Snapshot]:
    state = state_of(request)
    snapshot = state.snapshot()
    if is_program(request):
        rest.check_query(request, snapshot)
    return state, snapshot


async def _asked(show: Callable[[Request], Response], request: Request) -> Response:
    return await asking.answer(request, lambda _: show(request))


async def _changed(
    change: Callable[[Request, Submission], Response], request: Request
) -> Response:
    given = await _given(request)
    state = state_of(request)
    owner = state.auth.owner_of(request)

    def submit(is_wanted: IsWanted) -> Response:
        sent = Submission(state=state, owner=owner, given=given, is_wanted=is_wanted)
        return change(request, sent)

    return await asking.answer(request, submit)


def _live(
    show: Callable[[Request], Response],
    run: Callable[..., Awaitable[Response]] = run_in_threadpool,
) -> Callable[[Request], Awaitable[Response]]:
    """Send a page again only if something is new; its script asks repeatedly."""

    async def shown(request: Request) -> Response:
        snapshot = state_of(request).snapshot()
        # A page's ages change even if nothing else does.
        ticks = int(snapshot.age / _TICK)
        kind = "json" if is_program(request) else "html"
        tag = f'W/"{snapshot.version}-{ticks}-{kind}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag})
        answer = await run(show, request)
        answer.headers["etag"] = tag
        return answer

    return shown


def _paged(request: Request, rows: Sequence[object], name: str) -> dict[str, Any]:
    count = len(rows)
    try:
        page = int(request.query_params.get("page", "1"))
    except ValueError:
        page = 1
    page = min(max(1, page), max(1, -(-count // SIZE)))

    def url(number: int) -> str:
        return "?" + urlencode({**request.query_params, "page": number})

    shown = rows[(page - 1) * SIZE : page * SIZE]
    return {name: shown, "count": count, "page": page, "size": SIZE, "page_url": url}


def _page(
    request: Request,
    template: str,
    snapshot: Snapshot,
    *,
    status: int = 200,
    is_live: bool = True,
    **values: object,
) -> Response:
    state = state_of(request)
    owner = state.auth.owner_of(request)
    page = _templates().get_template(template)
    text = page.render(
        here=request.url.path,
        known=snapshot,
        owner=owner,
        cluster=", ".join(state.setup.base["bootstrap_servers"]),
        is_read_only=state.setup.is_read_only,
        is_live=is_live,
        form_token=state.auth.form_token(owner),
        **values,
    )
    return HTMLResponse(text, status)


@cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("safeconsumer.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        asset=_asset,
        ago=_ago,
        clock=_clock,
        kept_text=kept_text,
        linked=_linked,
        distance=_distance,
        number="{:,}".format,
        token=_token,
        utc=utc,
        words=words_of,
    )
    return found


def _token(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


@cache
def _asset(name: str) -> str:
    made = sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{made}"


def _shown(value: object) -> object:
    # Names come from other people, whose invisible characters could mislead a reader.
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return _printable(str(value)) if is_text else value


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


# A link shows where it goes: neither what is invisible nor what looks alike is part of it.
_URL = re.compile(r"https?://[!#-;=?-~]*[A-Za-z0-9/=]")


def _linked(text: str) -> Markup:
    """Return text in which addresses of pages are links; no page learns whence they came."""
    parts, at = [], 0
    for found in _URL.finditer(text):
        url = escape(found[0])
        link = Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(url)
        parts += [escape(_printable(text[at : found.start()])), link]
        at = found.end()
    return Markup().join([*parts, escape(_printable(text[at:]))])


def _ago(seconds: float) -> str:
    return "just now" if seconds < _JUST_NOW else f"{words_of(seconds)} ago"


def _clock(at: float) -> str:
    then, now = datetime.fromtimestamp(at, UTC), datetime.now(UTC)
    same_day = then.date() == now.date()
    return then.strftime("%H:%M:%S UTC" if same_day else "%Y-%m-%d %H:%M UTC")


def _distance(at: float, now: float) -> str:
    if abs(at - now) < 1:
        return "now"
    said = words_of(abs(at - now))
    return f"in {said}" if at > now else f"{said} ago"
