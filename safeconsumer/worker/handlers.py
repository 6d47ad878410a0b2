"""Defines what handlers get and may raise, and calls them with the records of a task."""

import asyncio
import contextvars
import inspect
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from attrs import evolve
from kafka.structs import TopicPartition

from safeconsumer._checks import is_number
from safeconsumer.errors import (
    HoldSettingError,
    SafeConsumerError,
    WorkerSettingError,
)
from safeconsumer.holds.hold import checked_duration, checked_reason
from safeconsumer.worker.partition import Indexes
from safeconsumer.worker.queue import Outcome, Task
from safeconsumer.worker.tracebacks import shown


class WorkerControl(Exception):  # noqa: N818 - control, not errors
    """Parent of the exceptions by which a handler steers its worker."""


class RetryLater(WorkerControl):
    """
    Tells the worker to try the record again after some seconds; uses up no attempt.

    Args:
        after: the least wait, in seconds or as a timedelta.
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
    Tells the worker to begin nothing of a scope for a while, and then try again.

    The record comes first afterwards, and uses up no attempt. For a partition, a topic
    or all, the worker places a hold of this consumer, with the owner ``worker:outage``
    and an expiry: ``holds()`` and ``explain()`` show it, ``resume(...,
    owner="worker:outage")`` lifts it early, and it survives rebalances. A later pause
    never shortens it::

        def handle(record, context):
            try:
                charge(record)
            except ServiceUnavailable as error:
                raise Pause(for_=300, reason="the bank is down") from error

    Args:
        for_: how long, in seconds or as a timedelta.
        scope: ``topic``, or ``partition``: the record's; ``all``: everything this
            consumer has; ``key``: the records that the order puts behind this one; that
            is no hold, so nobody can lift it.
        reason: text for people, up to 1,024 bytes.

    Raises:
        HoldSettingError: a value is impossible; in a handler this is a failure of its
            record.
    """

    _held_for = 0.0  # seconds, by another pause of this scope

    def __init__(
        self,
        for_: float | timedelta,
        scope: PauseScope = "topic",
        reason: str | None = None,
    ) -> None:
        seconds = checked_duration(for_)
        if seconds is None:
            message = "a pause ends by itself: for_ must be a number of seconds"
            raise HoldSettingError(message)
        if scope not in get_args(PauseScope):
            message = f"scope is one of {get_args(PauseScope)}, not {scope!r:.60}"
            raise HoldSettingError(message)
        reason = checked_reason(reason)
        super().__init__(seconds, scope, reason)  # the arguments for pickling
        self.for_ = seconds
        self.scope: PauseScope = scope
        self.reason = reason


class Reject(WorkerControl):
    """
    Tells the worker that the record has failed for good, without another attempt.

    Raised for a whole batch it does not say which record is meant: as after any other
    error, the records come again one by one. :class:`BatchFailure` names records.

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


class StopWorker(WorkerControl):
    """Stops the worker; this record is not complete and comes again after a restart."""


class BatchFailure(WorkerControl):
    """
    Reports that some records of a batch failed; the others are done.

    Args:
        errors: the exception of each failed record, by its index in the batch; these
            may also be :class:`RetryLater`, :class:`Pause`, :class:`Reject` and
            :class:`StopWorker`.
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(dict(errors))
        self.errors = dict(errors)


class RecordFailedError(SafeConsumerError):
    """
    A record failed for good and the worker stopped: nothing was committed past it.

    ``run()`` raises it; its cause is the handler's exception.
    """


class DeadLetterLimitError(SafeConsumerError):
    """
    Too many records failed for good: ``max_ratio`` or ``max_consecutive`` is exceeded.

    Nothing was committed past the record that exceeded it.
    """


class HandlersFailError(SafeConsumerError):
    """
    Handlers cannot be run at all, so the worker stops; no record has failed.

    A process does not start; a handler returned a coroutine that nothing awaits, or
    commits records that are not handled yet. ``run()`` raises it.
    """


