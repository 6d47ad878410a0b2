"""Notifies handlers that their partition is being taken away, in threads and coroutines."""

import asyncio
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from safeconsumer._waits import InterruptibleEvent


class Revocation(InterruptibleEvent):
    """
    An event: a thread waits for it by ``wait(timeout)``, a coroutine by ``await``.

    ``await context.revoked`` takes no thread and blocks no loop; like any await it can
    be given a limit, by ``asyncio.timeout`` or ``asyncio.wait_for``. Each ownership of
    a partition has one, which all its records share.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake all that wait. Any thread, under the lock of ``KeptRecords`` too."""
        super().set()  # set first, so that later waiters see it
        with suppress(IndexError):  # a cancelled waiter removes itself meanwhile
            while True:
                future = self._waiting.pop()
                with suppress(RuntimeError):  # the waiter's loop has ended
                    future.get_loop().call_soon_threadsafe(_wake, future)

    def __repr__(self) -> str:
        """Return the state, as an event's is shown."""
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
