"""
Lets a test run longer than pytest's time limit on a busy machine.

pytest's limit is meant to stop tests that hang. Once the limit has passed, a test may
run for up to one more minute, in which the time that its threads spend waiting for a
core does not count.
"""

import signal
import threading
import time
from functools import partial

import pytest

from tests.harness.waiting import LIMIT, Bound

_EVERY = 1.0
"""The seconds between two checks of a test that has outlasted its limit."""


class Alarm:
    """A handler for the signal with which pytest-timeout stops a test."""

    def __init__(self, end, make_bound, limit):
        self._end, self._make = end, partial(make_bound, limit)
        self._bound = None

    def __call__(self, number, frame):
        """Stop the test if its second limit has also passed; otherwise check again later."""
        __tracebackhide__ = True
        if self._bound is None:
            self._bound = self._make()
        if self._bound.is_over():
            self._end(number, frame)
        else:
            signal.setitimer(signal.ITIMER_REAL, _EVERY)


def _real_clock():
    # The limit needs a real clock, because a test that hangs in a simulated world stops
    # the clock of that world.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(settings):
    """Wrap pytest-timeout's signal handler; pytest-timeout still cancels the timer."""
    is_set = yield
    is_main = threading.current_thread() is threading.main_thread()
    if settings.method == "signal" and is_main:
        alarm = Alarm(
            signal.getsignal(signal.SIGALRM),
            partial(Bound, clock=_real_clock),
            min(LIMIT, settings.timeout),
        )
        signal.signal(signal.SIGALRM, alarm)
    return is_set
