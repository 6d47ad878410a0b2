"""
What every executor is: places where handlers run, and what is called there.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import frozen

from safeconsumer.worker.handlers import Handler, HandlersFailError, Slot
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tracebacks import shown


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
        Begin.
        """

    def stop(self) -> None:
        """
        End soon, without waiting for handlers that do not.
        """


@frozen(kw_only=True)
class Calls:
    """
    What is called, and how.

    Attributes:
        deadline: when running handlers are no longer waited for; None while nobody is.
    """

    handle: Handler
    is_batch: bool
    seconds: float
    deadline: Callable[[], float | None]
    emit: Callable[..., None]


def end_slot(slot: Slot, schedule: Schedule, error: BaseException) -> None:
    """
    Note that nothing runs there any more, and have the worker stop for it.
    """
    slot.task, slot.ended = None, error
    wrong = HandlersFailError(f"{slot.name} has ended: {shown(error)}")
    wrong.__cause__ = error
    schedule.fail(wrong)
