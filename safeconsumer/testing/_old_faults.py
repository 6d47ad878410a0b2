"""Injects faults into the embedded broker: errors as answers, answers held back."""

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from safeconsumer.testing import _apis
from safeconsumer.testing._wire import Header


class Hold:
    """
    Keeps the answers to some requests back until :meth:`release`.

    A context manager: leaving it releases the answers. While an answer is kept its
    connection takes no further request, as with a slow broker.
    """

    def __init__(self, api: str, client_id: str | None) -> None:
        self._key = _apis.api_key(api)
        self._client_id = client_id
        self._kept: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._is_open = False

    @property
    def count(self) -> int:
        """How many answers are being kept back."""
        with self._changed:
            return len(self._kept)

    def wait(self, count: int = 1, timeout: float = 10.0) -> None:
        """
        Return once this many answers are being kept back.

        Raises:
            TimeoutError: it did not happen within ``timeout`` seconds.

        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._kept) >= count, timeout):
                name = _apis.api_name(self._key)
                msg = f"{len(self._kept)} of {count} answers to {name} in {timeout} s"
                raise TimeoutError(msg)

    def release(self) -> None:
        """Send the kept answers in the order they came, and all that follow."""
        with self._changed:
            self._is_open = True
            kept, self._kept = self._kept, []
        for send in kept:
            send()

    def keep(self, header: Header, send: Callable[[], None]) -> bool:
        """Keep one answer back; False if it does not belong to this hold."""
        if header.api_key != self._key:
            return False
        if self._client_id not in {None, header.client_id}:
            return False
        with self._changed:
            if self._is_open:
                return False
            self._kept.append(send)
            self._changed.notify_all()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Faults:
    """The faults of a broker's front; used by its thread only."""

    def __init__(self) -> None:
        self._errors: defaultdict[int, deque[int]] = defaultdict(deque)
        self._cuts: defaultdict[int, int] = defaultdict(int)
        self.holds: list[Hold] = []

    def push(self, api_key: int, codes: list[int]) -> None:
        """Answer the next requests of this API with these codes."""
        self._errors[api_key].extend(codes)

    def cut(self, api_key: int, times: int) -> None:
        """Close the connection instead of answering, so many times."""
        self._cuts[api_key] += times

    def take_error(self, api_key: int) -> int:
        """Return the code for a request that has come, 0 for none; this uses it up."""
        errors = self._errors[api_key]
        return errors.popleft() if errors else _apis.NONE

    def take_cut(self, api_key: int) -> bool:
        """Whether to close the connection on a request; this uses one up."""
        if not self._cuts[api_key]:
            return False
        self._cuts[api_key] -= 1
        return True

    def clear(self) -> None:
        """Forget the errors and cuts that have not been used, and release all holds."""
        self._errors.clear()
        self._cuts.clear()
        for hold in self.holds:
            hold.release()
        self.holds.clear()
