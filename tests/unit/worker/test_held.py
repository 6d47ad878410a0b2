"""W10: who is handed work looks for holds, and how often."""

from kafka.structs import TopicPartition

from safeconsumer.holds.view import covers
from safeconsumer.worker.calls import Slot
from safeconsumer.worker.health import at_work, place
from safeconsumer.worker.lanes import Order
from tests.harness.worker.desk import TP, Desk


def test_records_of_one_partition_ask_about_no_other(monkeypatch):
    """With a thousand of them, each poll would ask a million times."""
    desk = Desk(Order.PARTITION)
    others = [TopicPartition(TP.topic, number) for number in range(1, 10)]
    desk.ledger.assign([TP, *others])
    for tp in others:
        desk.held.open(tp, 1, 0, 0)
    desk.admit(1)
    asked = []

    def tell(view, tp):
        asked.append(tp)
        return covers(view, tp)

    monkeypatch.setattr("safeconsumer.worker.queue.covers", tell)
    desk.admit(1)
    assert asked == [TP]


def test_what_may_yet_begin_in_a_process_is_said_to_run():
    """What stands behind the record that it is at."""
    desk = Desk(Order.PARTITION, lane_seconds=1.0, records=4)
    (task,) = desk.schedule.queue.claim()
    slot = Slot()
    slot.task, slot.index = task, 1
    assert at_work([slot], is_batch=False) == {TP: [1]}
    slot.goes_on = True
    assert at_work([slot], is_batch=False) == {TP: [1, 2, 3]}
    assert place(task, 2) == "orders:0 offset 2"
