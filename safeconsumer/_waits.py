"""Provides an event whose waits are safe even when a signal handler interrupts them."""

import contextlib
import threading


class InterruptibleEvent:
    """
    An event that does not leave a lock held when a wait is interrupted.

    ``threading.Event`` acquires a lock in Python code. If a signal handler raises right
    after that, the lock stays held, and the thread that sets the event waits for the
    lock forever. If the handler itself sets the event, it may deadlock with its own
    thread. If the handler raises while ``Condition.wait`` reacquires the lock, the
    caller gets ``RuntimeError`` instead of the handler's exception. In this class each
    wait blocks in C, on a separate lock. A handler's exception therefore propagates,
    and leaves no shared lock held.

    1. :meth:`wait` registers its lock, and then reads whether the event is set.
    2. :meth:`set` sets the event, and then releases the registered locks. Therefore
       ``set`` finds the registered lock, or the wait finds the event set, or both.

    Thread rules: any thread and any signal handler may call every method.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waits: dict[threading.Lock, None] = {}

    def is_set(self) -> bool:
        return self._is_set

    def clear(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Set the event and release all waits."""
        self._is_set = True
        for wait in tuple(self._waits):
            with contextlib.suppress(RuntimeError):  # the wait has ended already
                wait.release()

    def wait(self, timeout: float | None = None) -> bool:
        """
        Wait until the event is set, or until a timeout in seconds; None means no limit.

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
    # acquire() interprets -1 as no limit.
    return -1 if seconds is None else min(max(0.0, seconds), threading.TIMEOUT_MAX)
