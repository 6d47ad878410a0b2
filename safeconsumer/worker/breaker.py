"""Decides when a topic's failures are an outage, and when one record may try."""

from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from safeconsumer._checks import (
    exception_types,
    not_negative,
    positive,
    positive_int,
)
from safeconsumer.errors import WorkerSettingError

if TYPE_CHECKING:
    from safeconsumer.worker.tasks import Task


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
        first: seconds until a record tries for the first time.
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
class Circuit:
    """
    The state of one topic's breaker; while closed, it lets everything through.

    Attributes:
        in_a_row: failures since the last success, which ends it, open or not.
        why: why it opened, as text for people; None while it is closed.
        since: when it opened, in seconds on the worker's clock.
        until: when one record may try, in seconds on the worker's clock.
        tries: how many tries have failed since.
    """

    in_a_row: int = 0
    why: str | None = None
    since: float = 0.0
    until: float = 0.0
    tries: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the topic is stopped, or only one record at a time may try."""
        return self.why is not None

    def failed(self, breaker: Breaker, now: float) -> "Circuit":
        """
        Count a call that failed with an outage.

        If it is open, the record that tried failed.
        """
        if self.is_open:
            tries = self.tries + 1
            return evolve(self, tries=tries, until=now + breaker.wait(tries))
        if self.in_a_row + 1 < breaker.failures:
            return Circuit(self.in_a_row + 1)
        why = f"{breaker.failures} times in a row"
        return Circuit(why=why, since=now, until=now + breaker.wait(0))


@define(eq=False)
class Trip:
    """
    A topic that a breaker has stopped; once its hold has expired, one record may try.

    Attributes:
        until: when the hold expires, in seconds on the clock.
        reason: why, as text for people.
        is_placed: whether the consumer has the hold; no record begins before that.
        is_lifted: whether the hold was lifted since: then all records go on.
        task: the task that tries.
        is_first: whether the topic flowed before; otherwise a try has failed.
    """

    until: float
    reason: str
    is_placed: bool = False
    is_lifted: bool = False
    task: "Task | None" = None
    is_first: bool = False

    def is_tried_by(self, task: "Task") -> bool:
        """Tell whether this task tries for the topic, or is a part of the one that does."""
        tries = self.task
        return tries is task or (
            tries is not None
            and tries.chunk is task.chunk
            and tries.indexes[0] in task.indexes
        )
