"""
Distinguishes a signal handler's exception from a failure of the interrupted code.

A SIGALRM handler that enforces a time limit may raise an ``Exception`` at any line of
the program, even inside a deserializer, a hook, or the matching of a pattern. A poll
survives failures of such code, or raises them later. A signal handler's exception,
however, must propagate immediately.
"""

from inspect import CO_VARARGS
from itertools import pairwise
from types import FrameType, TracebackType


def is_from_handler(error: BaseException) -> bool:
    """
    Return whether a signal handler, or a function that it called, raised the error.

    Python passes the interrupted frame to the handler, and in the traceback that frame
    is also the handler's caller. No other function gets its caller's frame as an
    argument.
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
    # The caller's frame may be a named argument or an element of *args.
    code = called.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    given = [called.f_locals.get(name) for name in code.co_varnames[:count]]
    return any(
        one is caller or (type(one) is tuple and any(each is caller for each in one))
        for one in given
    )
