"""Installs real signal handlers for a test, also one that raises at any place of a call."""

import signal
import sys
from contextlib import contextmanager

from safeconsumer.testing.cases.limits import SIGNAL, SignalChecks, TimeLimitError


@contextmanager
def handled_by(handler, number=SIGNAL):
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def send():
    """Have the handler run before this returns."""
    signal.raise_signal(SIGNAL)


class Places:
    """
    Stops a call, once, where Python may call a signal handler: at any such place.

    Other threads go on in the same places.

    Args:
        inside: whose functions are places: begins of file names.
        is_here: tells whether a handler could interrupt the running thread.

    Attributes:
        place: where the last call was stopped; empty if it was not.
        seen: how many places it had until then.
    """

    def __init__(self, inside, is_here=lambda: True):
        self._inside = inside
        self._kinds = {}  # of files, by their names: places, or what stands between them
        self._is_here = is_here
        self._wanted = 0
        self._checks = SignalChecks()
        self.place = ""
        self.seen = 0

    def reach(self, count, call, come):
        """Call something, and another in a handler at its n-th place, if it has it."""
        self._wanted, self.place, self.seen = count, "", 0
        with handled_by(lambda *_: come()):
            sys.setprofile(self._look)
            try:
                call()
            finally:
                sys.setprofile(None)
        return bool(self.place)

    def _look(self, frame, event, what):
        if not self._checks.is_one(frame, event, what) or not self._is_place(frame):
            return
        if not self._is_here():
            return
        if self.seen < self._wanted:
            self.seen += 1
        elif not self.place:
            sys.setprofile(None)
            self.place = f"{frame.f_code.co_qualname}:{frame.f_lineno} ({event})"
            send()

    def _is_place(self, frame):
        name = frame.f_code.co_filename
        kind = self._kinds.get(name)
        if kind is None:
            is_between = name.endswith("/contextlib.py")
            kind = "between" if is_between else name.startswith(self._inside)
            self._kinds[name] = kind
        if kind != "between":
            return kind
        # A frame of contextlib counts if a frame inside called it.
        caller = frame.f_back
        return caller is not None and caller.f_code.co_filename.startswith(self._inside)


class Interrupts(Places):
    """Raises out of a signal handler, at any place of a call."""

    def __init__(self, inside, is_here=lambda: True, kind=TimeLimitError):
        super().__init__(inside, is_here)
        self._kind = kind

    def at(self, count, call):
        """
        Call something and raise at its n-th place, from 0; return whether it has one.

        It asserts that the handler's exception, and no other, came out of the call.
        """
        raised = None
        try:
            self.reach(count, call, self._raise)
        except self._kind as error:
            raised = error
        assert bool(self.place) is (raised is not None), f"swallowed at {self.place}"
        return raised is not None

    def _raise(self):
        raise self._kind(self.place)
