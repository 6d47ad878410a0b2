import re

from safeconsumer.holds import scope as scopes
from safeconsumer.holds import state as ledger
from safeconsumer.holds.hold import Hold, Lifetime
from safeconsumer.holds.state import LedgerState
from tests.harness.listing import each

ORDERS = scopes.topic("orders")
ORDERS_3 = scopes.partition("orders", 3)
ORD = scopes.pattern(re.compile("ord.*"))
ALL = scopes.Everything()


def _state(*holds: Hold) -> LedgerState:
    return ledger.place(LedgerState(), holds)[0]


def test_an_unchanged_hold_is_the_same_state() -> None:
    """Placing it again changes nothing, not even the version, nor its time."""
    before = _state(Hold(scope=ORDERS, reason="full", placed_at=1.0))
    again, placed = ledger.place(
        before, [Hold(scope=ORDERS, reason="full", placed_at=2.0)]
    )
    assert again is before
    assert placed == ()


def test_a_changed_hold_replaces_the_old_one() -> None:
    """One hold per scope and owner."""
    state = _state(Hold(scope=ORDERS, reason="a"), Hold(scope=ORDERS, reason="b"))
    assert [hold.reason for hold in state] == ["b"]


def test_two_owners_on_one_scope() -> None:
    """Lifting one leaves the other."""
    state = _state(Hold(scope=ORDERS), Hold(scope=ORDERS, owner="ops"))
    state, removed = ledger.remove(state, [(ORDERS, "app")])
    assert [hold.owner for hold in removed] == ["app"]
    assert state.covers(("orders", 0))
    assert [hold.owner for hold in state] == ["ops"]


def test_lifting_one_layer_leaves_the_others() -> None:
    """Partition, topic, pattern and consumer are independent layers."""
    layers = (ORDERS_3, ORDERS, ORD, ALL)
    for lifted in layers:
        state = _state(*(Hold(scope=one) for one in layers))
        state, _ = ledger.remove(state, [(lifted, "app")])
        assert {*layers} - {lifted} == {hold.scope for hold in state}
        assert state.covers(("orders", 3))


def test_a_hold_expires_at_its_deadline_and_not_before() -> None:
    """Never early."""
    hold = Hold(scope=ORDERS, deadline=10.0)
    state = _state(hold)
    assert ledger.expire(state, [hold], 9.999) == (state, ())
    after, expired = ledger.expire(state, [hold], 10.0)
    assert expired == (hold,)
    assert not after.covers(("orders", 0))


def test_a_replaced_hold_does_not_expire_by_its_old_deadline() -> None:
    """Extending a hold really extends it."""
    old, new = Hold(scope=ORDERS, deadline=10.0), Hold(scope=ORDERS, deadline=20.0)
    state = _state(old, new)
    after, expired = ledger.expire(state, [old, new], 15.0)
    assert expired == ()
    assert after is state


@each(
    ("scope", "ends"), [(ORDERS_3, True), (ORDERS, False), (ORD, False), (ALL, False)]
)
def test_a_bound_hold_ends_with_the_last_partition_it_covers(
    scope: scopes.Scope, *, ends: bool
) -> None:
    """``orders:3`` leaves while ``orders:4`` stays."""
    state = _state(Hold(scope=scope, lifetime=Lifetime.WHILE_ASSIGNED))
    _, ended = ledger.end_assignment(state, frozenset({("orders", 3)}), [("orders", 4)])
    assert bool(ended) == ends


def test_a_bound_hold_that_covers_nothing_departed_stays() -> None:
    """What was never assigned cannot end by being revoked."""
    state = _state(Hold(scope=scopes.topic("later"), lifetime=Lifetime.WHILE_ASSIGNED))
    after, ended = ledger.end_assignment(state, frozenset({("orders", 3)}), [])
    assert (state, ()) == (after, ended)


def test_a_hold_until_resumed_survives_departure() -> None:
    """The default lifetime."""
    state = _state(Hold(scope=ORDERS_3))
    after, ended = ledger.end_assignment(state, frozenset({("orders", 3)}), [])
    assert (state, ()) == (after, ended)


def test_a_hold_that_is_no_longer_bound_survives_departure() -> None:
    """The lifetime given last counts."""
    state = _state(
        Hold(scope=ORDERS_3, lifetime=Lifetime.WHILE_ASSIGNED), Hold(scope=ORDERS_3)
    )
    _, ended = ledger.end_assignment(state, frozenset({("orders", 3)}), [])
    assert ended == ()


@each(
    ("asked", "found"),
    [
        (ORDERS_3, {ORDERS_3, ORDERS, ORD, ALL}),
        (ORDERS, {ORDERS_3, ORDERS, ORD, ALL}),
        (ORD, {ORDERS_3, ORDERS, ORD, ALL}),
        (ALL, {ORDERS_3, ORDERS, ORD, ALL}),
        (scopes.topic("audit"), {ALL}),
        (scopes.partition("orders", 4), {ORDERS, ORD, ALL}),
    ],
)
def test_which_holds_still_cover_a_scope(
    asked: scopes.Scope, found: set[scopes.Scope]
) -> None:
    """What ``resume`` answers: whatever covers something of the scope."""
    ORD.matches("orders")
    state = _state(*(Hold(scope=one) for one in (ORDERS_3, ORDERS, ORD, ALL)))
    assert found == {hold.scope for hold in state.overlapping(asked)}
