"""
The console as an ASGI application: its pages, its REST, and who may see them.
"""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from safeconsumer.console import api, pages
from safeconsumer.console.desk import Desk
from safeconsumer.console.guard import LOGIN, Door, Guard
from safeconsumer.console.problems import Problem


def create(desk: Desk) -> Starlette:
    """
    Make the application.
    """
    routes = [
        Route("/live", lambda _: PlainTextResponse("live")),
        Route(LOGIN, _login),
        Mount("/static", StaticFiles(directory=pages.STATIC)),
        Mount("/api/v1", routes=api.routes(is_read_only=desk.is_read_only)),
        *pages.routes(is_read_only=desk.is_read_only),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, door=desk.door)],
        exception_handlers={Problem: _problem, 404: _nowhere, 405: _not_so},
    )
    app.state.desk = desk
    return app


def _login(request: Request) -> Response:
    door: Door = request.app.state.desk.door
    answer = door.let_in(request)
    if answer is None:
        raise Problem(
            401,
            "this link was used already, or is not of this console",
            "start safeconsumer console again for a new one",
        )
    return answer


def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - registered for these
    return error.answer(request)


def _nowhere(request: Request, _: Exception) -> Response:
    return Problem(404, "there is no such page", "begin with all groups").answer(
        request
    )


def _not_so(request: Request, _: Exception) -> Response:
    why = "a console with --read-only changes nothing"
    return Problem(405, "that cannot be done here", why).answer(request)
