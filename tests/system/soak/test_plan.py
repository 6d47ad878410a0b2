"""The plan of faults."""

from itertools import islice

from attrs import evolve

from tests.system.soak.faults import KINDS
from tests.system.soak.plan import WEIGHTS, draws


def test_a_seed_always_draws_the_same_faults() -> None:
    """What one run found, another one can look for."""
    assert list(islice(draws(7), 200)) == list(islice(draws(7), 200))
    assert list(islice(draws(7), 200)) != list(islice(draws(8), 200))


def test_a_fault_comes_every_two_to_five_seconds_of_every_kind() -> None:
    """An hour has all of them."""
    hour = list(islice(draws(1), 1000))
    assert {draw.kind for draw in hour} == set(WEIGHTS) == set(KINDS)
    assert all(2 <= draw.pause <= 5 for draw in hour)
    frozen = [draw.seconds for draw in hour if draw.kind == "freeze"]
    assert 1 <= min(frozen) < 3
    assert 13 < max(frozen) <= 15


def test_a_draw_picks_among_the_targets_there_are() -> None:
    """However many they are by then."""
    draw = next(draws(1))
    assert draw.of([]) is None
    assert draw.of(["a"]) == "a"
    assert evolve(draw, pick=0.0).of(["a", "b", "c"]) == "a"
    assert evolve(draw, pick=0.999).of(["a", "b", "c"]) == "c"
