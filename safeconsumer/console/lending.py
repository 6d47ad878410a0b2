"""Lends one connection to one thread at a time, and remembers answers."""

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from attrs import frozen
from kafka.errors import KafkaError

from safeconsumer.console.problems import Problem
from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group.operator import Operator
from safeconsumer.group.timed_call import TimedCall

# Seconds to wait for the connection; a client that clicked waits that long.
_BUSY = 2.0
_CLOSING = 1.0
# Seconds for which the cluster's answer about something that seldom changes is used,
# and for which it is remembered if there is no newer one.
_STANDS, _REMEMBERED = 60.0, 600.0

T = TypeVar("T")


@frozen
class _Answer:
    at: float
    value: Any


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
        self._answers: Mapping[Hashable, _Answer] = {}
        self._asking = threading.Lock()  # of the next
        self._calls: dict[Hashable, tuple[float, TimedCall[Any]]] = {}

    @contextmanager
    def lend(self) -> Iterator[Operator]:
        """
        Lend the connection, if it becomes free soon.

        Raises:
            Problem: it does not become free, or the console is closing.
        """
        if not self._lock.acquire(timeout=_BUSY):
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

    def asked(self, key: Hashable, ask: Callable[[Operator], T]) -> T:
        """
        Ask the cluster, unless an answer under that key still stands.

        Raises:
            KafkaError: it does not answer, or refuses.
            Problem: another request is waiting for a cluster that does not answer.
        """
        known = self._answers.get(key)
        if known is None or known.at < time.monotonic() - _STANDS:
            with self.lend() as operator:
                known = _Answer(time.monotonic(), ask(operator))
                old = known.at - _REMEMBERED
                kept = {at: one for at, one in self._answers.items() if one.at >= old}
                self._answers = {**kept, key: known}
        value: T = known.value
        return value

    def lately(
        self, key: Hashable, ask: Callable[[Operator], T], moment: float
    ) -> T | None:
        """
        Return the last answer under that key, if there is one, however old.

        If it does not stand any more, a separate thread asks the cluster: no caller
        waits for a broker that does not answer, and the one that begins it so many
        seconds at most. A refusal stands as an answer does.
        """
        known = self._answers.get(key)
        if known is None or known.at < time.monotonic() - _STANDS:
            call = self._begun(key, lambda: self.asked(key, ask))
            if call is not None:
                troubles = (ControlTopicError, KafkaError, OSError, Problem)
                with suppress(TimeoutError, *troubles):  # the last answer is still used
                    call.result(moment)
                known = self._answers.get(key)
        return None if known is None else known.value

    def _begun(self, key: Hashable, ask: Callable[[], T]) -> TimedCall[T] | None:
        now = time.monotonic()
        with self._asking:
            self._calls = {
                name: (at, one)
                for name, (at, one) in self._calls.items()
                if not one.is_over or at >= now - _STANDS
            }
            if key in self._calls:
                return None
            call = TimedCall(ask)
            self._calls[key] = (now, call)
            return call

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
