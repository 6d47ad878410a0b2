"""
The broker's time for a member, told by the acknowledgements of its own reports.
"""

import threading
from collections.abc import Callable

# It is learnt anew with every report; a difference as small as this moves no deadline.
_FINE = 0.25
# For so long somebody who can report at all is waited for.
_PATIENCE = 30.0


class BrokerClock:
    """
    Compares the broker's clock with this process's monotonic one.

    The broker puts the time into a report between its sending and its acknowledgement.
    So at the acknowledgement it is that time at the broker, or later; counted from
    there, a deadline is never reached early, and late by one round trip at most.

    Until the first acknowledgement the time is unknown, and nothing may expire. Where
    none is to be had, because nobody reports, reports are refused or their topic has no
    broker's times, this machine's own clock has to do.

    Thread rules: any thread; ``on_change`` is called under no lock.

    Args:
        is_told: whether reports will be written at all.
    """

    def __init__(self, *, is_told: bool) -> None:
        self.on_change: Callable[[], object] = _nothing
        self._lock = threading.Lock()
        self._is_waiting = is_told
        self._waits_since: float | None = None
        self._ahead: float | None = None  # the broker's clock, of our monotonic one

    @property
    def is_settled(self) -> bool:
        """
        Whether it is known by which clock holds expire.
        """
        return not self._is_waiting

    def time(self, moment: tuple[float, float]) -> float | None:
        """
        Return the broker's time, seconds since the epoch; None if it is unknown yet.

        Args:
            moment: the same moment on the monotonic clock and on this machine's.
        """
        passed, wall = moment
        ahead = self._ahead
        if ahead is not None:
            return passed + ahead
        return None if self._is_waiting else wall

    def told(self, at: float, sent: float, heard: float) -> None:
        """
        Take note of a time that the broker has put into a report.

        Args:
            at: the broker's time, seconds since the epoch.
            sent: when the report was sent, by our monotonic clock.
            heard: when the acknowledgement came, by our monotonic clock.
        """
        least, most = at - heard, at - sent
        with self._lock:
            ahead = self._ahead
            # Between the two bounds it stays, so that it does not move at each report.
            if ahead is not None and least - _FINE <= ahead <= most:
                return
            self._ahead, self._is_waiting = least, False
        self.on_change()

    def untold(self, now: float, *, is_final: bool = False) -> None:
        """
        Take note that a report came to nothing, or brought no time of the broker's.

        Args:
            now: by our monotonic clock.
            is_final: whether the next one will not fare better.
        """
        with self._lock:
            if self._waits_since is None:
                self._waits_since = now
            is_over = is_final or now - self._waits_since >= _PATIENCE
            if not self._is_waiting or not is_over:
                return
            self._is_waiting = False
        self.on_change()


def _nothing() -> None:
    """
    Do nothing, until somebody wants to know.
    """
