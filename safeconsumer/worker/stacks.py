"""
Where a handler stands now, for people.
"""

import asyncio
import sys
import traceback
from types import FrameType
from typing import Any


def of_thread(ident: int | None) -> str | None:
    """
    Return a thread's stack, innermost call last; None if there is no such thread.
    """
    frame = sys._current_frames().get(ident or -1)  # noqa: SLF001 - its documented use
    return None if frame is None else "".join(traceback.format_stack(frame)).rstrip()


def of_task(task: "asyncio.Task[None]", thread: int | None) -> str | None:
    """
    Return the stack of a coroutine, along what it awaits.

    Args:
        task: what runs it.
        thread: its event loop's; the stack is the thread's while the coroutine runs, as
            one does that blocks the loop.
    """
    awaited: object = task.get_coro()
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
    # Coroutines, generators and asynchronous generators each have names of their own.
    return next((got for one in names if (got := getattr(awaited, one, None))), None)
