"""Notifies handlers, in threads and coroutines, that their partition is being taken away."""

import asyncio
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from safeconsumer._waits import InterruptibleEvent


class Revocation(InterruptibleEvent):
    """
    An event on which threads call ``wait(timeout)``, and which coroutines ``await``.

    ``await context.revoked`` uses no thread and does not block the event loop. Use
    ``asyncio.timeout`` or ``asyncio.wait_for`` to limit it, as with any await. Each
    ownership of a partition has one such event, which all records of the ownership
    share.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Set the event and wake all waiters. Any thread, even under ``KeptRecords.lock``."""
        super().set()  # set first, so that no later waiter waits
        with suppress(IndexError):  # a cancelled waiter may have removed itself
            while True:
                future = self._waiting.pop()
                with suppress(RuntimeError):  # the waiter's loop is closed
                    future.get_loop().call_soon_threadsafe(_wake, future)

    def __repr__(self) -> str:
        """Show whether the event is set."""
        return f"<Revocation {'set' if self.is_set() else 'unset'}>"

    def __await__(self) -> Generator[Any, None, None]:
        return self._until_set().__await__()

    async def _until_set(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            if not self.is_set():
                await future
        finally:
            with suppress(ValueError):  # the waiter was woken, not cancelled
                self._waiting.remove(future)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
