"""The loop of KAFKA-13463: what is gained during a poll that began all paused."""

from collections.abc import Callable
from unittest import mock

import pytest

from safeconsumer.events.consumer import GatesChanged
from safeconsumer.holds import scope as scopes
from safeconsumer.holds import state
from safeconsumer.holds.hold import Hold, Lifetime
from safeconsumer.holds.scope import Scope, TopicPartition
from tests.harness.holds.lab import ALL, AUDIT, ORDERS, A, B, C, LedgerLab, is_locked
from tests.harness.listing import each
from tests.unit.holds.signals import handled_by, send

D = ("audit", 1)
HOLD_A = scopes.partition(*A)


def test_what_is_gained_is_gated_until_the_poll_returns() -> None:
    """Whoever paused all of it had no chance yet to pause the rest."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    assert lab.poll([A, B]) == [{A, B}]
    assert lab.quiet() == {A}
    told = [(one.quiet, one.flowing) for one in lab.told.of(GatesChanged)]
    assert told == [((), (B,))]


def test_what_is_gained_while_something_flows_is_not_gated() -> None:
    """A plain consumer is not slowed."""
    lab = LedgerLab()
    lab.assign(A, B)
    lab.hold(HOLD_A)
    assert lab.poll([A, B, C]) == [{A}]


def test_an_empty_assignment_is_not_all_paused() -> None:
    """``pause(*assignment())`` before the first assignment asked for nothing."""
    lab = LedgerLab()
    assert lab.poll([A]) == [set()]


def test_a_gate_survives_a_second_rebalance_in_the_same_poll() -> None:
    """Gates are not opened by being looked at again."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    assert lab.poll([A, B], [A, B, C], [A, C]) == [{A, B}, {A, B, C}, {A, C}]
    assert lab.quiet() == {A}


def test_a_gate_leaves_with_its_partition() -> None:
    """Nobody is told of a gate before a partition that is not here."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.ledger.begin_call()
    lab.ledger.assign([A, B])
    lab.ledger.assign([A])
    assert B not in lab.ledger.view().gates


def test_losing_everything_during_a_poll_does_not_look_like_a_resume() -> None:
    """Membership lost and regained within one call."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    assert lab.poll([], [A, B]) == [set(), {A, B}]


def test_losing_everything_before_a_poll_does_not_look_like_a_resume() -> None:
    """With nothing assigned, what held when there last was something counts."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.poll([])
    lab.poll()
    assert lab.poll([A, B]) == [{A, B}]


def test_a_resume_while_nothing_is_assigned_ends_it() -> None:
    """Somebody lifted holds: the next poll did not begin "all paused"."""
    lab = LedgerLab()
    lab.assign(A, B)
    lab.hold(HOLD_A, scopes.partition(*B))
    lab.poll([])
    lab.lift(HOLD_A)
    assert lab.poll([A, B]) == [{B}]


def test_what_is_gained_between_polls_is_not_gated() -> None:
    """``assign`` on the application's thread: it can pause what it has just assigned."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.poll()
    lab.assign(A, B)
    assert lab.quiet() == {A}


def test_a_hold_during_the_poll_outlasts_the_gate() -> None:
    """What a listener paused stays paused."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.ledger.begin_call()
    lab.ledger.assign([A, B])
    lab.hold(scopes.partition(*B))
    lab.ledger.end_call()
    assert lab.quiet() == {A, B}


def test_the_consumer_level_needs_no_gate() -> None:
    """Its hold covers what is gained."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(ALL)
    assert lab.poll([A, B]) == [{A, B}]
    assert lab.quiet() == {A, B}


def test_an_explained_gate() -> None:
    """It is no hold, but somebody will ask."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(ORDERS)
    lab.ledger.begin_call()
    lab.ledger.assign([A, C])
    assert C in lab.ledger.view().gates


def test_the_start_of_a_poll_tells_whether_it_gates() -> None:
    """Also with nothing assigned: what held last counts."""
    lab = LedgerLab()
    assert not lab.ledger.begin_call()
    lab.ledger.end_call()
    lab.assign(A)
    lab.hold(HOLD_A)
    assert lab.ledger.begin_call()
    lab.ledger.end_call()
    lab.assign()
    assert lab.ledger.begin_call()


def test_an_expiry_while_nothing_is_assigned_ends_it() -> None:
    """As a resume does."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(ORDERS, for_=5)
    lab.poll([])
    lab.clock.now += 5
    assert lab.poll([A]) == [set()]


