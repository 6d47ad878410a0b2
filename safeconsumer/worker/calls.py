"""Calls handlers with the records of a task, and returns the outcome."""

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol, TypeAlias

from attrs import define, field, frozen

from safeconsumer.errors.base import (
    HandlerCancelledError,
    HandlersCannotRunError,
    HandlerTimeoutError,
)
from safeconsumer.worker import forks
from safeconsumer.worker.groups import deciding_error
from safeconsumer.worker.handlers import (
    BatchFailure,
    Context,
    Handler,
    MakeLifespan,
    Reject,
    WorkerControl,
    are_errors,
    is_async,
)
from safeconsumer.worker.partition import Indexes, Outcome, Task
from safeconsumer.worker.tracebacks import shorten_tracebacks, shown

# Seconds from a handler's time limit to the report that it stalled. In this time the
# executor may end the handler.
_GRACE = 1.0
# The minimum time, in seconds, for a process to import its modules and enter the lifespan.
START_SECONDS = 60.0
# The longest wait in seconds, whatever the settings are, because a wait for a pipe or a
# process takes its timeout in milliseconds, as a signed 32-bit integer.
LONGEST = 86_400.0
# Seconds that stopping an executor may take by default.
END_SECONDS = 1.0

StackOf: TypeAlias = Callable[[], str | None]
Block: TypeAlias = Callable[[Any, Context], AbstractContextManager[Any]]
"""
Makes the block around a call of the handler; the block lends the handler the records.
"""


class MakesBlocks(Protocol):
    """Makes a context manager around each handler call, as the handler journal does."""

    def block(self, given: Any, context: Context) -> AbstractContextManager[Any]:  # noqa: ANN401 - records
        """Return the context manager that wraps a call with these records."""


class MakesSpans(MakesBlocks, Protocol):
    """Makes the tracing span around each call of a handler."""

    def carrier(self) -> dict[str, str]:
        """Return the context of the current span, to be sent to another process."""


Errors: TypeAlias = Sequence[tuple[int, BaseException]]


@define(eq=False)
class Slot:
    """
    A slot in which one handler runs at a time, with its current work.

    Attributes:
        task: the current task; None while the slot waits.
        index: the index of the current record.
        began: the time at which work on that record began, in seconds on the monotonic
            clock.
        stack: returns the handler's stack as text, or None if the stack is not known.
        reported: the task and index of the last reported stall.
        name: the name of the slot, as text for people.
        doing: what the slot is doing, as text for people.
        limit: seconds after which a handler is reported as stalled, if that is less
            than ``Limits.age``.
        ended: the error that has ended the slot; None while it runs handlers.
    """

    name: str = ""
    limit: float | None = None
    ended: BaseException | None = None
    task: Task | None = None
    index: int = 0
    began: float = 0.0
    stack: StackOf = field(default=lambda: None)
    reported: tuple[Task, int] | None = None
    doing: str = "its handler has run"


def end_slot(
    slot: Slot, fail: Callable[[BaseException], None], error: BaseException
) -> None:
    """Mark a slot as ended, and pass ``fail`` an error that names the slot and the cause."""
    slot.task, slot.ended = None, error
    wrong = HandlersCannotRunError(f"{slot.name} has ended: {shown(error)}")
    wrong.__cause__ = error
    fail(wrong)


def context_of(
    task: Task,
    deadline: Callable[[], float | None],
    state: Any = None,  # noqa: ANN401 - the user's own
) -> Context:
    """Create the context that a task's calls pass to the handler."""
    epoch = task.epoch
    return Context(epoch.tp, task.attempt, epoch.revoked, deadline, state, epoch.number)


def with_block(handle: Handler, block: Block) -> Handler:
    """
    Return the handler, sync or async, with a context manager around each of its calls.

    The handler gets the records that the context manager yields, and is not called if
    it yields none. The result can be pickled if both ``handle`` and ``block`` can.
    """
    return (_WithBlockAsync if is_async(handle) else _WithBlock)(handle, block)


@frozen
class _WithBlock:
    handle: Handler
    block: Block

    def __call__(self, given: Any, context: Context) -> Any:  # noqa: ANN401 - records
        with self.block(given, context) as lent:
            if lent:
                refuse_unfinished(self.handle(lent, context))


@frozen
class _WithBlockAsync(_WithBlock):
    async def __call__(self, given: Any, context: Context) -> Any:  # noqa: ANN401 - records
        with self.block(given, context) as lent:
            if lent:
                refuse_unfinished(await self.handle(lent, context))


