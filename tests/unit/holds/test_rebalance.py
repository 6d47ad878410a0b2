from hypothesis import given
from hypothesis import strategies as st
from rpds import HashTrieMap

from safeconsumer.holds import scope as scopes
from safeconsumer.holds import state as ledger
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.ownership import (
    Outcome,
    Ownership,
    PartitionsOf,
    Reassignment,
    compare,
    reassign,
    snapshot,
)
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import PauseView, with_assignment, with_gates
from tests.unit.holds.strategies import assignments, quick

A, B, C, D = ("orders", 0), ("orders", 1), ("orders", 2), ("orders", 3)
NONE: PartitionsOf = frozenset()


@quick
@given(st.lists(assignments, max_size=10))
def test_an_epoch_is_never_used_twice(several: list[list[TopicPartition]]) -> None:
    """Each ownership that begins has an epoch that no earlier ownership had."""
    ownership, used = Ownership(), {0}
    for assignment in several:
        ownership, change = reassign(ownership, assignment)
        new = {ownership.epochs[tp] for tp in change.gained}
        assert not new & used
        used |= new


@quick
@given(st.lists(assignments, max_size=10))
def test_what_stays_keeps_its_epoch(several: list[list[TopicPartition]]) -> None:
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


def test_the_same_assignment_is_the_same_ownership() -> None:
    """In whatever order it comes."""
    ownership, _ = reassign(Ownership(), [A, B])
    again, change = reassign(ownership, [B, A])
    assert again is ownership
    assert change == Reassignment(kept=frozenset({A, B}))


def test_a_partition_named_twice_departs_no_other() -> None:
    """``assign`` may be given duplicates; they count once."""
    ownership, _ = reassign(Ownership(), [A, B])
    ownership, change = reassign(ownership, [A, A])
    assert set(ownership.epochs) == {A}
    assert change.departed == {B}


def _view(assignment: list[TopicPartition], *held: TopicPartition) -> PauseView:
    state, _ = ledger.place(
        PauseView().state, [Hold(scope=scopes.partition(*tp)) for tp in held]
    )
    return with_assignment(PauseView(state=state), assignment, HashTrieMap())[0]


def test_a_join_is_told_apart_into_kept_gained_revoked_and_lost() -> None:
    """A partition that was lost and came back is gained: there was a gap."""
    ownership, _ = reassign(Ownership(), [A, B, C])
    before = snapshot(_view([A, B, C]), ownership)
    ownership, _ = reassign(ownership, [A])
    ownership, _ = reassign(ownership, [A, B, D])
    outcome = compare(before, _view([A, B, D]), ownership, frozenset({B}))
    assert outcome == Outcome(
        kept=frozenset({A}),
        gained=frozenset({B, D}),
        revoked=frozenset({C}),
        lost=frozenset({B}),
        woken=NONE,
    )


def test_a_forgotten_pause_is_noticed() -> None:
    """Kept, quiet before and flowing now, though nobody changed the ledger."""
    ownership, _ = reassign(Ownership(), [A, B])
    quiet = _view([A, B], A)
    before = snapshot(quiet, ownership)
    woken = PauseView(state=quiet.state, assigned=quiet.assigned)
    assert compare(before, woken, ownership, NONE).woken == {A}


def test_a_lifted_hold_is_no_forgotten_pause() -> None:
    """Somebody asked for it."""
    ownership, _ = reassign(Ownership(), [A, B])
    quiet = _view([A, B], A)
    before = snapshot(quiet, ownership)
    state, _ = ledger.remove(quiet.state, [(scopes.partition(*A), "app")])
    flowing = PauseView(state=state, assigned=quiet.assigned)
    assert compare(before, flowing, ownership, NONE).woken == NONE


def test_a_pause_that_still_holds_is_no_news() -> None:
    """Quiet before, quiet now."""
    ownership, _ = reassign(Ownership(), [A, B])
    quiet = _view([A, B], A)
    before = snapshot(quiet, ownership)
    assert compare(before, quiet, ownership, NONE).woken == NONE


def test_a_gate_that_opened_is_no_forgotten_pause() -> None:
    """A gate ends with the call it was made in, and a join may outlast that call."""
    ownership, _ = reassign(Ownership(), [A, B])
    gates = HashTrieMap({A: "gate", B: "gate"})
    gated, _ = with_gates(_view([A, B], A), gates)
    before = snapshot(gated, ownership)
    assert before.quiet == {A, B}
    opened, _ = with_gates(gated, HashTrieMap())
    assert compare(before, opened, ownership, NONE).woken == NONE
    woken = PauseView(state=gated.state, assigned=gated.assigned)
    assert compare(before, woken, ownership, NONE).woken == {A}
