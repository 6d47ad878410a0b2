"""Limits how many records begin per second."""

# Seconds. Records that could have begun this long ago may begin now, all at once:
# threads are not as exact as a clock.
_BURST = 0.1


class Rate:
    """
    Counts how many records may begin, at so many per second. Not thread-safe.

    Over any span of time no more begin than the rate allows plus those of 0.1 s, or
    plus one; a batch begins as one, and its records are paid for afterwards.
    """

    def __init__(self, per_second: float, now: float) -> None:
        self._interval = 1 / per_second
        self._next = now

    def room(self, now: float) -> int:
        """Return how many records may begin now."""
        late = min(now - self._next, _BURST)
        return 0 if late < 0 else int(late / self._interval) + 1

    def wait(self, now: float) -> float:
        """Return the seconds until a record may begin."""
        return max(0.0, self._next - now)

    def take(self, count: int, now: float) -> None:
        """Count records that begin."""
        self._next = max(self._next, now - _BURST) + count * self._interval

    def give_back(self, count: int) -> None:
        """Take back records that were counted and did not begin."""
        self._next -= count * self._interval
