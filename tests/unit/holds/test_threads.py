import threading
from collections import deque
from collections.abc import Callable

from safeconsumer.events.consumer import HoldsPlaced, HoldsRemoved
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import View
from tests.harness.holds.lab import ALL, AUDIT, ORDERS, A, B, C, LedgerLab

ROUNDS = 150


def _is_consistent(view: View) -> bool:
    expected = {
        tp for tp in view.partitions() if tp in view.gates or view.holds.covers(tp)
    }
    return expected == set(view.quiet)


def _hammer(lab: LedgerLab, owner: str) -> None:
    for number in range(ROUNDS):
        lab.hold(ORDERS, scopes.partition(*C), owner=owner, reason=str(number))
        lab.lift(ORDERS, owner=owner)
        lab.hold(ALL, owner=owner)
        lab.lift(ALL, owner=owner)


def _reassign(lab: LedgerLab) -> None:
    assignments: list[tuple[TopicPartition, ...]] = [(A, B, C), (A,), (), (B, C)]
    for number in range(ROUNDS):
        lab.assign(*assignments[number % len(assignments)])
    lab.assign(A, B, C)


def test_writers_readers_and_rebalances_at_once() -> None:
    """Every snapshot is whole, nobody's hold is lost, every change is told once."""
    lab = LedgerLab()
    writers = [
        threading.Thread(target=_hammer, args=(lab, f"owner-{number}"))
        for number in range(3)
    ]
    writers.append(threading.Thread(target=_reassign, args=(lab,)))
    for one in writers:
        one.start()
    looks = 0
    while any(one.is_alive() for one in writers) or not looks:
        assert _is_consistent(lab.ledger.view())
        looks += 1
    for one in writers:
        one.join(30)
    assert lab.quiet() == {C}
    assert {(scopes.partition(*C), f"owner-{number}") for number in range(3)} == {
        hold.key for hold in lab.ledger.view().holds
    }
    lab.ledger.deliver()
    placed = sum(len(event.holds) for event in lab.told.of(HoldsPlaced))
    removed = sum(len(event.holds) for event in lab.told.of(HoldsRemoved))
    assert placed == 3 * ROUNDS * 3
    assert removed == 3 * ROUNDS * 2


def test_whoever_waits_is_woken_by_what_changes_here() -> None:
    """A waiting ``poll`` looks again; a hold of elsewhere wakes nobody."""
    lab = LedgerLab(owns=[A])
    woken: list[str] = []
    lab.ledger.wakers.append(lambda: woken.append("again"))
    lab.hold(AUDIT)
    assert woken == []
    lab.hold(ORDERS)
    lab.lift(ORDERS)
    assert woken == ["again", "again"]


class _Trap(deque[object]):
    """A queue, with something that happens as soon as a change is in it."""

    then: Callable[[], object] | None = None

    def append(self, change: object) -> None:
        super().append(change)
        act, self.then = self.then, None
        if act is not None:
            act()


def test_who_queued_a_change_goes_on_when_all_have_seen_it() -> None:
    """
    A worker starts nothing after the pause (W10), whoever has applied it.

    1. A thread queues its change. 2. Another applies it, and is slow to call those who
    look. 3. The first calls them before it returns.
    """
    lab = LedgerLab(owns=[A])
    inside, told = threading.Event(), threading.Event()
    seen: list[str] = []
    other = threading.Thread(target=lab.ledger.view, name="other")

    def look() -> None:
        name = threading.current_thread().name
        if name == "other":
            inside.set()
            assert told.wait(20)
        seen.append(name)

    trap = lab.ledger.queue = _Trap()  # type: ignore[assignment]  # of changes
    trap.then = lambda: (other.start(), inside.wait(20))
    lab.ledger.lookers.append(look)
    lab.hold(ORDERS)
    assert seen == [threading.current_thread().name]
    told.set()
    other.join(20)
    assert seen[1:] == ["other"]
