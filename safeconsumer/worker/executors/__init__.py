"""Runs handlers in threads, in processes or in an event loop."""

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
        """The slots in which the runner runs handlers."""

    def start(self) -> None:
        """Start the runner, without waiting until it is ready."""

    def wait_ready(self, seconds: float) -> bool:
        """
        Wait up to ``seconds`` for the runner; return whether it is ready.

        Raises:
            LifespanError: the lifespan could not be entered, so the runner will never
                be ready.
        """

    def recall(self) -> None:
        """Return records that were handed over but not begun, and start no more records."""

    def stop(self, seconds: float = END_SECONDS) -> None:
        """Stop within ``seconds``, without waiting for handlers that take longer."""


def choose(
    executor: ExecutorName, decisions: Decisions, calls: Calls, count: int
) -> Runner:
    """
    Return a new runner that runs ``count`` handlers at a time.

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
    Refuse a handler that is not of the kind that the executor calls.

    Raises:
        WorkerSettingError: the executor awaits handlers and this handler is not a
            coroutine function; or the handler is a coroutine function and the executor
            does not await; or the handler is a generator function, which no executor
            can run.
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
        WorkerSettingError: the executor cannot enter the lifespan.
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
