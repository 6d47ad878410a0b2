"""
Serves the console's pages, as HTML to people and as JSON to programs.

Without JavaScript the pages work, but do not refresh. :mod:`safeconsumer.console.rest`
lists the parameters and answers for programs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from attrs import frozen
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from safeconsumer.console import background, changes, rest
from safeconsumer.console.background import IsWanted
from safeconsumer.console.changes import Given, Refused
from safeconsumer.console.problems import Problem, is_program
from safeconsumer.console.rendering import Page, now_text, templates
from safeconsumer.console.state import State, state_of
from safeconsumer.group.carry_out import Done
from safeconsumer.group.documents import group_document, status_document
from safeconsumer.group.follower import MOST_RECORDS, Snapshot
from safeconsumer.group.history import entries, history_of
from safeconsumer.group.movements import movements
from safeconsumer.group.plan import Action, Consent, Lift, Plan
from safeconsumer.group.verdicts import Level
from safeconsumer.group.view import Row, View, headline, urgency

SIZE = 100
# The maximum number of suggestions for a field; longer lists make typing slow in
# browsers.
_MOST_LISTED = 1_000
# Seconds after which a page is rendered again even if the data has not changed: _TICK
# for pages that show the age of old data (OLD_AFTER is a multiple of it), _LONG_TICK
# for other pages, which show dates.
_TICK, _LONG_TICK = 5.0, 60.0


def routes(*, is_read_only: bool) -> list[Route]:
    """Return the pages' routes, with ``is_read_only`` only those of pages that show data."""
    found = [
        Route(path, partial(_answer_shared, show))
        for path, show in (("/", groups), ("/group", group), ("/history", history))
    ]
    for form in () if is_read_only else _FORMS:
        found.append(Route(form.path, partial(_answer_form, form)))
        found.append(Route(form.path, partial(_answer_post, form), methods=["POST"]))
    return found


# ---------------------------------------------------------------- looking


def groups(request: Request) -> Response:
    """Show all groups, the most urgent first."""
    state, snapshot = _look(request)
    rows = state.rows(snapshot)
    worst, sentence = headline(rows)
    if not snapshot.is_complete:
        worst, sentence = Level.UNKNOWN, "The holds are not known yet."
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
        worst=worst,
        headline=sentence,
        q=wanted,
        is_held=is_held,
        order=order,
        **_paged(request, rows, "rows"),
    )


def _most_lag(view: View) -> tuple[int, str]:
    return -view.least_lag, view.group


def group(request: Request, error: str = "") -> Response:
    """Show one group: holds, members, partitions."""
    state, snapshot = _look(request)
    view = state.view(snapshot, request.query_params.get("group", ""))
    if is_program(request):
        return rest.answer(snapshot, **status_document(view))
    return _page(
        request,
        "group.html",
        status=400 if error else 200,
        is_live=not error,
        error=error,
        view=view,
        moves={one.tp: one.sentence() for one in movements(view)},
        **_paged(request, _by_topic(view.partitions), "partitions"),
    )


def _by_topic(rows: Sequence[Row]) -> list[Row]:
    """Return rows grouped by topic; topics, and rows within a topic, keep their order."""
    topics: dict[str, list[Row]] = {}
    for one in rows:
        topics.setdefault(one.tp.topic, []).append(one)
    return [one for several in topics.values() for one in several]


def history(request: Request) -> Response:
    """Show the changes to holds, latest first."""
    state, snapshot = _look(request)
    name = request.query_params.get("group", "")
    skew, times = partial(state.skew, snapshot), snapshot.times
    # A person sees one page; one extra entry shows whether there is a next page.
    most = None if is_program(request) else _page_number(request) * SIZE + 1
    past = history_of(snapshot.records, name or None)
    found = entries(past, skew, times.proven, times.here, most)
    is_cut = len(snapshot.records) >= MOST_RECORDS
    if is_program(request):
        records = [one.document() for one in found]
        return rest.answer(snapshot, is_cut=is_cut, records=records)
    return _page(
        request,
        "history.html",
        group=name,
        is_cut=is_cut,
        most=MOST_RECORDS,
        **_paged(request, found[::-1], "entries"),
    )


