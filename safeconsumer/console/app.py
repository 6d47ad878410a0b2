"""Builds the console's ASGI application: pages, probes and access control."""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from safeconsumer.console import pages
from safeconsumer.console.guard import LOGIN, Guard
from safeconsumer.console.problems import Problem
from safeconsumer.console.rendering import STATIC
from safeconsumer.console.state import State, state_of


def create(state: State) -> Starlette:
    """Make the application."""
    routes = [
        Route("/live", lambda _: PlainTextResponse("live")),
        Route("/ready", _ready),
        Route(LOGIN, _login),
        Mount("/static", StaticFiles(directory=STATIC)),
        *pages.routes(is_read_only=state.setup.is_read_only),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, auth=state.auth)],
        exception_handlers={Problem: _problem, 404: _not_found, 405: _not_allowed},
    )
    app.state.console = state
    return app


def _ready(request: Request) -> Response:
    # Tell whether the snapshot is complete and current, without a request to the
    # cluster.
    if lack := state_of(request).snapshot().lack:
        raise Problem(503, "not ready", lack)
    return PlainTextResponse("ready")


def _login(request: Request) -> Response:
    answer = state_of(request).auth.log_in(request)
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
    where = "start from the list of groups"
    if state_of(request).setup.is_read_only:
        where += "; a console with --read-only has no page that changes holds"
    return Problem(404, "there is no such page", where).answer(request)


def _not_allowed(request: Request, error: Exception) -> Response:
    # Starlette joins the allowed methods from a set, whose order differs between
    # processes.
    methods = (getattr(error, "headers", None) or {}).get("Allow", "")
    allowed = ", ".join(sorted(methods.split(", ")))
    title = f"{request.url.path} does not accept {request.method}"
    answer = Problem(405, title, f"it accepts {allowed}").answer(request)
    answer.headers["Allow"] = allowed
    return answer
