"""Runs handlers in threads, in processes or on an event loop."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from safeconsumer.errors.base import WorkerSettingError
from safeconsumer.worker.calls import END_SECONDS, Calls, Slot
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors.aio import Coroutines
from safeconsumer.worker.executors.lifespan import makes_only_async, refuse_no_maker
from safeconsumer.worker.executors.processes import Processes, check_picklable
from safeconsumer.worker.executors.threads import Threads
from safeconsumer.worker.handlers import MakeLifespan, is_async, is_generator
from safeconsumer.worker.tracebacks import shown

ExecutorName: TypeAlias = Literal["thread", "process", "asyncio"]


class Runner(Protocol):
    """Runs handlers on the tasks of a queue."""

    @property
    def slots(self) -> Sequence[Slot]:
        """The slots in which handlers run."""

    def start(self) -> None:
        """Begin, without waiting until it has begun."""

    def wait_ready(self, seconds: float) -> bool:
        """
        Return whether it has begun within this many seconds.

        Raises:
            LifespanError: the lifespan could not be entered, so it never will.
        """

    def recall(self) -> None:
        """Return handed-over records that have not begun; from now on no record begins."""

    def stop(self, seconds: float = END_SECONDS) -> None:
        """End within this many seconds, without waiting for handlers that take longer."""


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


def check_lifespan(lifespan: MakeLifespan | None, executor: object) -> None:
    """
    Refuse a lifespan that the executor cannot enter where its handlers run.

    Raises:
        WorkerSettingError: the executor cannot enter it.
    """
    if lifespan is None:
        return
    refuse_no_maker(lifespan)
    if executor != "asyncio" and makes_only_async(lifespan):
        message = (
            f"{shown(lifespan)} makes an async context manager: use executor='asyncio'"
        )
        raise WorkerSettingError(message)
    if executor == "process":
        check_picklable("lifespan", lifespan)
