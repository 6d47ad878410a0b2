"""Computes how many records wait for a group, and how long catching up takes."""

import time
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from attrs import evolve, field, frozen
from kafka import TopicPartition

from safeconsumer.group.durations import words_of
from safeconsumer.group.judging import partitions_text
from safeconsumer.group.operator import Operator
from safeconsumer.group.picture import Picture

# Looks are about a second apart, of which there are so many; with fewer the pace would
# be chance.
_APART, _LOOKS, _FEW = 0.9, 30, 5
# Records per second; a pace below that is rounded to none.
_STEADY = 0.5


@frozen(kw_only=True)
class Backlog:
    """
    The records that wait for a group.

    Attributes:
        lags: records behind the committed offset, of the partitions where that is known.
        since: offsets written since the first hold on each held partition, where that
            is known.
        held: partitions that a hold covers, where no consumer catches up.
        unknown: partitions with a committed offset whose end could not be had.
        pace: records by which the lag of the other partitions falls per second, over
            the last looks; None if there were too few.
    """

    lags: Mapping[TopicPartition, int]
    since: Mapping[TopicPartition, int]
    held: AbstractSet[TopicPartition] = frozenset()
    unknown: AbstractSet[TopicPartition] = frozenset()
    pace: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether the sums are those of the whole group."""
        return bool(self.lags) and not self.unknown

    @property
    def lag(self) -> int:
        """The sum of the lags."""
        return sum(self.lags.values())

    @property
    def catch_up(self) -> float | None:
        """
        Seconds until the partitions without a hold are caught up, at this pace.

        None if it is unknown, or never, or if no record of theirs waits.
        """
        if self.pace is None or self.pace <= 0 or not self.open_lag:
            return None
        return self.open_lag / self.pace

    @property
    def open_lag(self) -> int:
        """The lag of the partitions without a hold."""
        return sum(lag for tp, lag in self.lags.items() if tp not in self.held)

    @property
    def written(self) -> int | None:
        """The offsets written since the first hold on each partition; None if unknown."""
        is_known = self.since and self.held <= self.since.keys()
        return sum(self.since.values()) if is_known else None

    @property
    def pace_text(self) -> str:
        """Whether the lag falls, and when it is gone; empty if that is unknown."""
        if self.pace is None or not self.open_lag:
            return ""
        if abs(self.pace) < _STEADY:
            return "steady"
        done = self.catch_up
        until = "" if done is None else f": caught up in {words_of(done)}"
        falls = "falling" if self.pace > 0 else "growing"
        return f"{falls} by {abs(self.pace):,.0f}/s{until}"

    def lines(self) -> list[str]:
        """Describe it for people."""
        if self.unknown:
            return [f"lag unknown: {partitions_text(self.unknown)} cannot be asked"]
        if not self.lags:
            return []
        said = f"lag {self.lag:,}"
        if self.written is not None:
            said += f", {self.written:,} written since the hold"
        if self.pace_text:
            is_all = self.open_lag == self.lag
            what = "" if is_all else f"{self.open_lag:,} of it are not held, "
            said += f", {what}{self.pace_text}"
        return [said]

    def document(self) -> dict[str, object]:
        """Return it as plain JSON values."""
        return {
            "lag": self.lag if self.is_known else None,
            "lag_not_held": self.open_lag if self.is_known else None,
            "written_since_hold": self.written,
            "pace": self.pace,
            "catch_up_seconds": self.catch_up,
        }


@frozen
class Pace:
    """Remembers how a lag changes, for a caller that looks again and again."""

    _looks: deque[tuple[float, int]] = field(factory=lambda: deque(maxlen=_LOOKS))

    def of(self, lag: int) -> float | None:
        """Return by how much the lag falls per second; None while that is not known."""
        if not self._looks or time.monotonic() - self._looks[-1][0] >= _APART:
            self._looks.append((time.monotonic(), lag))
        (began, before), (now, after) = self._looks[0], self._looks[-1]
        if len(self._looks) < _FEW or now <= began:
            return None
        return (before - after) / (now - began)


def held_since(picture: Picture) -> dict[TopicPartition, float]:
    """Return since when held partitions are held, in seconds since the epoch, if known."""
    found = {
        tp: [one.since for one in picture.standing if one.since and one.covers(tp)]
        for tp in picture.held
    }
    return {tp: min(moments) for tp, moments in found.items() if moments}


def backlog_of(
    picture: Picture,
    since: Mapping[TopicPartition, int],
    pace: Pace | None = None,
) -> Backlog:
    """Return the records that wait for a group, by what was asked."""
    told = Backlog(
        lags=picture.lags,
        since=since,
        held=frozenset(picture.held),
        unknown=picture.facts.committed.keys() - picture.lags.keys(),
    )
    if pace is None or not told.is_known:
        return told
    return evolve(told, pace=pace.of(told.open_lag))


def backlog(operator: Operator, picture: Picture, pace: Pace | None = None) -> Backlog:
    """Ask the cluster for the records that wait for a group."""
    return backlog_of(picture, operator.written_since(held_since(picture)), pace)
