"""Decides when a topic's failures are an outage, and for how long it is held."""

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
    Holds a topic while its handlers fail with errors that look like an outage.

    Once it opens, the topic is held, with the owner ``worker:breaker``, a reason and an
    expiry, and no handler begins on it. When the hold expires, the topic continues,
    first with the record that failed last: the first success closes the breaker, and at
    the first such error the topic is held again, for longer. From the failure that
    opened the breaker on, no failure uses up an attempt. With several handlers at a
    time several records may fail before the topic is held again. To close the breaker
    early, call ``consumer.resume("orders", owner="worker:breaker")``: the topic
    continues at once. The next such error opens it again, for ``first`` seconds and
    without using up an attempt; after a success it counts from the beginning. Each
    topic has its own breaker, and the workers of a group do not share theirs::

        Worker(consumer, handle, breaker=Breaker(on=(ConnectionError,), failures=5))

    Args:
        on: exception classes that count as failures, with their subclasses, and
            ExceptionGroups of such exceptions alone. Other exceptions, and those that
            steer a worker, count neither as failures nor as successes.
        failures: the number of failures in a row, of any records, that open the
            breaker. If records are handled one after the other, as with
            ``order="partition"``, set ``Retry.attempts`` no lower than this, or a
            record fails for good before the breaker opens.
        first: seconds for which the topic is held at first.
        factor: each wait is longer than the one before by this factor.
        most: the longest wait, in seconds.

    Raises:
        WorkerSettingError: a value is impossible.
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
        """Return the seconds to hold the topic after this many holds that did not help."""
        return longer_wait(holds, self.first, self.factor, self.most)


@define(eq=False)
class FailureRow:
    """
    The failures of a topic in a row; a success ends it.

    Attributes:
        count: the number of failures.
        holds: the number of times that the topic was held for them.
        since: when it was first held, in seconds on the clock.
        until: when the last of the holds expires, likewise.
        reason: the reason of that hold, as text for people.
        is_placed: whether the consumer has, or had, that hold.
    """

    count: int = 0
    holds: int = 0
    since: float = 0.0
    until: float = 0.0
    reason: str = ""
    is_placed: bool = True
