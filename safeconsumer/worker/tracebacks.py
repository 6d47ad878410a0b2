"""Formats errors and stacks of foreign code as text of limited size; never raises."""

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from opcode import opmap
from types import FrameType, TracebackType
from typing import Any

# The maximum size, in bytes, of an error in an event or a header, and of a chain of
# errors in a log line.
MESSAGE_BYTES = 2_048
CHAIN_BYTES = 16_384
# The maximum number of frames of a traceback in a dead letter; the last frames are
# kept.
_FRAMES = 8
_STACK_BYTES = 4_096
# The maximum number of calls in the traceback of a record's error. A longer traceback
# keeps its first and its last calls, half of the number each. A call takes about 160
# bytes as text, so about 100 calls fit into a log line.
CALLS = 100


def shown(thing: object) -> str:
    """Return the shortened ``repr`` of an error or another object; never raises."""
    return shortened(_text(repr, thing), MESSAGE_BYTES)


def message(error: BaseException) -> str:
    """Return the shortened ``str`` of an error; never raises."""
    return shortened(_text(str, error), MESSAGE_BYTES)


def chain(error: BaseException) -> str:
    """
    Format an error with its causes and all of their tracebacks, as Python prints them.

    If the text is too long, its middle is cut out.
    """
    try:
        text = "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # noqa: BLE001 - the class may raise anything
        text = f"{stack(error)}\n{shown(error)}"
    half = CHAIN_BYTES // 2
    if len(text.encode("utf-8", "replace")) <= CHAIN_BYTES:
        return text
    return f"{shortened(text, half)}\n...\n{_end_of(text, half)}"


def stack(error: BaseException) -> str:
    """Return the last frames of an error's traceback, and its notes, shortened."""
    frames = "".join(_frames(error)[-_FRAMES:])
    notes = getattr(error, "__notes__", None)
    noted = [str(one) for one in notes] if isinstance(notes, list) else []
    return _end_of("\n".join([frames.rstrip(), *noted]).strip(), _STACK_BYTES)


def _frames(error: BaseException) -> list[str]:
    # Python before 3.13 uses its parser to place the carets below a line. The parser
    # may raise SystemError if several threads use it at the same time.
    try:
        return traceback.format_tb(error.__traceback__)
    except Exception:  # noqa: BLE001 - loading the source may fail, too
        return [
            f'  File "{frame.f_code.co_filename}", line {line}, in '
            f"{frame.f_code.co_qualname}\n"
            for frame, line in traceback.walk_tb(error.__traceback__)
        ]


# Before Python 3.13, clearing the frame of a suspended generator or coroutine ends the
# generator or coroutine. This matters because an error may come from a task that has
# caught the error and continues. A suspended frame is at a yield instruction, as
# CPython's own _PyGen_yf() checks. A frame is still at the yield after an exception,
# such as a cancellation, was thrown into it, so such a frame is not cleared either.
_CAN_WAIT = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_ENDS_IF_CLEARED = sys.version_info < (3, 13)
_YIELD = opmap["YIELD_VALUE"]


def forget_locals(error: BaseException) -> set[FrameType]:
    """
    Clear the local variables of the calls in a kept error's traceback.

    The function also clears the variables of the callers, which the frames keep alive,
    and those of the error's causes and, for a group, its parts. The text of the
    traceback stays the same. Calls that are still running, and suspended coroutines,
    keep their variables. Return the frames of the running calls.
    """
    seen, running = set[FrameType](), set[FrameType]()
    for one in _with_causes(error):
        for innermost, _ in traceback.walk_tb(one.__traceback__):
            frame: FrameType | None = innermost
            while frame is not None and frame not in seen:
                seen.add(frame)
                if not _clear(frame):
                    running.add(frame)
                frame = frame.f_back
    return running


def _clear(frame: FrameType) -> bool:
    # Returns True if the frame need not be cleared later, because it is cleared now or
    # must not be.
    if not (_ENDS_IF_CLEARED and _may_wait(frame)):
        try:
            frame.clear()
        except RuntimeError:  # the call is running or suspended
            return False
    return True


