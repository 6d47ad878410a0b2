"""Small classes with a fault each, and without: what the explorer must tell apart."""

from __future__ import annotations

import threading


class Counter:
    """Counts, and loses a count if two count at once."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        count = self.count
        self.count = count + 1


class LockedCounter(Counter):
    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            count = self.count
            self.count = count + 1


class Accounts:
    """Two accounts with a lock each, which are taken in either order."""

    def __init__(self) -> None:
        self._left, self._right = threading.Lock(), threading.Lock()
        self.left = self.right = 10

    def to_right(self) -> None:
        with self._left:
            self.left -= 1
            with self._right:
                self.right += 1

    def to_left(self) -> None:
        with self._right:
            self.right -= 1
            with self._left:
                self.left += 1


class Log:
    """Writes lines under a lock, also from a signal handler."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        with self._lock:
            self.lines.append(line)
