"""Decides how often and when a failed record is tried again."""

from attrs import evolve, field, frozen

from safeconsumer._checks import (
    exception_types,
    not_negative,
    positive,
    positive_int,
)
from safeconsumer.errors.base import WorkerSettingError
from safeconsumer.worker.groups import is_all

# A ratio of few records is meaningless, and a ratio over a long life is out of date.
SAMPLE = 100
_WINDOW = 10  # samples

# Records that may fail for good before the first one has succeeded. With a wrong
# password all records fail, and a supervisor may start the worker again and again.
_LETTERS_AT_FIRST = 5


def check_waits(first: float, factor: float, most: float) -> None:
    """
    Refuse waits that get shorter.

    Raises:
        WorkerSettingError: the factor is below 1, or the longest below the first.
    """
    if factor < 1 or most < first:
        message = (
            f"waits must not get shorter: factor {factor} must be 1 or more, "
            f"most {most} not less than first {first}"
        )
        raise WorkerSettingError(message)


def longer_wait(before: int, first: float, factor: float, most: float) -> float:
    """Return the seconds of a wait after this many earlier ones."""
    wait = first
    for _ in range(before):
        if wait >= most or factor == 1:
            break
        wait *= factor
    return min(wait, most)


@frozen(kw_only=True)
class Retry:
    """
    The number of tries of a record, and the waits of its lane in between.

    Args:
        attempts: calls of the handler in all; 1 means no retry.
        first: seconds before the second attempt.
        factor: each wait is longer than the one before by this factor.
        most: the longest wait, in seconds.
        jitter: draw each wait at random between half of it and all of it.
        never: exception classes that are final at once; so is an ExceptionGroup of such
            exceptions alone.

    Raises:
        WorkerSettingError: a value is impossible.
    """

    attempts: int = field(default=5, validator=positive_int)
    first: float = field(default=0.5, validator=not_negative)
    factor: float = field(default=2.0, validator=positive)
    most: float = field(default=30.0, validator=not_negative)
    jitter: bool = True
    never: tuple[type[Exception], ...] = field(default=(), validator=exception_types)

    def __attrs_post_init__(self) -> None:
        check_waits(self.first, self.factor, self.most)

    def is_final(self, failures: int, error: BaseException) -> bool:
        """Return whether a record is not tried again after this many failures."""
        return failures >= self.attempts or is_all(error, self.never)

    def delay(self, failures: int, draw: float) -> float:
        """
        Return the seconds to wait after this many failures.

        Args:
            failures: their number, 1 or more.
            draw: a random number, 0 or more and less than 1.
        """
        wait = longer_wait(failures - 1, self.first, self.factor, self.most)
        return wait * (0.5 + draw / 2) if self.jitter else wait


@frozen
class FailureRatio:
    """
    Counts how many records went to the dead letters lately.

    If there are more than ten samples, only about the last five count.

    Attributes:
        sample: the fewest records whose ratio counts.
        seen: records that ended, in success or failure.
        dead: records that failed for good.
    """

    sample: int = SAMPLE

    seen: float = 0
    dead: float = 0

    def succeeded(self, count: int) -> "FailureRatio":
        """Count records that are done."""
        return _recent(evolve(self, seen=self.seen + count))

    def failed(self) -> "FailureRatio":
        """Count one record that failed for good."""
        return _recent(evolve(self, seen=self.seen + 1, dead=self.dead + 1))

    def exceeds(self, max_ratio: float | None) -> str | None:
        """
        Describe how the ratio is exceeded; None if it is not.

        Until a record has succeeded, a few letters exceed it.
        """
        if max_ratio is None or self.dead <= max_ratio * self.seen:
            return None
        dead, seen = round(self.dead), round(self.seen)
        if self.seen >= self.sample:
            return (
                f"{dead} of the last {seen} records failed for good, more than max_ratio "
                "of DeadLetter allows"
            )
        if self.dead == self.seen > _LETTERS_AT_FIRST:
            return (
                f"each of the first {seen} records failed for good, and no more than "
                f"{_LETTERS_AT_FIRST} become dead letters before one has succeeded"
            )
        return None


def _recent(failing: FailureRatio) -> FailureRatio:
    most = _WINDOW * failing.sample
    if failing.seen <= most:
        return failing
    kept = most / 2 / failing.seen
    return evolve(failing, seen=most / 2, dead=failing.dead * kept)