class LifespanError(HandlersFailError):
    """
    The context manager of ``lifespan`` could not be entered or left; the worker stops.

    ``run()`` raises it; its cause is the original exception.
    """


class ProcessDiedError(SafeConsumerError):
    """A process of the process executor ended while it worked on this record."""


class HandlerTimeoutError(SafeConsumerError, TimeoutError):
    """A handler took longer than ``handler_timeout`` for this record, and was ended."""


class HandlerCancelledError(SafeConsumerError):
    """
    A handler was cancelled, but not by its worker; its cause shows where.

    It awaited a task that was cancelled, or its own task was.
    """


class Context:
    """
    Describes one call of a handler; shared by all calls of one hand-over.

    Attributes:
        partition: the partition of the records.
        attempt: the number of this attempt, from 1. A delay or a pause that a handler
            asked for, an outage that a breaker knows, and an error of a whole batch are
            not counted.
        assignment_epoch: grows each time this member gains the partition.
        revoked: an event, set once the partition is being taken away: records done from
            then on may be handled again by another member. Never set in the process
            executor.
        state: the value of the worker's ``lifespan`` here; None without one.
        trace: the attempt's trace, for the worker itself. A handler asks OpenTelemetry:
            ``opentelemetry.trace.get_current_span()``.
    """

    __slots__ = (
        "_deadline",
        "assignment_epoch",
        "attempt",
        "partition",
        "revoked",
        "state",
        "trace",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - a value; one is made per hand-over
        self,
        partition: TopicPartition,
        attempt: int,
        assignment_epoch: int,
        revoked: threading.Event,
        deadline: Callable[[], float | None],
        state: Any = None,  # noqa: ANN401 - the user's own
    ) -> None:
        self.partition = partition
        self.attempt = attempt
        self.assignment_epoch = assignment_epoch
        self.revoked = revoked
        self._deadline = deadline
        self.state = state
        self.trace: Any = None

    @property
    def deadline(self) -> float | None:
        """
        When running handlers are no longer waited for, as a ``time.monotonic()`` value.

        It is None while the worker is not draining, and always in another process.
        """
        return self._deadline()

    @property
    def log(self) -> Any:  # noqa: ANN401 - structlog's bound loggers have many classes
        """A structlog logger with topic, partition and attempt bound."""
        import structlog  # noqa: PLC0415 - up to 7 MB, not used by all

        return structlog.get_logger("safeconsumer.worker").bind(
            topic=self.partition.topic,
            partition=self.partition.partition,
            attempt=self.attempt,
        )

    def __repr__(self) -> str:
        return (
            f"Context({self.partition.topic}:{self.partition.partition}, "
            f"attempt={self.attempt})"
        )


Handler: TypeAlias = Callable[..., Any]
StackOf: TypeAlias = Callable[[], str | None]
Errors: TypeAlias = Sequence[tuple[int, BaseException]]


class Slot:
    """
    One place where a handler runs, with its current work.

    Attributes:
        task: the task it works on; None while it waits.
        index: the index of its current record.
        began: when it began with that record, in seconds on the monotonic clock.
        ask: asks where the handler is, without waiting for the answer.
        stack: returns the handler's stack as text; None if it is not known.
        told: the task and index whose stall has been reported.
        name: its name, as text for people.
        limit: seconds after which its handler is reported, if that is earlier than
            ``Limits.age``.
        ended: why it runs nothing any more; None while it does.
        goes_on: whether the next record of its task begins without being noted here.
    """

    __slots__ = (
        "ask",
        "began",
        "ended",
        "goes_on",
        "index",
        "limit",
        "name",
        "stack",
        "task",
        "told",
    )

    def __init__(self, name: str = "", limit: float | None = None) -> None:
        self.name = name
        self.limit = math.inf if limit is None else limit
        self.ended: BaseException | None = None
        self.task: Task | None = None
        self.goes_on = False
        self.index = 0
        self.began = 0.0
        self.ask: Callable[[], None] = _nobody_knows
        self.stack: StackOf = _nobody_knows
        self.told: tuple[Task, int] | None = None


