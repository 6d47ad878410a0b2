"""
Ends a process that a handler has forked as soon as the handler's call ends.

Of the worker's threads a forked child has only the one that forked, and it has a copy
of the queue. In a plain loop ``sys.exit()`` ends such a child. In a worker, the
exception would count as a failure of the record, and the child would continue with
records that its parent handles, too. Therefore the child exits as soon as the
application's code returns or raises, before the worker processes the result or error.
The child reports no result, and writes no span and no journal entry.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from attrs import frozen

from safeconsumer._kafka.fork import run_in_child
from safeconsumer.errors.kafka_python import ForkedConsumerError
from safeconsumer.worker.handlers import is_async

# The id of this process, kept because os.getpid() would cost a system call per record.
_process = [os.getpid()]


def _note_child() -> None:
    _process[0] = os.getpid()


run_in_child(_note_child)


def process() -> int:
    """Return the id of this process, without a system call."""
    return _process[0]


def exiting_in_child(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """
    Wrap a function so that a process that is forked in a call exits when the call ends.

    The child exits with the status of its ``SystemExit``, or with 1 and a traceback on
    stderr. The child runs no exit handlers.

    The function may be a coroutine function. If the child awaits, its copy of the event
    loop continues to run. No new call starts in that copy, but calls that had started
    before the fork continue.
    """
    block = _ParentsOnly(_process[0])

    def called(given: Any, about: Any) -> Any:  # noqa: ANN401 - as the call takes it
        with block:
            return call(given, about)

    async def called_async(given: Any, about: Any) -> Any:  # noqa: ANN401 - likewise
        with block:
            return await call(given, about)

    return called_async if is_async(call) else called


@frozen
class _ParentsOnly:
    """A context manager that ends a forked child of this process on entry or exit."""

    parent: int

    def __enter__(self) -> None:
        if _process[0] != self.parent:
            leave(_returned_error())

    def __exit__(self, _kind: object, error: BaseException | None, _: object) -> None:
        if _process[0] != self.parent:
            leave(_returned_error() if error is None else error)


def leave(error: BaseException) -> NoReturn:
    """Exit this process as after an uncaught exception."""
    status = 1
    try:
        status = _exit_status(error)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(status)


def _exit_status(error: BaseException) -> int:
    # Returns the exit status, and prints the exception as Python does.
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)  # noqa: T201 - as Python does
    return 1


def _returned_error() -> ForkedConsumerError:
    return ForkedConsumerError(
        "a process that a handler forked returned from the handler, but a worker "
        "continues only in the parent: let the child exit by os._exit() or sys.exit()"
    )
