"""Defines what all executors have in common: slots for handlers, and the calls there."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from safeconsumer.errors.base import HandlersCannotRunError
from safeconsumer.worker.calls import Slot, surrounded
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors.lifespan import MakeLifespan
from safeconsumer.worker.handlers import Handler
from safeconsumer.worker.journal import HandlerJournal
from safeconsumer.worker.tracebacks import shown

if TYPE_CHECKING:
    from safeconsumer.worker.tracing import Tracer

# Seconds for ending a handler at its limit, before its stall is reported.
_GRACE = 1.0
# Seconds, at least, for a process to import its modules and enter the lifespan.
START_SECONDS = 60.0
# Seconds of one wait, whatever the settings are: for a pipe or a process the system
# counts milliseconds in 31 bits.
LONGEST = 86_400.0
# Seconds to end in, where no other time is given.
END_SECONDS = 1.0


class Runner(Protocol):
    """Runs handlers on what a queue hands out."""

    @property
    def slots(self) -> Sequence[Slot]:
        """The slots in which handlers run."""

    def start(self) -> None:
        """Begin; does not wait until it has begun."""

    def wait_ready(self, seconds: float) -> bool:
        """
        Tell whether it has begun within so many seconds.

        Raises:
            LifespanError: the lifespan could not be entered, so it never will.
        """

    def recall(self) -> None:
        """Return everything handed over that has not begun; nothing begins from now on."""

    def stop(self, seconds: float = END_SECONDS) -> None:
        """End within so many seconds; handlers that take longer are not waited for."""


@frozen(kw_only=True)
class Calls:
    """
    The handler, and how it is called.

    Attributes:
        deadline: when running handlers are no longer waited for; None: not draining.
        timeout: seconds that a handler may take; None for no limit.
        lifespan: makes the context manager that is entered before the first call.
        start_seconds: seconds that a process may take until it is ready.
        trace: makes spans of the calls; None: no spans.
        journal: writes when calls begin and end; None if no journal is kept.
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
    journal: HandlerJournal | None = None

    def around(self, handle: Handler) -> Handler:
        """Return the handler to be called in this process, with its spans and entries."""
        for one in (self.trace, self.journal):
            if one is not None:
                handle = surrounded(handle, one.block)
        return handle

    @property
    def overdue(self) -> float | None:
        """After how many seconds a handler has outlived its time limit."""
        return None if self.timeout is None else self.timeout + _GRACE


def end_slot(slot: Slot, decisions: Decisions, error: BaseException) -> None:
    """Note that a slot runs nothing any more, and stop the worker for that reason."""
    slot.task, slot.ended = None, error
    wrong = HandlersCannotRunError(f"{slot.name} has ended: {shown(error)}")
    wrong.__cause__ = error
    decisions.fail(wrong)
