"""Ends commands at a signal, also if their output has no reader any more."""

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

# Seconds that a worker gets to end after a second signal: it needs 2.
_SECONDS = 5.0
# Seconds without a reader after which an output is given up.
_UNREAD_SECONDS = 1.0
_CHECK_SECONDS = 0.1
# A signal that nothing else sends, and that is ignored by default.
_INTERRUPT = signal.SIGURG


@contextlib.contextmanager
def ended_by_signals(
    worker: Worker, report: Callable[[Report], Status]
) -> Iterator[None]:
    """
    Stop a worker at the first signal, give its handlers up at the second.

    No thread waits for a reader of stdout or stderr, as :func:`stopped_by_signals` says,
    and so for the last lines of the process. It ends within five seconds after the
    second signal, even if its main thread stands in another call that never returns;
    after the first, once the worker is closed, if that call is a hook's.

    Args:
        worker: what runs in the block.
        report: writes how it ended and returns the status of the process, where the main
            thread cannot.
    """
    hanging: Report | None = None
    is_over, end = False, math.inf

    def check(count: int) -> None:
        nonlocal hanging, end
        # If only a handler's thread stands in the hook, run() has returned by now.
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
    Call ``stop`` at SIGINT or SIGTERM. In the main thread.

    From the first signal on an output that takes nothing for a second is given up, by
    :class:`UnreadOutputs`: a write that nobody reads succeeds, whichever thread or
    library writes, the block goes on after it, and Python's exit has nothing to flush. A
    reader that still reads gets whole lines.

    Args:
        stop: asks the block to end.
        check: is called ten times a second from then on, with the number of signals, and
            after the block, too, until the process ends; None: outputs are given up in
            the block alone.
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
        if count:  # Python flushes it at its exit, without that thread
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
        is_over = True
        asked.set()


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt at a SIGTERM, so that what the block made is removed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def hanging_report(worker: Worker) -> Report | None:
    """Return how a worker ended whose hook does not return; None: it has not."""
    if worker.stats().state != "closed":
        return None
    report = worker.stop()
    return report if report is not None and report.hanging is not None else None


class UnreadOutputs:
    """
    Gives up outputs of this process that have no reader.

    1. The output becomes ``/dev/null``, under the same number. 2. Every thread is
    interrupted: a write that stands fails with EINTR, and Python repeats it under that
    number, where it succeeds.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def check(self) -> None:
        """Give up the outputs that have taken nothing for a second."""
        now = time.monotonic()
        for output in (1, 2):
            if _can_be_written(output):
                self._since.pop(output, None)
            elif now - self._since.setdefault(output, now) >= _UNREAD_SECONDS:
                del self._since[output]
                _give_up(output)


def _can_be_written(output: int) -> bool:
    try:
        return bool(select.select([], [output], [], 0)[1])
    except (OSError, ValueError):  # it is closed
        return True


def _give_up(output: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output)
    os.close(nowhere)
    for thread in threading.enumerate():
        if thread.ident is not None:
            signal.pthread_kill(thread.ident, _INTERRUPT)
