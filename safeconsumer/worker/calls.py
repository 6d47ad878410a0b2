"""Calls handlers with the records of a task, and says what came of it."""

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, NoReturn, TypeAlias

from attrs import define, field

from safeconsumer.errors.base import HandlerCancelledError, HandlersCannotRunError
from safeconsumer.worker.groups import meant
from safeconsumer.worker.handlers import (
    BatchFailure,
    Context,
    Handler,
    Reject,
    WorkerControl,
)
from safeconsumer.worker.tasks import Indexes, Outcome, Task
from safeconsumer.worker.tracebacks import shown

StackOf: TypeAlias = Callable[[], str | None]
Block: TypeAlias = Callable[[Any, Context], AbstractContextManager[object]]
"""Makes the block around a call of a handler with these records and this context."""
Errors: TypeAlias = Sequence[tuple[int, BaseException]]


@define(eq=False)
class Slot:
    """
    One place where a handler runs, with its current work.

    Attributes:
        task: the task it works on; None while it waits.
        index: the index of its current record.
        began: when it began with that record, in seconds on the monotonic clock.
        stack: returns the handler's stack as text; None if it is not known.
        told: the task and index whose stall has been reported.
        name: its name, as text for people.
        limit: seconds after which its handler is reported, if that is earlier than
            ``Limits.age``.
        ended: why it runs nothing any more; None while it does.
    """

    name: str = ""
    limit: float | None = None
    ended: BaseException | None = None
    task: Task | None = None
    index: int = 0
    began: float = 0.0
    stack: StackOf = field(default=lambda: None)
    told: tuple[Task, int] | None = None


def context_of(
    task: Task,
    deadline: Callable[[], float | None],
    state: Any = None,  # noqa: ANN401 - the user's own
) -> Context:
    """Make the context for a task's calls."""
    epoch = task.epoch
    return Context(epoch.tp, task.attempt, epoch.revoked, deadline, state, epoch.number)


def surrounded(handle: Handler, block: Block) -> Handler:
    """Return the handler, of either kind, with a block around each of its calls."""

    def call(given: Any, context: Context) -> None:  # noqa: ANN401 - records
        with block(given, context):
            refuse_undone(handle(given, context))

    async def call_async(given: Any, context: Context) -> None:  # noqa: ANN401 - records
        with block(given, context):
            refuse_undone(await handle(given, context))

    return call_async if is_async(handle) else call


def call_each(
    handle: Handler, task: Task, slot: Slot, context: Context, seconds: float
) -> Outcome:
    """Call the handler record by record, for about so many seconds."""
    records, indexes = task.records, task.indexes
    clock, epoch = time.monotonic, task.epoch
    began = now = clock()
    until = began + seconds
    # What a handler binds in it ends with its record.
    apart = contextvars.copy_context().copy
    # The task is set last: another thread that looks for stalls reads it first.
    slot.index, slot.began, slot.task = indexes[0], now, task
    failed: Errors = ()
    count, failing = 0, 0.0
    try:
        for index in indexes:
            slot.index = index
            slot.began = now
            if epoch.is_held:  # checked after this record was noted as begun
                count = indexes.index(index)
                break
            answer = apart().run(handle, records[index], context)
            if answer is not None:
                refuse_undone(answer)
            records[index] = None
            now = clock()
            if now > until:
                count = indexes.index(index) + 1
                break
        else:
            count = len(indexes)
    except BaseException as error:  # noqa: BLE001 - any error is this record's
        # It is counted, as an exception from outside may come between two records.
        count = task.done()
        failed = [(index, blamed(error)) for index in indexes[count : count + 1]]
        before, now = now, clock()
        failing = now - before
    finally:
        slot.task = None
    return Outcome(
        task=task,
        finished=indexes[:count],
        failed=failed,
        left=indexes[count + len(failed) :],
        seconds=now - began,
        failing=failing,
    )


def call_batch(handle: Handler, task: Task, slot: Slot, context: Context) -> Outcome:
    """Call the handler with all records at once."""
    slot.index, slot.began, slot.task = task.indexes[0], time.monotonic(), task
    records = [*task.records]
    try:
        if task.epoch.is_held:
            return Outcome(task=task, left=task.indexes)
        refuse_undone(contextvars.copy_context().run(handle, records, context))
    except BaseException as error:  # noqa: BLE001 - any error is this batch's
        seconds = time.monotonic() - slot.began
        return batch_failed(task, blamed(error), seconds)
    finally:
        slot.task = None
    return all_done(task, time.monotonic() - slot.began)


