"""
What time it is at the broker, for somebody whose own clock may be anything.
"""

import math
import time
from collections.abc import Callable

from attrs import frozen

# Two clocks that differ by so little do not make a live member look silent.
_AGREE = 5.0


@frozen
class _Anchor:
    newest: float
    heard_at: float


class LogClock:
    """
    Tells the broker's time by the times of records, and its own clock only between.

    A record's time is the broker's time of the moment in which it came, and that moment
    is known only of a record for which somebody waited. So where the newest record and
    our wall clock disagree, one more is waited for, once.

    Args:
        wall: our clock, seconds since the epoch.
        passed: seconds that never go back.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        passed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._passed = passed
        self._anchor: _Anchor | None = None
        self._last: float | None = None
        self._is_sure = False

    @property
    def is_sure(self) -> bool:
        """
        Whether what :meth:`now` returned last was told by records.
        """
        return self._is_sure

    def knows(self, newest: float) -> bool:
        """
        Tell whether :meth:`now` would answer without waiting.
        """
        return self._anchor is not None or abs(self._wall() - newest) <= _AGREE

    def now(self, newest: float, listen: Callable[[], float | None]) -> float:
        """
        Return the broker's time; infinity if nobody writes and our clock is behind.

        Args:
            newest: the time of the newest record there is.
            listen: waits for one more; returns its time, or None if none came.
        """
        wall = self._wall()
        last, self._last = self._last, newest
        self._is_sure = True
        if self._anchor is None and abs(wall - newest) <= _AGREE:
            return max(newest, wall)
        if last is None:
            self._anchor_at(listen())
        elif newest != last:
            # It came since we looked; if it is older, the broker's clock went back.
            self._anchor_at(newest)
        self._is_sure = self._anchor is not None
        if self._anchor is None:
            # Silent for as long as our clock says; if that is behind, for good.
            return wall if wall > newest else math.inf
        return self._anchor.newest + self._passed() - self._anchor.heard_at

    def _anchor_at(self, newest: float | None) -> None:
        if newest is not None:
            self._anchor = _Anchor(newest, self._passed())
            self._last = newest
