"""The fuzz targets by Hypothesis."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.listing import short
from tests.unit.fuzz.found import FOUND
from tests.unit.fuzz.targets import BY_NAME, TARGETS
from tests.unit.group.patience import patient

_BYTES = st.binary(max_size=40)


def damaged(target):
    """Return seeds of a target with a piece replaced, and bytes of any kind."""

    def replaced(seed, at, length, piece):
        at %= len(seed) + 1
        return seed[:at] + piece + seed[at + length :]

    place, length = st.integers(0, 4096), st.integers(0, 8)
    seeds = st.sampled_from(target.seeds)
    return st.builds(replaced, seeds, place, length, _BYTES) | _BYTES


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seeds_are_good(target):
    """What inputs are made of."""
    for seed in target.seeds:
        target.feed(seed)


@pytest.mark.parametrize(
    ("name", "data"),
    [(name, data) for name, own in FOUND.items() for data in own],
    ids=short,
)
def test_what_was_found_once(name, data):
    """It stays repaired."""
    BY_NAME[name].feed(data)


# What is drawn is kept by the test's id: each target has examples of its own.
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@settings(patient, max_examples=150)
@given(drawn=st.data())
def test_hostile_bytes_break_no_promise(target, drawn):
    """Only documented errors, and what is read is what was written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what re says of odd patterns
        target.feed(drawn.draw(damaged(target)))
