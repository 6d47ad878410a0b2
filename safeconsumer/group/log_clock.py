"""Determines the broker's time in a process whose own clock may be wrong."""

import math
import time
from collections.abc import Callable

AGREE = 5.0
"""
Seconds; clocks that differ by no more than this do not make a live member look silent.
"""


class LogClock:
    """
    Derives the broker's time from record timestamps, and from our clock in between.

    A record's timestamp is the broker's time when the record arrived at the broker. We
    know how long ago that was only if we waited for the record. So if the newest
    timestamp and our wall clock disagree, :meth:`now` waits once for another record. It
    also waits if the last call was so long ago that a new record may be old: its writer
    may have died since.

    Args:
        wall: returns our clock's time, in seconds since the epoch.
        passed: returns our monotonic clock's time, in seconds.

    Attributes:
        is_sure: whether the last result of :meth:`now` is based on records.
        wall: see the argument of the same name.
        passed: see the argument of the same name.
    """

    def __init__(
        self,
        wall: Callable[[], float] | None = None,
        passed: Callable[[], float] | None = None,
    ) -> None:
        self.wall = wall or time.time
        self.passed = passed or time.monotonic
        self._ahead: float | None = None  # the broker's clock minus our monotonic one
        self._last: float | None = None
        self._called_at = 0.0
        self.is_sure = False

    def now(self, newest: float, listen: Callable[[], float | None]) -> float:
        """
        Return the broker's time; infinity if no record arrives and our clock is behind.

        Args:
            newest: the time of the newest record.
            listen: waits for another record; returns its time, or None if no record
                arrived.
        """
        wall = self.wall()
        last, self._last = self._last, newest
        if self._ahead is None and abs(wall - newest) <= AGREE:
            self._anchor_at(newest)  # close enough to find live members, never ahead
        elif last is None or (newest != last and self._may_be_old(newest)):
            self._anchor_at(listen())
        elif newest != last:
            # The record has arrived since the last call; an older timestamp means that
            # the broker's clock was set back.
            self._anchor_at(newest)
        self._called_at = self.passed()
        self.is_sure = self._ahead is not None
        if self._ahead is None:
            # No other record has arrived. Our clock shows for how long; if it is behind
            # the newest record, the silence counts as endless.
            return wall if wall > newest else math.inf
        return self.passed() + self._ahead

    def _may_be_old(self, newest: float) -> bool:
        # A new record arrived at some time since the last call. If the known time is
        # later, but not by more than has passed since then, either the record is old,
        # or the broker's clock was set back. Only another record tells which.
        since = self.passed() - self._called_at
        if since <= AGREE or self._ahead is None:
            return since > AGREE
        return AGREE < self.passed() + self._ahead - newest <= since + AGREE

    def _anchor_at(self, newest: float | None) -> None:
        if newest is not None:
            self._ahead = newest - self.passed()
            self._last = newest
