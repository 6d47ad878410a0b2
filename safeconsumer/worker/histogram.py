"""
How long something took, counted by size; of one thread, or under a lock.
"""

from bisect import bisect_left

from attrs import frozen

# Seconds: from handlers that only compute to those that wait for somebody.
BOUNDS = (0.00001, 0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)


@frozen
class Histogram:
    """
    Durations of one moment, in seconds.

    Attributes:
        counts: how many were no longer than each of ``bounds``, and longer than the one
            before; at the end those longer than all.
        total: their sum.
    """

    counts: tuple[int, ...]
    total: float
    bounds: tuple[float, ...] = BOUNDS

    @property
    def count(self) -> int:
        """
        How many there were.
        """
        return sum(self.counts)


class Durations:
    """
    Counts durations as they come.
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0

    def add(self, seconds: float, count: int) -> None:
        """
        Count some that took so many seconds together, each an even part of them.
        """
        self._counts[bisect_left(BOUNDS, seconds / count)] += count
        self._total += seconds

    def taken(self) -> Histogram:
        """
        Return what was counted so far.
        """
        return Histogram(tuple(self._counts), self._total)
