"""Pausing from a signal handler: no lock, no loss, told by the next ``deliver``."""

import functools
import signal
import threading
from collections.abc import Callable
from types import FrameType

import pytest

from safeconsumer.events.consumer import HoldsPlaced, HoldsRemoved
from tests.harness.holds.lab import AUDIT, ORDERS, A, C, LedgerLab, is_locked
from tests.unit.holds.signals import handled_by, send

pytestmark = pytest.mark.timeout(120)  # a deadlock ends here

Act = Callable[[LedgerLab], None]


def _in_handler(lab: LedgerLab, act: Act) -> Callable[[int, FrameType | None], None]:
    return lambda _number, _frame: act(lab)


def _interrupt_under_the_lock(lab: LedgerLab) -> None:
    # The ledger looks at the clock while it holds its lock: there the signal comes.
    def look() -> None:
        if is_locked(lab.ledger):
            lab.clock.on_look = None
            send()

    lab.clock.on_look = look


@pytest.mark.contract("P12")
def test_a_pause_inside_the_lock_is_not_lost() -> None:
    """
    Both holds are in force at the next look-up.

    1. The main thread takes the lock to place a hold. 2. The signal interrupts it
    there. 3. The handler pauses. 4. The main thread goes on.
    """
    lab = LedgerLab()
    lab.assign(A, C)
    with handled_by(_in_handler(lab, lambda lab: lab.hold(ORDERS, owner="signal"))):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    assert lab.clock.on_look is None  # it did come
    assert lab.quiet() == {A, C}
    lab.ledger.deliver()
    assert {"app", "signal"} == {
        hold.owner for event in lab.told.of(HoldsPlaced) for hold in event.holds
    }


def test_a_pause_inside_the_lock_by_a_handler_that_cannot_be_recognised() -> None:
    """One in C, say: who holds the lock is known all the same."""
    lab = LedgerLab()
    lab.assign(A, C)
    opaque = functools.lru_cache(_in_handler(lab, lambda lab: lab.hold(ORDERS)))
    with handled_by(opaque):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    assert lab.clock.on_look is None  # it did come
    assert lab.quiet() == {A, C}


def test_a_resume_inside_the_lock_is_not_lost() -> None:
    """The same for lifting."""
    lab = LedgerLab()
    lab.assign(A, C)
    lab.hold(ORDERS)
    with handled_by(_in_handler(lab, lambda lab: lab.lift(ORDERS))):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    assert lab.quiet() == {C}
    lab.ledger.deliver()
    assert len(lab.told.of(HoldsRemoved)) == 1


def test_a_pause_is_applied_by_the_next_look_up_and_told_by_the_next_deliver() -> None:
    """The handler itself takes no lock and calls no hook."""
    lab = LedgerLab()
    lab.assign(A, C)
    told_inside: list[int] = []

    def handler(_: int, __: FrameType | None) -> None:
        lab.hold(ORDERS)
        told_inside.append(len(lab.told.of(HoldsPlaced)))

    with handled_by(handler):
        send()
    assert told_inside == [0]
    assert lab.quiet() == {A}
    assert lab.told.of(HoldsPlaced) == []
    lab.ledger.deliver()
    assert [event.quiet for event in lab.told.of(HoldsPlaced)] == [(A,)]


def test_a_handler_sees_what_it_has_done() -> None:
    """
    ``paused()`` and ``holds()`` inside it are computed on the side, without a lock.

    What the interrupted call is about to do is seen as well.
    """
    lab = LedgerLab()
    lab.assign(A, C)
    seen: list[set[tuple[str, int]]] = []

    def handler(_: int, __: FrameType | None) -> None:
        lab.hold(ORDERS)
        seen.append(set(lab.ledger.view().quiet))
        lab.lift(ORDERS)
        seen.append(set(lab.ledger.view().quiet))

    with handled_by(handler):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    assert seen == [{A, C}, {C}]
    assert lab.quiet() == {C}


