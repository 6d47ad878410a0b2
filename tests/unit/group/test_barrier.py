"""Gate first, then ask, open when read up to there; never early, whatever comes between."""

import pytest

from safeconsumer.group import events as control_events
from safeconsumer.group import patterns
from safeconsumer.group.barrier import Barrier
from tests.harness.group.lab import HOLDS, ControlLab, written
from tests.harness.holds.lab import A, B, C, assign_to

TP = (HOLDS, 0)


class BarrierLab(ControlLab):
    """A lab whose control topic answers when the test says so."""

    def __init__(self, run_after=None):
        super().__init__()
        self.barrier = Barrier(self.ledger, run_after)
        self.asked = []
        self.ledger.watch(self.barrier.close)

    def connect(self, applied=0):
        self.barrier.connect(self.asked.append, {TP: applied})

    def answer(self, end):
        self.asked.pop(0)(None if end is None else {TP: end})


@pytest.mark.contract("G2")
def test_what_is_gained_waits_for_the_end_asked_after_it():
    lab = BarrierLab()
    lab.connect()
    lab.assign(A, B)
    assert (lab.quiet(), len(lab.asked)) == ({A, B}, 1)
    lab.answer(7)
    assert lab.quiet() == {A, B}
    lab.barrier.applied({TP: 6})
    assert lab.quiet() == {A, B}
    lab.barrier.applied({TP: 7})
    assert lab.quiet() == set()


def test_a_hold_read_meanwhile_takes_over_from_the_gate():
    lab = BarrierLab()
    lab.connect()
    lab.assign(A, C)
    lab.answer(1)
    lab.hear(written("orders", 0))
    lab.barrier.applied({TP: 1})
    assert lab.quiet() == {A}


def test_an_answer_of_a_lost_connection_opens_nothing():
    """The topic may be another one by now; it is asked anew."""
    lab = BarrierLab()
    lab.connect(applied=9)
    lab.assign(A)
    lab.barrier.disconnect()
    lab.connect(applied=0)
    lab.answer(0)
    assert lab.quiet() == {A}
    lab.answer(4)
    lab.barrier.applied({TP: 4})
    assert lab.quiet() == set()


def test_what_was_read_of_a_lost_connection_opens_nothing():
    lab = BarrierLab()
    lab.connect()
    lab.assign(A)
    lab.answer(4)
    lab.barrier.disconnect()
    lab.barrier.applied({TP: 4})
    assert lab.quiet() == {A}


def test_no_answer_is_asked_again():
    lab = BarrierLab()
    lab.connect()
    lab.assign(A)
    lab.answer(None)
    assert (lab.quiet(), lab.asked) == ({A}, [])
    lab.barrier.ask_again()
    lab.barrier.ask_again()
    assert len(lab.asked) == 1
    lab.answer(0)
    assert lab.quiet() == set()


def test_an_end_below_what_was_read_is_another_topics():
    """It was made again, with holds that the reader has not seen; it will find out."""
    lab = BarrierLab()
    lab.connect(applied=9)
    lab.assign(A)
    lab.answer(1)
    assert lab.quiet() == {A}
    lab.barrier.disconnect()
    lab.connect(applied=0)
    lab.answer(1)
    assert lab.quiet() == {A}
    lab.hear(written("orders", 0))
    lab.barrier.applied({TP: 1})
    assert (lab.quiet(), lab.ledger.control_gates()) == ({A}, frozenset())


def test_an_end_may_be_older_than_what_was_read_since():
    lab = BarrierLab()
    lab.connect(applied=5)
    lab.assign(A)
    lab.barrier.applied({TP: 8})
    lab.answer(6)
    assert lab.quiet() == set()


def test_a_partition_lost_and_regained_waits_for_its_own_answer():
    """The first answer is older than the second ownership."""
    lab = BarrierLab()
    lab.connect(applied=5)
    lab.assign(A)
    lab.assign()
    lab.assign(A)
    lab.answer(5)
    assert lab.quiet() == {A}
    lab.answer(6)
    assert lab.quiet() == {A}
    lab.barrier.applied({TP: 6})
    assert lab.quiet() == set()


def test_what_is_kept_is_not_gated():
    lab = BarrierLab()
    lab.connect()
    lab.assign(A)
    lab.answer(0)
    lab.assign(A, B)
    assert lab.quiet() == {B}


@pytest.mark.contract("G5")
def test_hold_never_opens_unread():
    lab = BarrierLab()
    lab.assign(A)
    lab.clock.now += 1e6
    lab.barrier.run_out()
    assert lab.quiet() == {A}


@pytest.mark.contract("G5")
def test_run_opens_after_its_time_and_alarms():
    lab = BarrierLab(run_after=30.0)
    lab.assign(A)
    lab.clock.now += 29
    lab.barrier.run_out()
    assert lab.quiet() == {A}
    lab.clock.now += 2
    lab.barrier.run_out()
    assert lab.quiet() == set()
    told = lab.log.only(control_events.GatesOpenedUnread)
    assert told.partitions == (A,)


@pytest.mark.contract("G5")
def test_run_opens_only_gates_not_holds():
    lab = BarrierLab(run_after=0.0)
    lab.hear(written("orders", 0))
    lab.assign(A, C)
    lab.barrier.run_out()
    assert lab.quiet() == {A}


def test_a_resume_from_outside_is_none_of_the_applications():
    """All that was assigned was paused; membership is lost and comes back with more."""
    lab = BarrierLab()
    lab.connect()
    lab.assign(A)
    lab.answer(0)
    lab.hold(patterns.parse("orders:0"))
    lab.ledger.begin_call()
    assign_to(lab.ledger, [])
    lab.hear(written("elsewhere", 0, held=False))
    assign_to(lab.ledger, [A, C])
    lab.answer(0)
    assert lab.quiet() == {A, C}
    lab.ledger.end_call()
    assert lab.quiet() == {A}
