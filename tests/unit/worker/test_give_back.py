"""W1: which records of a partition make room for another's, and who wants room."""

import pytest

from safeconsumer import RetryLater
from safeconsumer.worker.calls import all_done
from safeconsumer.worker.lanes import Order
from safeconsumer.worker.tasks import Outcome
from safeconsumer.worker.watermarks import Load
from tests.harness.worker.desk import Desk


@pytest.mark.parametrize("error", [RetryLater(60.0), ValueError()])
@pytest.mark.parametrize("order", list(Order))
def test_what_was_begun_is_kept_with_all_before_it(order, error):
    """One that waits for its time, and one that has failed, whoever needs the room."""
    desk = Desk(order, quantum=1, records=10)
    *_, last = [task for _ in range(3) for task in desk.schedule.queue.claim()]
    record = last.chunk.records[last.indexes[0]]
    failed, left = [(last.indexes[0], error)], last.indexes[1:]
    desk.schedule.complete([Outcome(task=last, failed=failed, left=left)])
    if not isinstance(error, RetryLater):
        desk.pass_time(30.0)  # its time has come, and it is its second attempt
    offset = desk.held.give_back(desk.epoch, Load(), 1)
    assert offset == record.offset + 1
    assert desk.epoch.records == desk.held.records == offset
    assert desk.epoch.progress.next_offset == offset


def test_what_waits_for_a_handler_of_before_is_not_begun():
    """A regained partition waits for one that hangs: all of it can be fetched again."""
    desk = Desk(Order.PARTITION, is_batch=True, quantum=20, records=1)
    assert desk.schedule.queue.claim()
    desk.regain()
    for count in (9, 91):
        desk.admit(count)
    assert desk.schedule.queue.claim() == []
    assert desk.held.give_back(desk.epoch, Load(5, 10**9), 20) == 5


def test_a_partition_whose_shared_lane_is_empty_still_works():
    """Unordered, while others of its tasks are out: it does not starve."""
    desk = Desk(Order.UNORDERED, quantum=1, records=3)
    (one,), _, _ = (desk.schedule.queue.claim() for _ in range(3))
    desk.schedule.complete([all_done(one, 0.001)])
    assert not desk.schedule.is_starving(desk.epoch)
