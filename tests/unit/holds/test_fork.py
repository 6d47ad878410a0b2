"""A ledger in a forked child, where only the thread that forked goes on."""

import threading

import pytest

from safeconsumer import events
from tests.harness.holds.forking import is_true_in_child
from tests.harness.holds.lab import AUDIT, ORDERS, A, C, LedgerLab
from tests.unit.holds.test_outbox import PATIENCE, Slow

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def test_a_child_forked_while_another_thread_changes_the_ledger() -> None:
    """The lock of that thread is not taken in the child."""
    lab = LedgerLab()
    lab.assign(A, C)
    inside, release = threading.Event(), threading.Event()

    def look() -> None:
        if threading.current_thread() is other and lab.ledger._is_changing:
            inside.set()
            assert release.wait(PATIENCE)

    def place_in_child() -> bool:
        lab.clock.on_look = None
        lab.hold(AUDIT)
        return lab.quiet() == {A, C}  # and what was in the middle is applied

    other = threading.Thread(target=lab.hold, args=(ORDERS,))
    lab.clock.on_look = look
    other.start()
    assert inside.wait(PATIENCE)
    assert is_true_in_child(place_in_child)
    release.set()
    other.join(PATIENCE)
    assert lab.quiet() == {A}


def test_a_child_forked_while_another_thread_tells_hooks() -> None:
    """What the parent tells is told there; the child tells what happens in it."""
    slow = Slow()
    lab = LedgerLab(slow)
    other = threading.Thread(target=lab.hold, args=(ORDERS,))
    other.start()
    assert slow.entered.wait(PATIENCE)
    lab.lift(ORDERS)  # waits for the other thread to tell it
    before = len(lab.told.events)

    def tell_in_child() -> bool:
        lab.hold(AUDIT)
        (placed,) = lab.told.events[before:]
        return isinstance(placed, events.HoldsPlaced) and placed.holds[0].scope == AUDIT

    assert is_true_in_child(tell_in_child)
    slow.release.set()
    other.join(PATIENCE)
    assert lab.told.names() == ["hold_placed", "hold_removed"]


def test_a_hook_that_forks_goes_on_in_both_processes() -> None:
    """The thread that hands out is there in the child; only its event is."""
    answers: list[bool] = []

    def hook(event: events.Event) -> None:
        if isinstance(event, events.HoldsRemoved):
            answers.append(is_true_in_child(lambda: not lab.ledger.deliver()))

    lab = LedgerLab(hook)
    lab.hold(ORDERS)
    lab.lift(ORDERS)
    assert answers == [True]
    assert lab.told.names() == ["hold_placed", "hold_removed"]