def with_time_limit(handle: Handler, limit: float) -> Handler:
    """Return a coroutine handler whose calls are cancelled after this many seconds."""

    async def call(given: Any, context: Context) -> object:  # noqa: ANN401 - records
        try:
            async with asyncio.timeout(limit) as over:
                return await handle(given, context)
        except TimeoutError as error:
            if not over.expired():  # the handler itself raised the TimeoutError
                raise
            message = f"the handler took longer than {limit:g} s, and was cancelled"
            raise HandlerTimeoutError(message) from error

    return call


@frozen(kw_only=True)
class Calls:
    """
    The handler, and the settings of its calls.

    Attributes:
        deadline: returns when the wait for running handlers ends, or None if the worker
            is not draining.
        timeout: seconds that a handler may take; None for no limit.
        lifespan: makes the context manager to enter before the first call.
        start_seconds: seconds that a process may take to become ready.
        trace: makes a span for each call; None for no spans.
    """

    handle: Handler
    deadline: Callable[[], float | None]
    emit: Callable[..., None]
    timeout: float | None = None
    lifespan: MakeLifespan | None = None
    start_seconds: float = START_SECONDS
    trace: MakesSpans | None = None

    def called(self, journal: MakesBlocks | None) -> Handler:
        """
        Return the function that an executor calls in this process.

        The function adds the time limit to a coroutine handler. It adds spans and
        journal entries to any handler, if the worker has a tracer or a journal.
        """
        handle = forks.exiting_in_child(self.handle)
        if self.timeout is not None and is_async(handle):
            handle = with_time_limit(handle, self.timeout)
        for one in (self.trace, journal):
            if one is not None:
                handle = with_block(handle, one.block)
        return handle

    @property
    def overdue(self) -> float | None:
        """The seconds after which the time limit should have ended a handler."""
        return None if self.timeout is None else self.timeout + _GRACE


def call_each(
    handle: Handler, task: Task, slot: Slot, context: Context, seconds: float
) -> Outcome:
    """Call the handler record by record, and stop after about the given number of seconds."""
    records, indexes = task.records, task.indexes
    clock, epoch = time.monotonic, task.epoch
    began = now = clock()
    until = began + seconds
    # A context variable that a handler sets is reset after its record.
    fresh_context = contextvars.copy_context().copy
    # The task is set last, because another thread that looks for stalls reads the task
    # first.
    slot.index, slot.began, slot.task = indexes[0], now, task
    count = 0
    try:
        for index in indexes:
            slot.index = index
            slot.began = now
            if epoch.is_held:  # checked only after the slot shows this record as begun
                count = indexes.index(index)
                break
            answer = fresh_context().run(handle, records[index], context)
            if answer is not None:
                refuse_unfinished(answer)
            records[index] = None
            now = clock()
            if now > until:
                count = indexes.index(index) + 1
                break
        else:
            count = len(indexes)
    except BaseException as error:  # noqa: BLE001 - any error is the record's failure
        # The task counts finished records correctly, wherever the error was raised.
        count = task.done()
        before, now = now, clock()
        # No variable keeps the error after the return. The traceback of the error
        # contains this frame, so the handler's variables would stay alive until the
        # next garbage collection.
        return Outcome(
            task=task,
            finished=indexes[:count],
            failed=[(index, failure_of(error)) for index in indexes[count : count + 1]],
            left=indexes[count + 1 :],
            seconds=now - began,
            failing=now - before,
        )
    finally:
        slot.task = None
    return Outcome(
        task=task,
        finished=indexes[:count],
        left=indexes[count:],
        seconds=now - began,
    )


def call_batch(handle: Handler, task: Task, slot: Slot, context: Context) -> Outcome:
    """Call the handler with all records at once."""
    slot.index, slot.began, slot.task = task.indexes[0], time.monotonic(), task
    records = [*task.records]
    try:
        if task.epoch.is_held:
            return Outcome(task=task, left=task.indexes)
        refuse_unfinished(contextvars.copy_context().run(handle, records, context))
    except BaseException as error:  # noqa: BLE001 - any error is the batch's failure
        seconds = time.monotonic() - slot.began
        return batch_failed(task, failure_of(error), seconds)
    finally:
        slot.task = None
    return all_done(task, time.monotonic() - slot.began)


def failure_of(error: BaseException) -> BaseException:
    """
    Return the exception that is recorded as the failure of a handler's call.

    A ``CancelledError`` is not an ``Exception`` and would stop the worker, so it is
    replaced, as is a group that contains one. The function also shortens the
    exception's tracebacks in place.
    """
    shorten_tracebacks(error)
    error = deciding_error(error)
    is_group = isinstance(error, BaseExceptionGroup) and not isinstance(
        error, Exception
    )
    if not is_group and not isinstance(error, asyncio.CancelledError):
        return error
    wrong = HandlerCancelledError("the handler was cancelled, but not by its worker")
    wrong.__cause__ = error
    return wrong


