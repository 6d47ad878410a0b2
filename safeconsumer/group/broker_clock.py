"""Estimates the broker's time from the acknowledgements of a member's reports."""

import threading
from collections.abc import Callable

# Seconds; a smaller change of the estimate does not change any deadline.
_FINE = 0.25
# Seconds of failing reports after which a member no longer waits for the broker's time.
_PATIENCE = 30.0


class BrokerClock:
    """
    Estimates the broker's time relative to this process's monotonic clock.

    The broker adds its timestamp to a report after the report is sent and before it is
    acknowledged. When the acknowledgement arrives, the broker's clock therefore shows
    that time or later. A deadline computed from that timestamp is never reached early,
    and at most one round trip late.

    Until the first acknowledgement the time is unknown, and no hold expires. This
    machine's own clock is used if the broker's time cannot be known, because the member
    sends no reports, its reports are refused, or their topic keeps producers'
    timestamps.

    Thread rules: any thread may use this; no lock is held while ``on_change`` and
    ``on_measure`` run.

    Args:
        is_reporting: whether this member will write reports.
        on_measure: called with the arguments of each call of :meth:`acknowledged`.

    Attributes:
        is_settled: whether it is decided which clock determines when holds expire.
    """

    def __init__(
        self,
        *,
        is_reporting: bool,
        on_measure: Callable[[float, float, float], object] = lambda *_: None,
    ) -> None:
        self._on_measure = on_measure
        self.on_change: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self.is_settled = not is_reporting
        self._waits_since: float | None = None
        self._ahead: float | None = None  # the broker's clock minus our monotonic one

    def time(self, moment: tuple[float, float]) -> float | None:
        """
        Return the broker's time in seconds since the epoch; None while it is unknown.

        Args:
            moment: the current time on the monotonic clock and on this machine's wall
                clock.
        """
        passed, wall = moment
        ahead = self._ahead
        if ahead is not None:
            return passed + ahead
        return wall if self.is_settled else None

    def acknowledged(self, at: float, sent: float, received: float) -> None:
        """
        Record the timestamp that the broker has set on a report.

        Args:
            at: the broker's time, seconds since the epoch.
            sent: when the report was sent, by our monotonic clock.
            received: when the acknowledgement arrived, by our monotonic clock.
        """
        self._on_measure(at, sent, received)
        least, most = at - received, at - sent
        with self._lock:
            ahead = self._ahead
            # Keep an estimate within the two bounds, so that it does not change with
            # every report.
            if ahead is not None and least - _FINE <= ahead <= most:
                return
            self._ahead, self.is_settled = least, True
        self.on_change()

    def failed(self, now: float, *, is_final: bool = False) -> None:
        """
        Record that a report failed, or was acknowledged without a broker timestamp.

        Args:
            now: the time on our monotonic clock.
            is_final: whether later reports will fail for the same reason.
        """
        with self._lock:
            if self._waits_since is None:
                self._waits_since = now
            is_over = is_final or now - self._waits_since >= _PATIENCE
            if self.is_settled or not is_over:
                return
            self.is_settled = True
        self.on_change()
