"""What a change will mean, before it is applied, and which patterns it asks first."""

import re

import pytest
from rpds import HashTrieMap

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.changes import (
    Assign,
    Move,
    OpenCallGates,
    OpenGates,
    Place,
    Remove,
    RemoveOwner,
    open_questions,
    previewed,
)
from safeconsumer.holds.gates import CallGates
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import Pattern, Scope, TopicPartition
from safeconsumer.holds.state import LedgerState, place
from safeconsumer.holds.view import PauseView, with_assignment

A, B, C = ("orders", 0), ("orders", 1), ("audit", 0)
ORDERS: Scope = scopes.topic("orders")
AUDIT: Scope = scopes.topic("audit")


def view_of(holds: list[Hold], *assigned: TopicPartition) -> PauseView:
    state, _ = place(LedgerState(), holds)
    return with_assignment(PauseView(state=state), assigned, HashTrieMap())[0]


HELD = view_of([Hold(scope=ORDERS), Hold(scope=ORDERS, owner="ops")], A, B)
GATED = CallGates().begin(HELD).reassign([C], [])
GAINED = with_assignment(HELD, [A, B, C], HashTrieMap())[0]


def quiet(view: PauseView) -> set[TopicPartition]:
    return set(view.quiet)


def test_what_is_placed_is_quiet_and_opens_no_gate() -> None:
    view, gates = previewed(GAINED, GATED, Place((Hold(scope=AUDIT),)))
    assert quiet(view) == {A, B, C}
    assert {hold.scope for hold in view.state} == {ORDERS, AUDIT}
    assert gates == GATED
    assert quiet(GAINED) == {A, B}


def test_an_assignment_gates_what_it_gains_and_forgets_what_departs() -> None:
    view, gates = previewed(HELD, CallGates().begin(HELD), Assign((A, C)))
    assert set(view.partitions()) == {A, C}
    assert set(gates.closed) == {C}
    view, gates = previewed(view, gates, Assign((A, B)))
    assert set(view.partitions()) == {A, B}
    assert quiet(view) == {A, B}
    assert set(gates.closed) == {B}


def test_the_end_of_a_poll_opens_its_gates_and_lifts_nothing() -> None:
    view, gates = previewed(GAINED, GATED, OpenCallGates())
    assert view is GAINED
    assert not gates.closed


@pytest.mark.parametrize(
    "change",
    [Move((Hold(scope=ORDERS, deadline=1.0),)), OpenGates({A: 1})],
    ids=["deadlines", "gates of control topics"],
)
def test_what_changes_no_partition_is_left_out(change: Move | OpenGates) -> None:
    """Gates of control topics are the ledger's own, and are not in this picture."""
    view, gates = previewed(GAINED, GATED, change)
    assert view is GAINED
    assert gates is GATED


def test_a_change_that_was_applied_already_is_the_same_again() -> None:
    """An interrupt may come between applying it and taking it out of the inbox."""
    for change in (
        Place((Hold(scope=AUDIT),)),
        Remove(((ORDERS, "app"),)),
        RemoveOwner("ops"),
        Assign((A, C)),
        OpenCallGates(),
    ):
        once = previewed(GAINED, GATED, change)
        assert previewed(*once, change) == once


def asked(questions: list[tuple[Pattern, str]]) -> set[tuple[str, str]]:
    return {(one.text, topic) for one, topic in questions}


def test_a_new_pattern_is_asked_about_every_name_that_may_be_looked_up() -> None:
    """Assigned topics, the names of holds, those of the same change, and given ones."""
    fresh = scopes.pattern(re.compile("o.*"))
    view = view_of([Hold(scope=AUDIT), Hold(scope=scopes.of(("eu", 0)))], A)
    questions = open_questions(view, [fresh, scopes.topic("bills")], ["given"])
    assert asked(questions) == {
        ("o.*", name) for name in ("orders", "audit", "eu", "bills", "given")
    }


def test_a_pattern_in_force_is_asked_about_new_names_only() -> None:
    """About assigned topics the change that brought them has asked it."""
    standing = scopes.pattern(re.compile("o.*"))
    view = view_of([Hold(scope=standing), Hold(scope=AUDIT)], A)
    questions = open_questions(view, [scopes.topic("bills")], ["given", "orders"])
    assert asked(questions) == {("o.*", "bills"), ("o.*", "given")}
    assert open_questions(view_of([], A), [scopes.topic("bills")], ["given"]) == []
