"""The same handler for every framework: waits, counts, and writes down what it was given."""

import asyncio
import os
import threading
import time
from typing import Any

from tests.bench.memory import peak_mb

_SLOW_ONES = 4


class Handling:
    """
    Handles records of any framework, on any thread.

    Args:
        told: ``sleep`` seconds for each record, ``slow`` seconds for the first four of
            each partition instead, ``records`` to count, ``trace``, a file for a line
            per record.
    """

    def __init__(self, told: dict[str, Any]) -> None:
        self._sleep = told.get("sleep", 0.0)
        self._slow = told.get("slow")
        self._enough = told.get("records")
        self._trace = self._opened(told.get("trace"))
        self._lock = threading.Lock()
        self.count = 0
        self.began: tuple[float, float] | None = None
        self.ended: tuple[float, float] | None = None
        self.is_enough = threading.Event()

    @staticmethod
    def _opened(path: str | None) -> int | None:
        if path is None:
            return None
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def begin(self, offset: int) -> float:
        """Note the first call; return how long to wait."""
        if self.began is None:
            self.began = now()
        if self._slow is not None and offset < _SLOW_ONES:
            return float(self._slow)
        return float(self._sleep)

    def end(self, partition: int, offset: int) -> None:
        """Count a record that is handled."""
        if self._trace is not None:
            os.write(self._trace, b"%d %d\n" % (partition, offset))
        with self._lock:
            self.count += 1
            if self.count == self._enough:
                self.ended = now()
                self.is_enough.set()

    def handle(self, partition: int, offset: int) -> None:
        """Handle one record, in a thread."""
        seconds = self.begin(offset)
        if seconds:
            time.sleep(seconds)
        self.end(partition, offset)

    async def handle_async(self, partition: int, offset: int) -> None:
        """Handle one record, in an event loop."""
        seconds = self.begin(offset)
        if seconds:
            await asyncio.sleep(seconds)
        self.end(partition, offset)

    def measured(self) -> dict[str, float]:
        """Return what it took from the first record to the last, or to now."""
        wall, cpu = self.ended or now()
        began, cpu_before = self.began or (wall, cpu)
        return {
            "count": self.count,
            "cpu_us": (cpu - cpu_before) / max(1, self.count) * 1e6,
            "per_second": self.count / max(1e-9, wall - began),
            "peak_mb": peak_mb(),
        }


def now() -> tuple[float, float]:
    """Return the time, and the CPU used so far by all threads, in seconds."""
    return time.monotonic(), time.process_time()
