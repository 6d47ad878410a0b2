"""
Converts times of a member's clock into times of the broker's clock.

A member with ``control=`` measures the minimum and maximum by which the broker's clock
is ahead of its own, and writes them into its journal. Between two of these entries the
bounds of either may apply, because a journal's clock stops while the machine is
suspended. Without such entries the judge trusts the member's clock if ``--clock-skew``
gives the largest difference between clocks. Without that option the judge only knows
that a record was appended before it was delivered, and assumes that the member's clock
is not behind.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate

from attrs import define, field, frozen

from safeconsumer.audit.entries import Clock

# Seconds; a time that is known this precisely can be compared with another time.
_WELL = 1.0


@define
class Measures:
    """
    The bounds that one member measured, with the times of the measurements.

    Attributes:
        at: the times of the measurements, by the member's clock.
        lower: the lower bounds of the broker's lead over the member's clock.
        upper: the upper bounds of that lead.
        smallest: the smallest of the lower bounds; ``inf`` if nothing was measured.
        largest: the largest of the upper bounds; ``-inf`` if nothing was measured.
    """

    at: "array[float]" = field(factory=lambda: array("d"))
    lower: "array[float]" = field(factory=lambda: array("d"))
    upper: "array[float]" = field(factory=lambda: array("d"))
    smallest: float = field(init=False)
    largest: float = field(init=False)

    @smallest.default
    def _smallest(self) -> float:
        return min(self.lower, default=math.inf)

    @largest.default
    def _largest(self) -> float:
        return max(self.upper, default=-math.inf)

    def add(self, fact: Clock) -> None:
        """Add an entry of the member's journal."""
        self.at.append(fact.at)
        self.lower.append(fact.least)
        self.upper.append(fact.most)
        self.smallest = min(self.smallest, fact.least)
        self.largest = max(self.largest, fact.most)

    def around(self, at: float) -> tuple[float, float]:
        """Return the bounds of the broker's lead at a time, from measurements around it."""
        number = bisect_left(self.at, at)
        near = slice(max(number - 1, 0), number + 1)
        return min(self.lower[near]), max(self.upper[near])


# The measurements for a member whose clock is trusted, within ``--clock-skew``.
AT_ITS_WORD = Measures(array("d", [0.0]), array("d", [0.0]), array("d", [0.0]))


@define
class Appended:
    """The smallest delays between the append of a record and its delivery, over time."""

    at: "array[float]" = field(factory=lambda: array("d"))
    lag: "array[float]" = field(factory=lambda: array("d"))

    def add(self, at: float, written: float) -> None:
        """Record the delivery of a record that the broker appended at a known time."""
        if not self.lag or at - written < self.lag[-1]:
            self.at.append(at)
            self.lag.append(at - written)

    @property
    def least_lag(self) -> float:
        """The smallest delay of all records; ``inf`` if there was no record."""
        return self.lag[-1] if self.lag else math.inf

    def lag_at(self, at: float) -> float:
        """Return the smallest delay up to a time; ``inf`` if there was no record by then."""
        number = bisect_right(self.at, at)
        return self.lag[number - 1] if number else math.inf


@frozen
class BrokerTime:
    """Converts the times of one member's actions on one partition."""

    measures: Measures
    appended: Appended = field(factory=Appended)

    @property
    def is_measured(self) -> bool:
        """Whether the member measured the broker's clock."""
        return bool(self.measures.at)

    def earliest(self, at: float, by: float | None = None) -> float:
        """
        Return the earliest time that the broker's clock may have shown.

        Args:
            at: the time of the member's clock.
            by: only records that were delivered up to this time are used; None means
                ``at``.
        """
        if self.is_measured:
            return at + self.measures.around(at)[0]
        return at - self.appended.lag_at(at if by is None else by)

    def latest(self, at: float) -> float:
        """Return the latest time that the broker's clock may have shown."""
        if self.is_measured:
            return at + self.measures.around(at)[1]
        is_behind = self.appended.lag_at(at) < -_WELL
        return math.inf if is_behind else at

    def about(self, at: float) -> float:
        """Return the time of the broker's clock, or the member's time if that is unknown."""
        return self.latest(at) if self.is_measured else at

    def is_within(self, at: float, start: float, end: float) -> bool:
        """Return whether a time was certainly between two times of the broker's clock."""
        return start < self.earliest(at) and self.latest(at) < end

    def window(self, start: float, end: float) -> tuple[float, float]:
        """Return the range of the member's times that may lie between two broker times."""
        if self.is_measured:
            return start - self.measures.largest, end - self.measures.smallest
        return start + self.appended.least_lag, end

    def is_contradicted(self, skew: float) -> bool:
        """
        Return whether records or other measurements show that a measurement is wrong.

        Records are appended before they are delivered. A journal's clock stops while
        its machine is suspended, so the broker's clock can only gain on it, except for
        the difference between the clocks of two brokers.
        """
        ahead = [*zip(self.measures.at, self.measures.upper, strict=True)]
        if ahead:
            ahead += [(at, self.measures.around(at)[1]) for at in self.appended.at]
        if any(most < -self.appended.lag_at(at) - skew for at, most in ahead):
            return True
        before = accumulate(self.measures.lower, max)
        pairs = zip(self.measures.upper, before, strict=True)
        return any(most < least - _WELL - skew for most, least in pairs)

    def is_known(self, at: float) -> bool:
        """Return whether the broker's time is known to within a second."""
        return self.is_measured and self.latest(at) - self.earliest(at) <= _WELL
