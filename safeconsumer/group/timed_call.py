"""Runs a call on its own thread, and abandons it if it does not finish in time."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from safeconsumer._waits import InterruptibleEvent

T = TypeVar("T")


class TimedCall(Generic[T]):
    """
    A call on its own thread, which the caller can abandon.

    Args:
        ask: the function; it may block for any time.
        tidy: called on the call's thread when an abandoned call finishes; None if there
            is nothing to clean up.
    """

    def __init__(
        self, ask: Callable[[], T], tidy: Callable[[], object] | None = None
    ) -> None:
        self._ask = ask
        self._tidy = tidy
        self._lock = threading.Lock()
        self._is_left = False
        self._over = InterruptibleEvent()
        self._answer: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="safeconsumer-ask", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether the function has returned or raised."""
        return self._over.is_set()

    def result(self, seconds: float) -> T:
        """
        Return the function's result, or raise its exception.

        Raises:
            TimeoutError: the function has not finished within this many seconds; the
                call is abandoned.
        """
        self._over.wait(seconds)
        with self._lock:
            if not self._over.is_set():
                self._is_left = True
                message = "no answer in time"
                raise TimeoutError(message)
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def _run(self) -> None:
        try:
            self._answer.append(self._ask())
        except BaseException as error:  # noqa: BLE001 - result() raises it
            self._error = error
        with self._lock:
            self._over.set()
            is_left = self._is_left
        if is_left and self._tidy is not None:
            self._tidy()
