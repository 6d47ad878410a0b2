"""Waits, with a bound, for a condition; an error has the last state that was seen."""

import time

LIMIT = 60.0
"""Seconds after which an awaited condition is taken for one that never holds."""

PAUSE = 0.01
"""Seconds between two looks at the state of other threads and processes."""


class NotReachedError(Exception):
    """
    A condition that a test waits for did not hold in time.

    The class is not an ``AssertionError``, so that no expected failure can hide it.
    """


def looks(condition, what, limit=LIMIT, *, seen=None):
    """Yield between two checks of a condition, until it holds, for a bounded loop."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            state = "" if seen is None else f"; last seen: {seen()}"
            message = f"{what}: not within {limit:g} s{state}"
            raise NotReachedError(message)
        yield


def wait_for(condition, what, limit=LIMIT, *, seen=None, pause=PAUSE):
    """Return once a condition holds that other threads or processes bring about."""
    for _ in looks(condition, what, limit, seen=seen):
        time.sleep(pause)


def retried(call, *refusals, limit=LIMIT):
    """Call until none of these errors is raised; return the result."""
    deadline = time.monotonic() + limit
    while True:
        try:
            return call()
        except refusals:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE)
