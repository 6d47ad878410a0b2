"""Stretches of offsets, compared with what sets of offsets say."""

import random
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.audit.facts import Fact
from safeconsumer.audit.fleet import Acknowledged
from safeconsumer.audit.spans import Spans, between, merged, uncovered

stretches = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda x: (x[0], sum(x)))
)


def offsets(spans: object) -> set[int]:
    return {one for start, end in spans for one in range(start, end)}  # type: ignore[attr-defined]  # pairs


@given(stretches)
def test_merged_covers_the_same_without_touching(spans: list[tuple[int, int]]) -> None:
    found = merged(spans)
    assert offsets(found) == offsets(spans)
    edges = [edge for span in found for edge in span]
    assert edges == sorted(set(edges))


@given(stretches, stretches)
def test_uncovered_is_the_difference(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    found = list(uncovered(merged(ours), merged(theirs)))
    assert offsets(found) == offsets(ours) - offsets(theirs)
    assert found == sorted(found)


@given(stretches, st.integers(0, 70), st.integers(0, 70))
def test_between_is_what_lies_there(
    spans: list[tuple[int, int]], bottom: int, top: int
) -> None:
    found = between(merged(spans), bottom, top)
    assert offsets(found) == {one for one in offsets(spans) if bottom <= one < top}


def test_offsets_have_64_bits() -> None:
    spans = Spans()
    spans.add(2**63 - 3, 2**63 - 1)
    assert list(uncovered(spans, Spans())) == [(2**63 - 3, 2**63 - 1)]


class Passed(list[float]):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[float]:
        self.times += 1
        return super().__iter__()


def test_what_was_written_is_gone_through_once_for_all_resumes() -> None:
    """L1 asks for each resume when a record was there."""
    told = Acknowledged()
    chance = random.Random(3)  # noqa: S311 - no secret
    for number in chance.sample(range(0, 1000, 10), 100):
        said = {"first": number, "last": number + 9}
        told.add(Fact("p", number, chance.random(), "acked", said))
    passed = Passed(told._at)
    told._at = passed  # type: ignore[assignment]  # an array
    pairs = list(zip(told._last, told._at, strict=True))
    passed.times = 0
    for number in range(0, 1100, 7):
        slow = min((at for last, at in pairs if last >= number), default=None)
        assert told.time_of(number) == slow
        at = number / 1000
        assert told.next_after(at) == min(
            (last for last, then in pairs if then > at), default=None
        )
    assert passed.times < 5
    told.add(Fact("p", 1, -1.0, "acked", {"first": 5000, "last": 5009}))
    assert told.time_of(5) == -1.0
    assert (Acknowledged().time_of(0), Acknowledged().next_after(0.0)) == (None, 0)
