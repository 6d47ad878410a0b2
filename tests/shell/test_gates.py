"""
The loop of KAFKA-13463: what is gained during a poll that began all paused.
"""

from safeconsumer.events.consumer import GatesChanged
from safeconsumer.holds import scope as scopes
from tests.shell.lab import ALL, AUDIT, ORDERS, A, B, C, Lab

HOLD_A = scopes.partition(*A)


def test_what_is_gained_is_gated_until_the_poll_returns() -> None:
    """
    Whoever paused all of it had no chance yet to pause the rest.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(HOLD_A)
    assert lab.poll([A, B]) == [{A, B}]
    assert lab.quiet() == {A}
    told = [(one.quiet, one.flowing) for one in lab.told.of(GatesChanged)]
    assert told == [((), (B,))]


def test_what_is_gained_while_something_flows_is_not_gated() -> None:
    """
    A plain consumer is not slowed.
    """
    lab = Lab()
    lab.assign(A, B)
    lab.hold(HOLD_A)
    assert lab.poll([A, B, C]) == [{A}]


def test_an_empty_assignment_is_not_all_paused() -> None:
    """
    ``pause(*assignment())`` before the first assignment asked for nothing.
    """
    lab = Lab()
    assert lab.poll([A]) == [set()]


def test_a_gate_survives_a_second_rebalance_in_the_same_poll() -> None:
    """
    Gates are not opened by being looked at again.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(HOLD_A)
    assert lab.poll([A, B], [A, B, C], [A, C]) == [{A, B}, {A, B, C}, {A, C}]
    assert lab.quiet() == {A}


def test_a_gate_leaves_with_its_partition() -> None:
    """
    Nobody is told of a gate before a partition that is not here.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.ledger.begin_call()
    lab.ledger.assign([A, B])
    lab.ledger.assign([A])
    assert B not in lab.ledger.view().gates


def test_losing_everything_during_a_poll_does_not_look_like_a_resume() -> None:
    """
    Membership lost and regained within one call.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(HOLD_A)
    assert lab.poll([], [A, B]) == [set(), {A, B}]


def test_losing_everything_before_a_poll_does_not_look_like_a_resume() -> None:
    """
    With nothing assigned, what held when there last was something counts.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.poll([])
    lab.poll()
    assert lab.poll([A, B]) == [{A, B}]


def test_a_resume_while_nothing_is_assigned_ends_it() -> None:
    """
    Somebody lifted holds: the next poll did not begin "all paused".
    """
    lab = Lab()
    lab.assign(A, B)
    lab.hold(HOLD_A, scopes.partition(*B))
    lab.poll([])
    lab.lift(HOLD_A)
    assert lab.poll([A, B]) == [{B}]


def test_what_is_gained_between_polls_is_not_gated() -> None:
    """
    ``assign`` on the application's thread: it can pause what it has just assigned.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.poll()
    lab.assign(A, B)
    assert lab.quiet() == {A}


def test_a_hold_during_the_poll_outlasts_the_gate() -> None:
    """
    What a listener paused stays paused.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.ledger.begin_call()
    lab.ledger.assign([A, B])
    lab.hold(scopes.partition(*B))
    lab.ledger.end_call()
    assert lab.quiet() == {A, B}


def test_the_consumer_level_needs_no_gate() -> None:
    """
    Its hold covers what is gained.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(ALL)
    assert lab.poll([A, B]) == [{A, B}]
    assert lab.quiet() == {A, B}


def test_an_explained_gate() -> None:
    """
    It is no hold, but somebody will ask.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(ORDERS)
    lab.ledger.begin_call()
    lab.ledger.assign([A, C])
    assert C in lab.ledger.view().gates


def test_the_start_of_a_poll_tells_whether_it_gates() -> None:
    """
    Also with nothing assigned: what held last counts.
    """
    lab = Lab()
    assert not lab.ledger.begin_call()
    lab.ledger.end_call()
    lab.assign(A)
    lab.hold(HOLD_A)
    assert lab.ledger.begin_call()
    lab.ledger.end_call()
    lab.assign()
    assert lab.ledger.begin_call()


def test_an_expiry_while_nothing_is_assigned_ends_it() -> None:
    """
    As a resume does.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(ORDERS, for_=5)
    lab.poll([])
    lab.clock.now += 5
    assert lab.poll([A]) == [set()]


def test_another_choice_of_what_is_consumed_ends_it() -> None:
    """
    With nothing assigned; what is assigned still speaks for itself.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.poll()
    lab.ledger.choose_anew()
    lab.poll([])
    assert lab.poll([A, C]) == [{A, C}]
    lab.poll([])
    lab.ledger.choose_anew()
    assert lab.poll([A, C]) == [{A}]


def _gating(lab: Lab) -> None:
    # A and B are held, and C is gained during the call and gated.
    lab.assign(A, B)
    lab.hold(ORDERS)
    lab.ledger.begin_call()
    lab.ledger.assign([A, B, C])
    assert lab.quiet() == {A, B, C}


def test_a_resume_opens_the_gate_of_what_it_names() -> None:
    """
    Whoever paused the rest has decided about it; the others stay gated.
    """
    lab = Lab()
    _gating(lab)
    lab.lift(ORDERS)
    assert lab.quiet() == {C}
    lab.lift(AUDIT)
    assert lab.quiet() == set()
    lab.ledger.deliver()
    assert [one.flowing for one in lab.told.of(GatesChanged)] == [(C,)]


def test_a_resume_of_everything_opens_all_gates() -> None:
    """
    What is held besides stays held.
    """
    lab = Lab()
    _gating(lab)
    lab.lift(ALL)
    assert lab.quiet() == {A, B}


def test_a_resume_by_another_owner_opens_no_gate() -> None:
    """
    Who holds the rest has had no chance yet to pause it (P7).
    """
    lab = Lab()
    lab.hold(AUDIT, owner="worker")
    _gating(lab)
    lab.lift(AUDIT, owner="worker")
    assert lab.quiet() == {A, B, C}
    lab.ledger.end_call()
    assert lab.quiet() == {A, B}


def test_an_expiry_opens_gates_as_a_resume_does() -> None:
    """
    Membership lost and regained under a hold that ends by itself.
    """
    lab = Lab()
    lab.assign(A)
    lab.hold(ALL, for_=5)
    lab.ledger.begin_call()
    lab.ledger.assign([])
    lab.ledger.assign([A])
    assert lab.quiet() == {A}
    lab.clock.now += 5
    assert lab.quiet() == set()
