"""Counts the durations of handlers' calls."""

from bisect import bisect_left

from attrs import frozen

# Upper bounds of durations, in seconds. The small ones are for handlers that only
# compute, and the large ones for handlers that wait.
BOUNDS = (0.00001, 0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)


@frozen
class Histogram:
    """
    A snapshot of the counts of durations, which are in seconds.

    Attributes:
        counts: one entry per bound in ``bounds``, with the number of durations up to
            that bound and above the previous one; the last entry counts the durations
            above all bounds.
        total: the sum of the durations, in seconds.
    """

    counts: tuple[int, ...]
    total: float
    bounds: tuple[float, ...] = BOUNDS

    @property
    def count(self) -> int:
        """The number of all durations."""
        return sum(self.counts)


class Durations:
    """Counts durations and adds them up, over the life of a worker."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0

    def add(self, seconds: float, count: int) -> None:
        """Add ``count`` durations, each an equal part of the given seconds."""
        self._counts[bisect_left(BOUNDS, seconds / count)] += count
        self._total += seconds

    def histogram(self) -> Histogram:
        """Return the counts so far."""
        return Histogram(tuple(self._counts), self._total)
