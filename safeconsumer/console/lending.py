"""Lends one connection for commands to one thread at a time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from safeconsumer.console.problems import Problem
from safeconsumer.group.operator import Operator

# Seconds to wait for the connection; a client that clicked waits that long.
_BUSY = 2.0
_CLOSING = 1.0


class Lent:
    """
    One connection, which is opened when it is first needed.

    Args:
        connect: opens the connection.

    Thread rules: any.
    """

    def __init__(self, connect: Callable[[], Operator]) -> None:
        self._connect = connect
        self._operator: Operator | None = None
        self._is_closed = False
        self._lock = threading.Lock()

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