def _paged(request: Request, rows: Sequence[object], name: str) -> dict[str, Any]:
    count = len(rows)
    page = min(_page_number(request), max(1, -(-count // SIZE)))

    def url(number: int) -> str:
        return "?" + urlencode({**request.query_params, "page": number})

    shown = rows[(page - 1) * SIZE : page * SIZE]
    return {name: shown, "count": count, "page": page, "size": SIZE, "page_url": url}


def _page_number(request: Request) -> int:
    try:
        return max(1, int(request.query_params.get("page", "1")))
    except ValueError:
        return 1


# ---------------------------------------------------------------- changing


@frozen(kw_only=True)
class _Form:
    """
    A page that shows the plan of a change, and carries it out.

    Attributes:
        path: the path of the form's route; its template has the same name.
        fields: the names of the form's fields, as a program sends them.
        action: creates an action from the fields.
        is_filled: returns whether the fields are enough for a preview; None if the form
            does not have any fields that a person could correct.
    """

    path: str
    fields: tuple[str, ...]
    action: Callable[[State, str, Given], Action]
    is_filled: Callable[[Given], object] | None = None

    def given(self, pairs: Mapping[str, str]) -> Given:
        """Return all fields; typed values are stripped, but names keep their spaces."""
        names = (*self.fields, "hold", "agreed")
        found = {name: pairs.get(name, "") for name in names}
        typed = {name: found[name].strip() for name in self.fields if self.is_filled}
        return {**found, **typed, "group": found["group"]}


_FORMS = (
    _Form(
        path="/place",
        fields=rest.HOLD_FIELDS,
        action=changes.hold_action,
        is_filled=lambda one: one["scopes"] and (one["for"] or not one["extends"]),
    ),
    _Form(path="/lift", fields=rest.LIFT_FIELDS, action=changes.lift_action),
    _Form(
        path="/reset",
        fields=rest.RESET_FIELDS,
        action=changes.move_action,
        is_filled=lambda one: one["scopes"] and one["to"],
    ),
)


def _preview(form: _Form, request: Request) -> Response:
    """Show the form and, once it is filled in, the plan."""
    state, snapshot = _look(request)
    given = form.given(rest.joined(request.query_params.multi_items()))
    plan, problem = None, None
    if not is_program(request):
        if form.is_filled is None and not given["hold"]:
            return group(request, "tick at least one hold, to lift it")
        if form.is_filled is not None and not form.is_filled(given):
            return _form_page(form, request, given)
    try:
        action = form.action(state, state.auth.owner_of(request), given)
        plan = changes.plan(state, snapshot, action)
    except Problem as error:
        if form.is_filled is None or is_program(request):
            raise
        problem = error
    if plan is not None and is_program(request):
        return rest.answer(snapshot, **changes.document(plan))
    return _form_page(form, request, given, plan, problem)


def _carry_out(
    form: _Form, request: Request, sent: Mapping[str, str], is_wanted: IsWanted
) -> Response:
    """Carry out the shown plan, and show the group."""
    state, given, action = state_of(request), form.given(sent), None
    try:
        action = form.action(state, state.auth.owner_of(request), given)
        done = changes.change(state, action, sent, is_wanted)
    except Problem as problem:
        plan = None if is_program(request) else _plan_after(state, action, problem)
        if is_program(request) or (plan is None and form.is_filled is None):
            raise
        return _form_page(form, request, given, plan, problem)
    return _answer_done(request, done)


def _plan_after(state: State, action: Action | None, problem: Problem) -> Plan | None:
    """Return the current plan, if there is one, to show it next to a problem."""
    if isinstance(problem, Refused) or action is None:
        return getattr(problem, "plan", None)
    try:
        return changes.plan(state, state.snapshot(), action)
    except Problem:
        return None


def _answer_done(request: Request, done: Done) -> Response:
    """Send a program the written records, and a person to the group's page."""
    snapshot = state_of(request).snapshot()
    if is_program(request):
        return rest.answer(snapshot, **done.document())
    group = done.plan.action.group
    # A group that is known only by the lifted hold no longer has a page.
    left = snapshot.views.get(group)
    is_known = left is not None and (left.is_known or left.unread)
    page = "/group?" + urlencode({"group": group}) if is_known else "/"
    return RedirectResponse(page, 303)


def _form_page(
    form: _Form,
    request: Request,
    given: Given,
    plan: Plan | None = None,
    problem: Problem | None = None,
) -> Response:
    is_asked = request.method != "POST"
    views = state_of(request).snapshot().views
    named = [views[given["group"]]] if given["group"] in views else views.values()
    topics = {tp.topic for one in named for tp in one.consumed}
    return _page(
        request,
        f"{form.path[1:]}.html",
        status=200 if is_asked or problem is None else problem.status,
        is_live=is_asked and form.path == "/place",
        typed=given,
        groups=sorted(views)[:_MOST_LISTED],
        topics=sorted(topics)[:_MOST_LISTED],
        plan=plan,
        moves=[] if plan is None else plan.document().get("moves", []),
        size=SIZE,
        error=_error(plan, problem),
    )


def _error(plan: Plan | None, problem: Problem | None) -> str:
    """Return a problem's reason, or why holds cannot be lifted now; otherwise ""."""
    if problem is not None:
        return _sentence(problem.title, problem.detail)
    needs = plan.needs if plan is not None and isinstance(plan.action, Lift) else ()
    refused = (one for one in needs if one.consent is not Consent.TYPED)
    return " ".join(_sentence(one.why, one.ask) for one in refused)


def _sentence(why: str, what_to_do: str) -> str:
    end = ": " if what_to_do[:1].islower() else ". "
    return f"{why.rstrip('.')}{end}{what_to_do}".strip().rstrip(".:") + "."


# ---------------------------------------------------------------- answering


def _look(request: Request) -> tuple[State, Snapshot]:
    state = state_of(request)
    snapshot = state.snapshot()
    if is_program(request):
        rest.check_query(request, snapshot)
    return state, snapshot


async def _answer_shared(
    show: Callable[[Request], Response], request: Request
) -> Response:
    """Answer with a page that all viewers share, or with JSON."""
    if is_program(request):
        return await run_in_threadpool(show, request)
    state = state_of(request)
    owner, snapshot = state.auth.owner_of(request), state.snapshot()
    if (named := request.query_params.get("group", "")) in snapshot.views:
        state.follower.watch(named)

    def rendered() -> Page:
        page = show(request)
        assert isinstance(page, Page)  # noqa: S101 - as is no program's
        return page

    version = _version(snapshot)
    page = await run_in_threadpool(
        state.pages.of, version, (owner, str(request.url)), rendered
    )
    return _unless_known(request, page.tag, snapshot, lambda: Page(page.text, snapshot))


def _version(snapshot: Snapshot) -> tuple[int, ...]:
    # On a page with old data, every sentence contains the age.
    ticks = int(snapshot.age / _TICK) if snapshot.is_old else 0
    return snapshot.version, ticks, int(snapshot.times.here / _LONG_TICK)


def _unless_known(
    request: Request, tag: str, snapshot: Snapshot, page: Callable[[], Response]
) -> Response:
    """Send a page unless the browser already has it; the page's script polls for changes."""
    is_known = request.headers.get("if-none-match") == tag
    answer = Response(status_code=304) if is_known else page()
    answer.headers["etag"] = tag
    answer.headers["x-known-age"] = f"{snapshot.age:.1f}"
    answer.headers["x-known-now"] = now_text(snapshot)
    return answer


async def _answer_form(form: _Form, request: Request) -> Response:
    """Answer with a form; this may require a query to the cluster."""
    snapshot = state_of(request).snapshot()
    if is_program(request):
        return await background.answer(request, lambda _: _preview(form, request))
    tag = f'W/"{snapshot.version}-{int(snapshot.age / _TICK)}"'
    if request.headers.get("if-none-match") == tag:
        return _unless_known(request, tag, snapshot, Response)
    answer = await background.answer(request, lambda _: _preview(form, request))
    return _unless_known(request, tag, snapshot, lambda: answer)


async def _answer_post(form: _Form, request: Request) -> Response:
    """Carry out the action that a form or a program sends."""
    given = await rest.body_of(request)
    return await background.answer(
        request, lambda is_wanted: _carry_out(form, request, given, is_wanted)
    )


def _page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    is_live: bool = True,
    **values: object,
) -> Page:
    state = state_of(request)
    owner, snapshot = state.auth.owner_of(request), state.snapshot()
    text = (
        templates()
        .get_template(template)
        .render(
            here=request.url.path,
            known=snapshot,
            owner=owner,
            cluster=", ".join(state.setup.base["bootstrap_servers"]),
            is_read_only=state.setup.is_read_only,
            is_live=is_live,
            form_token=state.auth.form_token(owner),
            **values,
        )
    )
    return Page(text, snapshot, status)
