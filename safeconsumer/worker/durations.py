"""Counts the durations of handlers' calls."""

from bisect import bisect_left

from attrs import frozen

# Upper bounds in seconds: from handlers that only compute to those that wait.
BOUNDS = (0.00001, 0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)


@frozen
class Histogram:
    """
    Counts of durations up to one moment, in seconds.

    Attributes:
        counts: for each of ``bounds`` the number of durations up to it and above the
            bound before; the last entry counts the durations above all bounds.
        total: the sum of the durations, in seconds.
    """

    counts: tuple[int, ...]
    total: float
    bounds: tuple[float, ...] = BOUNDS

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)


class Durations:
    """Adds up durations over time."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0

    def add(self, seconds: float, count: int) -> None:
        """Add several durations with the given sum, each an equal part of it."""
        self._counts[bisect_left(BOUNDS, seconds / count)] += count
        self._total += seconds

    def histogram(self) -> Histogram:
        """Return the counts so far."""
        return Histogram(tuple(self._counts), self._total)
