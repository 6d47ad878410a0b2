"""Defines the arguments of handlers and sinks, and the exceptions they may raise."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

from attrs import define, frozen
from kafka.structs import TopicPartition

from safeconsumer._checks import is_number
from safeconsumer.errors.base import HoldSettingError, WorkerSettingError
from safeconsumer.holds.hold import checked_duration, checked_reason
from safeconsumer.holds.scope import partition_text
from safeconsumer.worker.records import AnyRecord
from safeconsumer.worker.revocation import Revocation
from safeconsumer.worker.tracebacks import shown


class WorkerControl(Exception):  # noqa: N818 - control, not errors
    """
    Parent of the exceptions by which a handler steers its worker.

    They keep their meaning in an ExceptionGroup, as ``asyncio.TaskGroup`` raises it. Of
    several, :class:`StopWorker` counts before :class:`Pause`, :class:`RetryLater` and
    :class:`Reject`, and each of these before a failure; of pauses the widest and then
    the longest counts, of delays the longest.
    """


class RetryLater(WorkerControl):
    """
    Makes the worker try the record again after some seconds; uses up no attempt.

    Args:
        after: the shortest wait, in seconds or as a timedelta.
    """

    def __init__(self, after: float | timedelta) -> None:
        if isinstance(after, timedelta):
            after = after.total_seconds()
        if not is_number(after) or after < 0:
            message = f"after must be seconds, 0 or more, not {after!r}"
            raise WorkerSettingError(message)
        super().__init__(after)
        self.after = float(after)


PauseScope: TypeAlias = Literal["key", "partition", "topic", "all"]


class Pause(WorkerControl):
    """
    Makes the worker begin no record of a scope for a while, and then try again.

    The record comes first afterwards, and uses up no attempt. For a partition, a topic
    or ``all``, the worker places a hold of this consumer, with the owner
    ``worker:outage`` and an expiry: ``holds()`` and ``explain()`` show it,
    ``resume(..., owner="worker:outage")`` lifts it early, and it survives rebalances. A
    later pause never shortens it::

        def handle(record, context):
            try:
                charge(record)
            except ServiceUnavailable as error:
                raise Pause(for_=300, reason="the bank is down") from error

    Args:
        for_: the length of the pause, in seconds or as a timedelta.
        scope: ``topic``, or ``partition``: the record's; ``all``: everything this
            consumer has; ``key``: the records that the order puts behind this one; this
            pause is not a hold, so it cannot be lifted.
        reason: text for people, up to 1,024 bytes.

    Raises:
        HoldSettingError: a value is impossible; in a handler this is a failure of its
            record.
    """

    _held_for = 0.0  # seconds, by another pause of this scope
    _is_for_error = False  # for an error that has lost its cause, as one from a process

    def __init__(
        self,
        for_: float | timedelta,
        scope: PauseScope = "topic",
        reason: str | None = None,
    ) -> None:
        seconds = checked_duration(for_)
        if seconds is None:
            message = "a pause needs an end: for_ must be a number of seconds"
            raise HoldSettingError(message)
        if scope not in get_args(PauseScope):
            message = f"scope is one of {get_args(PauseScope)}, not {scope!r:.60}"
            raise HoldSettingError(message)
        reason = checked_reason(reason)
        super().__init__(seconds, scope, reason)  # pickling needs the arguments
        self.for_ = seconds
        self.scope: PauseScope = scope
        self.reason = reason


def is_for_error(pause: Pause) -> bool:
    """Return whether a pause was raised from an error, or while one was handled."""
    behind = pause.__cause__
    if not pause.__suppress_context__:
        behind = pause.__context__
    return pause._is_for_error or behind is not None  # noqa: SLF001 - ours


class Reject(WorkerControl):
    """
    Reports that the record has failed for good, without another attempt.

    For a whole batch it does not name the record: as after any other error, the records
    are delivered again one by one. :class:`BatchFailure` names records.

    Args:
        reason: text for people; it is written into the dead letter.
    """

    def __init__(self, reason: str = "rejected") -> None:
        super().__init__(reason)
        self.reason = reason


class DeserializationError(Reject):
    """
    A key or value cannot be deserialized; like a rejected record it is not tried again.

    Its cause is the deserializer's exception. If the exception is not about the data,
    such as a ``ConnectionError``, the record is tried again as after a handler's error.
    """

    __module__ = "safeconsumer.errors"  # the module from which users import it


class StopWorker(WorkerControl):
    """Stops the worker; this record is not complete, and is repeated after a restart."""


class BatchFailure(WorkerControl):
    """
    Reports that some records of a batch failed; the others are done.

    An index beyond the batch makes the whole batch fail, with an ``IndexError``.

    Args:
        errors: the exception of each failed record, by its index in the batch; these
            may also be :class:`RetryLater`, :class:`Pause`, :class:`Reject` and
            :class:`StopWorker`. If it is empty, all records are done.

    Raises:
        TypeError: it is no mapping of whole numbers to exceptions.
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        if not are_errors(errors):
            message = (
                f"BatchFailure takes the exception of each failed record by its index, "
                f"as {{2: error}}, not {shown(errors)}"
            )
            raise TypeError(message)
        super().__init__(dict(errors))
        self.errors = dict(errors)


