"""Handles the signals that stop a worker."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# The number of the signal at which the earlier handlers are restored.
LAST = 2


@contextlib.contextmanager
def taking(numbers: Iterable[int], take: Callable[[int], object]) -> Iterator[None]:
    """
    Call ``take`` with 1 at the first signal and 2 at the second. Main thread only.

    Before the second call, and at the end of the block, the earlier signal handlers are
    restored. Therefore a third signal has its original effect even if the second signal
    did not stop the program. In a forked child, which has no worker to stop, the first
    signal restores the earlier handlers and is sent to the child once more.
    """
    process, count, before = os.getpid(), 0, dict[int, Any]()

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, _frame: object) -> None:
        nonlocal count
        if os.getpid() != process:
            put_back()
            os.kill(os.getpid(), number)
            return
        count += 1
        if count == LAST:
            put_back()
        take(count)

    try:
        for number in numbers:
            before[number] = signal.signal(number, on_signal)
        yield
    finally:
        put_back()