def context_of(
    task: Task,
    deadline: Callable[[], float | None],
    state: Any = None,  # noqa: ANN401 - the user's own
) -> Context:
    """Make the context for a task's calls."""
    epoch = task.epoch
    return Context(epoch.tp, task.attempt, epoch.number, epoch.revoked, deadline, state)


def call_each(
    handle: Handler, task: Task, slot: Slot, context: Context, seconds: float
) -> Outcome:
    """Call the handler record by record, for about so many seconds."""
    records, done, indexes = task.chunk.records, task.chunk.done, task.indexes
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
            done[index] = 1  # first: an exception may come in between
            records[index] = None
            now = clock()
            if now > until:
                count = indexes.index(index) + 1
                break
        else:
            count = len(indexes)
    except BaseException as error:  # noqa: BLE001 - any error is this record's
        # It is counted, as an exception from outside may come between two records.
        count = sum([done[index] for index in indexes])
        failed = [(index, blamed(error)) for index in indexes[count : count + 1]]
        before, now = now, clock()
        failing = now - before
    finally:
        slot.task = None
    return Outcome(
        task=traced(task, context) if failed else task,
        finished=indexes[:count],
        failed=failed,
        left=indexes[count + len(failed) :],
        seconds=now - began,
        failing=failing,
    )


def call_batch(handle: Handler, task: Task, slot: Slot, context: Context) -> Outcome:
    """Call the handler with all records at once."""
    slot.index, slot.began, slot.task = task.indexes[0], time.monotonic(), task
    records = [task.chunk.records[index] for index in task.indexes]
    try:
        if task.epoch.is_held:
            return Outcome(task=task, left=task.indexes)
        refuse_undone(contextvars.copy_context().run(handle, records, context))
    except BaseException as error:  # noqa: BLE001 - any error is this batch's
        seconds = time.monotonic() - slot.began
        return batch_failed(traced(task, context), blamed(error), seconds)
    finally:
        slot.task = None
    return all_done(task, time.monotonic() - slot.began)


def traced(task: Task, context: Context) -> Task:
    """Return a failed task with its attempt, if there is a span of it."""
    return task if context.trace is None else evolve(task, trace=context.trace)


def blamed(error: BaseException) -> BaseException:
    """
    Return the exception that a record's call counts as having raised.

    A ``CancelledError`` is not an ``Exception``, and would end the worker.
    """
    if not isinstance(error, asyncio.CancelledError):
        return error
    wrong = HandlerCancelledError("the handler was cancelled, but not by its worker")
    wrong.__cause__ = error
    return wrong


def refuse_undone(answer: object) -> None:
    """
    Refuse what a handler or dead-letter sink returns if it shows that nothing is done.

    Raises:
        HandlersFailError: it is a coroutine, a generator, or another awaitable or
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
        raise HandlersFailError(message)


def _refuse(answer: object, does: str) -> NoReturn:
    message = (
        f"{shown(answer)} was returned, and nothing {does} it: a handler must do "
        f"its work before it returns; if it awaits anything it must be async def, "
        f"with executor='asyncio'; dead_letter must be a plain function"
    )
    raise HandlersFailError(message)


def commits_alone() -> Exception:
    """Return the error of a commit without offsets where a worker or pump commits."""
    return HandlersFailError(
        "commit() and commit_async() without offsets commit what was polled, handled "
        "or not: leave these calls out, the worker or pump commits what is done"
    )


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
        task.chunk.finish(index)
    return Outcome(task=task, finished=task.indexes, seconds=seconds)


def _is_of_one(error: BaseException) -> bool:
    # Tells whether the error is about one record of the batch, and not which.
    if not isinstance(error, Exception):
        return False
    is_control = isinstance(error, (WorkerControl, HandlersFailError))
    return isinstance(error, Reject) or not is_control


def broken(task: Task, error: BaseException) -> Outcome:
    """Report that our own part of a call broke; records that are marked complete are."""
    done = task.chunk.done
    left = [index for index in task.indexes if not done[index]]
    finished = [index for index in task.indexes if done[index]]
    message = f"what calls the handler broke: {shown(error)}"
    wrong = HandlersFailError(message)
    wrong.__cause__ = error
    return Outcome(
        task=task,
        finished=finished,
        failed=[(index, wrong) for index in left[:1]],
        left=left[1:],
    )


def batch_failed(task: Task, error: BaseException, seconds: float) -> Outcome:
    """Work out what a batch's exception means for each of its records."""
    indexes = task.indexes
    if isinstance(error, BatchFailure):
        return _partly_failed(task, error, seconds)
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


