"""
Runs what asks the cluster apart from what only looks: a slow broker stops no page.
"""

import asyncio
from collections.abc import Callable
from threading import BoundedSemaphore, Event

from starlette.requests import Request
from starlette.responses import Response

from safeconsumer.console.desk import Desk
from safeconsumer.console.problems import Problem
from safeconsumer.group.errand import Errand

_LOOK_EVERY = 0.02

IsWanted = Callable[[], bool]
"""
Tells whether anybody still waits for the answer.
"""


async def answer(
    request: Request, slots: BoundedSemaphore, ask: Callable[[IsWanted], Response]
) -> Response:
    """
    Ask on a thread of its own, and answer with what comes of it.

    Args:
        request: whose answer it is; once its client has gone, nobody waits any more.
        slots: for as many as may ask at a time.
        ask: is told whether somebody still waits.

    Raises:
        Problem: as many ask already, or the console is being closed.
    """
    desk: Desk = request.app.state.desk
    if not slots.acquire(blocking=False):
        raise Problem(503, "the console waits for the cluster", "try again later")
    gone = Event()

    def run() -> Response:
        try:
            return ask(lambda: not gone.is_set())
        finally:
            slots.release()

    errand = Errand(run)
    try:
        while not errand.is_over:
            if desk.is_closing or await request.is_disconnected():
                raise Problem(503, "nobody waits for this any more")
            await asyncio.sleep(_LOOK_EVERY)
    finally:
        gone.set()
    return errand.result(0)
