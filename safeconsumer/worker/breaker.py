"""Decides when a topic's failures are an outage, and when one record may try."""

from typing import Any

from attrs import evolve, field, frozen

from safeconsumer._checks import (
    exception_types,
    is_number,
    not_negative,
    positive,
    positive_int,
)
from safeconsumer.errors import WorkerSettingError

# A window slides by this fraction of its length.
_PARTS = 10


def _share(_self: object, _attribute: Any, value: object) -> None:  # noqa: ANN401 - attrs'
    if value is not None and not (is_number(value) and 0 < value <= 1):  # type: ignore[operator]  # a number
        message = f"rate must be above 0 and at most 1, or None, not {value!r}"
        raise WorkerSettingError(message)


@frozen(kw_only=True)
class Breaker:
    """
    Holds a topic while its handlers fail with errors that look like an outage.

    Once it opens, the topic is held, with the owner ``worker:breaker``, a reason and an
    expiry, and no handler begins on it. When the hold expires one record tries, first
    the one that failed last: if it succeeds, the topic flows again; if it fails with
    such an error again, the topic is held for longer. Neither that failure nor the one
    that opened the breaker uses up an attempt. To close it early, call
    ``consumer.resume("orders", owner="worker:breaker")``. Each topic has its own
    breaker, and the workers of a group do not share theirs::

        Worker(consumer, handle, breaker=Breaker(on=(ConnectionError,), failures=5))

    Args:
        on: exception classes that count as failures, with their subclasses. Other
            exceptions, and those that steer a worker, count neither as failures nor as
            successes.
        failures: this many failures in a row open it, of whatever records. If records
            are handled one after the other, as with ``order="partition"``, set
            ``Retry.attempts`` higher than this, or a record is given up before the
            breaker opens.
        rate: a share of the calls in the last ``within`` seconds that opens it too,
            above 0 and at most 1, once ``failures`` of them have failed; None for no
            such rule.
        within: seconds; the real window may be a tenth longer.
        first: seconds until a record tries for the first time.
        factor: each wait is longer than the one before by this factor.
        most: the longest wait, in seconds.

    Raises:
        WorkerSettingError: a value is impossible.
    """

    on: tuple[type[Exception], ...] = field(validator=exception_types)
    failures: int = field(default=5, validator=positive_int)
    rate: float | None = field(default=None, validator=_share)
    within: float = field(default=60.0, validator=positive)
    first: float = field(default=5.0, validator=positive)
    factor: float = field(default=2.0, validator=positive)
    most: float = field(default=60.0, validator=not_negative)

    def __attrs_post_init__(self) -> None:
        if not self.on:
            message = "on must be a tuple of at least one exception class"
            raise WorkerSettingError(message)
        if self.factor < 1 or self.most < self.first:
            message = (
                f"waits must not get shorter: factor {self.factor} must be 1 or more, "
                f"most {self.most} not less than first {self.first}"
            )
            raise WorkerSettingError(message)

    def wait(self, tries: int) -> float:
        """Return the seconds to hold the topic after so many failed tries."""
        wait = self.first
        for _ in range(tries):
            if wait >= self.most or self.factor == 1:
                break
            wait *= self.factor
        return min(wait, self.most)


@frozen
class Calls:
    """Counts the calls in one part of the window, and those that failed."""

    part: int
    all: int = 0
    failed: int = 0


@frozen
class Circuit:
    """
    The state of one topic's breaker; while closed, it lets everything through.

    Attributes:
        in_a_row: failures since the last success.
        recent: the calls in the window, the oldest first; empty without a rate.
        why: why it opened, as text for people; None while it is closed.
        since: when it opened, in seconds on the worker's clock.
        until: when one record may try, in seconds on the worker's clock.
        tries: how many tries have failed since.
    """

    in_a_row: int = 0
    recent: tuple[Calls, ...] = ()
    why: str | None = None
    since: float = 0.0
    until: float = 0.0
    tries: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the topic is stopped, or only one record at a time may try."""
        return self.why is not None

    def succeeded(self, breaker: Breaker, calls: int, now: float) -> "Circuit":
        """Count successful calls; if it is open, the record that tried has succeeded."""
        if self.is_open:
            return Circuit()
        return evolve(self, in_a_row=0, recent=self._counted(breaker, calls, 0, now))

    def failed(self, breaker: Breaker, now: float) -> "Circuit":
        """
        Count a call that failed with an outage.

        If it is open, the record that tried failed.
        """
        if self.is_open:
            tries = self.tries + 1
            return evolve(self, tries=tries, until=now + breaker.wait(tries))
        counted = evolve(
            self,
            in_a_row=self.in_a_row + 1,
            recent=self._counted(breaker, 1, 1, now),
        )
        why = counted._judged(breaker)  # noqa: SLF001 - of this class
        if why is None:
            return counted
        return Circuit(why=why, since=now, until=now + breaker.wait(0))

    def _counted(
        self, breaker: Breaker, calls: int, failed: int, now: float
    ) -> tuple[Calls, ...]:
        if breaker.rate is None:
            return ()
        part = int(now / breaker.within * _PARTS)
        kept = [one for one in self.recent if one.part >= part - _PARTS]
        last = kept.pop() if kept and kept[-1].part == part else Calls(part)
        return (*kept, Calls(part, last.all + calls, last.failed + failed))

    def _judged(self, breaker: Breaker) -> str | None:
        if self.in_a_row >= breaker.failures:
            return f"{self.in_a_row} times in a row"
        failed = sum(one.failed for one in self.recent)
        calls = sum(one.all for one in self.recent)
        if breaker.rate is None or failed < breaker.failures:
            return None
        if failed < breaker.rate * calls:
            return None
        return f"{failed} of {calls} times in {breaker.within:g} s"
