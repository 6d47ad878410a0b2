"""Provides a timer that does not round the remaining time of a poll down."""

import math
import time
from typing import Any


class ExactTimer:
    """
    Wraps one of upstream's timers so that it does not round down to milliseconds.

    Upstream's timer returns 0 in its last millisecond although it has not expired yet,
    so each poll retries in a busy loop until that millisecond has passed (kafka-python
    3.0.12).
    """

    def __init__(self, timer: Any) -> None:  # noqa: ANN401 - upstream's
        self._timer = timer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a timer
        return getattr(self._timer, name)

    @property
    def timeout_ms(self) -> float:
        """The milliseconds left, rounded up, so that the timer has expired after a wait."""
        left: float = self._timer._expire_at - time.monotonic()
        if left == math.inf:
            return left
        return max(0.0, math.ceil(left * 1e6) / 1e3)
