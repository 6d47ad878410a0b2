"""What left quiet is remembered until it is back, or nothing holds it any more."""

from rpds import HashTrieMap

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.departed import DepartedQuiet, staying_behind
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.state import LedgerState, place
from safeconsumer.holds.view import PauseView, with_assignment

A, B, C = ("orders", 0), ("orders", 1), ("audit", 0)
ORDERS = Hold(scope=scopes.topic("orders"), owner="ops")
OF_A = Hold(scope=scopes.partition(*A))


def _state(*holds: Hold) -> LedgerState:
    return place(LedgerState(), holds)[0]


def _view(state: LedgerState, *assigned: TopicPartition) -> PauseView:
    return with_assignment(PauseView(state=state), assigned, HashTrieMap())[0]


def test_what_left_quiet_and_is_held_when_it_returns() -> None:
    """With the holds that cover it; once."""
    memory, state = DepartedQuiet(), _state(OF_A)
    memory.leave([A, C], _view(state, A, B, C))
    assert memory.returned([A, B, C], state) == {A: (OF_A,)}
    memory.settle([A], state)
    assert memory.returned([A], state) == {}


def test_what_nothing_holds_any_more_is_forgotten() -> None:
    """A member that sees many partitions come and go remembers the held ones only."""
    memory, state = DepartedQuiet(), _state(OF_A, ORDERS)
    memory.leave([A, B], _view(state, A, B))
    memory.settle([], state)
    assert (A in memory, B in memory) == (True, True)
    assert memory.topics() == {"orders"}
    memory.settle([], _state(OF_A))
    assert (A in memory, B in memory) == (True, False)


def test_only_the_applications_own_pause_of_a_partition_stays_behind() -> None:
    """Wider holds are meant for what comes; other owners have their own ways."""
    state = _state(OF_A, ORDERS, Hold(scope=scopes.partition(*B), owner="ops"))
    assert staying_behind([A, B, C], state) == {A: OF_A}