def blamed(error: BaseException) -> BaseException:
    """
    Return the exception that a record's call counts as having raised.

    A ``CancelledError`` is not an ``Exception``, and would end the worker. So would a
    group with one in it.
    """
    error = meant(error)
    is_group = isinstance(error, BaseExceptionGroup) and not isinstance(
        error, Exception
    )
    if not is_group and not isinstance(error, asyncio.CancelledError):
        return error
    wrong = HandlerCancelledError("the handler was cancelled, but not by its worker")
    wrong.__cause__ = error
    return wrong


def refuse_undone(answer: object) -> None:
    """
    Refuse what a handler or dead-letter sink returns if it shows that nothing is done.

    Raises:
        HandlersCannotRunError: it is a coroutine, a generator, or another awaitable or
            future, which nothing awaits, so nothing was done. Or it is an exception.
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


def is_async(function: object) -> bool:
    """Tell whether calling it makes a coroutine; an object's ``__call__`` counts too."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object's own method
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def is_generator(function: object) -> bool:
    """Tell whether calling it makes a generator, of either kind."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object's own method
    kinds = inspect.isgeneratorfunction, inspect.isasyncgenfunction
    return any(is_kind(one) for is_kind in kinds for one in (function, call))


def all_done(task: Task, seconds: float) -> Outcome:
    """Mark all records complete."""
    for index in task.indexes:
        task.finish(index)
    return Outcome(task=task, finished=task.indexes, seconds=seconds)


def _is_of_one(error: BaseException) -> bool:
    # Tells whether the error is about one record of the batch, and not which.
    if not isinstance(error, Exception):
        return False
    is_control = isinstance(error, (WorkerControl, HandlersCannotRunError))
    return isinstance(error, Reject) or not is_control


def broken(task: Task, error: BaseException) -> Outcome:
    """Report that our own part of a call broke; records that are marked complete are."""
    left = [index for index in task.indexes if task.records[index] is not None]
    finished = [index for index in task.indexes if task.records[index] is None]
    message = f"what calls the handler broke: {shown(error)}"
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
    """Work out what an exception means for a batch's records; None: for all of them."""
    indexes = task.indexes if indexes is None else indexes
    if isinstance(error, BatchFailure):
        return _partly_failed(task, error, seconds, indexes)
    is_suspect = bool(indexes[1:]) and _is_of_one(error)
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
    errors = getattr(error, "errors", None)  # it may have lost them in pickling
    wrong = misfit(errors, len(indexes))
    if wrong is not None:  # none of its entries is used
        wrong.__cause__ = error
        return batch_failed(task, wrong, seconds, indexes)
    bad = {indexes[at]: one for at, one in error.errors.items()}
    good = [indexes[at] for at in spared(error, len(indexes))]
    for index in good:
        task.finish(index)
    failed = [(index, blamed(bad[index])) for index in indexes if index in bad]
    return Outcome(
        task=task,
        finished=good,
        failed=failed,
        seconds=seconds,
        failing=seconds * len(failed) / len(indexes),
    )


def spared(error: BaseException | None, size: int) -> Indexes:
    """Return which of so many records are done, by their places, after a call of all."""
    if error is None:
        return range(size)
    error = meant(error)
    errors = getattr(error, "errors", None)
    if not isinstance(error, BatchFailure) or misfit(errors, size) is not None:
        return ()
    return [at for at in range(size) if at not in error.errors]


def misfit(errors: object, size: int) -> Exception | None:
    """Return why a ``BatchFailure`` cannot be about a batch of this size; None if it can."""
    if not isinstance(errors, dict) or not errors:
        return TypeError(f"BatchFailure names no record: {shown(errors)}")
    for at, one in errors.items():
        if type(at) is not int or not 0 <= at < size:
            message = f"BatchFailure names record {shown(at)} of {size}"
            return IndexError(message)
        if not isinstance(one, BaseException):
            return TypeError(f"BatchFailure has {shown(one)}, not an exception")
    return None
