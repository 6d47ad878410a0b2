"""Tests the decision about one batch, without Spark."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.view import Holds
from safeconsumer.spark import offsets
from safeconsumer.spark.decision import KnownHolds, Plan
from tests.harness.chance import by_day

PARTITIONS = st.tuples(st.sampled_from(["orders", "returns"]), st.integers(0, 3))
POSITIONS = st.dictionaries(PARTITIONS, st.integers(0, 50))
SCOPES = st.sampled_from(
    ["@all", "orders", "orders:1", "re:ret.*", "re:nothing", "returns:0"]
)


def state(*texts):
    holds = (Hold(scope=scopes.parse(text)) for text in texts)
    return Holds(holds)


def known(*texts, troubles=()):
    return KnownHolds(states=(state(*texts),), troubles=troubles)


def planned(start, latest, *texts, troubles=()):
    held = known(*texts, troubles=troubles).held({*start, *latest})
    return Plan(start=start, latest=latest, held=held)


@pytest.mark.contract("S1")
@by_day(50)
@given(start=POSITIONS, grown=POSITIONS, texts=st.lists(SCOPES))
def test_batch_ends_at_the_start_of_held_partitions_and_at_the_end_of_others(
    start, grown, texts
):
    latest = dict(start)
    for tp, more in grown.items():
        latest[tp] = latest.get(tp, 0) + more
    plan = planned(start, latest, *texts)
    frozen = plan.adjusted_end(latest)
    covers = state(*texts).covers
    assert set(frozen) == set(latest)
    for tp, end in frozen.items():
        assert end == (start.get(tp, 0) if covers(tp) else latest[tp])
    assert all(
        plan.starts_for_limiter().get(tp, 0) <= end for tp, end in latest.items()
    )


@by_day(50)
@given(POSITIONS)
def test_offsets_are_parsed_as_they_were_rendered(positions):
    """Equal offsets give equal text, in any order."""
    text = offsets.render(positions)
    assert offsets.parse(text) == positions
    assert offsets.render(dict(reversed(positions.items()))) == text


STEPS = st.lists(
    st.tuples(POSITIONS, st.lists(SCOPES), st.booleans()), min_size=1, max_size=6
)


@pytest.mark.contract("S2")
@by_day(40)
@given(STEPS)
def test_every_offset_is_read_once_despite_restarts_and_kills(steps):
    """Each batch starts at the end of the last batch in the offset log."""
    checkpoint, latest, read = offsets.render({}), dict[Any, int](), dict[Any, int]()
    for grown, texts, is_killed in (*steps, ({}, [], False)):
        for tp, more in grown.items():
            latest[tp] = latest.get(tp, 0) + more
        start = offsets.parse(checkpoint)
        end = planned(start, latest, *texts).adjusted_end(latest)
        assert all(start.get(tp, 0) == read.get(tp, 0) for tp in latest)
        assert all(start.get(tp, 0) <= end[tp] for tp in latest)
        if not is_killed:  # a batch whose end was not stored is planned again
            checkpoint, read = offsets.render(end), end
    assert read == latest


@pytest.mark.contract("S3")
def test_offsets_are_written_as_in_the_official_source():
    """S3: the checkpoints of both sources are interchangeable."""
    text = offsets.render({("b", 10): 1, ("a", 2): 7, ("b", 9): 0})
    assert text == '{"a":{"2":7},"b":{"9":0,"10":1}}'


def test_partitions_are_named_as_ranges():
    tps = [("b", 1), ("a", 0), ("a", 1), ("a", 2), ("a", 7)]
    assert offsets.named(tps) == "a:0-2,7 b:1"


def test_held_partition_has_lost_records_only_if_its_end_is_below_the_next_offset():
    """A partition that was read up to its end offset has not lost any records."""
    start = {("orders", number): 5 for number in range(4)}
    latest = {("orders", 0): 5, ("orders", 1): 6, ("orders", 2): 4}
    losses = planned(start, latest, "orders").losses()
    assert set(losses) == {("orders", 2), ("orders", 3)}
