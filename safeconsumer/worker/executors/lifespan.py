"""Enters and leaves a worker's ``lifespan`` where its handlers run."""

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
)
from typing import Any, NoReturn

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import LifespanError, WorkerSettingError
from safeconsumer.worker.handlers import MakeLifespan, is_async, is_generator
from safeconsumer.worker.settings import check_signature
from safeconsumer.worker.tracebacks import shown

# ------------------------------------------------------------ checks before the call


def refuse_no_maker(lifespan: object) -> None:
    """
    Refuse an object that does not return a context manager if called without arguments.

    Raises:
        WorkerSettingError: the object is itself a context manager; it cannot be called,
            or requires arguments; or it returns a generator or a coroutine.
    """
    is_manager = isinstance(
        lifespan, AbstractContextManager | AbstractAsyncContextManager
    )
    # Some context managers, such as pools, also return context managers when called.
    if is_manager and not _needs_nothing(lifespan):
        _refuse(
            f"lifespan must make a context manager, and {shown(lifespan)} is one: give "
            f"the function, not its result"
        )
    if not callable(lifespan):
        _refuse(f"lifespan must be callable, not {shown(lifespan)}")
    # Calling a class returns an instance, even if calling the instance returns a
    # coroutine.
    is_class = isinstance(lifespan, type)
    if not is_class and (is_generator(lifespan) or is_async(lifespan)):
        _refuse(
            f"lifespan must return a context manager, and {shown(lifespan)} makes a "
            f"generator or a coroutine: let it yield, and decorate it with "
            f"contextlib.contextmanager or asynccontextmanager"
        )
    check_signature(lifespan, "lifespan", (), passes_on=_is_decorated(lifespan))


def makes_only_async(lifespan: object) -> bool:
    """Return whether a lifespan is known to return only an async context manager."""
    if isinstance(lifespan, type):
        is_sync = issubclass(lifespan, AbstractContextManager)
        return issubclass(lifespan, AbstractAsyncContextManager) and not is_sync
    function = inspect.unwrap(_function(lifespan))
    return _is_decorated(lifespan) and inspect.isasyncgenfunction(function)


def _needs_nothing(lifespan: object) -> bool:
    try:
        check_signature(lifespan, "lifespan", ())
    except WorkerSettingError:
        return False
    return callable(lifespan)


def _is_decorated(lifespan: object) -> bool:
    # Returns whether a contextlib decorator, which passes on all arguments, created the
    # function.
    return getattr(_function(lifespan), "__globals__", None) is vars(contextlib)


def _function(lifespan: Any) -> Any:  # noqa: ANN401 - callable
    while isinstance(lifespan, functools.partial):
        lifespan = lifespan.func
    return lifespan


def _refuse(message: str) -> NoReturn:
    raise WorkerSettingError(message)


# ------------------------------------------------------------ where handlers run


def enter(stack: ExitStack, lifespan: MakeLifespan | None) -> Any:  # noqa: ANN401 - the user's own
    """
    Create and enter the lifespan's context manager; return its value.

    Raises:
        LifespanError: the context manager could not be created or entered.
    """
    if lifespan is None:
        return None
    try:
        made = lifespan()
        return stack.enter_context(_checked(made))
    except BaseException as error:
        raise _not_entered(error) from error


async def enter_async(stack: AsyncExitStack, lifespan: MakeLifespan | None) -> Any:  # noqa: ANN401 - the user's own
    """
    Create and enter the context manager, sync or async; return its value.

    Raises:
        LifespanError: the context manager could not be created or entered.
    """
    if lifespan is None:
        return None
    try:
        made = lifespan()
        if isinstance(made, AbstractAsyncContextManager):
            return await stack.enter_async_context(made)
        return stack.enter_context(_checked(made))
    except BaseException as error:
        raise _not_entered(error) from error


def _checked(made: Any) -> AbstractContextManager[Any]:  # noqa: ANN401 - the user's own
    # contextlib's own error messages name neither the lifespan nor the executor.
    if isinstance(made, AbstractContextManager):
        return made
    if isinstance(made, AbstractAsyncContextManager):
        message = "it made an async context manager; use executor='asyncio'"
    else:
        message = f"it made {shown(made)}, which is not a context manager"
    raise TypeError(message)


def _not_entered(error: BaseException) -> LifespanError:
    return LifespanError(f"lifespan could not be entered: {shown(error)}")


def not_left(error: BaseException) -> LifespanError:
    """Return the error for a failed exit of the lifespan."""
    wrong = LifespanError(f"lifespan could not be left: {shown(error)}")
    wrong.__cause__ = error
    return wrong


class LifespanThread:
    """
    Enters and exits the lifespan in its own daemon thread.

    Because of the separate thread, callers can limit their wait. It also means that
    entering and leaving happen on the same thread, as a database connection may
    require.

    Attributes:
        state: the lifespan's value, once the lifespan is entered.
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
        """Start entering the lifespan, if there is one."""
        if self._lifespan is not None:
            self._thread.start()

    def wait_entered(self, seconds: float) -> bool:
        """
        Wait up to ``seconds`` for the lifespan; return whether it was entered.

        Raises:
            LifespanError: the lifespan could not be entered.
        """
        is_over = self._lifespan is None or self._entered.wait(seconds)
        if self._error is not None:
            raise self._error
        return is_over

    def leave(self, seconds: float) -> None:
        """Leave the lifespan, and wait up to ``seconds`` until that is done."""
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
        except BaseException as error:  # noqa: BLE001 - run() raises the error
            self._fail(not_left(error))