def test_another_choice_of_what_is_consumed_ends_it() -> None:
    """With nothing assigned; what is assigned still speaks for itself."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.poll()
    lab.ledger.choose_anew()
    lab.poll([])
    assert lab.poll([A, C]) == [{A, C}]
    lab.poll([])
    lab.ledger.choose_anew()
    assert lab.poll([A, C]) == [{A}]


def _gating(lab: LedgerLab) -> None:
    # A and B are held, and C is gained during the call and gated.
    lab.assign(A, B)
    lab.hold(ORDERS)
    lab.ledger.begin_call()
    lab.ledger.assign([A, B, C])
    assert lab.quiet() == {A, B, C}


def test_a_resume_opens_the_gate_of_what_it_names() -> None:
    """Whoever paused the rest has decided about it; the others stay gated."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.ledger.begin_call()
    lab.ledger.assign([A, B, C])
    lab.lift(AUDIT)
    assert lab.quiet() == {A, B}
    lab.lift(HOLD_A)
    assert lab.quiet() == set()
    lab.ledger.deliver()
    assert [one.flowing for one in lab.told.of(GatesChanged)] == [(C,), (B,)]


def test_a_resume_of_everything_opens_all_gates() -> None:
    """What is held besides stays held."""
    lab = LedgerLab()
    _gating(lab)
    lab.lift(ALL)
    assert lab.quiet() == {A, B}


def test_a_resume_by_another_owner_opens_no_gate() -> None:
    """Who holds the rest has had no chance yet to pause it (P7)."""
    lab = LedgerLab()
    lab.hold(AUDIT, owner="worker")
    _gating(lab)
    lab.lift(AUDIT, owner="worker")
    assert lab.quiet() == {A, B, C}
    lab.ledger.end_call()
    assert lab.quiet() == {A, B}


def test_an_expiry_opens_gates_as_a_resume_does() -> None:
    """Membership lost and regained under a hold that ends by itself."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(ALL, for_=5)
    lab.ledger.begin_call()
    lab.ledger.assign([])
    lab.ledger.assign([A])
    assert lab.quiet() == {A}
    lab.clock.now += 5
    assert lab.quiet() == set()


def test_lifting_the_last_hold_opens_every_gate() -> None:
    """Nobody holds anything any more, so a gate stands in for nobody."""
    lab = LedgerLab()
    _gating(lab)
    assert lab.ledger.remove([(ORDERS, "app")]) == ()
    assert lab.quiet() == set()
    assert lab.poll([A, B, C, D]) == [set()]


def test_what_is_gained_after_the_last_hold_was_lifted_is_not_gated() -> None:
    """The same in the other order, within one poll."""
    lab = LedgerLab()
    lab.assign(A, B)
    lab.hold(ORDERS)
    lab.ledger.begin_call()
    lab.lift(ORDERS)
    lab.ledger.assign([A, B, C])
    assert lab.quiet() == set()


def test_the_last_of_several_holds_opens_the_gates() -> None:
    """As long as one of them stands, somebody could not pause what was gained."""
    lab = LedgerLab()
    lab.assign(A, B)
    lab.hold(HOLD_A, scopes.partition(*B))
    lab.hold(ORDERS, owner="ops")
    lab.ledger.begin_call()
    lab.ledger.assign([A, B, C])
    lab.lift(HOLD_A)
    lab.lift(ORDERS, owner="ops")
    assert lab.quiet() == {B, C}
    lab.lift(scopes.partition(*B))
    assert lab.quiet() == set()


def test_the_expiry_of_the_last_hold_opens_every_gate() -> None:
    """Of a hold that does not cover what was gained, too."""
    lab = LedgerLab()
    lab.assign(A, B)
    lab.hold(ORDERS, for_=5)
    lab.ledger.begin_call()
    lab.ledger.assign([A, B, C])
    lab.clock.now += 5
    assert lab.quiet() == set()


@pytest.mark.parametrize("when", ["gained before", "gained after"])
def test_an_operator_who_lifts_the_last_hold_opens_every_gate(when: str) -> None:
    """What comes from the control topics is lifted like any other hold."""
    lab = LedgerLab()
    lab.assign(A, B)
    lab.ledger.follow([Hold(scope=ORDERS, owner="operator:jo")], ())
    lab.ledger.begin_call()
    if when == "gained before":
        lab.ledger.assign([A, B, C])
    lab.ledger.follow((), [(ORDERS, "operator:jo")])
    if when == "gained after":
        lab.ledger.assign([A, B, C])
    assert lab.quiet() == set()


@each("scope", [AUDIT, ALL, scopes.partition(*C)])
def test_what_was_resumed_before_it_is_gained_is_not_gated(scope: Scope) -> None:
    """The same decision, a moment earlier; what nobody named is gated."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.ledger.begin_call()
    lab.lift(scope)
    lab.ledger.assign([A, B, C])
    assert lab.quiet() == ({A} if scope == ALL else {A, B})


