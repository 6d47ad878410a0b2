"""
Knows whether anybody still waits for what is about to be written.

Who has gone, or has waited for too long, does not know what happens any more: a hold
that is placed or lifted then meets others than those that were looked at.
"""

import asyncio
import threading
import time
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from safeconsumer.console.problems import Problem

# From the request to the moment in which something is written, seconds.
PATIENCE = 10.0


class Caller:
    """
    Whoever asked for a change.

    Attributes:
        until: nothing is written later than this moment of our monotonic clock.

    Args:
        patience: for so many seconds from now.

    Thread rules: any.
    """

    def __init__(self, patience: float) -> None:
        self.until = time.monotonic() + patience
        self._gone = threading.Event()

    def leave(self) -> None:
        """
        Note that nobody waits for the answer any more.
        """
        self._gone.set()

    def check(self) -> None:
        """
        Return if the caller is still there, and not for too long.

        Raises:
            Problem: otherwise.
        """
        if self._gone.is_set():
            raise Problem(503, "Nothing was written.", "whoever asked has gone")
        if time.monotonic() > self.until:
            waited = "it took too long to look at what stands now: try again"
            raise Problem(503, "Nothing was written.", waited)


async def answered(request: Request, work: Callable[[Caller], Response]) -> Response:
    """
    Do something for a caller on a thread; the request's body was read before.
    """
    caller = Caller(PATIENCE)
    watching = asyncio.create_task(_watch(request, caller))
    try:
        return await run_in_threadpool(work, caller)
    finally:
        watching.cancel()


async def _watch(request: Request, caller: Caller) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    caller.leave()