def refuse_unfinished(answer: object) -> None:
    """
    Refuse a handler's or sink's return value if it shows that work is unfinished.

    Raises:
        HandlersCannotRunError: the value is a coroutine, a generator, or another
            awaitable or future, and no code would wait for it; or it is an exception.
    """
    if answer is None:
        return
    if inspect.iscoroutine(answer):
        answer.close()
        _refuse(answer, "awaits")
    if inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        _refuse(answer, "iterates over")
    if inspect.isawaitable(answer):
        _refuse(answer, "awaits")
    if isinstance(answer, Future):
        _refuse(answer, "waits for")
    if isinstance(answer, BaseException) or (
        isinstance(answer, type) and issubclass(answer, BaseException)
    ):
        message = f"{shown(answer)} was returned, which has no effect: raise it"
        raise HandlersCannotRunError(message)


def _refuse(answer: object, does: str) -> NoReturn:
    message = (
        f"{shown(answer)} was returned, and nothing {does} it: a handler must do "
        f"its work before it returns; if it awaits anything it must be async def, "
        f"with executor='asyncio'; dead_letter must be a plain function"
    )
    raise HandlersCannotRunError(message)


def all_done(task: Task, seconds: float) -> Outcome:
    """Mark all records of a task complete, and return the outcome."""
    for index in task.indexes:
        task.finish(index)
    return Outcome(task=task, finished=task.indexes, seconds=seconds)


def _blames_one(error: BaseException) -> bool:
    # Returns whether a single record of the batch, which the error does not name, may
    # have caused the error.
    if not isinstance(error, Exception):
        return False
    is_control = isinstance(error, (WorkerControl, HandlersCannotRunError))
    return isinstance(error, Reject) or not is_control


def executor_failed(task: Task, error: BaseException) -> Outcome:
    """Return the outcome if the executor itself failed; complete records stay complete."""
    left = [index for index in task.indexes if task.records[index] is not None]
    finished = [index for index in task.indexes if task.records[index] is None]
    message = f"the code that calls the handler failed: {shown(error)}"
    wrong = HandlersCannotRunError(message)
    wrong.__cause__ = error
    return Outcome(
        task=task,
        finished=finished,
        failed=[(index, wrong) for index in left[:1]],
        left=left[1:],
    )


def batch_failed(
    task: Task,
    error: BaseException,
    seconds: float,
    indexes: Indexes | None = None,
) -> Outcome:
    """Return the outcome of an exception for the given records; None stands for all."""
    indexes = task.indexes if indexes is None else indexes
    if isinstance(error, BatchFailure):
        return _partly_failed(task, error, seconds, indexes)
    is_suspect = bool(indexes[1:]) and _blames_one(error)
    blamed_for = indexes if is_suspect else indexes[:1]
    return Outcome(
        task=task,
        failed=[(index, error) for index in blamed_for],
        left=indexes[len(blamed_for) :],
        seconds=seconds,
        failing=seconds,
        is_suspect=is_suspect,
    )


def _partly_failed(
    task: Task, error: BatchFailure, seconds: float, indexes: Indexes
) -> Outcome:
    errors = getattr(error, "errors", None)  # pickling may have removed the attribute
    wrong = index_mismatch(errors, len(indexes))
    if wrong is not None:  # the BatchFailure is ignored as a whole
        wrong.__cause__ = error
        return batch_failed(task, wrong, seconds, indexes)
    bad = {indexes[at]: one for at, one in error.errors.items()}
    good = [indexes[at] for at in done_places(error, len(indexes))]
    for index in good:
        task.finish(index)
    failed = [(index, failure_of(bad[index])) for index in indexes if index in bad]
    return Outcome(
        task=task,
        finished=good,
        failed=failed,
        seconds=seconds,
        failing=seconds * len(failed) / len(indexes),
    )


def done_places(error: BaseException | None, size: int) -> Indexes:
    """Return the indexes of the records that are done after a call with ``size`` records."""
    if error is None:
        return range(size)
    error = deciding_error(error)
    errors = getattr(error, "errors", None)
    if not isinstance(error, BatchFailure) or index_mismatch(errors, size) is not None:
        return ()
    return [at for at in range(size) if at not in error.errors]


def index_mismatch(errors: object, size: int) -> Exception | None:
    """Return an error if a ``BatchFailure`` does not fit a batch of this size, else None."""
    if not isinstance(errors, dict) or not are_errors(errors):
        return TypeError(f"BatchFailure has no mapping of exceptions: {shown(errors)}")
    for at in errors:
        if not 0 <= at < size:
            return IndexError(f"BatchFailure names record {shown(at)} of {size}")
    return None
