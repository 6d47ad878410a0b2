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

# A ratio over fewer records is meaningless; a ratio over many more is out of date.
SAMPLE = 100
_WINDOW = 10  # samples

# The number of records that may fail for good before any record has succeeded. If a
# password is wrong, for example, all records fail, and a supervisor may restart the
# worker again and again.
_LETTERS_AT_FIRST = 5


def check_waits(first: float, factor: float, most: float) -> None:
    """
    Refuse settings that would make waits shorter over time.

    Raises:
        WorkerSettingError: the factor is below 1, or the longest wait is below the
            first.
    """
    if factor < 1 or most < first:
        message = (
            f"waits must not get shorter: factor {factor} must be 1 or more, "
            f"most {most} not less than first {first}"
        )
        raise WorkerSettingError(message)


def longer_wait(before: int, first: float, factor: float, most: float) -> float:
    """Return the seconds of the next wait, after ``before`` earlier waits."""
    wait = first
    for _ in range(before):
        if wait >= most or factor == 1:
            break
        wait *= factor
    return min(wait, most)


@frozen(kw_only=True)
class Retry:
    """
    How often a record is attempted, and how long its lane waits between attempts.

    Args:
        attempts: the total number of calls of the handler; 1 means no retry.
        first: seconds before the second attempt.
        factor: the factor by which each wait is longer than the previous one.
        most: the longest wait, in seconds.
        jitter: whether each wait is drawn at random between half of it and all of it.
        never: exception classes after which a record is not tried again; an
            ExceptionGroup that contains only such exceptions has the same effect.

    Raises:
        WorkerSettingError: a value is invalid.
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
        """Return whether a record has failed for good after ``failures`` failures."""
        return failures >= self.attempts or is_all(error, self.never)

    def delay(self, failures: int, draw: float) -> float:
        """
        Return the seconds to wait after ``failures`` failures.

        Args:
            failures: the number of failures, 1 or more.
            draw: a random number, 0 or more and less than 1.
        """
        wait = longer_wait(failures - 1, self.first, self.factor, self.most)
        return wait * (0.5 + draw / 2) if self.jitter else wait


@frozen
class FailureRatio:
    """
    Tracks the share of recent records that failed for good.

    Whenever more than ten times ``sample`` records are counted, both counts are about
    halved, so that older records weigh less.

    Attributes:
        sample: the minimum number of records for the ratio to count.
        seen: the number of records that succeeded or failed for good.
        dead: the number of records that failed for good.
    """

    sample: int = SAMPLE

    seen: float = 0
    dead: float = 0

    def succeeded(self, count: int) -> "FailureRatio":
        """Count records that succeeded."""
        return _recent(evolve(self, seen=self.seen + count))

    def failed(self) -> "FailureRatio":
        """Count one record that failed for good."""
        return _recent(evolve(self, seen=self.seen + 1, dead=self.dead + 1))

    def exceeds(self, max_ratio: float | None) -> str | None:
        """
        Return a text that says how the ratio exceeds the maximum; None if it does not.

        As long as no record has succeeded, a few dead letters already exceed the
        maximum.
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
