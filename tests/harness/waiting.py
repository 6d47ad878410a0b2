"""
Waits for a condition, with a time limit; the error includes the last observed state.

A limit is meant for tests that hang, not for a busy machine. The seconds in which
threads of the test waited for a core therefore do not count: while other processes use
all cores, two seconds of imports can take minutes. :mod:`tests.harness.timeouts` does
the same for pytest's own time limit, which also stops waits without a limit.

On a busy machine a test that hangs in a busy loop waits for a core, too. No wait
therefore lasts longer than ten times its limit, or ten minutes if that is more.
"""

import math
import os
import subprocess
import time
from concurrent import futures
from pathlib import Path

from tests.sim.threads import world

LIMIT = 60.0
"""The seconds after which a test assumes that the awaited condition will never hold."""

PAUSE = 0.01
"""The seconds between two checks of the state of other threads and processes."""

END_LIMIT = 20.0
"""The seconds within which a program must exit after a request to stop."""

TURN = 1.0
"""The longest seconds of one blocking call between two checks of the bound."""

MOST = 10.0
"""The largest bound, as a multiple of its limit, or of ``LIMIT`` if that is longer."""

_EVERY = 1.0
"""The seconds between two measurements of the waits for a core."""

_PROC = Path("/proc")


class NotReachedError(Exception):
    """
    A test's awaited condition did not hold in time.

    The class is not an ``AssertionError``, so that no expected failure can hide it.
    """


def core_waits(root=None):
    """
    Return how long each thread of a process and its children has waited for a core.

    The seconds count from the start of the thread; the keys are the kernel's thread
    ids. A current wait is included only once the thread runs again. The result is empty
    on a system without Linux's ``/proc``.
    """
    return {
        thread.name: seconds
        for process in _family(os.getpid() if root is None else root)
        for thread in _listed(_PROC / str(process) / "task")
        if (seconds := _core_wait(thread)) is not None
    }


def _family(root):
    # This search does not find processes whose parent has exited.
    children = {}
    for one in _listed(_PROC):
        if one.name.isdecimal() and (stat := _read(one / "stat")):
            # The name of a program may have spaces; the state and the parent follow it.
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(one.name))
    found = [root]
    for one in found:
        found += children.get(one, ())
    return found


def _listed(folder):
    try:
        return list(folder.iterdir())
    except OSError:  # the process has ended
        return []


def _read(path):
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""


def _core_wait(thread):
    # Nanoseconds on a core, nanoseconds of waits for a core, and the number of time
    # slices.
    fields = _read(thread / "schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) == 3 else None


class Bound:
    """
    The limit of a wait, which does not count the seconds that threads waited for a core.

    A bound with the limit None is never reached. In a simulated world no thread waits
    for a core.

    Attributes:
        starved: the seconds that do not count, summed over all threads.
    """

    def __init__(self, limit=LIMIT, *, clock=None, waits=None):
        self.starved = 0.0
        self._limit = math.inf if limit is None else limit
        self._most = MOST * max(self._limit, LIMIT)
        self._clock, self._waits = clock or time.monotonic, waits or core_waits
        self._began = self._read_at = self._clock()
        self._seen = None

    def is_over(self):
        """Return whether the limit has passed."""
        now = self._clock()
        if now - self._read_at >= _EVERY:
            self._read_at = now
            if world() is None:
                self._count(self._waits())
        return now - self._began > min(self._limit + self.starved, self._most)

    def _count(self, waits):
        if self._seen is not None:
            self.starved += sum(
                # the kernel may reuse a thread's id, whose seconds then restart at 0
                max(0.0, seconds - self._seen.get(thread, 0.0))
                for thread, seconds in waits.items()
            )
        self._seen = waits

    def __str__(self):
        beside = f" beside {self.starved:.0f} s of waits for a core"
        return f"{self._limit:g} s{beside if self.starved >= 1 else ''}"


def repeat_until(condition, what, limit=LIMIT, *, seen=None):
    """Yield between checks of a condition until it holds; raise at the limit."""
    bound = Bound(limit)
    while not condition():
        if bound.is_over():
            message = f"{what}: not within {bound}{_state(seen)}"
            raise NotReachedError(message)
        yield


def _state(seen):
    return "" if seen is None else f"; last seen: {seen()}"


def wait_for(condition, what, limit=LIMIT, *, seen=None, pause=PAUSE):
    """
    Return once a condition holds that depends on other threads or processes.

    If pytest's time limit passes first, its error has a note with the last state.
    """
    for _ in repeat_until(condition, what, limit, seen=seen):
        try:
            time.sleep(pause)
        except BaseException as error:
            error.add_note(f"the test waited for this: {what}{_state(seen)}")
            raise


def end_of(thread, limit=LIMIT):
    """Return once a thread, or a process of multiprocessing, has finished."""
    wait_for(lambda: not thread.is_alive(), f"the end of {thread.name}", limit)


def code_of(process, limit=END_LIMIT):
    """
    Return the exit code of a program once it has exited.

    Raises:
        TimeoutExpired: the program still runs at the limit, which does not count waits
        for a core.
    """
    return _in_turns(process.wait, limit)


def output_of(process, limit=LIMIT, given=None):
    """
    Return the output of a program, as ``communicate`` does, once it has exited.

    Raises:
        TimeoutExpired: as for :func:`code_of`.
    """
    unsent = [given]

    def communicate(timeout):
        # a later call must not pass the input again
        return process.communicate(unsent.pop() if unsent else None, timeout)

    return _in_turns(communicate, limit)


def result_of(future, limit=LIMIT):
    """Return the result of a call on another thread, or raise the call's exception."""
    for _ in repeat_until(future.done, "the result of a call", limit):
        futures.wait([future], TURN)
    return future.result()


def _in_turns(wait, limit):
    bound, turn = Bound(limit), TURN if limit is None else min(limit, TURN)
    while True:
        try:
            return wait(timeout=turn)
        except subprocess.TimeoutExpired as error:
            if bound.is_over():
                error.timeout = limit
                raise


def retried(call, *refusals, limit=LIMIT):
    """Repeat a call until it raises none of these errors; return the result."""
    bound = Bound(limit)
    while True:
        try:
            return call()
        except refusals:
            if bound.is_over():
                raise
            time.sleep(PAUSE)
