"""
Asks on a thread of its own, and leaves behind whatever is not answered in time.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Errand(Generic[T]):
    """
    A question that may wait for longer than whoever asked.

    Args:
        ask: what is asked; it may block for as long as it likes.
        tidy: called on the errand's thread, once it is over and was left behind; None
            where nothing is left to tidy.
    """

    def __init__(
        self, ask: Callable[[], T], tidy: Callable[[], object] | None = None
    ) -> None:
        self._ask = ask
        self._tidy = tidy
        self._lock = threading.Lock()
        self._is_left = False
        self._over = threading.Event()
        self._answer: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="safeconsumer-ask", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """
        Whether there is an answer, or an error.
        """
        return self._over.is_set()

    def result(self, seconds: float) -> T:
        """
        Return the answer, or raise what asking raised.

        Raises:
            TimeoutError: there is none after so many seconds, and it is left behind.
        """
        self._over.wait(seconds)
        with self._lock:
            if not self._over.is_set():
                self._is_left = True
                message = f"no answer in {seconds:.1f} s"
                raise TimeoutError(message)
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def _run(self) -> None:
        try:
            self._answer.append(self._ask())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        with self._lock:
            self._over.set()
            is_left = self._is_left
        if is_left and self._tidy is not None:
            self._tidy()
