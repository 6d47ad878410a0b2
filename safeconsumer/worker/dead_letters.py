"""Calls the dead-letter sink, the last step of a record that failed for good."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias

from kafka.errors import (
    AuthorizationError,
    InvalidRecordError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from kafka.future import Future as KafkaFuture

from safeconsumer.errors.base import HandlersCannotRunError, WorkerSettingError
from safeconsumer.worker import forks
from safeconsumer.worker.calls import Slot, failure_of, refuse_unfinished
from safeconsumer.worker.handlers import Failure, Reject, is_async
from safeconsumer.worker.letters_format import letter_parts
from safeconsumer.worker.partition import Outcome, Task
from safeconsumer.worker.settings import DeadLetter, check_callable, refuse_class
from safeconsumer.worker.tracebacks import shown

Sink: TypeAlias = Callable[[Any, Failure], object]
"""
A sink takes a record and its failure. When the sink returns, the letter is
acknowledged. If it returns a future of kafka-python or of ``concurrent.futures``, the
worker waits for that future. A coroutine, an asyncio future, the result of a
``multiprocessing`` pool, or another object that cannot report its completion stops the
worker with a ``HandlersCannotRunError``. If the sink raises
:class:`~safeconsumer.Reject`, the record can never become a letter.
"""

# Errors after which a shorter letter may be accepted.
_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
# Errors that every later attempt would meet, too, for example because the topic's name
# is not valid or a permission is missing. The error for a missing topic is not listed,
# because the topic may be created later. The error for an unreachable broker is not
# listed either.
_FINAL = (
    *_TOO_LARGE,
    InvalidRecordError,
    InvalidTopicError,
    AuthorizationError,
    Reject,
)


def call_sink(sink: Sink | None, task: Task, slot: Slot) -> Outcome:
    """Call the sink with the record of a task, and wait until the letter is acknowledged."""
    (index,), failure = task.indexes, task.letter
    assert failure is not None  # noqa: S101 - the caller has checked the letter
    assert sink is not None  # noqa: S101 - a letter exists only with a sink
    record = task.record(index)
    slot.index, slot.began, slot.task = index, time.monotonic(), task
    try:
        if task.epoch.is_held:  # the partition was held after the claim
            return Outcome(task=task, left=task.indexes)
        error = acknowledgement(sink(record, failure)).result()
    except BaseException as raised:  # noqa: BLE001 - the sink may raise anything
        # No variable keeps the error after the return; see call_each().
        return Outcome(task=task, failed=[(index, failure_of(raised))])
    finally:
        slot.task = None
    if error is not None:
        return Outcome(task=task, failed=[(index, failure_of(error))])
    return Outcome(task=task, finished=task.indexes)


def is_too_large(error: BaseException) -> bool:
    """Return whether a shorter letter may be accepted after this error."""
    return isinstance(error, _TOO_LARGE)


def is_final(error: BaseException) -> bool:
    """Return whether every later try to send the letter would fail, too."""
    return isinstance(error, _FINAL)


def acknowledgement(answer: Any) -> "Future[BaseException | None]":  # noqa: ANN401 - any
    """
    Return a future for the sent letter; the future's result is None or the error.

    Args:
        answer: the sink's result; an object that is not a future means that the letter
            was sent.

    Raises:
        HandlersCannotRunError: the result is a coroutine or another object that
            cannot report its completion.
    """
    over: Future[BaseException | None] = Future()
    if isinstance(answer, KafkaFuture):
        answer.add_callback(lambda _: over.set_result(None))
        answer.add_errback(over.set_result)
    elif isinstance(answer, Future):
        answer.add_done_callback(lambda future: over.set_result(_error_of(future)))
    else:
        refuse_unfinished(answer)
        if any(callable(getattr(answer, name, None)) for name in ("done", "ready")):
            message = (
                f"{shown(answer)} was returned by dead_letter, and does not show when the "
                f"letter is sent: wait in dead_letter, or return a future of "
                f"concurrent.futures"
            )
            raise HandlersCannotRunError(message)
        over.set_result(None)
    return over


def _error_of(future: Future[Any]) -> BaseException | None:
    try:
        return future.exception()
    except BaseException as cancelled:  # noqa: BLE001 - the future was cancelled
        return cancelled


# ------------------------------------------------------------ letters sent to a topic


def sink_of(setting: DeadLetter, group: str) -> Sink:
    """Return a sink that sends records to the topic, with headers about the failure."""

    def send(record: Any, failure: Failure) -> object:  # noqa: ANN401 - upstream's record
        value, headers = letter_parts(record, failure, group)
        try:
            return setting.producer.send(
                setting.topic, key=record.key, value=value, headers=headers
            )
        except (TypeError, ValueError, AssertionError) as error:
            why = f"the producer cannot write it: {shown(error)}"
            raise Reject(why) from error

    return send


def checked_sink(dead_letter: DeadLetter | Sink | None, group: str) -> Sink | None:
    """
    Return the function that receives dead letters, or None if there is none.

    Raises:
        WorkerSettingError: ``dead_letter`` cannot be called, or needs an event loop.
    """
    if dead_letter is None:
        return None
    if isinstance(dead_letter, DeadLetter):
        return forks.exiting_in_child(sink_of(dead_letter, group))
    refuse_class(dead_letter, "dead_letter")
    if isinstance(dead_letter, str):
        message = (
            f"dead_letter={dead_letter!r} lacks the producer that writes there: "
            f"dead_letter=DeadLetter(KafkaProducer(...), {dead_letter!r})"
        )
        raise WorkerSettingError(message)
    check_callable(dead_letter, "dead_letter", "record", "failure")
    if is_async(dead_letter):
        why = (
            f"dead_letter is called in a thread, and {dead_letter!r} is a coroutine "
            f"function: give a plain one, which may return a future"
        )
        raise WorkerSettingError(why)
    return forks.exiting_in_child(dead_letter)
