"""
Finds the decisive exception in an ExceptionGroup that a handler raised.

``asyncio.TaskGroup`` and anyio raise a group even for a single error. A control
exception means the same in a group as alone. If a group has several exceptions, only
one of them is used. It is chosen by the first of these rules that applies:

1. An exception that is not an ``Exception``, such as ``SystemExit``; after these a
   :class:`HandlersCannotRunError`.
2. :class:`StopWorker`.
3. :class:`Pause`; of several pauses the one with the widest scope, then the longest.
4. :class:`RetryLater`; of several delays the longest.
5. :class:`Reject`.

A :class:`BatchFailure` is used only if the group has no other error; otherwise it is
not known which records are done. Any other group is a failure.
"""

import asyncio

from safeconsumer._checks import is_number
from safeconsumer.errors.base import HandlersCannotRunError
from safeconsumer.worker.handlers import (
    BatchFailure,
    Pause,
    Reject,
    RetryLater,
    StopWorker,
)

Kinds = type[BaseException] | tuple[type[BaseException], ...]
_SCOPES = ("key", "partition", "topic", "all")  # from narrow to wide


def deciding_error(error: BaseException) -> BaseException:
    """Return the decisive exception of a group, or the group itself if it is a failure."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = leaves(error)
    first = max(found, key=_rank)
    is_of_batch = isinstance(first, BatchFailure) and len(found) == 1
    return first if is_of_batch or _rank(first) > _FAILURE else error


def is_all(error: BaseException, kinds: Kinds) -> bool:
    """Return whether an error, or every error in a group, is of one of these classes."""
    return isinstance(error, kinds) or (
        isinstance(error, BaseExceptionGroup)
        and all(isinstance(one, kinds) for one in leaves(error))
    )


def leaves(group: BaseException) -> list[BaseException]:
    """Return the exceptions in a group and in its nested groups."""
    found, left = [], [group]
    while left:
        one = left.pop()
        if isinstance(one, BaseExceptionGroup):
            left += reversed(one.exceptions)
        else:
            found.append(one)
    return found


_FAILURE = (0, 0.0, 0.0)


def _rank(error: BaseException) -> tuple[int, float, float]:
    # This function must not raise, whatever the fields of a control exception contain.
    # Pickling may even have removed the fields.
    number, width, seconds = 0, 0.0, 0.0
    match error:
        case StopWorker():
            number = 4
        case Pause():
            scope = getattr(error, "scope", None)
            width = _SCOPES.index(scope) if scope in _SCOPES else -1
            number, seconds = 3, _seconds(getattr(error, "for_", None))
        case RetryLater():
            number, seconds = 2, _seconds(getattr(error, "after", None))
        case Reject():
            number = 1
        case HandlersCannotRunError():
            number = 5
        # a cancellation, which is not an Exception, counts as a failure
        case Exception() | asyncio.CancelledError():
            number = 0
        case _:
            number = 6
    return number, width, seconds


def _seconds(value: object) -> float:
    return float(value) if is_number(value) else -1.0  # type: ignore[arg-type]  # checked
