"""Counts how long handlers take."""

from bisect import bisect_left

from attrs import frozen

# Upper bounds in seconds: from handlers that only compute to those that wait.
BOUNDS = (0.00001, 0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)


@frozen
class Histogram:
    """
    Counts of durations up to one moment, in seconds.

    Attributes:
        counts: how many durations were no longer than each of ``bounds`` and longer
            than the bound before; the last entry counts those longer than all bounds.
        total: the sum of the durations, in seconds.
    """

    counts: tuple[int, ...]
    total: float
    bounds: tuple[float, ...] = BOUNDS

    @property
    def count(self) -> int:
        """How many durations there were."""
        return sum(self.counts)


class Durations:
    """Counts durations as they come."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0

    def add(self, seconds: float, count: int) -> None:
        """Count several that took so many seconds together, each an equal part of them."""
        self._counts[bisect_left(BOUNDS, seconds / count)] += count
        self._total += seconds

    def histogram(self) -> Histogram:
        """Return the counts so far."""
        return Histogram(tuple(self._counts), self._total)
