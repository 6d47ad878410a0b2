"""Detects hooks that do not return, and lets another thread finish their thread's work."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from safeconsumer._waits import InterruptibleEvent

T = TypeVar("T")

# Seconds after which a thread that is still in the same hook call counts as stuck.
STUCK_SECONDS = 1.0


Call: TypeAlias = tuple[Callable[..., object], float]
"""A hook, and the start of its present call, in seconds on the monotonic clock."""


class TakenOver(BaseException):
    """Raised in a thread whose work another thread has taken over and finished."""


class Takeover:
    """
    Lets one thread finish the work of another thread that is stuck in a hook.

    1. A thread registers each call of a hook, and removes the entry when the hook
       returns.
    2. To take over, the other thread removes the entry. Only one of the two threads can
       remove the entry from the dict: the first thread continues its work only if it
       removed the entry itself. If the hook returns after all, the first thread waits
       until the other thread has finished, and raises :class:`TakenOver`.

    Attributes:
        hook: the hook that did not return; None until work is taken over. From then on
            no hook is called any more, because other hooks may hang for the same
            reason.
        over: an event that is set when the other thread has finished.
    """

    def __init__(self) -> None:
        self.hook: Callable[..., object] | None = None
        self.over = InterruptibleEvent()
        self._calls: dict[int, Call] = {}  # the current calls, by thread
        self._last_call: Call | None = None

    def call(self, hook: Callable[[T], object], event: T) -> None:
        """Call a hook. The hook may cause further calls of this method."""
        here = threading.get_ident()
        outer = self._calls.get(here)
        self._calls[here] = (hook, time.monotonic())
        try:
            hook(event)
        finally:
            if self._calls.pop(here, None) is None:
                self.over.wait()
                raise TakenOver
            if outer is not None:
                self._calls[here] = outer

    def stuck(self, seconds: float) -> list[tuple[Callable[..., object], float]]:
        """
        Return the hooks whose current call has lasted this long, on whatever thread.

        Any thread may call this.

        Args:
            seconds: the shortest duration to report.

        Returns:
            For each such thread, the hook and the seconds since its call started.
        """
        now = time.monotonic()
        calls = self._calls.copy().values()
        return [(hook, now - at) for hook, at in calls if now - at >= seconds]

    def takes(self, thread: int | None) -> bool:
        """
        Take over a thread's work, if it is in the same call as at the last check.

        Only one thread may call this, and must do so every ``STUCK_SECONDS``. Return
        whether the work was taken over.
        """
        before, call = self._last_call, self._calls.get(thread or 0)
        self._last_call = call
        if call is None or call is not before:
            return False
        if self._calls.pop(thread or 0, None) is None:
            return False  # the hook has just returned
        self.hook = call[0]
        return True


def essential(hook: Any) -> Any:  # noqa: ANN401 - a function or a class
    """Mark a hook of this package, or a hook class, as one that never blocks."""
    hook.is_essential = True
    return hook
