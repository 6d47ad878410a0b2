"""Small classes with a fault each, and without: what the explorer must tell apart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Counter:
    """Counts, and loses a count if two count at once."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        count = self.count
        self.count = count + 1


class LockedCounter(Counter):
    """Counts under a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            count = self.count
            self.count = count + 1


class InOneLine(Counter):
    """Counts in one line, which is still several instructions."""

    def add(self) -> None:
        self.count = self.count + 1


class Accounts:
    """
    Two accounts with a lock each.

    Args:
        in_order: whether both locks are always taken in the same order.
    """

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._left, self._right = threading.Lock(), threading.Lock()
        self.left = self.right = 10

    def to_right(self) -> None:
        with self._left:
            self.left -= 1
            with self._right:
                self.right += 1

    def to_left(self) -> None:
        first, second = self._right, self._left
        if self._in_order:
            first, second = second, first
        with first:
            self.right -= 1
            with second:
                self.left += 1


class Log:
    """
    Writes lines, also from a signal handler.

    Args:
        is_reentrant: whether a line that comes in the middle of another one waits in a
            list, instead of for the lock.
    """

    def __init__(self, *, is_reentrant: bool) -> None:
        self._is_reentrant = is_reentrant
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        if self._is_reentrant and not self._lock.acquire(blocking=False):
            self._waiting.append(line)
            return
        if not self._is_reentrant:
            self._lock.acquire()
        try:
            self.lines.append(line)
        finally:
            self._lock.release()
        while self._waiting:
            self.lines.append(self._waiting.pop())


class LostLock:
    """Never gives its lock back when it fails."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_broken = False

    def fail(self) -> None:
        self._lock.acquire()
        self.is_broken = True

    def use(self) -> None:
        with self._lock:
            self.is_broken = True

    def mend(self) -> None:
        if self._lock.locked():
            self._lock.release()


@contextmanager
def made(toy: object) -> Iterator[object]:
    """Lend a toy for one run."""
    yield toy
    if isinstance(toy, LostLock):
        toy.mend()
