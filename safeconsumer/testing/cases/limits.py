"""
Time limits as job runners set them: a signal handler raises wherever the program is.

Python looks for signals as a function begins and after it has called one in C. A profiler
is called in exactly these places, so that a limit can hit each of them in turn, instead
of those that a timer happens to meet.
"""

import inspect
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE

# Not SIGALRM: pytest-timeout uses it.
SIGNAL = signal.SIGUSR1

Place = tuple[CodeType, int, str, CodeType | None]


class TimeLimitError(Exception):
    """What the handler raises."""


class SignalChecks:
    """Finds, in a profiler, the places where Python may call a signal handler."""

    def __init__(self) -> None:
        self._is_in_c = False

    def is_one(self, frame: FrameType, event: str, what: object) -> bool:
        """Tell whether Python checks for signals at this event of the profiler."""
        was_in_c, self._is_in_c = self._is_in_c, False
        if event == "c_call":
            self._is_in_c = getattr(what, "__name__", "") not in {"close", "throw"}
        if event not in {"call", "c_return"}:
            return False
        # A generator that is closed: the profiler is called, but no handler.
        is_closed = event == "call" and frame.f_code.co_flags & _GENERATORS
        return not is_closed or was_in_c


class Limit:
    """
    A time limit that hits each call at a place where it hit none before.

    A place is one of the code; it counts once for each function that calls this code.

    Args:
        may_hit: whether it may hit here, for those who know places that no signal meets.
    """

    def __init__(self, may_hit: Callable[[FrameType], bool] = lambda _: True) -> None:
        self._may_hit = may_hit
        self._hit: set[Place] = set()
        self._is_over = False

    def ends(self, call: Callable[[], object]) -> bool:
        """
        Call something; tell whether the limit hit it, which it does if there is a new place.

        What the handler raised is caught here and only here.
        """
        self._is_over, checks = False, SignalChecks()

        def look(frame: FrameType, event: str, what: Any) -> None:  # noqa: ANN401  as setprofile has it
            if checks.is_one(frame, event, what) and not self._is_over:
                self._hit_at(frame, event)

        before = signal.signal(SIGNAL, _raise)
        try:
            sys.setprofile(look)
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
