"""Decides when a topic's failures are an outage, and for how long the topic is held."""

from attrs import define, field, frozen

from safeconsumer._checks import (
    exception_types,
    not_negative,
    positive,
    positive_int,
)
from safeconsumer.errors.base import WorkerSettingError
from safeconsumer.worker.retry import check_waits, longer_wait


@frozen(kw_only=True)
class Breaker:
    """
    Holds a topic while its records fail with errors that look like an outage.

    When the breaker opens, it holds the topic with the owner ``worker:breaker``, a
    reason and an expiry. Until then no handler starts on a record of the topic. When
    the hold expires, the topic's records are handled again, beginning with the record
    that failed last. When a record succeeds, the breaker closes. When a record fails
    with such an error again, the topic is held again, for longer. The failure that
    opens the breaker, and all such failures after it, do not count as attempts. If
    several handlers run at a time, several records may fail before the topic is held
    again. To close the breaker early, call ``consumer.resume("orders",
    owner="worker:breaker")``: the topic's records are then handled again immediately.
    The next such error opens the breaker again, for ``first`` seconds and without
    counting as an attempt. After a success the breaker counts failures from zero again.
    Each topic has its own breaker. The workers of a group do not share their breakers::

        Worker(consumer, handle, breaker=Breaker(on=(ConnectionError,), failures=5))

    Args:
        on: exception classes that count as failures. Their subclasses count too, and so
            does an ExceptionGroup that contains only such exceptions. Other exceptions,
            and those with which a handler controls its worker, count neither as
            failures nor as successes.
        failures: the number of consecutive failures, of any records, that open the
            breaker. If records are handled one after the other, as with
            ``order="partition"``, set ``Retry.attempts`` to at least this number;
            otherwise a record fails for good before the breaker opens.
        first: the length of the first hold, in seconds.
        factor: the factor by which each hold is longer than the previous one.
        most: the maximum length of a hold, in seconds.

    Raises:
        WorkerSettingError: a value is invalid.
    """

    on: tuple[type[Exception], ...] = field(validator=exception_types)
    failures: int = field(default=5, validator=positive_int)
    first: float = field(default=5.0, validator=positive)
    factor: float = field(default=2.0, validator=positive)
    most: float = field(default=60.0, validator=not_negative)

    def __attrs_post_init__(self) -> None:
        if not self.on:
            message = "on must be a tuple of at least one exception class"
            raise WorkerSettingError(message)
        check_waits(self.first, self.factor, self.most)

    def wait(self, holds: int) -> float:
        """Return how many seconds to hold the topic after this many unsuccessful holds."""
        return longer_wait(holds, self.first, self.factor, self.most)


@define(eq=False)
class FailureSeries:
    """
    A series of consecutive failures of a topic; a success ends the series.

    Attributes:
        count: the number of failures.
        holds: how many times the topic was held because of these failures.
        since: the time of the first hold, in seconds on the worker's clock.
        until: the time at which the last hold expires, on the same clock.
        reason: the reason for the last hold, as text for people.
        is_placed: whether the last hold could be placed in the consumer.
    """

    count: int = 0
    holds: int = 0
    since: float = 0.0
    until: float = 0.0
    reason: str = ""
    is_placed: bool = True
