"""A gate opens once the topic is read up to an end offset requested after it closed."""

import pytest

from safeconsumer.group import patterns
from safeconsumer.group.barrier import Barrier
from tests.harness.group.lab import HOLDS, ControlLab, control_record
from tests.harness.holds.lab import A, B, C, assign_to

TP = (HOLDS, 0)


class BarrierLab(ControlLab):
    """A lab in which the test answers the requests for the control topic's end offset."""

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
def test_gained_partition_waits_for_an_end_offset_requested_after_the_gain():
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


def test_hold_read_while_the_gate_is_closed_replaces_the_gate():
    lab = BarrierLab()
    lab.connect()
    lab.assign(A, C)
    lab.answer(1)
    lab.hear(control_record("orders", 0))
    lab.barrier.applied({TP: 1})
    assert lab.quiet() == {A}


def test_answer_from_a_lost_connection_does_not_open_a_gate():
    """The topic may have been recreated, so the member requests the end offset again."""
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


def test_records_from_a_lost_connection_do_not_open_a_gate():
    lab = BarrierLab()
    lab.connect()
    lab.assign(A)
    lab.answer(4)
    lab.barrier.disconnect()
    lab.barrier.applied({TP: 4})
    assert lab.quiet() == {A}


def test_unanswered_request_is_repeated():
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


def test_end_offset_below_the_position_is_treated_as_a_recreated_topic():
    """The new topic may have holds that the reader has not seen."""
    lab = BarrierLab()
    lab.connect(applied=9)
    lab.assign(A)
    lab.answer(1)
    assert lab.quiet() == {A}
    lab.barrier.disconnect()
    lab.connect(applied=0)
    lab.answer(1)
    assert lab.quiet() == {A}
    lab.hear(control_record("orders", 0))
    lab.barrier.applied({TP: 1})
    assert (lab.quiet(), lab.ledger.control_gates()) == ({A}, frozenset())


def test_gate_opens_if_the_position_is_already_past_the_requested_end():
    lab = BarrierLab()
    lab.connect(applied=5)
    lab.assign(A)
    lab.barrier.applied({TP: 8})
    lab.answer(6)
    assert lab.quiet() == set()


def test_regained_partition_waits_for_a_new_end_offset():
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


def test_retained_partition_is_not_gated_again():
    lab = BarrierLab()
    lab.connect()
    lab.assign(A)
    lab.answer(0)
    lab.assign(A, B)
    assert lab.quiet() == {B}


@pytest.mark.contract("G5")
def test_run_after_does_not_lift_holds():
    lab = BarrierLab(run_after=0.0)
    lab.hear(control_record("orders", 0))
    lab.assign(A, C)
    lab.barrier.open_overdue()
    assert lab.quiet() == {A}


def test_operators_lift_does_not_count_as_a_resume_by_the_application():
    """All partitions are paused when the member loses its membership and rejoins."""
    lab = BarrierLab()
    lab.connect()
    lab.assign(A)
    lab.answer(0)
    lab.hold(patterns.parse("orders:0"))
    lab.ledger.begin_call()
    assign_to(lab.ledger, [])
    lab.hear(control_record("elsewhere", 0, held=False))
    assign_to(lab.ledger, [A, C])
    lab.answer(0)
    assert lab.quiet() == {A, C}
    lab.ledger.end_call()
    assert lab.quiet() == {A}
