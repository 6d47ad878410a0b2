import threading

import pytest

from safeconsumer.events.consumer import HoldsPlaced, HoldsRemoved
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import View
from tests.harness.holds.lab import ALL, AUDIT, ORDERS, A, B, C, LedgerLab, is_locked

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


@pytest.mark.contract("P12")
def test_a_call_with_several_scopes_is_seen_whole_or_not_at_all() -> None:
    """No reader sees half of it."""
    lab = LedgerLab()
    lab.assign(A, B, C)
    done = threading.Event()

    def write() -> None:
        for _ in range(ROUNDS):
            lab.hold(ORDERS, AUDIT)
            lab.lift(ORDERS, AUDIT)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(frozenset(lab.ledger.view().quiet))
    writer.join(30)
    assert seen <= {frozenset(), frozenset({A, B, C})}


def test_whoever_waits_is_woken_by_what_changes_here() -> None:
    """A waiting ``poll`` looks again; a hold of elsewhere wakes nobody."""
    lab = LedgerLab()
    lab.assign(A)
    woken: list[str] = []
    lab.ledger.wakers.append(lambda: woken.append("again"))
    lab.hold(AUDIT)
    assert woken == []
    lab.hold(ORDERS)
    lab.lift(ORDERS)
    assert woken == ["again", "again"]


def test_who_queued_a_change_goes_on_when_all_have_seen_it() -> None:
    """
    Though another thread has applied it: a worker starts nothing after the pause (W10).

    1. A thread is in the middle of a change. 2. Another queues a pause, and waits. 3. The
    first applies both, and is slow to call those who look. 4. The other calls them, too.
    """
    lab = LedgerLab()
    lab.assign(A, C)
    started, told = threading.Event(), threading.Event()
    seen: list[tuple[bool, set[TopicPartition]]] = []
    first = threading.Thread(target=lab.hold, args=(AUDIT,))
    other = threading.Thread(target=lab.hold, args=(ORDERS,))

    def look() -> None:
        if threading.current_thread() is first:
            assert told.wait(20)
        seen.append((threading.current_thread() is other, lab.quiet()))

    def queue_one_more() -> None:
        if is_locked(lab.ledger):
            lab.clock.on_look = None
            other.start()
            started.set()
            while len(lab.ledger._queue) == 1:
                told.wait(0)

    lab.ledger.lookers.append(look)
    lab.clock.on_look = queue_one_more
    first.start()
    assert started.wait(20)
    other.join(20)
    assert seen == [(True, {A, C})]
    told.set()
    first.join(20)
    assert seen == [(True, {A, C}), (False, {A, C})]
