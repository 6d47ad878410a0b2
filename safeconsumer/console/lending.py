"""Lends one connection to one thread at a time, and remembers answers."""

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from attrs import define
from kafka.errors import KafkaError

from safeconsumer.console.problems import Problem
from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group.operator import Operator
from safeconsumer.group.timed_call import TimedCall

# Seconds to wait for the connection; a client that clicked waits that long, and the
# thread of a question for as long as a request may last.
_BUSY, _PATIENCE = 2.0, 30.0
_CLOSING = 1.0
# Seconds for which the cluster's answer about something that seldom changes is used,
# and for which it is remembered if there is no newer one.
_STANDS, _REMEMBERED = 60.0, 600.0

T = TypeVar("T")


@define(eq=False)
class _Question(Generic[T]):
    """A question, when it was begun, and the last answer to it."""

    begun_at: float
    call: TimedCall[T]
    answer: T | None

    @property
    def is_underway(self) -> bool:
        return not self.call.is_over


class SharedConnection:
    """
    One connection, which is opened when it is first needed, and what it answered.

    Args:
        connect: opens the connection.

    Thread rules: any.
    """

    def __init__(self, connect: Callable[[], Operator]) -> None:
        self._connect = connect
        self._operator: Operator | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._asking = threading.Lock()  # of the next
        self._questions: dict[Hashable, _Question[Any]] = {}

    @contextmanager
    def lend(self, patience: float | None = None) -> Iterator[Operator]:
        """
        Lend the connection, if it becomes free soon.

        Args:
            patience: seconds to wait for it; None for as long as a client that clicked
                waits.

        Raises:
            Problem: it does not become free, or the console is closing.
        """
        if not self._lock.acquire(timeout=_BUSY if patience is None else patience):
            somebody = "another request waits for the cluster: try again"
            raise Problem(503, "Nothing was done.", somebody)
        try:
            if self._is_closed:
                raise Problem(503, "Nothing was done.", "the console is closing")
            if self._operator is None:
                self._operator = self._connect()
            yield self._operator
        finally:
            self._lock.release()

    def asked(
        self, key: Hashable, ask: Callable[[Operator], T], within: float
    ) -> T | None:
        """
        Return the cluster's answer to a question, or the last one; None if there is none.

        An answer stands for a minute, and so does a refusal. A separate thread asks: no
        caller waits for longer than it wants, and all callers wait for the same answer.

        Args:
            key: names the question.
            ask: asks it.
            within: the most seconds to wait; after it the last answer is used.
        """
        question = self._question(key, ask)
        # Without an answer the last one is still used.
        with suppress(ControlTopicError, KafkaError, OSError, Problem):
            question.answer = question.call.result(within)
        return question.answer

    def _question(self, key: Hashable, ask: Callable[[Operator], T]) -> "_Question[T]":
        def call() -> T:
            with self.lend(_PATIENCE) as operator:
                return ask(operator)

        now = time.monotonic()
        with self._asking:
            self._questions = {
                name: one
                for name, one in self._questions.items()
                if one.is_underway or one.begun_at >= now - _REMEMBERED
            }
            last = self._questions.get(key)
            if last and (last.is_underway or last.begun_at >= now - _STANDS):
                return last
            one = _Question(now, TimedCall(call), last.answer if last else None)
            self._questions[key] = one
            return one

    def close(self) -> None:
        """Close the connection, unless a request waits for an answer on it."""
        self._is_closed = True
        if not self._lock.acquire(timeout=_CLOSING):
            return
        try:
            operator, self._operator = self._operator, None
            if operator is not None:
                operator.close()
        finally:
            self._lock.release()
