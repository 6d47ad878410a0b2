"""Runs handlers in threads, in processes or on an event loop."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from safeconsumer.errors.base import WorkerSettingError
from safeconsumer.worker.calls import is_async, is_generator
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors.aio import Coroutines
from safeconsumer.worker.executors.base import Calls, Runner
from safeconsumer.worker.executors.processes import Processes
from safeconsumer.worker.executors.threads import Threads
from safeconsumer.worker.tracebacks import shown

ExecutorName: TypeAlias = Literal["thread", "process", "asyncio"]


def choose(
    executor: ExecutorName, decisions: Decisions, calls: Calls, count: int
) -> Runner:
    """
    Make the runner that runs ``count`` handlers at a time.

    Raises:
        WorkerSettingError: the executor cannot run this handler.
    """
    match executor:
        case "thread":
            return Threads(decisions, calls, count)
        case "asyncio":
            return Coroutines(decisions, calls, count)
        case "process":
            return Processes(decisions, calls, count)


def check_kind(handle: Callable[..., Any], executor: object) -> None:
    """
    Refuse a handler of a kind that the executor does not call.

    Raises:
        WorkerSettingError: the executor awaits and the handler is not a coroutine
            function, or the other way round; or the handler is a generator, over which
            nothing iterates.
    """
    if is_generator(handle):
        message = (
            f"{shown(handle)} is a generator function: calling it does not run its "
            f"body; let it return instead of yield"
        )
        raise WorkerSettingError(message)
    is_coroutine = is_async(handle)
    if is_coroutine and executor != "asyncio":
        message = f"{handle!r} is a coroutine function: use executor='asyncio'"
        raise WorkerSettingError(message)
    if executor == "asyncio" and not is_coroutine:
        message = (
            f"executor='asyncio' calls coroutine functions, and {handle!r} is not one: "
            f"make it async def, or use executor='thread'"
        )
        raise WorkerSettingError(message)
