"""Runs requests to the cluster on threads, so that a slow broker does not block pages."""

import asyncio
from collections.abc import Callable
from threading import Event

from starlette.requests import Request
from starlette.responses import Response

from safeconsumer.console.problems import Problem
from safeconsumer.console.state import state_of
from safeconsumer.group.timed_call import TimedCall

_CHECK_INTERVAL = 0.02

IsWanted = Callable[[], bool]
"""Returns whether a client still waits for the answer."""


async def answer(request: Request, ask: Callable[[IsWanted], Response]) -> Response:
    """
    Process a request on a separate thread, and return the response.

    Args:
        request: the request to answer; waiting stops if its client disconnects.
        ask: called with a function that returns whether the client is still waiting.

    Raises:
        Problem: too many requests are running, or the console is closing.
    """
    state = state_of(request)
    slots = state.slots
    if not slots.acquire(blocking=False):
        raise Problem(
            503,
            "the console waits for the cluster on behalf of others",
            "try again later",
        )
    gone = Event()

    def run() -> Response:
        try:
            return ask(lambda: not gone.is_set())
        finally:
            slots.release()

    call = TimedCall(run)
    try:
        while not call.is_over:
            if state.is_closing or await request.is_disconnected():
                unknown = "whether it was written is unknown: it may still be written"
                detail = "" if request.method == "GET" else unknown
                raise Problem(503, "the request was abandoned", detail)
            await asyncio.sleep(_CHECK_INTERVAL)
    finally:
        gone.set()
    return call.result(0)


async def body_of(request: Request, most: int) -> bytes:
    """
    Return the body of a request.

    Raises:
        Problem: the body is longer than ``most`` bytes, or the console is closing.
    """
    receiving = asyncio.ensure_future(_receive(request, most))
    try:
        while not receiving.done():
            if state_of(request).is_closing:
                raise Problem(503, "the request was abandoned")
            await asyncio.wait({receiving}, timeout=_CHECK_INTERVAL)
    finally:
        receiving.cancel()
    return receiving.result()


async def _receive(request: Request, most: int) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise Problem(413, "the body is too long")
    return body
