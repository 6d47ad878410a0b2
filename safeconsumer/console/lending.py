"""
Connections for commands, each lent to one thread at a time.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from safeconsumer.console.problems import Problem
from safeconsumer.group.operator import Operator

_CLOSE_SECONDS = 1.0


class Lent:
    """
    One connection, made when it is first needed.

    Args:
        connect: makes it.
        busy: what to say to whoever does not get it in time.

    Thread rules: any.
    """

    def __init__(self, connect: Callable[[], Operator], busy: str) -> None:
        self._connect = connect
        self._busy = busy
        self._operator: Operator | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    @contextmanager
    def until(self, moment: float) -> Iterator[Operator]:
        """
        Lend the connection, if it is free before a moment of our monotonic clock.

        Raises:
            Problem: it is not, or the console ends.
        """
        if not self._lock.acquire(timeout=max(0.0, moment - time.monotonic())):
            raise Problem(503, self._busy, "try again")
        try:
            if self._is_closed:
                raise Problem(503, "the console ends", "nothing was done")
            if self._operator is None:
                self._operator = self._connect()
            yield self._operator
        finally:
            self._lock.release()

    def close(self) -> None:
        """
        Close it; one that is still at work, and does not end soon, is left behind.
        """
        self._is_closed = True
        if not self._lock.acquire(timeout=_CLOSE_SECONDS):
            return
        try:
            operator, self._operator = self._operator, None
            if operator is not None:
                operator.close()
        finally:
            self._lock.release()
