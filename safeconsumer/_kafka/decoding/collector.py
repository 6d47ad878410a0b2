"""
Keeps Python's cyclic garbage collector from starting because records are made.

The collector starts when 700 more objects were made than freed. A poll of 500 records
makes more than that, and the application frees the last 500 only after it, so every
poll would start it. Two measures prevent that: it is off while records are made, and in
that time the records of an earlier poll are freed, so that as many objects go as come
(design/0088).
"""

import gc
import sys
import threading
from collections import deque
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

# The polls that are kept also if the application has dropped their records.
_POLLS = 2

# The references to a record that are ours.
_OURS = 2

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
    Keeps the records of the last polls, to free the oldest ones at the right moment.

    An application that drops a poll's records when it has the next ones frees nothing
    by that: here is another reference. They are freed in :meth:`turn`, right after as
    many new ones were made. An application that keeps records for a while, as a worker
    does, finds more polls here, and frees nothing by dropping them either: what it
    drops in one go would not count against what it takes up afterwards.

    It costs the memory of two polls, of at most 5,000 records and 1 MiB each; the same,
    but in smaller polls, where the application keeps their records.

    Thread rules: the polling thread.
    """

    def __init__(self) -> None:
        self._polls: deque[tuple[list[tuple[object, ...]], int, int]] = deque()
        self._count = self._size = 0

    def turn(self, records: Iterable[Sequence[object]], size: int) -> None:
        """
        Keep the records that a poll has made, and free as many of older ones.

        Call it with the collector off.

        Args:
            records: lists that are the application's from now on.
            size: how many bytes they have; 0: there are none, and nothing is freed.
        """
        if not size:
            return
        if size > _KEPT_BYTES:
            self._keep([], 0, 0)
            while len(self._polls) > _POLLS:
                self._free()
            return
        kept = [tuple(some) for some in records]
        came = sum(map(len, kept))
        self._keep(kept, came, size)
        freed = 0
        while len(self._polls) > _POLLS and (
            self._is_much() or (freed < came and _is_dropped(self._polls[0][0]))
        ):
            freed += self._free()

    def clear(self) -> None:
        """
        Free all of them.
        """
        self._polls.clear()
        self._count = self._size = 0

    def _keep(self, kept: list[tuple[object, ...]], count: int, size: int) -> None:
        self._polls.append((kept, count, size))
        self._count += count
        self._size += size

    def _free(self) -> int:
        _, count, size = self._polls.popleft()
        self._count -= count
        self._size -= size
        return count

    def _is_much(self) -> bool:
        return self._count > _POLLS * AT_ONCE or self._size > _POLLS * _KEPT_BYTES


def _is_dropped(kept: list[tuple[object, ...]]) -> bool:
    # Whether the application has dropped them, by the first and the last one: nobody
    # else refers to them, but for the tuple here and the call.
    return not kept or (
        sys.getrefcount(kept[0][0]) <= _OURS and sys.getrefcount(kept[-1][-1]) <= _OURS
    )


def _resume() -> None:
    # Runs in a forked child, where the threads that would enable it again are gone.
    if _pausing:
        _pausing.clear()
        gc.enable()


_fork.run_in_child(_resume)
