"""Builds the console's ASGI application: pages, REST API and access control."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from safeconsumer.console import api, figures, pages
from safeconsumer.console.guard import LOGIN, Guard
from safeconsumer.console.problems import Problem
from safeconsumer.console.state import State, state_of

_CHANGING = frozenset({*pages.CHANGING, *(f"/api/v1{one}" for one in api.CHANGING)})


def create(state: State) -> Starlette:
    """Make the application."""
    routes = [
        Route("/live", lambda _: PlainTextResponse("live")),
        Route(LOGIN, _login),
        Route("/metrics", figures.metrics),
        Mount("/static", StaticFiles(directory=pages.STATIC)),
        Mount("/api/v1", routes=api.routes(is_read_only=state.is_read_only)),
        *pages.routes(is_read_only=state.is_read_only),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, auth=state.auth)],
        exception_handlers={Problem: _problem, 404: _not_found, 405: _wrong_method},
    )
    app.state.console = state
    return app


def _login(request: Request) -> Response:
    answer = state_of(request).auth.let_in(request)
    if answer is None:
        raise Problem(
            401,
            "this link was already used, or belongs to another console",
            "start safeconsumer console again for a new link",
        )
    return answer


def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - registered for these
    return error.answer(request)


def _not_found(request: Request, _: Exception) -> Response:
    state = state_of(request)
    if state.is_read_only and request.url.path in _CHANGING:
        problem = Problem(
            404,
            "there is no such page here",
            "a console with --read-only changes nothing: start it without this option",
        )
    else:
        problem = Problem(404, "there is no such page", "start from the list of groups")
    return problem.answer(request)


def _wrong_method(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these
    allowed = ", ".join(sorted((error.headers or {})["Allow"].split(", ")))
    what = f"{request.url.path} does not accept {request.method}"
    answer = Problem(405, what, f"it accepts {allowed}").answer(request)
    answer.headers["Allow"] = allowed
    return answer
