"""Operations on offset ranges match the same operations on sets of offsets."""

from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.audit.spans import Spans, between, merged, uncovered
from tests.harness.chance import by_day

stretches = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda x: (x[0], sum(x)))
)


def offsets(spans):
    return {one for start, end in spans for one in range(start, end)}


@by_day(40)
@given(stretches)
def test_merged_ranges_cover_the_same_offsets_without_touching(spans):
    found = merged(spans)
    assert offsets(found) == offsets(spans)
    edges = [edge for span in found for edge in span]
    assert edges == sorted(set(edges))


@by_day(40)
@given(stretches, stretches)
def test_uncovered_ranges_are_the_difference(ours, theirs):
    found = list(uncovered(merged(ours), merged(theirs)))
    assert offsets(found) == offsets(ours) - offsets(theirs)
    assert found == sorted(found)


@by_day(40)
@given(stretches, st.integers(0, 70), st.integers(0, 70))
def test_between_cuts_ranges_at_both_offsets(spans, bottom, top):
    found = between(merged(spans), bottom, top)
    assert offsets(found) == {one for one in offsets(spans) if bottom <= one < top}


def test_spans_store_64_bit_offsets():
    spans = Spans()
    spans.add(2**63 - 3, 2**63 - 1)
    assert list(uncovered(spans, Spans())) == [(2**63 - 3, 2**63 - 1)]
