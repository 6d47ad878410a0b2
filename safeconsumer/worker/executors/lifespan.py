"""Enters and leaves the context manager of a worker's ``lifespan`` where handlers run."""

import threading
from collections.abc import Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
)
from typing import Any

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import LifespanError
from safeconsumer.worker.handlers import MakeLifespan
from safeconsumer.worker.tracebacks import shown


def enter(stack: ExitStack, lifespan: MakeLifespan | None) -> Any:  # noqa: ANN401 - the user's own
    """
    Enter the context manager; return its value.

    Raises:
        LifespanError: making or entering it raised.
    """
    if lifespan is None:
        return None
    try:
        made = lifespan()
        if not isinstance(made, AbstractContextManager):
            is_async = isinstance(made, AbstractAsyncContextManager)
            only = ", which only executor='asyncio' can enter" if is_async else ""
            message = f"it made {shown(made)}, which is not a context manager{only}"
            raise TypeError(message)  # noqa: TRY301 - treated as an error of entering it
        return stack.enter_context(made)
    except BaseException as error:
        raise _not_entered(error) from error


async def enter_async(stack: AsyncExitStack, lifespan: MakeLifespan | None) -> Any:  # noqa: ANN401 - the user's own
    """
    Enter the context manager, sync or async; return its value.

    Raises:
        LifespanError: making or entering it raised.
    """
    if lifespan is None:
        return None
    try:
        made = lifespan()
        if isinstance(made, AbstractAsyncContextManager):
            return await stack.enter_async_context(made)
        return stack.enter_context(made)
    except BaseException as error:
        raise _not_entered(error) from error


def _not_entered(error: BaseException) -> LifespanError:
    return LifespanError(f"lifespan could not be entered: {shown(error)}")


def not_left(error: BaseException) -> LifespanError:
    """Return the error for a lifespan that could not be left."""
    wrong = LifespanError(f"lifespan could not be left: {shown(error)}")
    wrong.__cause__ = error
    return wrong


class LifespanThread:
    """
    Enters and leaves the lifespan in its own daemon thread.

    So callers can limit how long they wait for it, and both happen on one thread, as a
    database connection may require.

    Attributes:
        state: the lifespan's value, once it is entered.
    """

    def __init__(
        self, lifespan: MakeLifespan | None, fail: Callable[[BaseException], None]
    ) -> None:
        self._lifespan = lifespan
        self._fail = fail
        self._entered, self._leaving = InterruptibleEvent(), InterruptibleEvent()
        self._error: BaseException | None = None
        self.state: Any = None
        self._thread = threading.Thread(
            target=self._live, name="safeconsumer-worker-lifespan", daemon=True
        )

    def start(self) -> None:
        """Begin to enter the lifespan, if there is one."""
        if self._lifespan is not None:
            self._thread.start()

    def wait_entered(self, seconds: float) -> bool:
        """
        Tell whether the lifespan was entered within so many seconds.

        Raises:
            LifespanError: it could not be entered.
        """
        is_over = self._lifespan is None or self._entered.wait(seconds)
        if self._error is not None:
            raise self._error
        return is_over

    def leave(self, seconds: float) -> None:
        """Leave the lifespan, and wait up to so many seconds until it is left."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _live(self) -> None:
        stack = ExitStack()
        try:
            self.state = enter(stack, self._lifespan)
        except LifespanError as error:
            self._error = error
            return
        finally:
            self._entered.set()
        self._leaving.wait()
        try:
            stack.close()
        except BaseException as error:  # noqa: BLE001 - run() raises it
            self._fail(not_left(error))