class KeptErrors:
    """
    Clears the local variables in kept errors' tracebacks, also of calls that end later.

    A program that reports an error to a pump is usually still in the call that caught
    the error, and the call's variables refer to the batch. Keeping frames of running
    calls costs little, because few calls run at a time. Any thread may call this.
    """

    def __init__(self) -> None:
        self._running = set[FrameType]()
        self._is_closed = False

    def add(self, error: BaseException) -> None:
        """Clear the frames of an error now, or later if their calls are still running."""
        running = forget_locals(error)
        if not self._is_closed:
            self._running |= running

    def sweep(self) -> None:
        """Clear the local variables of calls that have ended by now."""
        for frame in tuple(self._running):
            if _clear(frame):
                self._running.discard(frame)

    def close(self) -> None:
        """
        Stop keeping frames.

        A variable in the program's own calls refers to the worker, and kept frames are
        cleared only while the worker's loop runs. After that they would be cyclic
        garbage, which only the garbage collector finds.
        """
        self._is_closed = True
        self._running.clear()


def _may_wait(frame: FrameType) -> bool:
    code = frame.f_code
    return bool(code.co_flags & _CAN_WAIT) and code.co_code[frame.f_lasti] == _YIELD


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        parts = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        left += [
            two for two in (one.__cause__, one.__context__, *parts) if two is not None
        ]


def shorten_tracebacks(error: BaseException) -> None:
    """
    Cut out the middle of the tracebacks of an error, its causes and its parts.

    Each time an exception object is raised, Python adds to its traceback. A closed
    client may raise the same exception object for every record, so the traceback, and
    the time to format it, would grow with each record.
    """
    half = CALLS // 2
    for one in _with_causes(error):
        calls, call = list[TracebackType](), one.__traceback__
        while call is not None:
            calls.append(call)
            call = call.tb_next
        if len(calls) > CALLS:
            calls[half - 1].tb_next = calls[-half]


def shortened(text: str, most: int) -> str:
    """Return a text, cut to at most ``most`` bytes."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data.decode("utf-8")
    return data[: most - 3].decode("utf-8", "ignore") + "..."


def _end_of(text: str, most: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data.decode("utf-8")
    return "..." + data[3 - most :].decode("utf-8", "ignore")


def _text(show: Callable[[object], str], thing: object) -> str:
    try:
        return str(show(thing))
    except BaseException:  # noqa: BLE001 - the method is foreign code
        return f"<{type(thing).__qualname__} that cannot be shown>"


def of_thread(ident: int | None) -> str | None:
    """Return a thread's stack, innermost call last, or None if the thread does not exist."""
    frame = sys._current_frames().get(ident or -1)  # noqa: SLF001 - its documented use
    return None if frame is None else "".join(traceback.format_stack(frame)).rstrip()


def of_coroutine(awaited: object, thread: int | None) -> str | None:
    """
    Return the stack of a coroutine, with the frames of all objects that it awaits.

    Args:
        awaited: the coroutine.
        thread: the thread of the coroutine's event loop. While the coroutine runs, for
            example because it blocks the loop, the thread's stack is returned.
    """
    if getattr(awaited, "cr_running", False):
        return of_thread(thread)
    frames: list[tuple[FrameType, int]] = []
    while (frame := _frame_of(awaited)) is not None:
        frames.append((frame, frame.f_lineno))
        awaited = _awaited_by(awaited)
    if not frames:
        return None
    return "".join(traceback.StackSummary.extract(frames).format()).rstrip()


def _frame_of(awaited: object) -> FrameType | None:
    frame: FrameType | None = _first_of(awaited, "cr_frame", "gi_frame", "ag_frame")
    return frame


def _awaited_by(awaited: object) -> object:
    return _first_of(awaited, "cr_await", "gi_yieldfrom", "ag_await")


def _first_of(awaited: object, *names: str) -> Any:  # noqa: ANN401 - a frame or awaited
    # Coroutines, generators and async generators name these attributes differently.
    return next((got for one in names if (got := getattr(awaited, one, None))), None)
