"""
Compares members' clocks with the broker's, by what members read.

A member reads a record after the broker has appended it. So what its clock shows then,
less the broker's time of the record, is the most by which the clock can be ahead. In a
journal a clock never goes back, and it stands still while its machine is suspended: it
is ahead by less and less, or behind by more and more. Nothing shows that a clock is not
behind. That it is behind is shown by a record that came before its time; how long it
has been is not known, but it was right when records last came as soon after their
append as ever.
"""

import math
from collections.abc import Iterable

from attrs import frozen

# Seconds within which a record came as soon after its append as the soonest before.
_AS_SOON = 1.0


@frozen
class Least:
    """
    A record that came sooner after its append than any before, by the two clocks.

    Attributes:
        at: when it came, by the member's clock.
        lag: the seconds since its append; less than 0 if it came before its time.
        entry: the number of the entry.
        before: when a record last came about as soon as the soonest so far; ``-inf`` if
            there was none.
        lag_before: the least lag so far; ``inf`` if there was none.
    """

    at: float
    lag: float
    entry: int
    before: float
    lag_before: float


class Lags:
    """How long after their append records came; only the least ones are kept."""

    def __init__(self) -> None:
        self.least: list[Least] = []
        self._lag = self._as_soon = math.inf
        self._before = -math.inf

    def add(self, at: float, written: float, entry: int) -> None:
        """Note a record that the broker appended at a known time."""
        lag = at - written
        if lag < self._as_soon:
            if lag < self._lag:
                self.least.append(Least(at, lag, entry, self._before, self._lag))
                self._lag, self._as_soon = lag, lag + _AS_SOON
            self._before = at


@frozen(kw_only=True)
class Clock:
    """
    What is known of a member's clock.

    Attributes:
        member: the member.
        ahead: the most seconds by which it can be ahead of the broker's, while it was
            right; None if nothing shows that.
        most: the seconds by which it may be ahead and still be right: the allowance,
            and the time that a record may take to come.
        behind: the seconds by which it is behind at least; 0 if it is not known to be.
        entry: the number of the entry that shows that it is behind.
        since: since when it may be behind, by itself; ``inf`` if it is not.
        skew: seconds by which two clocks may differ.
    """

    member: str
    ahead: float | None = None
    most: float = 0.0
    behind: float = 0.0
    entry: int = 0
    since: float = math.inf
    skew: float = 0.0

    @property
    def may_be_ahead(self) -> bool:
        """Whether records came so late that it may be ahead by more than is allowed."""
        return self.ahead is not None and self.ahead > self.most

    @property
    def why_behind(self) -> str:
        """The sentence that it is behind."""
        return (
            f"the clock of {self.member} is {self.behind:.3f} s or more behind the "
            f"broker's, as entry {self.entry} shows, and {self.skew:g} s are allowed"
        )

    @property
    def why_ahead(self) -> str:
        """The sentence that it may be ahead."""
        if self.ahead is None:
            return f"nothing shows that the clock of {self.member} is not ahead"
        return (
            f"the clock of {self.member} may be {self.ahead:.3f} s ahead of the "
            "broker's, as nothing came sooner after its append"
        )

    @property
    def excess(self) -> float:
        """By how many seconds it may be ahead, where that is more than is allowed."""
        if self.ahead is None:
            return math.inf
        return self.ahead if self.may_be_ahead else 0.0

    def doubt(self, at: float) -> str:
        """Return why a moment, of which it may be ahead, proves nothing."""
        return self.why_behind if at > self.since else self.why_ahead


def clock_of(
    member: str, several: Iterable[Lags], patience: float, skew: float
) -> Clock:
    """
    Return what is known of a member's clock.

    Args:
        member: the member.
        several: when records came, of what it reads.
        patience: seconds within which a record that has just been appended comes.
        skew: seconds by which two clocks may differ.
    """
    most = patience + skew
    least = sorted(
        (one for lags in several for one in lags.least), key=lambda one: one.at
    )
    wrong = next((one for one in least if one.lag < -skew), None)
    right = [one for one in least if wrong is None or one.at < wrong.at]
    ahead = min((one.lag for one in right), default=None)
    if wrong is None:
        return Clock(member=member, ahead=ahead, most=most, skew=skew)
    soon = [one.at for one in right if one.lag <= most]
    if wrong.lag_before <= most:
        soon.append(wrong.before)
    return Clock(
        member=member,
        ahead=ahead,
        most=most,
        behind=-min(one.lag for one in least),
        entry=wrong.entry,
        since=max(soon, default=-math.inf),
        skew=skew,
    )
