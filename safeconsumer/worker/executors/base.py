"""
What every executor is: places where handlers run, and what is called there.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from safeconsumer.worker.executors.lifespan import MakeLifespan
from safeconsumer.worker.handlers import Handler, HandlersFailError, Slot
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tracebacks import shown

if TYPE_CHECKING:
    from safeconsumer.worker.tracing import Tracer

# For what ends a handler at its limit, before people are told that it did not.
_GRACE = 1.0
# For the imports of a process, and the user's lifespan there, at least.
START_SECONDS = 60.0
# One wait, whatever settings say: where it is for a pipe or a process, the system
# counts milliseconds in 31 bits.
LONGEST = 86_400.0
# What ending may take where nobody says how long.
END_SECONDS = 1.0


class Runner(Protocol):
    """
    Runs handlers on what a schedule hands out.
    """

    @property
    def slots(self) -> Sequence[Slot]:
        """
        Where handlers run.
        """

    def start(self) -> None:
        """
        Begin, without waiting for it.
        """

    def wait_ready(self, seconds: float) -> bool:
        """
        Tell whether it has begun, within so many seconds.

        Raises:
            LifespanError: it never will.
        """

    def recall(self) -> None:
        """
        Have come back what was handed over and has not begun; nothing is from now on.
        """

    def recall_held(self) -> None:
        """
        Have come back what is held by now and has not begun. Any thread.
        """

    def stop(self, seconds: float = END_SECONDS) -> None:
        """
        End within so many seconds, without waiting for handlers that do not.
        """


@frozen(kw_only=True)
class Calls:
    """
    What is called, and how.

    Attributes:
        deadline: when running handlers are no longer waited for; None while nobody is.
        timeout: seconds that a handler may take; None for no limit.
        lifespan: makes what is entered before the first call.
        start_seconds: how long a process may take until it is ready.
        trace: makes spans of the calls; None for nobody.
    """

    handle: Handler
    is_batch: bool
    seconds: float
    deadline: Callable[[], float | None]
    emit: Callable[..., None]
    timeout: float | None = None
    lifespan: MakeLifespan | None = None
    start_seconds: float = START_SECONDS
    trace: "Tracer | None" = None

    def around(self, handle: Handler) -> Handler:
        """
        Return the handler, to be called in this process: with a span if there are any.
        """
        return handle if self.trace is None else self.trace.around(handle)

    @property
    def overdue(self) -> float | None:
        """
        After how many seconds a handler has outlived the end of its time.
        """
        return None if self.timeout is None else self.timeout + _GRACE


def end_slot(slot: Slot, schedule: Schedule, error: BaseException) -> None:
    """
    Note that nothing runs there any more, and have the worker stop for it.
    """
    slot.task, slot.ended = None, error
    wrong = HandlersFailError(f"{slot.name} has ended: {shown(error)}")
    wrong.__cause__ = error
    schedule.fail(wrong)
