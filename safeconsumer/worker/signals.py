"""Takes the signals by which a worker is stopped."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# The signal with which the handlers from before are put back.
LAST = 2


@contextlib.contextmanager
def taking(numbers: Iterable[int], take: Callable[[int], object]) -> Iterator[None]:
    """
    Call ``take`` with 1 at the first signal and with 2 at the second. In the main thread.

    Before the second call, and at the end of the block, the handlers from before are put
    back: a program that the second signal does not end ends by a third. They are put
    back in a forked child too, which has no worker to stop, and the signal is sent there
    once more.
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
