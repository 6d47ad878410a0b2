"""Waits that a signal handler may interrupt, by an exception or by a call of its own."""

import contextlib
import threading


class InterruptibleEvent:
    """
    An event whose waits leave no lock behind.

    ``threading.Event`` takes a lock in Python code. If a signal handler raises right
    after that, the lock stays held, and the thread that sets the event waits for it for
    ever; a handler that itself sets the event waits for its own thread. If the handler
    raises while ``Condition.wait`` takes the lock again, ``RuntimeError`` comes out
    instead. Here each wait has its own lock and waits for it in C: the handler's
    exception comes out while the wait does not hold its lock.

    1. :meth:`wait` registers its lock, and then reads whether the event is set.
    2. :meth:`set` sets the event, and then releases the registered locks. So at least
       one of the two sees the other.

    Thread rules: any thread, and a signal handler.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waits: dict[threading.Lock, None] = {}

    def is_set(self) -> bool:
        return self._is_set

    def clear(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Set the event, and end all waits."""
        self._is_set = True
        for wait in tuple(self._waits):
            with contextlib.suppress(RuntimeError):  # the wait has ended already
                wait.release()

    def wait(self, timeout: float | None = None) -> bool:
        """
        Wait until the event is set, or for a timeout in seconds; None is no limit.

        Returns:
            Whether the event is set.
        """
        wait = threading.Lock()
        wait.acquire()
        try:
            self._waits[wait] = None
            if not self._is_set:
                wait.acquire(timeout=_limited(timeout))
        finally:
            self._waits.pop(wait, None)
        return self._is_set


def _limited(seconds: float | None) -> float:
    # As a lock's acquire() takes it: -1 is no limit.
    return -1 if seconds is None else min(max(0.0, seconds), threading.TIMEOUT_MAX)
