"""The decision about one batch, without Spark."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.view import Holds
from safeconsumer.spark import offsets
from safeconsumer.spark.decision import Known, Plan

PARTITIONS = st.tuples(st.sampled_from(["orders", "returns"]), st.integers(0, 3))
POSITIONS = st.dictionaries(PARTITIONS, st.integers(0, 50))
SCOPES = st.sampled_from(
    ["@all", "orders", "orders:1", "re:ret.*", "re:nothing", "returns:0"]
)


def state(*texts: str) -> Holds:
    holds = (Hold(scope=scopes.parse(text)) for text in texts)
    return Holds(holds)


def known(*texts: str, troubles: tuple[str, ...] = ()) -> Known:
    return Known(states=(state(*texts),), troubles=troubles)


def planned(
    start: dict[Any, int],
    latest: dict[Any, int],
    *texts: str,
    troubles: tuple[str, ...] = (),
) -> Plan:
    held = known(*texts, troubles=troubles).held({*start, *latest})
    return Plan(start=start, latest=latest, held=held)


def test_a_held_partition_stays_where_it_is_and_others_advance() -> None:
    """S1: the end of a held partition is its start."""
    plan = planned({("a", 0): 5, ("b", 0): 5}, {("a", 0): 9, ("b", 0): 9}, "a")
    assert plan.frozen({("a", 0): 9, ("b", 0): 7}) == {("a", 0): 5, ("b", 0): 7}


def test_a_held_partition_pretends_to_have_nothing_to_read() -> None:
    """The limiter shares its quota by what is there to read."""
    plan = planned({("a", 0): 5, ("b", 0): 5}, {("a", 0): 9, ("b", 0): 9}, "a")
    assert plan.pretended() == {("a", 0): 9, ("b", 0): 5}


def test_a_new_partition_under_a_hold_is_recorded_at_zero() -> None:
    """Lifting the hold brings all of it, not only what comes after."""
    plan = planned({("a", 0): 5}, {("a", 0): 5, ("a", 1): 30}, "a")
    assert plan.frozen({("a", 0): 5, ("a", 1): 30}) == {("a", 0): 5, ("a", 1): 0}
    assert plan.lags() == {("a", 0): 0, ("a", 1): 30}


def test_one_source_that_cannot_be_asked_holds_everything() -> None:
    """S4: no decision, no reading."""
    plan = planned({("a", 0): 5}, {("a", 0): 9}, troubles=("no broker",))
    assert plan.frozen({("a", 0): 9}) == {("a", 0): 5}


def test_a_held_topic_that_is_gone_or_made_again_is_noticed() -> None:
    """The official source looks only at what a batch reads."""
    plan = planned({("a", 0): 5, ("b", 0): 5}, {("b", 0): 2}, "@all")
    assert list(plan.losses()) == [("a", 0), ("b", 0)]
    assert "it is gone" in plan.losses()["a", 0]
    assert "made again" in plan.losses()["b", 0]


def test_losses_of_what_flows_are_the_official_sources_business() -> None:
    """It reports them in its own words, as before."""
    assert planned({("a", 0): 5}, {}, "b").losses() == {}


@given(start=POSITIONS, grown=POSITIONS, texts=st.lists(SCOPES))
def test_nothing_held_moves_and_nothing_else_is_touched(
    start: dict[Any, int], grown: dict[Any, int], texts: list[str]
) -> None:
    """S1, for whatever is held and wherever the partitions end."""
    latest = dict(start)
    for tp, more in grown.items():
        latest[tp] = latest.get(tp, 0) + more
    plan = planned(start, latest, *texts)
    frozen = plan.frozen(latest)
    covers = state(*texts).covers
    assert set(frozen) == set(latest)
    for tp, end in frozen.items():
        assert end == (start.get(tp, 0) if covers(tp) else latest[tp])
    assert all(plan.pretended().get(tp, 0) <= end for tp, end in latest.items())


@given(POSITIONS)
def test_offsets_survive_their_text(positions: dict[Any, int]) -> None:
    """Equal offsets are equal text, in whatever order they were found."""
    text = offsets.render(positions)
    assert offsets.parse(text) == positions
    assert offsets.render(dict(reversed(positions.items()))) == text


def test_the_text_is_that_of_the_official_source() -> None:
    """S3: checkpoints are interchangeable."""
    text = offsets.render({("b", 10): 1, ("a", 2): 7, ("b", 9): 0})
    assert text == '{"a":{"2":7},"b":{"9":0,"10":1}}'


def test_partitions_are_named_in_runs() -> None:
    """Progress stays readable with many partitions."""
    tps = [("b", 1), ("a", 0), ("a", 1), ("a", 2), ("a", 7)]
    assert offsets.named(tps) == "a:0-2,7 b:1"
