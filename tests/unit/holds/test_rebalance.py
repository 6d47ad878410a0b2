from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.holds.ownership import (
    Ownership,
    Reassignment,
    reassign,
)
from tests.unit.holds.strategies import assignments, quick

A, B = ("orders", 0), ("orders", 1)


@quick
@given(st.lists(assignments, max_size=10))
def test_an_epoch_is_never_used_twice(several):
    """Each ownership that begins has an epoch that no earlier ownership had."""
    ownership, used = Ownership(), {0}
    for assignment in several:
        ownership, change = reassign(ownership, assignment)
        new = {ownership.epochs[tp] for tp in change.gained}
        assert not new & used
        used |= new


@quick
@given(st.lists(assignments, max_size=10))
def test_what_stays_keeps_its_epoch(several):
    """And kept, gained and departed are exactly the difference."""
    ownership = Ownership()
    for assignment in several:
        before, after = ownership.epochs, set(assignment)
        ownership, change = reassign(ownership, assignment)
        assert set(ownership.epochs) == after
        assert change.kept == after & set(before)
        assert change.gained == after - set(before)
        assert change.departed == set(before) - after
        assert all(before[tp] == ownership.epochs[tp] for tp in change.kept)


def test_the_same_assignment_is_the_same_ownership():
    """In whatever order it comes."""
    ownership, _ = reassign(Ownership(), [A, B])
    again, change = reassign(ownership, [B, A])
    assert again is ownership
    assert change == Reassignment(kept=frozenset({A, B}))


def test_a_partition_named_twice_departs_no_other():
    """``assign`` may be given duplicates; they count once."""
    ownership, _ = reassign(Ownership(), [A, B])
    ownership, change = reassign(ownership, [A, A])
    assert set(ownership.epochs) == {A}
    assert change.departed == {B}
