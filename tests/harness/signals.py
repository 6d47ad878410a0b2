"""Installs real signal handlers for a test, for example to raise at a given point."""

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
    """Send the signal to this process; its handler has run before this function returns."""
    signal.raise_signal(SIGNAL)


class Places:
    """
    Makes a call, and runs a signal handler at one of its interruption points.

    Python may run a signal handler at each interruption point. Other threads keep
    running while the handler runs.

    Args:
        inside: prefixes of the names of the files whose code may be interrupted.
        is_here: a function that returns whether a handler could interrupt the running
            thread.

    Attributes:
        place: the point at which the handler ran in the last call; empty if the handler
            did not run.
        seen: the number of points that the call passed before the handler ran.
    """

    def __init__(self, inside, is_here=lambda: True):
        self._inside = inside
        # Whether each file's code may be interrupted; "between" for contextlib.
        self._kinds = {}
        self._is_here = is_here
        self._wanted = 0
        self._checks = SignalChecks()
        self.place = ""
        self.seen = 0

    def reach(self, count, call, come):
        """Make a call, and run ``come`` in a handler at the n-th point if that is reached."""
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
        # A function of contextlib may be interrupted only if its caller is in one of the
        # ``inside`` files.
        caller = frame.f_back
        return caller is not None and caller.f_code.co_filename.startswith(self._inside)


class Interrupts(Places):
    """Raises an exception in a signal handler at a chosen point of a call."""

    def __init__(self, inside, is_here=lambda: True, kind=TimeLimitError):
        super().__init__(inside, is_here)
        self._kind = kind

    def at(self, count, call):
        """
        Raise at the n-th point of a call, counted from 0; return whether that was reached.

        If the handler raised, the call must raise exactly that exception.
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
