"""
Distinguishes an exception of a signal handler from a failure of the interrupted code.

A time limit by SIGALRM raises an ``Exception`` at any line of the program, also inside
a deserializer, a hook or an expression, whose failures a poll survives or keeps for
later.
An exception of a handler must come out of the call at once.
"""

from inspect import CO_VARARGS
from itertools import pairwise
from types import FrameType, TracebackType


def is_from_handler(error: BaseException) -> bool:
    """
    Return whether a signal handler written in Python, or a function it called, raised it.

    Python gives a handler the frame that it interrupted, which is the frame that calls
    it. No other function is given its caller's frame.
    """
    frames = _frames(error.__traceback__)
    return any(_is_given(called, caller) for caller, called in pairwise(frames))


def _frames(trace: TracebackType | None) -> list[FrameType]:
    found = []
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    return found


def _is_given(called: FrameType, caller: FrameType) -> bool:
    # As an argument by name, or as one of *args.
    code = called.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    given = [called.f_locals.get(name) for name in code.co_varnames[:count]]
    return any(
        one is caller or (type(one) is tuple and any(each is caller for each in one))
        for one in given
    )
