"""The fuzz targets by Hypothesis."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.listing import each
from tests.unit.fuzz.found import FOUND
from tests.unit.fuzz.targets import BY_NAME, TARGETS, Target
from tests.unit.group.patience import patient

_BYTES = st.binary(max_size=40)


def damaged(target: Target) -> st.SearchStrategy[bytes]:
    """Return seeds of a target with a piece replaced, and bytes of any kind."""

    def replaced(seed: bytes, at: int, length: int, piece: bytes) -> bytes:
        at %= len(seed) + 1
        return seed[:at] + piece + seed[at + length :]

    place, length = st.integers(0, 4096), st.integers(0, 8)
    seeds = st.sampled_from(target.seeds)
    return st.builds(replaced, seeds, place, length, _BYTES) | _BYTES


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seeds_are_good(target: Target) -> None:
    """What inputs are made of."""
    for seed in target.seeds:
        target.feed(seed)


@each(("name", "data"), [(name, data) for name, own in FOUND.items() for data in own])
def test_what_was_found_once(name: str, data: bytes) -> None:
    """It stays repaired."""
    BY_NAME[name].feed(data)


# What is drawn is kept by the test's id: each target has examples of its own.
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@settings(patient, max_examples=150)
@given(drawn=st.data())
def test_hostile_bytes_break_no_promise(target: Target, drawn: st.DataObject) -> None:
    """Only documented errors, and what is read is what was written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what re says of odd patterns
        target.feed(drawn.draw(damaged(target)))