def test_the_order_of_calls_in_a_handler_is_kept() -> None:
    """Pause, resume, pause: paused."""
    lab = LedgerLab()
    lab.assign(A)

    def handler(_: int, __: FrameType | None) -> None:
        lab.hold(ORDERS, reason="first")
        lab.lift(ORDERS)
        lab.hold(ORDERS, reason="last")

    with handled_by(handler):
        send()
    assert lab.quiet() == {A}
    assert [hold.reason for hold in lab.ledger.view().state] == ["last"]


def test_a_handler_while_another_thread_holds_the_lock() -> None:
    """The main thread must not wait for it inside the handler."""
    lab = LedgerLab()
    lab.assign(A)
    inside, release = threading.Event(), threading.Event()

    def look() -> None:
        if threading.current_thread() is not threading.main_thread():
            gate = release  # first: another one is next
            inside.set()
            assert gate.wait(20)

    other = threading.Thread(target=lab.hold, args=(AUDIT,))
    with handled_by(_in_handler(lab, lambda lab: lab.hold(ORDERS, owner="signal"))):
        lab.clock.on_look = look
        other.start()
        # the first look is outside the lock, the second one under it
        while not is_locked(lab.ledger):
            assert inside.wait(20)
            inside.clear()
            if not is_locked(lab.ledger):
                release.set()
                release = threading.Event()
        send()  # returns although the lock is taken
        assert is_locked(lab.ledger)
        release.set()
        other.join(20)
    lab.clock.on_look = None
    assert lab.quiet() == {A}
    assert {ORDERS, AUDIT} == {hold.scope for hold in lab.ledger.view().state}


@pytest.mark.timeout(300)  # its timer counts its own processor time
@pytest.mark.parametrize("rounds", [400])
def test_signals_at_any_moment(rounds: int) -> None:
    """A timer interrupts wherever it falls; each pause is placed, each resume lifts."""
    lab = LedgerLab()
    lab.assign(A, C)
    calls = 0

    def handler(_: int, __: FrameType | None) -> None:
        nonlocal calls
        if calls < rounds:
            calls += 1
            number = calls  # the next signal may interrupt this handler
            lab.hold(ORDERS, owner=f"signal-{number}")
            if number % 2:
                lab.lift(ORDERS, owner=f"signal-{number}")

    with handled_by(handler, signal.SIGVTALRM):
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.0005)
        try:
            while calls < rounds:
                lab.hold(AUDIT)
                lab.lift(AUDIT)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    assert lab.quiet() == {A}
    assert {f"signal-{even}" for even in range(2, rounds + 1, 2)} == {
        hold.owner for hold in lab.ledger.view().state
    }
    lab.ledger.deliver()
    told = [h.owner for e in lab.told.of(HoldsPlaced) for h in e.holds]
    assert len([owner for owner in told if owner.startswith("signal")]) == rounds


def test_an_owner_lifts_all_it_holds_in_a_handler() -> None:
    """``resume_all()`` in it takes no lock either, and answers for what it will lift."""
    lab = LedgerLab()
    lab.assign(A, C)
    lab.hold(ORDERS, AUDIT)
    lab.hold(AUDIT, owner="ops")
    seen: list[object] = []

    def handler(_: int, __: FrameType | None) -> None:
        seen.append([hold.owner for hold in lab.ledger.remove_owner("app")])
        seen.append(set(lab.ledger.view().quiet))

    with handled_by(handler):
        _interrupt_under_the_lock(lab)
        lab.hold(ORDERS, reason="again")
    assert seen == [["ops"], {C}]
    assert lab.quiet() == {C}


def test_an_assignment_that_ends_in_a_handler() -> None:
    """``close()`` there: the thread that it interrupted ends the assignment, and says so."""
    lab = LedgerLab()
    lab.assign(A, C)
    told: list[object] = []
    lab.ledger.on_reassigned = lambda change: told.append(change.departed)

    def handler(_: int, __: FrameType | None) -> None:
        lab.ledger.close()
        told.append(set(lab.ledger.view().partitions()))

    with handled_by(handler):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    assert told == [set(), {A, C}]
    assert not lab.ledger.view().assigned
