"""Tests partitions gained in a poll that began with all partitions paused (KAFKA-13463)."""

import pytest

from safeconsumer.events.consumer import GatesChanged
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.explain import explain_lines
from safeconsumer.holds.hold import Hold, Lifetime
from tests.harness.holds.lab import ALL, AUDIT, ORDERS, A, B, C, LedgerLab, assign_to

pytestmark = pytest.mark.contract("P7")

OTHER = scopes.topic("another")
HOLD_A, HOLD_B = scopes.partition(*A), scopes.partition(*B)
OPERATORS = Hold(scope=ORDERS, owner="operator:jo")


def begin(lab):
    lab.ledger.begin_call()


def end(lab):
    lab.ledger.end_call()


def late(lab):
    lab.clock.now += 5


def again(lab):
    lab.ledger.subscription_changed()


def resume_nothing(lab):
    lab.ledger.remove([], by_application=True)


def place_remote(lab):
    lab.ledger.follow([OPERATORS], ())


def lift_remote(lab):
    lab.ledger.follow((), [OPERATORS.key])


def assign(*partitions):
    return lambda lab: lab.assign(*partitions)


def hold(*several, owner="app", **more):
    return lambda lab: lab.hold(*several, owner=owner, **more)


def resume(*several):
    return lambda lab: lab.resume(*several)


def lift(*several, owner="app"):
    return lambda lab: lab.lift(*several, owner=owner)


HELD = (assign(A), hold(HOLD_A))  # all assigned partitions are held
PLAIN = (assign(A), hold(HOLD_A, lifetime=Lifetime.PLAIN))
LIMITED = (assign(A), hold(ORDERS, for_=5))
BOUND = (assign(A), hold(HOLD_A, lifetime=Lifetime.WHILE_ASSIGNED))
OPS, NO_OPS = hold(ORDERS, owner="ops"), lift(ORDERS, owner="ops")
POLL = (begin, end)

# Steps in order, and the partitions that are quiet after them.
HISTORIES = {
    "gated until the poll returns": [[*HELD, begin, assign(A, B), {A, B}, end, {A}]],
    "a partition flowed when the poll began": [
        [assign(A, B), hold(HOLD_A), begin, assign(A, B, C), {A}]
    ],
    "no assignment before the poll": [[begin, assign(A), set()]],
    "several rebalances in one poll": [
        [*HELD, begin, assign(A, B), assign(A, C), {A, C}, end, {A}]
    ],
    "gained between two polls": [[*HELD, *POLL, assign(A, B), {A}]],
    "membership lost during a poll": [[*HELD, begin, assign(), assign(A, B), {A, B}]],
    "membership lost before the poll": [
        [*HELD, begin, assign(), end, *POLL, begin, assign(A, B), {A, B}]
    ],
    "lifted after a lost membership": [
        [*HELD, *POLL, assign(), lift(HOLD_A), begin, assign(A, B), set()],
        [*HELD, hold(ALL), *POLL, assign(), lift(ALL), begin, assign(A, B), {A, B}],
        [*PLAIN, *POLL, assign(), resume_nothing, begin, assign(B), set()],
    ],
    "expired after a lost membership": [
        [*LIMITED, *POLL, assign(), late, begin, assign(A), set()]
    ],
    "changed subscription": [
        [*HELD, *POLL, again, begin, assign(A, C), {A, C}],
        [*HELD, *POLL, assign(), again, begin, assign(A, C), {A}],
    ],
    "a hold of a listener stays in force": [
        [*HELD, begin, assign(A, B), hold(HOLD_B), end, {A, B}]
    ],
    "a lift opens the gates that it names": [
        [*HELD, begin, assign(A, B, C), lift(AUDIT), {A, B}, lift(HOLD_A), set()],
        [*HELD, begin, assign(A, B), lift(ALL), {A}],
        [*HELD, OPS, begin, assign(A, C), lift(AUDIT), {A, C}, NO_OPS, {A, C}],
    ],
    "a plain resume opens the gates that it names": [
        [*PLAIN, begin, assign(A, B, C), resume(HOLD_B), {A, C}]
    ],
    "a lift of another owner opens no gate": [
        [*HELD, begin, assign(A, C), lift(AUDIT, owner="worker"), {A, C}, end, {A}]
    ],
    "the last of several lifts opens every gate": [
        [*HELD, OPS, begin, assign(A, B, C), lift(HOLD_A), {A, B, C}, NO_OPS, set()]
    ],
    "holds of unassigned topics do not count": [
        [hold(OTHER), *HELD, OPS, begin, lift(HOLD_A), assign(A, C), {A, C}],
        [hold(OTHER), *HELD, begin, lift(HOLD_A), assign(A, C), set()],
    ],
    "lifted before a partition is gained": [
        [*HELD, begin, lift(HOLD_A), assign(A, C), set()],
        [*HELD, OPS, begin, NO_OPS, assign(A, C), {A, C}],
    ],
    "an expiry opens the gates": [[*LIMITED, begin, assign(A, C), {A, C}, late, set()]],
    "an operator's lift opens the gates": [
        [assign(A), place_remote, begin, assign(A, C), {A, C}, lift_remote, set()]
    ],
    "a hold that ends with its partition was not lifted": [
        [*BOUND, begin, assign(C), {C}, end, set()]
    ],
}


@pytest.mark.parametrize("histories", HISTORIES.values(), ids=HISTORIES)
def test_poll_that_starts_with_everything_held_keeps_gained_partitions_quiet(histories):
    """Until that poll has returned, the program cannot pause the gained partitions."""
    for history in histories:
        lab = LedgerLab()
        for one in history:
            if isinstance(one, set):
                assert lab.quiet() == one
            else:
                one(lab)


def test_gate_is_reported_and_explained():
    """A gate ends when its partition is revoked."""
    lab = LedgerLab(owns=[A])
    lab.hold(HOLD_A)
    assert lab.poll([A, B, C], [A, B]) == [{A, B, C}, {A, B}]
    opened = [one.flowing for one in lab.log.of(GatesChanged)]
    assert opened == [(B,)]
    lab.hold(HOLD_B)
    lab.ledger.begin_call()
    lab.assign(A, B, C)
    (line,) = explain_lines(lab.ledger.view(), C, lab.ledger.now()[0])
    assert line == "gate: gained during a poll() that started with everything paused"


def test_poll_without_a_change_neither_creates_a_view_nor_notifies_observers():
    lab = LedgerLab(owns=[A])
    lab.hold(HOLD_A)
    looks = []
    lab.ledger.observers.append(lambda: looks.append(1))
    view = lab.ledger.view()
    lab.poll([A])
    assert lab.ledger.view() is view
    assert not looks


def test_partition_that_waits_for_the_control_topics_is_quiet_but_not_held():
    """A poll in which only such partitions are quiet does not count as paused."""
    lab = LedgerLab()
    waiting = {}
    lab.ledger.watch(waiting.update)
    lab.assign(A)
    assert lab.ledger.control_gates() == {A}
    lab.ledger.begin_call()
    assign_to(lab.ledger, [A, C])
    assert lab.quiet() == {A, C}
    lab.ledger.open_gates({A: waiting[A], C: object()})
    assert lab.quiet() == {C}  # the ownership given for C is not its current one
    lab.ledger.open_gates(waiting)
    assert lab.quiet() == set()
