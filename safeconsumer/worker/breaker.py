"""
Decides when failures of a topic's handlers are an outage, and when one record may try.
"""

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

# A window slides by this part of it.
_PARTS = 10


def _share(_self: object, _attribute: Any, value: object) -> None:  # noqa: ANN401 - attrs'
    if value is not None and not (is_number(value) and 0 < value <= 1):  # type: ignore[operator]  # a number
        message = f"rate must be above 0 and at most 1, or None, not {value!r}"
        raise WorkerSettingError(message)


@frozen(kw_only=True)
class Breaker:
    """
    Holds a topic while its handlers fail with what an outage looks like.

    Once it opens, the topic is held, with the owner ``worker:breaker``, a reason and an
    expiry, and no handler begins on it. Then one record tries, first the one that
    failed last: if it succeeds, all goes on; if it fails so again, the topic is held
    for longer. Neither that failure nor the one that opened it uses up an attempt. To
    close it by hand: ``consumer.resume("orders", owner="worker:breaker")``. Each topic
    has its own, and each worker of a group finds out for itself::

        Worker(consumer, handle, breaker=Breaker(on=(ConnectionError,), failures=5))

    Args:
        on: exceptions that count, and their children. Others, and what steers a worker,
            count neither as failures nor as successes.
        failures: so many in a row open it, whatever their records. With a record after
            the other, as ``order="partition"`` has it, let ``Retry.attempts`` be more,
            or a record is given up before.
        rate: the part of the calls in the last ``within`` seconds that opens it too,
            once ``failures`` of them failed; None for no such rule.
        within: seconds; rounded up by a tenth.
        first: seconds until a record tries for the first time.
        factor: by which each wait is longer than the one before.
        most: seconds no wait exceeds.

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
            message = "on must be a tuple of exception classes, and not empty"
            raise WorkerSettingError(message)
        if self.factor < 1 or self.most < self.first:
            message = (
                f"waits must not get shorter: factor {self.factor} must be 1 or more, "
                f"most {self.most} not less than first {self.first}"
            )
            raise WorkerSettingError(message)

    def wait(self, tries: int) -> float:
        """
        Return the seconds to hold the topic after so many tries in vain.
        """
        wait = self.first
        for _ in range(tries):
            if wait >= self.most or self.factor == 1:
                break
            wait *= self.factor
        return min(wait, self.most)


@frozen
class Calls:
    """
    How many calls there were in one part of the window, and how many failed.
    """

    part: int
    all: int = 0
    failed: int = 0


@frozen
class Circuit:
    """
    What one topic's breaker knows; closed, it lets everything through.

    Attributes:
        in_a_row: failures since the last success.
        recent: calls of the window, the oldest first; empty without a rate.
        why: what opened it, for people; None while it is closed.
        since: when that was.
        until: when one record may try.
        tries: how many have tried in vain.
    """

    in_a_row: int = 0
    recent: tuple[Calls, ...] = ()
    why: str | None = None
    since: float = 0.0
    until: float = 0.0
    tries: int = 0

    @property
    def is_open(self) -> bool:
        """
        Whether it lets nothing through, or one record at a time.
        """
        return self.why is not None

    def succeeded(self, breaker: Breaker, calls: int, now: float) -> "Circuit":
        """
        Count calls that went well; of an open one: the record that tried.
        """
        if self.is_open:
            return Circuit()
        return evolve(self, in_a_row=0, recent=self._counted(breaker, calls, 0, now))

    def failed(self, breaker: Breaker, now: float) -> "Circuit":
        """
        Count a call that failed as by an outage; of an open one: the record that tried.
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
