"""Handles the signals that make a worker stop."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# The count of signals at which the earlier handlers are restored.
LAST = 2


@contextlib.contextmanager
def taking(numbers: Iterable[int], take: Callable[[int], object]) -> Iterator[None]:
    """
    Call ``take`` with 1 at the first signal, with 2 at the second. Main thread only.

    Before the second call, and at the end of the block, the earlier signal handlers are
    restored. Therefore a third signal has its original effect even if the second one
    did not stop the program. A forked child has no worker to stop. In the child the
    first signal restores the earlier handlers, and is then sent to the child again.
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
