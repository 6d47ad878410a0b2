"""
Keeps Python's cyclic garbage collector from starting because records are made.

The collector starts when 700 more objects were made than freed. A poll of 500 records
makes more than that, and the application frees the last 500 only after it, so every
poll would start it. Two measures prevent that: it is off while records are made, and in
that time the records of an earlier poll are freed, so that as many objects go as come
(design/0088).
"""

import gc
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from safeconsumer._kafka import fork as _fork

R = TypeVar("R")

AT_ONCE = 5_000
"""
This many records, at most, are made with the collector off: 3 to 15 ms.
"""

# Bytes of one poll's records, uncompressed: those of a larger poll are not kept.
_KEPT_BYTES = 1024 * 1024

UNKNOWN_SIZE = 2**62
"""
The size of records that nobody has counted: they are not kept.
"""

# The threads that have switched the garbage collector off now.
_pausing: set[int] = set()


def uncollected(call: Callable[..., R], *args: object) -> R:
    """
    Call with the collector off, in the whole process; afterwards it is as it was.

    The call must be short, and must run no code of the application: that may wait, and
    leave the garbage of other threads uncollected.
    """
    # This is no context manager: an interrupt between its two halves would leave the
    # collector off.
    was_enabled = False
    try:
        was_enabled = gc.isenabled()
        if was_enabled:
            _pausing.add(threading.get_ident())  # first: a fork may come between
            gc.disable()
        return call(*args)
    finally:
        if was_enabled:
            gc.enable()
            _pausing.discard(threading.get_ident())


class LastPolls:
    """
    Keeps the records of the last two polls, to free the older ones at the right moment.

    An application that drops a poll's records when it has the next ones frees nothing
    by that: here is another reference. They are freed in :meth:`turn`, right after as
    many new ones were made. It costs the memory of two polls, of at most 5,000 records
    and 1 MiB each.

    Thread rules: the polling thread.
    """

    def __init__(self) -> None:
        self._older: list[tuple[object, ...]] = []
        self._last: list[tuple[object, ...]] = []

    def turn(self, records: Iterable[Sequence[object]], size: int) -> None:
        """
        Keep the records that a poll has made, and free those before the last ones.

        Call it with the collector off.

        Args:
            records: lists that are the application's from now on.
            size: how many bytes they have; 0: there are none, and nothing is freed.
        """
        if size:
            kept = [tuple(some) for some in records] if size <= _KEPT_BYTES else []
            self._older, self._last = self._last, kept

    def clear(self) -> None:
        """
        Free all of them.
        """
        self._older, self._last = [], []


def _resume() -> None:
    # Runs in a forked child, where the threads that would enable it again are gone.
    if _pausing:
        _pausing.clear()
        gc.enable()


_fork.run_in_child(_resume)
