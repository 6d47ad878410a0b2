"""Ends ``safeconsumer run`` by signals: the first drains, the second ends the process."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

from safeconsumer.cli.errors import Status
from safeconsumer.worker import Worker
from safeconsumer.worker.signals import LAST, taking

# Seconds for a worker to end in after a second signal: its own end takes 2.
_SECONDS = 5.0


@contextlib.contextmanager
def ended_by_signals(worker: Worker) -> Iterator[None]:
    """
    Stop a worker at the first signal, give its handlers up at the second.

    The process ends within five seconds then, even if its main thread stands in a call
    that never returns, such as a write to a terminal that nobody reads.
    """
    # A bare lock: to release it is one step, which a signal handler may take.
    woken, count = threading.Lock(), 0
    woken.acquire()

    def watch() -> None:
        woken.acquire()
        if count == LAST:
            time.sleep(_SECONDS)
            os._exit(Status.FAILED)

    def take(number: int) -> None:
        nonlocal count
        worker.stop()
        count = number
        if count == LAST:
            woken.release()

    threading.Thread(target=watch, name="safeconsumer-run-end", daemon=True).start()
    try:
        with taking((signal.SIGTERM, signal.SIGINT), take):
            yield
    finally:
        if count < LAST:  # else it ends what is left to do, a last line on stderr too
            woken.release()
