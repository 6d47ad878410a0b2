"""
Waits for a condition up to a time limit; the error includes the last observed state.

A limit is meant to stop tests that hang; a busy machine must not reach it. The time
that the test's threads spend waiting for a core therefore does not count: while other
processes use all cores, imports that need two seconds can take minutes.
:mod:`tests.harness.timeouts` treats pytest's own time limit in the same way; that limit
also stops waits that have no limit of their own.

On a busy machine a test that hangs in a busy loop also spends time waiting for a core.
No wait therefore lasts longer than ten times its limit, or ten minutes if that is more.
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
    The condition that a test waited for did not become true in time.

    The class is not an ``AssertionError``, so a test that is expected to fail with an
    ``AssertionError`` cannot hide this error.
    """


def core_waits(root=None):
    """
    Return how long each thread of a process and its children has waited for a core.

    The keys are the kernel's thread ids; the values are the seconds that the thread has
    waited since it started. A wait that has not ended yet is not included. The result
    is empty on a system without Linux's ``/proc``.
    """
    return {
        thread.name: seconds
        for process in _family(os.getpid() if root is None else root)
        for thread in _listed(_PROC / str(process) / "task")
        if (seconds := _core_wait(thread)) is not None
    }


def _family(root):
    # This search does not find a descendant whose own parent has exited.
    children = {}
    for one in _listed(_PROC):
        if one.name.isdecimal() and (stat := _read(one / "stat")):
            # The program's name, which may contain spaces, is followed by the state and
            # the parent's id.
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
    The limit for a wait, extended by the time that threads spend waiting for a core.

    With the limit None the bound is never reached. In a simulated world the bound is
    never extended.

    Attributes:
        starved: seconds that all threads together waited for a core; they extend the
            bound.
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
                # if the kernel reuses a thread id, the seconds restart at 0
                max(0.0, seconds - self._seen.get(thread, 0.0))
                for thread, seconds in waits.items()
            )
        self._seen = waits

    def __str__(self):
        beside = f" beside {self.starved:.0f} s of waits for a core"
        return f"{self._limit:g} s{beside if self.starved >= 1 else ''}"


def repeat_until(condition, what, limit=LIMIT, *, seen=None):
    """Yield after each failed check of a condition; raise an error at the limit."""
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
    Wait for a condition that other threads or processes make true.

    If pytest's time limit stops the test first, a note with the last state is added to
    pytest's error.
    """
    for _ in repeat_until(condition, what, limit, seen=seen):
        try:
            time.sleep(pause)
        except BaseException as error:
            error.add_note(f"the test waited for this: {what}{_state(seen)}")
            raise


def end_of(thread, limit=LIMIT):
    """Wait until a thread, or a process from ``multiprocessing``, has finished."""
    wait_for(lambda: not thread.is_alive(), f"the end of {thread.name}", limit)


def code_of(process, limit=END_LIMIT):
    """
    Wait until a program has exited, and return its exit code.

    Raises:
        TimeoutExpired: the program is still running at the limit; time spent waiting
            for a core does not count.
    """
    return _in_turns(process.wait, limit)


def output_of(process, limit=LIMIT, given=None):
    """
    Wait until a program has exited, and return its output as ``communicate`` does.

    Raises:
        TimeoutExpired: under the same condition as in :func:`code_of`.
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
    """Repeat a call while it raises one of these errors; return its result."""
    bound = Bound(limit)
    while True:
        try:
            return call()
        except refusals:
            if bound.is_over():
                raise
            time.sleep(PAUSE)
