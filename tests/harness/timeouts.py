"""
Lets a test outlast pytest's time limit on a busy machine.

pytest's limit is meant for tests that hang. Once the limit has passed, a test may run
for up to a minute more, without counting the seconds for which its threads wait for a
core.
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
    """A handler of the signal with which pytest-timeout stops a test."""

    def __init__(self, end, make_bound, limit):
        self._end, self._make = end, partial(make_bound, limit)
        self._bound = None

    def __call__(self, number, frame):
        """Stop the test if its second limit has passed, too; otherwise check again later."""
        __tracebackhide__ = True
        if self._bound is None:
            self._bound = self._make()
        if self._bound.is_over():
            self._end(number, frame)
        else:
            signal.setitimer(signal.ITIMER_REAL, _EVERY)


def _real_clock():
    # A test may hang in a simulated world, and thereby stop that world's clock.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(settings):
    """Wrap the signal handler of pytest-timeout, which cancels the timer itself."""
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