def test_a_pattern_that_was_resumed_before_it_is_gained() -> None:
    """It is asked about the new topic, and not under the lock."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.ledger.begin_call()
    asked: list[bool] = []

    class Audit:
        pattern = "aud.*"

        def fullmatch(self, topic: str, /) -> object | None:
            asked.append(is_locked(lab.ledger))
            return topic if topic.startswith("aud") else None

    lab.lift(scopes.pattern(Audit()))
    lab.ledger.assign([A, B, C])
    assert lab.quiet() == {A, B}
    assert asked == [False, False]  # about both topics


def test_a_partition_that_waits_for_the_control_topics_is_not_held() -> None:
    """A poll that begins with nothing but such gates was paused by nobody."""
    lab = LedgerLab()
    waiting: dict[TopicPartition, int] = {}
    lab.ledger.watch(waiting.update)
    lab.assign(A)
    lab.ledger.begin_call()
    lab.ledger.assign([A, C])
    assert lab.quiet() == {A, C}
    lab.ledger.open_gates(waiting)
    assert lab.quiet() == set()


def test_another_owners_resume_opens_no_gate_if_the_held_has_departed() -> None:
    """The loop of KAFKA-13463 whose partitions are exchanged: its hold still stands."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.hold(AUDIT, owner="ops")
    lab.ledger.begin_call()
    lab.ledger.assign([C])
    lab.lift(AUDIT, owner="ops")
    assert lab.quiet() == {C}
    lab.lift(HOLD_A)
    assert lab.quiet() == set()


def test_a_hold_that_ends_with_its_partition_was_not_lifted() -> None:
    """``WHILE_ASSIGNED``: what is gained in its place stays gated until the poll returns."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A, lifetime=Lifetime.WHILE_ASSIGNED)
    lab.ledger.begin_call()
    lab.ledger.assign([C])
    lab.hold(ORDERS, owner="ops")
    lab.lift(ORDERS, owner="ops")
    assert lab.quiet() == {C}
    lab.lift(HOLD_A)
    assert lab.quiet() == set()


LIFTS: dict[str, Callable[[LedgerLab], object]] = {
    "by name": lambda lab: lab.lift(HOLD_A),
    "all of an owner's": lambda lab: lab.ledger.remove_owner("app"),
    "what was gained": lambda lab: lab.lift(scopes.partition(*B)),
}


@pytest.mark.parametrize("lift", LIFTS.values(), ids=LIFTS)
def test_a_handler_that_lifts_sees_the_gates_open(
    lift: Callable[[LedgerLab], object],
) -> None:
    """What is quiet inside the handler is what is quiet when it has returned."""
    lab, seen = LedgerLab(), []
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.ledger.begin_call()
    lab.ledger.assign([A, B])

    def handler(*_: object) -> None:
        lift(lab)
        seen.append(lab.quiet())

    with handled_by(handler):
        send()
    assert B not in seen[0]
    assert seen == [lab.quiet()]


def test_a_handler_sees_what_an_assignment_under_way_gates() -> None:
    """The handler interrupts its own thread, which is about to apply it."""
    lab, seen = LedgerLab(), []
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.ledger.begin_call()
    reassign = lab.ledger._reassign

    def interrupted(change: object) -> None:
        send()
        reassign(change)  # type: ignore[arg-type]  # as it came

    with (
        handled_by(lambda *_: seen.append(lab.quiet())),
        mock.patch.object(lab.ledger, "_reassign", interrupted),
    ):
        lab.ledger.assign([A, B])
    assert seen == [{A, B}]


def test_an_interrupt_in_the_middle_of_a_resume_leaves_no_gate_behind() -> None:
    """The change is applied whole by the next look, its gates with it."""
    lab = LedgerLab()
    lab.assign(A)
    lab.hold(HOLD_A)
    lab.ledger.begin_call()
    lab.ledger.assign([A, B])
    with (
        mock.patch.object(state, "remove", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        lab.lift(HOLD_A)
    assert lab.quiet() == set()
    lab.ledger.end_call()
    assert lab.quiet() == set()
    assert not lab.ledger.view().gates
