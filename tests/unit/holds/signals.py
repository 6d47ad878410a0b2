"""Real signal handlers, for the time of a test."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Not SIGALRM: pytest-timeout uses it.
SIGNAL = signal.SIGUSR1


@contextmanager
def handled_by(handler: Any, number: int = SIGNAL) -> Iterator[None]:  # noqa: ANN401 - any shape of handler
    """Install a handler for the block."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def send() -> None:
    """Have the handler run before this returns."""
    signal.raise_signal(SIGNAL)
