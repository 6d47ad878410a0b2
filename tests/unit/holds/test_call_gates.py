"""Which gained partitions a call gates, and what the gates stand in for."""

from collections.abc import Iterable

from rpds import HashTrieMap

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.gates import CallGates
from safeconsumer.holds.hold import Hold, HoldKey
from safeconsumer.holds.scope import Scope, TopicPartition
from safeconsumer.holds.state import LedgerState, place
from safeconsumer.holds.view import PauseView, with_assignment

A, B, C = ("orders", 0), ("orders", 1), ("audit", 0)
ORDERS: Scope = scopes.topic("orders")
AUDIT: Scope = scopes.topic("audit")
APP: HoldKey = (ORDERS, "app")
OPS: HoldKey = (ORDERS, "ops")


def _view(keys: list[HoldKey], *assigned: TopicPartition) -> PauseView:
    holds = [Hold(scope=scope, owner=owner) for scope, owner in keys]
    state, _ = place(LedgerState(), holds)
    return with_assignment(PauseView(state=state), assigned, HashTrieMap())[0]


HELD = _view([APP], A, B)


def test_a_call_that_begins_with_nothing_assigned_goes_by_the_last() -> None:
    """Until the application chooses anew, outside of a call."""
    empty = _view([APP])
    gates = CallGates().begin(HELD).choose_anew(empty).end()  # in the middle of it
    gates = gates.begin(empty)
    assert gates.is_gating
    gates = gates.end().choose_anew(HELD).begin(empty)  # something is assigned
    assert gates.is_gating
    assert not gates.end().choose_anew(empty).begin(empty).is_gating


def test_a_hold_that_was_lifted_in_one_call_does_not_stand_in_the_next() -> None:
    """With nothing assigned between, the next call goes by what is left of the last."""
    nothing = _view([OPS])
    gates = CallGates().begin(_view([APP, OPS], A))
    gates = gates.lifted([APP], _view([OPS], A)).end().begin(nothing).end()
    assert gates.begin(nothing).lifted([(AUDIT, "app")], nothing).is_gating
    assert not gates.begin(nothing).lifted([OPS], nothing).is_gating


def test_what_was_resumed_by_name_in_one_call_is_not_gated_in_the_next() -> None:
    """While the holds of the first still stand."""
    gates = CallGates().begin(HELD).lifted([(scopes.of(C), "app")], HELD)
    gates = gates.end().begin(_view([APP])).reassign([C, ("audit", 1)], [])
    assert set(gates.closed) == {("audit", 1)}


def test_an_owner_that_lifts_all_it_has() -> None:
    """Counts as if it had named everything, and speaks for itself only."""
    gates = CallGates().begin(_view([APP, OPS], A, B)).reassign([C], [])
    gates = gates.given_up("ops")
    assert set(gates.closed) == {C}
    assert not gates.given_up("app").closed


def test_lifting_many_holds_one_by_one_does_not_look_at_all_of_them_each_time() -> None:
    """Ten thousand paused partitions are resumed in a loop while a poll waits."""
    looks: list[str] = []
    many = [("orders", number) for number in range(500)]
    keys: list[HoldKey] = [(scopes.partition(*tp), "app") for tp in many]
    view = _view(keys, *many)

    class Seen(PauseView):
        def partitions(self) -> Iterable[TopicPartition]:
            looks.append("all")
            return super().partitions()

    gates = CallGates()
    gates = gates.begin(Seen(view.state, view.assigned, view.gates, view.quiet))
    gates = gates.reassign([C], [])
    for key in keys:
        assert gates.closed
        gates = gates.lifted([key], view)
    assert not gates.closed
    assert looks == ["all"]
