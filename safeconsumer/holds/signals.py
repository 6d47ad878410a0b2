"""Finds out whether a Python signal handler called the running code."""

import functools
import signal
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType

try:  # it makes no enumeration members of its answers, as signal.getsignal does
    from _signal import getsignal  # type: ignore[import-not-found]  # CPython has it
except ImportError:  # not CPython
    from signal import getsignal

_SIGNALS = tuple(map(int, signal.valid_signals()))

# The handlers met so far, the latest of them: a handler may install another one, or the
# default, before it calls us, as those do that let a second Ctrl-C kill.
_met: dict[CodeType, None] = {}
_MOST_MET = 256


def in_signal_handler() -> bool:
    """
    Tell whether a signal handler is on the stack of this thread.

    A handler interrupts the main thread between two instructions, possibly while it
    holds a lock, so code called from a handler must take none. Python does not mark
    such frames; they are recognised by the code of the handlers that are installed now,
    or were when this was last called.

    Thread rules: any thread. It costs some microseconds on the main thread and almost
    nothing on others, where handlers never run.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    meet_handlers()
    handlers = _met
    if not handlers:
        return False
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented, CPython and PyPy have it
    while frame is not None:
        if frame.f_code in handlers:
            return True
        frame = frame.f_back
    return False


def meet_handlers() -> None:
    """Remember the handlers that are installed now. Any thread may call it."""
    found = tuple(_handler_codes())
    if len(_met) > _MOST_MET:
        _met.clear()
    for code in found:
        _met.setdefault(code)


def _handler_codes() -> Iterator[CodeType]:
    for number in _SIGNALS:
        handler = getsignal(number)
        if not callable(handler):
            continue
        while isinstance(handler, functools.partial):
            handler = handler.func
        for function in (handler, type(handler).__call__):
            code = getattr(getattr(function, "__func__", function), "__code__", None)
            if isinstance(code, CodeType):
                yield code
