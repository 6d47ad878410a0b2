"""Says when a topic's failures are an outage, and when one record may try."""

from typing import TYPE_CHECKING

from attrs import define, field, frozen

from safeconsumer._checks import (
    exception_types,
    not_negative,
    positive,
    positive_int,
)
from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker.retry import check_waits, longer_wait

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
        on: exception classes that count as failures, with their subclasses, and
            ExceptionGroups of nothing else. Other exceptions, and those that steer a
            worker, count neither as failures nor as
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
        check_waits(self.first, self.factor, self.most)

    def wait(self, tries: int) -> float:
        """Return the seconds to hold the topic after so many failed tries."""
        return longer_wait(tries, self.first, self.factor, self.most)


@define(eq=False)
class Trip:
    """
    A topic that a breaker has stopped; once its hold has expired, one record may try.

    Attributes:
        since: when it was stopped, in seconds on the clock.
        until: when the hold expires, in seconds on the clock.
        reason: why, as text for people.
        tries: how many tries have failed since.
        is_placed: whether the consumer has the hold; no record begins before that.
        is_lifted: whether the hold was lifted since: then all records go on.
        task: the task that tries.
    """

    since: float
    until: float = 0.0
    reason: str = ""
    tries: int = 0
    is_placed: bool = False
    is_lifted: bool = False
    task: "Task | None" = None

    def is_tried_by(self, task: "Task") -> bool:
        """Tell whether this task tries for the topic, or is a part of the one that does."""
        tries = self.task
        return tries is task or (
            tries is not None
            and tries.chunk is task.chunk
            and tries.indexes[0] in task.indexes
        )