def _partly_failed(task: Task, error: BatchFailure, seconds: float) -> Outcome:
    errors = getattr(error, "errors", None)  # it may have lost them in pickling
    wrong = misfit(errors, len(task.indexes))
    if wrong is not None:  # none of its entries is used
        wrong.__cause__ = error
        return batch_failed(task, wrong, seconds)
    bad = {task.indexes[at]: one for at, one in error.errors.items()}
    good = [index for index in task.indexes if index not in bad]
    for index in good:
        task.chunk.finish(index)
    failed = [(index, blamed(bad[index])) for index in task.indexes if index in bad]
    return Outcome(
        task=task,
        finished=good,
        failed=failed,
        seconds=seconds,
        failing=seconds * len(failed) / len(task.indexes),
    )


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


# ------------------------------------------------------------ in another process

Answer: TypeAlias = tuple[int, BaseException | None]
"""How many records were finished, and what the next one, or the batch, raised."""


About: TypeAlias = tuple[TopicPartition, int, int, Mapping[str, str] | None]
"""
The partition, the attempt, the number of the ownership, and the carrier of its trace.
"""


def call_in_process(  # noqa: PLR0913 - called by name
    handle: Handler,
    records: list[Any],
    about: About,
    *,
    is_batch: bool,
    seconds: float,
    begin: Callable[[int], None],
    state: Any = None,  # noqa: ANN401 - the user's own
) -> Answer:
    """
    Call the handler where only pickled values arrive, for about so many seconds.

    ``begin`` is called with the number of finished records before each and at the end.
    """
    until = time.monotonic() + seconds
    partition, attempt, epoch, carrier = about
    context = Context(partition, attempt, epoch, threading.Event(), _no_deadline, state)
    if carrier is not None:
        from safeconsumer.worker.tracing import within  # noqa: PLC0415  an extra's

        handle = within(carrier, handle)
    apart = contextvars.copy_context().copy
    begin(0)
    for count, given in enumerate([records] if is_batch else records):
        try:
            answer = apart().run(handle, given, context)
            if answer is not None:
                refuse_undone(answer)
        except BaseException as error:  # noqa: BLE001 - this record, or the batch, has failed
            return count, blamed(error)
        finished = len(records) if is_batch else count + 1
        begin(finished)
        if time.monotonic() > until:
            return finished, None
    return len(records), None


def outcome_of(
    task: Task,
    answer: Answer,
    seconds: float,
    *,
    is_batch: bool,
    last: float,
) -> Outcome:
    """Mark the records finished elsewhere; ``last`` is the time of the last one."""
    count, error = answer
    if is_batch and error is not None:
        return batch_failed(task, error, seconds)
    finished: Indexes = task.indexes[:count]
    for index in finished:
        task.chunk.finish(index)
    failed = [] if error is None else [(task.indexes[count], error)]
    left = task.indexes[count + len(failed) :]
    return Outcome(
        task=task,
        finished=finished,
        failed=failed,
        left=left,
        seconds=seconds,
        failing=last if failed else 0.0,
    )


def _no_deadline() -> None:
    return None


def _nobody_knows() -> None:
    return None
