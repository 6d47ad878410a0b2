"""Shares one connection between threads, one at a time, and caches answers for a minute."""

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from kafka.errors import KafkaError

from safeconsumer.console.problems import Problem
from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group.operator import Operator
from safeconsumer.group.timed_call import TimedCall

# Seconds to wait for the connection: after a user's click, and in a query's thread,
# which may wait as long as a request can last.
_LOCK_SECONDS, _ANSWER_SECONDS = 2.0, 30.0
_CLOSE_SECONDS = 1.0
# Seconds for which an answer from the cluster is reused.
_VALID_SECONDS = 60.0

T = TypeVar("T")


class SharedConnection:
    """
    One connection, opened when it is first needed, with a cache of its answers.

    Args:
        connect: opens the connection.

    Thread rules: any thread may use this.
    """

    def __init__(self, connect: Callable[[], Operator]) -> None:
        self._connect = connect
        self._operator: Operator | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._calls_lock = threading.Lock()  # guards _calls
        # By query key, when the query started and the call that runs it.
        self._calls: dict[Hashable, tuple[float, TimedCall[Any]]] = {}

    @contextmanager
    def lend(self, patience: float = _LOCK_SECONDS) -> Iterator[Operator]:
        """
        Yield the connection if it becomes free in time.

        Args:
            patience: the seconds to wait; the default is about as long as a user waits
                for a page.

        Raises:
            Problem: the connection does not become free in time, or the console is
                closing.
        """
        if not self._lock.acquire(timeout=patience):
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
        Return the cluster's answer to a query; None if there is no answer.

        An answer or an error is reused for a minute. A separate thread runs the query,
        so that callers never wait for longer than ``within``, and all callers with the
        same key share one answer.

        Args:
            key: identifies the query.
            ask: runs the query.
            within: the seconds to wait.
        """

        def answer() -> T:
            with self.lend(_ANSWER_SECONDS) as operator:
                return ask(operator)

        now = time.monotonic()
        with self._calls_lock:
            self._calls = {
                name: (begun_at, call)
                for name, (begun_at, call) in self._calls.items()
                if not call.is_over or begun_at >= now - _VALID_SECONDS
            }
            if key not in self._calls:
                self._calls[key] = now, TimedCall(answer)
            call = self._calls[key][1]
        with suppress(ControlTopicError, KafkaError, OSError, Problem):
            found: T = call.result(within)
            return found
        return None

    def close(self) -> None:
        """Close the connection, unless a request is still waiting for an answer on it."""
        self._is_closed = True
        if not self._lock.acquire(timeout=_CLOSE_SECONDS):
            return
        try:
            operator, self._operator = self._operator, None
            if operator is not None:
                operator.close()
        finally:
            self._lock.release()
