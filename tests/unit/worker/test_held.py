"""W10: who is handed work looks for holds, and how often."""

from typing import Any

import pytest
from kafka.structs import TopicPartition

from safeconsumer.holds.view import View
from safeconsumer.worker.calls import Slot, call_batch, call_each
from safeconsumer.worker.client import covers
from safeconsumer.worker.health import at_work, place
from safeconsumer.worker.lanes import Order
from tests.harness.worker.desk import TP, Desk


def test_records_of_one_partition_ask_about_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a thousand of them, each poll would ask a million times."""
    desk = Desk(Order.PARTITION)
    others = [TopicPartition(TP.topic, number) for number in range(1, 10)]
    desk.ledger.assign([TP, *others])
    for tp in others:
        desk.held.open(tp, 1, 0, 0)
    desk.admit(1)
    asked = []

    def tell(view: View, tp: TopicPartition) -> bool:
        asked.append(tp)
        return covers(view, tp)

    monkeypatch.setattr("safeconsumer.worker.queue.covers", tell)
    desk.admit(1)
    assert asked == [TP]


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_task_that_was_claimed_begins_no_more_records(is_batch: bool) -> None:  # noqa: FBT001 - drawn
    """The hold comes between two records of one hand-over, or before the first."""
    desk = Desk(Order.PARTITION, is_batch=is_batch, records=6)
    desk.epoch.pace = 0.0
    (task,) = desk.schedule.queue.claim()
    assert len(task.indexes) == 6
    seen: list[int] = []

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        seen.append(record.offset)
        if record.offset == 2:
            desk.pause()

    if is_batch:
        desk.pause()
        outcome = call_batch(handle, task, Slot(), None)  # type: ignore[arg-type]  # not asked
    else:
        outcome = call_each(handle, task, Slot(), None, 9.0)  # type: ignore[arg-type]  # not asked
    desk.schedule.complete([outcome])
    assert seen == ([] if is_batch else [0, 1, 2])
    assert desk.work() == []
    desk.resume()
    assert desk.work() == list(range(len(seen), 6))


def test_what_may_yet_begin_in_a_process_is_said_to_run() -> None:
    """What stands behind the record that it is at."""
    desk = Desk(Order.PARTITION, lane_seconds=1.0, records=4)
    (task,) = desk.schedule.queue.claim()
    slot = Slot()
    slot.task, slot.index = task, 1
    assert at_work([slot], is_batch=False) == {TP: [1]}
    slot.goes_on = True
    assert at_work([slot], is_batch=False) == {TP: [1, 2, 3]}
    assert place(task, 2) == "orders:0 offset 2"
