"""
Sets time limits with a signal handler that may raise anywhere, as job runners do.

Python checks for signals when a function starts and after a call to a C function. A
profiler is called at exactly these points, so a limit can interrupt a call at every
point in turn, not only at the points at which a timer happens to fire.
"""

import inspect
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE

# Not SIGALRM, because pytest-timeout uses that signal.
SIGNAL = signal.SIGUSR1

_Point = tuple[CodeType, int, str, CodeType | None]


class TimeLimitError(Exception):
    """Raised by the signal handler of a time limit."""


class SignalChecks:
    """Finds the profiler events at which Python may call a signal handler."""

    def __init__(self) -> None:
        self._is_in_c = False

    def is_one(self, frame: FrameType, event: str, called: object) -> bool:
        """Return whether Python checks for signals at a profiler event."""
        was_in_c, self._is_in_c = self._is_in_c, False
        if event == "c_call":
            self._is_in_c = getattr(called, "__name__", "") not in {"close", "throw"}
        if event not in {"call", "c_return"}:
            return False
        # When a generator is closed, Python calls the profiler but does not check for
        # signals.
        is_closed = event == "call" and frame.f_code.co_flags & _GENERATORS
        return not is_closed or was_in_c


class Limit:
    """
    A time limit that interrupts each call at a new point.

    A point is a position in the code, together with the calling function.

    Args:
        may_hit: returns whether a signal may interrupt the code of a frame.
    """

    def __init__(self, may_hit: Callable[[FrameType], bool] = lambda _: True) -> None:
        self._may_hit = may_hit
        self._hit: set[_Point] = set()
        self._is_over = False

    def ends(self, call: Callable[[], object]) -> bool:
        """
        Run a call; return whether the limit interrupted it.

        The limit does not interrupt a call that passes no new point.
        Only this method catches the exception that the signal handler raises.
        """
        self._is_over, checks = False, SignalChecks()

        def profile(frame: FrameType, event: str, called: Any) -> None:  # noqa: ANN401  as setprofile() passes it
            if checks.is_one(frame, event, called) and not self._is_over:
                self._hit_at(frame, event)

        before = signal.signal(SIGNAL, _raise)
        try:
            sys.setprofile(profile)
            try:
                call()
            finally:
                sys.setprofile(None)
        except TimeLimitError:
            pass
        finally:
            signal.signal(SIGNAL, before)
        return self._is_over

    def _hit_at(self, frame: FrameType, event: str) -> None:
        caller = frame.f_back and frame.f_back.f_code
        point = (frame.f_code, frame.f_lasti, event, caller)
        if point not in self._hit and self._may_hit(frame):
            self._hit.add(point)
            self._is_over = True
            sys.setprofile(None)
            signal.raise_signal(SIGNAL)


def _raise(*_: object) -> None:
    raise TimeLimitError
