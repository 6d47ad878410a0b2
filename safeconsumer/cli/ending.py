"""Ends commands on a signal, even if nobody reads their output any more."""

import contextlib
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.cli.statuses import Status
from safeconsumer.worker import Report, Worker
from safeconsumer.worker.signals import LAST, taking

# Seconds that a worker may take to stop after a second signal; usually it takes 2.
_SECONDS = 5.0
# Seconds after which an output that does not accept data is abandoned.
_UNREAD_SECONDS = 1.0
_CHECK_SECONDS = 0.1
# A signal that has no other use in this package and that Python ignores by default.
_INTERRUPT = signal.SIGURG


@contextlib.contextmanager
def ended_by_signals(
    worker: Worker, report: Callable[[Report], Status]
) -> Iterator[None]:
    """
    Stop a worker on the first signal; abandon its handlers on the second.

    As in :func:`stopped_by_signals`, threads do not wait for a reader of stdout or
    stderr, not even to write the process's last lines. The process exits within five
    seconds of the second signal, even if the main thread hangs in some other call. If
    that call was made by a hook, the process exits after the first signal, as soon as
    the worker is closed.

    Args:
        worker: the worker that runs in the ``with`` block.
        report: called if the main thread hangs; prints how the worker ended, and
            returns the exit status.
    """
    hanging: Report | None = None
    is_over, end = False, math.inf

    def check(count: int) -> None:
        nonlocal hanging, end
        # If the hook hangs only in a handler's thread, run() has returned by now.
        if hanging is not None and not is_over:
            os._exit(report(hanging))
        hanging = None if is_over else hanging_report(worker)
        if count == LAST:
            end = min(end, time.monotonic() + _SECONDS)
        if time.monotonic() >= end:
            os._exit(Status.FAILED)

    with stopped_by_signals(worker.stop, check):
        try:
            yield
        finally:
            is_over = True


@contextlib.contextmanager
def stopped_by_signals(
    stop: Callable[[], object], check: Callable[[int], None] | None = None
) -> Iterator[None]:
    """
    Call ``stop`` on SIGINT or SIGTERM, in the main thread.

    From the first signal on, :class:`UnreadOutputs` abandons any output that does not
    accept data for a second. Writes to it then succeed in every thread and library, the
    ``with`` block continues, and Python has nothing left to flush when it exits. A
    reader that is still reading gets whole lines.

    Args:
        stop: tells the ``with`` block to end.
        check: called ten times a second from the first signal on, with the number of
            signals, even after the ``with`` block, until the process exits. With None,
            outputs are abandoned only during the block.
    """
    asked, count, is_over = InterruptibleEvent(), 0, False

    def watch() -> None:
        asked.wait()
        unread = UnreadOutputs()
        while count and not (is_over and check is None):
            unread.check()
            if check is not None:
                check(count)
            time.sleep(_CHECK_SECONDS)

    def take(number: int) -> None:
        nonlocal count
        signal.signal(_INTERRUPT, lambda *_: None)
        stop()
        count = number
        asked.set()

    threading.Thread(target=watch, name="safeconsumer-end", daemon=True).start()
    try:
        with taking((signal.SIGINT, signal.SIGTERM), take):
            yield
    finally:
        if count:  # flush while the watching thread still runs
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
        is_over = True
        asked.set()


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt on a SIGTERM, so that the ``with`` block can clean up."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def hanging_report(worker: Worker) -> Report | None:
    """Return a closed worker's report if one of its hooks hangs; otherwise None."""
    if worker.stats().state != "closed":
        return None
    report = worker.stop()
    return report if report is not None and report.hanging is not None else None


class UnreadOutputs:
    """
    Abandons those outputs of this process that nobody reads.

    1. The output's file descriptor is redirected to ``/dev/null``.
    2. A signal interrupts every thread: a blocked write fails with EINTR, and Python
       repeats it on the redirected descriptor, where it succeeds.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def check(self) -> None:
        """Abandon the outputs that have not accepted data for a second."""
        now = time.monotonic()
        for output in (1, 2):
            if _can_be_written(output):
                self._since.pop(output, None)
            elif now - self._since.setdefault(output, now) >= _UNREAD_SECONDS:
                del self._since[output]
                _abandon(output)


def _can_be_written(output: int) -> bool:
    try:
        return bool(select.select([], [output], [], 0)[1])
    except (OSError, ValueError):  # the output is closed
        return True


def _abandon(output: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output)
    os.close(nowhere)
    for thread in threading.enumerate():
        if thread.ident is not None:
            signal.pthread_kill(thread.ident, _INTERRUPT)
