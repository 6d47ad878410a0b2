"""
Stretches of offsets: kept in little memory, merged, and searched for what is missing.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence

from attrs import define, field

Span = tuple[int, int]


@define
class Spans:
    """
    Stretches in the order in which they came, each before its end; sixteen bytes each.

    One that begins where the one before it ended makes that longer.
    """

    starts: "array[int]" = field(factory=lambda: array("q"))
    ends: "array[int]" = field(factory=lambda: array("q"))

    def add(self, start: int, end: int) -> None:
        """
        Take note of one; of an empty one there is nothing to note.
        """
        if start >= end:
            return
        if self.ends and self.ends[-1] == start:
            self.ends[-1] = end
        else:
            self.starts.append(start)
            self.ends.append(end)

    def __iter__(self) -> Iterator[Span]:
        """
        Yield each one's start and end.
        """
        return zip(self.starts, self.ends, strict=True)


def merged(spans: Iterable[Span]) -> list[Span]:
    """
    Return what spans cover together, in order and without touching each other.
    """
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def holes(start: int, end: int, covered: Sequence[Span]) -> Iterator[Span]:
    """
    Yield what merged spans leave out between two offsets.
    """
    for first, last in covered:
        if start >= end:
            return
        if first > start:
            yield start, min(first, end)
        start = max(start, last)
    if start < end:
        yield start, end
