"""
Waits for a condition, with a bound; the error includes the last observed state.

A bound is for tests that hang, and a busy machine is not a hang. So the seconds in which
threads of the test waited for a core do not count: beside others that take all cores, a
process that imports for two seconds needs minutes. :mod:`tests.harness.timeouts` does the
same for pytest's own time limit, which ends waits without a bound.

A hang that spins waits for a core, too, as long as the machine is busy. So no bound is
longer than ten times its limit, or than ten minutes if that is more.
"""

import math
import os
import subprocess
import time
from concurrent import futures
from pathlib import Path

from tests.sim.threads import world

LIMIT = 60.0
"""Seconds after which a test assumes that the awaited condition will never hold."""

PAUSE = 0.01
"""Seconds between two checks of the state of other threads and processes."""

END_LIMIT = 20.0
"""Seconds that a program gets to end when it is asked to."""

TURN = 1.0
"""Seconds of a call that waits, between two looks at the bound."""

MOST = 10.0
"""A bound is at most this many times its limit, or times ``LIMIT`` if that is longer."""

_EVERY = 1.0
"""Seconds between two readings of the waits for a core."""

_PROC = Path("/proc")


class NotReachedError(Exception):
    """
    A condition that a test waits for did not hold in time.

    The class is not an ``AssertionError``, so that no expected failure can hide it.
    """


def core_waits(root=None):
    """
    Return how long each living thread of a process and its children has waited for a core.

    The seconds count from the start of the thread; the keys are the kernel's own numbers.
    A thread that waits is counted once it runs again. The result is empty on a system
    without Linux's ``/proc``.
    """
    return {
        thread.name: seconds
        for process in _family(os.getpid() if root is None else root)
        for thread in _listed(_PROC / str(process) / "task")
        if (seconds := _core_wait(thread)) is not None
    }


def _family(root):
    # A process that has lost its parent is not found any more.
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
    # Nanoseconds on a core, nanoseconds of waits for one, and how often it ran.
    fields = _read(thread / "schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) == 3 else None


class Bound:
    """
    The limit of a wait, which does not count the seconds that threads waited for a core.

    With the limit None the wait never ends. In a simulated world no thread waits for a core.

    Attributes:
        starved: the seconds that do not count, of all threads together.
    """

    def __init__(self, limit=LIMIT, *, clock=None, waits=None):
        self.starved = 0.0
        self._limit = math.inf if limit is None else limit
        self._most = MOST * max(self._limit, LIMIT)
        self._clock, self._waits = clock or time.monotonic, waits or core_waits
        self._began = self._read_at = self._clock()
        self._seen = None

    def is_over(self):
        """Return whether the limit is reached."""
        now = self._clock()
        if now - self._read_at >= _EVERY:
            self._read_at = now
            if world() is None:
                self._count(self._waits())
        return now - self._began > min(self._limit + self.starved, self._most)

    def _count(self, waits):
        if self._seen is not None:
            self.starved += sum(
                # the kernel may reuse a thread's number; the count then begins at 0
                max(0.0, seconds - self._seen.get(thread, 0.0))
                for thread, seconds in waits.items()
            )
        self._seen = waits

    def __str__(self):
        beside = f" beside {self.starved:.0f} s of waits for a core"
        return f"{self._limit:g} s{beside if self.starved >= 1 else ''}"


def repeat_until(condition, what, limit=LIMIT, *, seen=None):
    """Yield between two checks of a condition, until it holds, for a bounded loop."""
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
    Return once a condition holds that other threads or processes bring about.

    If pytest's time limit comes first, its error has a note with the last state.
    """
    for _ in repeat_until(condition, what, limit, seen=seen):
        try:
            time.sleep(pause)
        except BaseException as error:
            error.add_note(f"the test waited for this: {what}{_state(seen)}")
            raise


def end_of(thread, limit=LIMIT):
    """Return once a thread, or a process of multiprocessing, has ended."""
    wait_for(lambda: not thread.is_alive(), f"the end of {thread.name}", limit)


def code_of(process, limit=END_LIMIT):
    """
    Return the exit code of a program once it has ended.

    Raises:
        TimeoutExpired: it has not ended in time, and runs on; the seconds in which it
            waited for a core do not count.
    """
    return _in_turns(process.wait, limit)


def output_of(process, limit=LIMIT, given=None):
    """
    Return the output of a program, as ``communicate``, once the program has ended.

    Raises:
        TimeoutExpired: as :func:`code_of`.
    """
    unsent = [given]

    def communicate(timeout):
        # the second turn must not have the input that the first one has begun to send
        return process.communicate(unsent.pop() if unsent else None, timeout)

    return _in_turns(communicate, limit)


def result_of(future, limit=LIMIT):
    """Return the result of a call on another thread, or raise its exception."""
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
    """Call until none of these errors is raised; return the result."""
    bound = Bound(limit)
    while True:
        try:
            return call()
        except refusals:
            if bound.is_over():
                raise
            time.sleep(PAUSE)
