"""Stores ranges of offsets compactly, merges them, and finds the gaps between them."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from attrs import define, field

Span = tuple[int, int]


@define
class Spans:
    """
    Ranges of offsets in the order in which they were added; each takes sixteen bytes.

    A range that begins where the previous range ended extends that range. Offsets have
    64 bits, as in Kafka.
    """

    starts: "array[int]" = field(factory=lambda: array("q"))
    ends: "array[int]" = field(factory=lambda: array("q"))

    def add(self, start: int, end: int) -> None:
        """Add a range; an empty range has no effect."""
        if start >= end:
            return
        if self.ends and self.ends[-1] == start:
            self.ends[-1] = end
        else:
            self.starts.append(start)
            self.ends.append(end)

    def start_below(self, offset: int) -> int:
        """
        Return the start of the range that contains the offset before the given one.

        The ranges must be in order. If no range contains that offset, return the given
        offset.
        """
        at = bisect_left(self.starts, offset) - 1
        return self.starts[at] if at >= 0 and offset <= self.ends[at] else offset

    def end_below(self, offset: int) -> int:
        """
        Return the end of the last range that starts below an offset, or 0.

        The ranges must be merged. If the offset is within a range, return the offset
        itself.
        """
        at = bisect_left(self.starts, offset) - 1
        return min(self.ends[at], offset) if at >= 0 else 0

    def __iter__(self) -> Iterator[Span]:
        """Yield the start and end of each range."""
        return zip(self.starts, self.ends, strict=True)

    def __len__(self) -> int:
        return len(self.starts)


def merged(spans: Iterable[Span]) -> Spans:
    """Return the union of the spans, sorted, with adjacent spans joined."""
    kept = Spans()
    is_sorted, last = True, -1
    for start, end in spans:
        is_sorted, last = is_sorted and start >= last, start
        kept.add(start, end)
    found = Spans()
    for start, end in kept if is_sorted else sorted(kept):
        if found.ends and start <= found.ends[-1]:
            found.ends[-1] = max(found.ends[-1], end)
        else:
            found.add(start, end)
    return found


def uncovered(spans: Spans, covered: Spans) -> Iterator[Span]:
    """Yield, in one pass, the parts of merged spans that other merged spans do not cover."""
    at, many = 0, len(covered)
    for start, end in spans:
        while at < many and covered.ends[at] <= start:
            at += 1
        next_ = at
        while start < end and next_ < many and covered.starts[next_] < end:
            if covered.starts[next_] > start:
                yield start, covered.starts[next_]
            start = max(start, covered.ends[next_])  # noqa: PLW2901 - the remaining part
            next_ += 1
        if start < end:
            yield start, end


def between(spans: Spans, bottom: int, top: int) -> Spans:
    """Return the parts of merged spans that lie between two offsets."""
    found = Spans()
    for start, end in spans:
        found.add(max(start, bottom), min(end, top))
    return found
