import threading
from collections import deque
from collections.abc import Callable

from tests.harness.holds.lab import AUDIT, ORDERS, A, LedgerLab


def test_whoever_waits_is_woken_by_what_changes_here():
    """A waiting ``poll`` looks again; a hold of elsewhere wakes nobody."""
    lab = LedgerLab(owns=[A])
    woken = []
    lab.ledger.wakers.append(lambda: woken.append("again"))
    lab.hold(AUDIT)
    assert woken == []
    lab.hold(ORDERS)
    lab.lift(ORDERS)
    assert woken == ["again", "again"]


class _Trap(deque[object]):
    """A queue, with something that happens as soon as a change is in it."""

    then: Callable[[], object] | None = None

    def append(self, change):
        super().append(change)
        act, self.then = self.then, None
        if act is not None:
            act()


def test_who_queued_a_change_goes_on_when_all_have_seen_it():
    """
    A worker starts nothing after the pause (W10), whoever has applied it.

    1. A thread queues its change. 2. Another applies it, and is slow to call those who
    look. 3. The first calls them before it returns.
    """
    lab = LedgerLab(owns=[A])
    inside, told = threading.Event(), threading.Event()
    seen = []
    other = threading.Thread(target=lab.ledger.view, name="other")

    def look():
        name = threading.current_thread().name
        if name == "other":
            inside.set()
            assert told.wait(20)
        seen.append(name)

    trap = lab.ledger.queue = _Trap()
    trap.then = lambda: (other.start(), inside.wait(20))
    lab.ledger.lookers.append(look)
    lab.hold(ORDERS)
    assert seen == [threading.current_thread().name]
    told.set()
    other.join(20)
    assert seen[1:] == ["other"]
