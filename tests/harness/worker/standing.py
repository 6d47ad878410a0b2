"""An engine in which time stands still until somebody moves it, and its settings."""

from safeconsumer.worker import Drain, Limits, Retry
from safeconsumer.worker.loop import Engine

RETRY = Retry(attempts=3, first=0.5, factor=2.0, most=1.5)
LIMITS = Limits(records=12, bytes=8000, span=20)
DRAIN = Drain(revoke=2.0, shutdown=3.0)


class StandingEngine(Engine):
    """An engine whose waits move the clock."""

    def _wait_idle(self, seconds: float) -> None:
        self._clock.now += seconds  # type: ignore[attr-defined]  # it is our Clock
