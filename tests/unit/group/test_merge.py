"""Merging is commutative, associative and idempotent: order and repetition cannot matter."""

from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.holds.merge import Register, held, merge
from tests.unit.group.patience import patient

registers = st.builds(
    Register,
    stamp=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    is_held=st.booleans(),
    at_ms=st.integers(0, 2),
    body=st.binary(max_size=1),
)
maps = st.dictionaries(st.sampled_from("abc"), registers)


@patient
@given(maps, maps)
def test_commutative(a: dict[str, Register], b: dict[str, Register]) -> None:
    assert merge(a, b) == merge(b, a)


@patient
@given(maps, maps, maps)
def test_associative(
    a: dict[str, Register], b: dict[str, Register], c: dict[str, Register]
) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@patient
@given(maps, maps)
def test_idempotent(a: dict[str, Register], b: dict[str, Register]) -> None:
    once = merge(a, b)
    assert merge(once, b) == merge(once, a) == merge(once, once) == once


def test_held_wins_on_the_same_stamp() -> None:
    """Two that speak at once: the safe side."""
    stamp = (1, 1)
    both = merge({"a": Register(stamp, False)}, {"a": Register(stamp, True)})  # noqa: FBT003 - fields
    assert held(both) == {"a"}


def test_the_later_one_counts() -> None:
    later = {"a": Register((1, 2), False)}  # noqa: FBT003 - a field
    assert held(merge({"a": Register((1, 1), True)}, later)) == frozenset()  # noqa: FBT003 - a field
