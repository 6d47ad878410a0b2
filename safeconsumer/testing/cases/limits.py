"""
Sets time limits with a signal handler that may raise anywhere, as job runners do.

Python checks for signals when a function starts and after a call to a C function. A
profiler is called in exactly these places, so a limit can hit every place in turn, not
only the places that a timer happens to hit.
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

Place = tuple[CodeType, int, str, CodeType | None]


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
    A time limit that interrupts each call at a place where it has not hit before.

    A place is a position in the code, together with the calling function.

    Args:
        may_hit: returns False for places that no signal can hit.
    """

    def __init__(self, may_hit: Callable[[FrameType], bool] = lambda _: True) -> None:
        self._may_hit = may_hit
        self._hit: set[Place] = set()
        self._is_over = False

    def ends(self, call: Callable[[], object]) -> bool:
        """
        Run a call; return whether the limit interrupted it, which needs a new place.

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
        place = (frame.f_code, frame.f_lasti, event, caller)
        if place not in self._hit and self._may_hit(frame):
            self._hit.add(place)
            self._is_over = True
            sys.setprofile(None)
            signal.raise_signal(SIGNAL)


def _raise(*_: object) -> None:
    raise TimeLimitError
