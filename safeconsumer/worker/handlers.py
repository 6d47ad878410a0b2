"""Defines the arguments of handlers and sinks, and the exceptions that they may raise."""

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
    Base class of the exceptions with which a handler controls its worker.

    These exceptions keep their meaning in an ExceptionGroup, such as one that
    ``asyncio.TaskGroup`` raises. Of several exceptions in a group, :class:`StopWorker`
    takes precedence over :class:`Pause`, then :class:`RetryLater`, then
    :class:`Reject`, and each of these over a failure. Of several pauses, the one with
    the widest scope applies, and the longest of these; of several delays, the longest
    applies.
    """


class RetryLater(WorkerControl):
    """
    Makes the worker try the record again after a delay; does not count as an attempt.

    Args:
        after: the minimum delay, in seconds or as a timedelta.
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
    Makes the worker hold back a scope's records for a while, and then try again.

    After the pause the record is handled first; the call that raised the pause does not
    count as an attempt. For a partition, a topic or ``all``, the worker places a hold
    in this consumer, with the owner ``worker:outage`` and an expiry. ``holds()`` and
    ``explain()`` show the hold, which survives rebalances, and ``resume(...,
    owner="worker:outage")`` lifts it early. A later pause never shortens the hold::

        def handle(record, context):
            try:
                charge(record)
            except ServiceUnavailable as error:
                raise Pause(for_=300, reason="the bank is down") from error

    Args:
        for_: the length of the pause, in seconds or as a timedelta.
        scope: ``topic`` or ``partition`` for the topic or partition of the record;
            ``all`` for everything that this consumer consumes; ``key`` for the records
            that must be handled after this record. A pause with the scope ``key`` is
            not a hold, so it cannot be lifted.
        reason: text for people, up to 1,024 bytes.

    Raises:
        HoldSettingError: a value is invalid. In a handler, this error is a failure of
            the record.
    """

    _held_for = 0.0  # seconds for which another pause holds this scope
    _is_for_error = False  # pickling a pause removes its cause

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
        super().__init__(seconds, scope, reason)  # unpickling passes these arguments
        self.for_ = seconds
        self.scope: PauseScope = scope
        self.reason = reason


def is_for_error(pause: Pause) -> bool:
    """Return whether a pause was raised from an error, or while an error was handled."""
    behind = pause.__cause__
    if not pause.__suppress_context__:
        behind = pause.__context__
    return pause._is_for_error or behind is not None  # noqa: SLF001 - ours


class Reject(WorkerControl):
    """
    Reports that a record has failed for good and must not be tried again.

    If it is raised for a whole batch, it does not name the bad record, so the records
    are delivered again one by one, as after any other error. Use :class:`BatchFailure`
    to name records.

    Args:
        reason: text for people, which is written into the dead letter.
    """

    def __init__(self, reason: str = "rejected") -> None:
        super().__init__(reason)
        self.reason = reason


class DeserializationError(Reject):
    """
    A key or value cannot be deserialized; the record is not retried, as if rejected.

    The cause of this error is the deserializer's exception. If that exception is not
    about the data, such as a ``ConnectionError``, the record is tried again as after a
    handler's error.
    """

    __module__ = "safeconsumer.errors"  # users import the class from this module


class StopWorker(WorkerControl):
    """Stops the worker; the record stays incomplete, and is repeated after a restart."""


class BatchFailure(WorkerControl):
    """
    Reports that some records of a batch failed, and that its other records are done.

    If an index is out of range, the whole batch fails with an ``IndexError``.

    Args:
        errors: the exception for each failed record, by the record's index in the
            batch. :class:`RetryLater`, :class:`Pause`, :class:`Reject` and
            :class:`StopWorker` are allowed, too. If the mapping is empty, all records
            are done.

    Raises:
        TypeError: ``errors`` is not a mapping of whole numbers to exceptions.
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
    Describes a handler's call; records that are handed over together share a context.

    Attributes:
        partition: the partition of the records.
        attempt: the number of this attempt, from 1. An attempt is not counted if it
            ended with a requested delay or pause, with an outage that a breaker has
            detected, or with an error of a whole batch.
        revoked: an event that is set when the partition is being taken away, or when a
            seek or a reset has moved its position. Records that are completed after
            that may be handled again. A thread calls ``is_set()`` or ``wait(timeout)``,
            and a coroutine uses ``await context.revoked``. The event is never set in
            the process executor.
        state: the value of the worker's ``lifespan`` in this thread or process; None if
            there is no lifespan.
    """

    partition: TopicPartition
    attempt: int
    revoked: Revocation
    _deadline: Callable[[], float | None]
    state: Any = None
    _ownership: int = 0  # the number of the ownership, for the journal

    @property
    def deadline(self) -> float | None:
        """
        The time at which the wait for running handlers ends, on ``time.monotonic()``.

        The value is None while the worker is not draining, and always in another
        process.
        """
        return self._deadline()

    def __repr__(self) -> str:
        return f"Context({partition_text(*self.partition)}, attempt={self.attempt})"


@frozen(kw_only=True)
class Failure:
    """
    Why a record becomes a dead letter; passed to the ``dead_letter`` callable.

    Attributes:
        error: the last exception of the handler. Its traceback may have lost the local
            variables, and keeps only the first and the last 50 calls if there were more
            than 100.
        attempts: the number of attempts, counted like ``Context.attempt``.
        is_brief: whether an earlier letter was too large, so that this one must be
            shorter.
    """

    error: BaseException
    attempts: int
    is_brief: bool = False


Handler: TypeAlias = Callable[..., Any]

Handle: TypeAlias = Callable[[AnyRecord, Context], object]
"""
A handler is called with a record and a context.
"""

HandleBatch: TypeAlias = Callable[[list[AnyRecord], Context], object]
"""
A batch handler is called with the records of a batch and a context.
"""


MakeLifespan: TypeAlias = Callable[
    [], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
]
"""Makes a context manager, which may be async with ``executor="asyncio"``."""


def is_async(function: object) -> bool:
    """Return whether a call returns a coroutine; an object's ``__call__`` counts, too."""
    call = getattr(function, "__call__", None)  # noqa: B004 - the object's own method
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def is_generator(function: object) -> bool:
    """Return whether a call returns a generator, sync or async."""
    call = getattr(function, "__call__", None)  # noqa: B004 - the object's own method
    kinds = inspect.isgeneratorfunction, inspect.isasyncgenfunction
    return any(is_kind(one) for is_kind in kinds for one in (function, call))
