"""
Where handlers run: threads, processes, an event loop, or somebody else's executor.
"""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Literal, TypeAlias

from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker.executors.aio import Coroutines
from safeconsumer.worker.executors.base import Calls, Runner
from safeconsumer.worker.executors.foreign import Foreign
from safeconsumer.worker.executors.processes import Processes
from safeconsumer.worker.executors.threads import Threads
from safeconsumer.worker.handlers import is_async, is_generator
from safeconsumer.worker.queue import LANE_SECONDS, QUANTUM
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tracebacks import shown

ExecutorName: TypeAlias = Literal["thread", "process", "asyncio"]

# Time for the records of a hand-over that goes elsewhere: what it costs to get there
# must not matter.
_ELSEWHERE_SECONDS = 0.02
_ELSEWHERE_QUANTUM = 512


def choose(executor: object, schedule: Schedule, calls: Calls, count: int) -> Runner:
    """
    Make what runs ``count`` handlers at a time.

    Raises:
        WorkerSettingError: there is no such executor, or it cannot run this handler.
    """
    match executor:
        case "thread":
            return Threads(schedule, calls, count)
        case "asyncio":
            return Coroutines(schedule, calls, count)
        case "process":
            return Processes(schedule, calls, count)
        case Executor():
            return Foreign(schedule, calls, count, executor)
    message = (
        "executor is 'thread', 'process', 'asyncio' or a concurrent.futures.Executor, "
        f"not {executor!r}"
    )
    raise WorkerSettingError(message)


def cut(
    executor: object, batch: int | None, *, is_traced: bool = False
) -> dict[str, Any]:
    """
    Return the parts of a policy that say how much is handed over at once.

    One record at a time where its span is made here and it is handled elsewhere: when
    it begins there nobody here knows.
    """
    is_here = executor in ("thread", "asyncio")
    quantum = batch or (QUANTUM if is_here else _ELSEWHERE_QUANTUM)
    if is_traced and not is_here and not isinstance(executor, ThreadPoolExecutor):
        quantum = batch or 1
    seconds = LANE_SECONDS if is_here else _ELSEWHERE_SECONDS
    return {"quantum": quantum, "lane_seconds": seconds}


def check_kind(handle: Callable[..., Any], executor: object) -> None:
    """
    Return if the executor calls handlers of this kind.

    Raises:
        WorkerSettingError: it awaits, and the handler is no coroutine function, or the
            other way round; or the handler is a generator, which nobody iterates over.
    """
    if is_generator(handle):
        message = (
            f"{shown(handle)} is a generator function: calling it runs none of it; let "
            f"it return instead of yield"
        )
        raise WorkerSettingError(message)
    is_coroutine = is_async(handle)
    if is_coroutine and executor != "asyncio":
        message = f"{handle!r} is a coroutine function: use executor='asyncio'"
        raise WorkerSettingError(message)
    if executor == "asyncio" and not is_coroutine:
        message = (
            f"executor='asyncio' calls coroutine functions, and {handle!r} is none: "
            f"make it async def, or use executor='thread'"
        )
        raise WorkerSettingError(message)