def are_errors(errors: object) -> bool:
    """Return whether an object is a mapping of indexes to exceptions."""
    return isinstance(errors, Mapping) and all(
        type(at) is int and isinstance(one, BaseException) for at, one in errors.items()
    )


@define(eq=False, repr=False)
class Context:
    """
    Describes a call of a handler; all calls of one hand-over share it.

    Attributes:
        partition: the partition of the records.
        attempt: the number of this attempt, from 1. A delay or a pause that a handler
            asked for, an outage that a breaker knows, and an error of a whole batch are
            not counted.
        revoked: an event, set once the partition is being taken away, or a seek or a
            reset has moved its position: records done from then on may be handled
            again. A thread asks ``is_set()`` or waits by ``wait(timeout)``; a coroutine
            does ``await context.revoked``. It is never set in the process executor.
        state: the value of the worker's ``lifespan`` here; None without one.
    """

    partition: TopicPartition
    attempt: int
    revoked: Revocation
    _deadline: Callable[[], float | None]
    state: Any = None
    _ownership: int = 0  # the ownership's number, for the journal

    @property
    def deadline(self) -> float | None:
        """
        When the wait for running handlers ends, as a ``time.monotonic()`` value.

        It is None while the worker is not draining, and always in another process.
        """
        return self._deadline()

    def __repr__(self) -> str:
        return f"Context({partition_text(*self.partition)}, attempt={self.attempt})"


@frozen(kw_only=True)
class Failure:
    """
    The reason why a record is a dead letter; passed to the callable for dead letters.

    Attributes:
        error: the last exception of the handler; its traceback may have no local
            variables any more, and of more than 100 calls it has the first and the last
            50.
        attempts: the number of attempts, as ``Context.attempt`` counts them.
        is_brief: whether the letter was too large before: write a shorter one.
    """

    error: BaseException
    attempts: int
    is_brief: bool = False


Handler: TypeAlias = Callable[..., Any]

Handle: TypeAlias = Callable[[AnyRecord, Context], object]
"""
A handler: it takes a record and a context.
"""

HandleBatch: TypeAlias = Callable[[list[AnyRecord], Context], object]
"""
A batch handler: it takes the records of a batch and a context.
"""


MakeLifespan: TypeAlias = Callable[
    [], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
]
"""Makes a context manager; with ``executor="asyncio"`` it may be an async one."""


def is_async(function: object) -> bool:
    """Return whether calling it makes a coroutine; an object's ``__call__`` counts too."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object's own method
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def is_generator(function: object) -> bool:
    """Return whether calling it makes a generator, of either kind."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object's own method
    kinds = inspect.isgeneratorfunction, inspect.isasyncgenfunction
    return any(is_kind(one) for is_kind in kinds for one in (function, call))
