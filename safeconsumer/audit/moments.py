"""Stores times of events compactly, each with a number."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator

from attrs import define, field


@define
class Moments:
    """Times of events, each with an offset or entry number; a pair takes sixteen bytes."""

    at: "array[float]" = field(factory=lambda: array("d"))
    offset: "array[int]" = field(factory=lambda: array("q"))

    def add(self, at: float, offset: int) -> None:
        """Add the time of an event."""
        self.at.append(at)
        self.offset.append(offset)

    def __len__(self) -> int:
        return len(self.at)

    def __iter__(self) -> Iterator[tuple[float, int]]:
        """Yield the time and the offset of each event."""
        return zip(self.at, self.offset, strict=True)

    def split(self, count: int) -> "tuple[Moments, Moments]":
        """Return the first ``count`` events and the remaining ones, separately."""
        first = Moments(self.at[:count], self.offset[:count])
        return first, Moments(self.at[count:], self.offset[count:])

    def between(self, start: float, end: float) -> Iterator[tuple[float, int]]:
        """Yield the events between two moments."""
        for number in range(bisect_right(self.at, start), len(self.at)):
            if self.at[number] >= end:
                return
            yield self.at[number], self.offset[number]
