"""
Reads what a request carries, and has it worked on by a thread that may wait.
"""

import functools
from collections.abc import Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from safeconsumer.console.problems import Problem

Given = dict[str, str]
Reads = Callable[[Request], Awaitable[Given]]
Works = Callable[[Request, Given], Response]
Handler = Callable[[Request], Awaitable[Response]]


def given_by(read: Reads) -> Callable[[Works], Handler]:
    """
    Make a handler of a function that takes what a request carries, too.

    Args:
        read: returns it.
    """

    def handler_of(work: Works) -> Handler:
        @functools.wraps(work)
        async def handler(request: Request) -> Response:
            return await run_in_threadpool(work, request, await read(request))

        return handler

    return handler_of


async def body_of(request: Request, most: int) -> bytes:
    """
    Return the body of a request.

    Raises:
        Problem: it has more bytes than ``most``.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise Problem(413, "that is too much", f"{most:,} bytes are the most")
    return body
