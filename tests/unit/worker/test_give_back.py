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
    *_, last = [task for _ in range(3) for task in desk.decisions.queue.claim()]
    record = last.record(0)
    failed, left = [(last.indexes[0], error)], last.indexes[1:]
    desk.decisions.complete([Outcome(task=last, failed=failed, left=left)])
    if not isinstance(error, RetryLater):
        desk.pass_time(30.0)  # its time has come, and it is its second attempt
    offset = desk.kept.give_back(desk.epoch, Load(), 1)
    assert offset == record.offset + 1
    assert desk.epoch.records == desk.kept.records == offset
    assert desk.epoch.progress.next_offset == offset


def test_what_waits_for_a_handler_of_before_is_not_begun():
    """A regained partition waits for one that hangs: all of it can be fetched again."""
    desk = Desk(Order.PARTITION, is_batch=True, quantum=20, records=1)
    assert desk.decisions.queue.claim()
    desk.regain()
    for count in (9, 91):
        desk.admit(count)
    assert desk.decisions.queue.claim() == []
    assert desk.kept.give_back(desk.epoch, Load(5, 10**9), 20) == 5


def test_a_partition_whose_shared_lane_is_empty_still_works():
    """Unordered, while others of its tasks are out: it does not starve."""
    desk = Desk(Order.UNORDERED, quantum=1, records=3)
    (one,), _, _ = (desk.decisions.queue.claim() for _ in range(3))
    desk.decisions.complete([all_done(one, 0.001)])
    assert not desk.decisions.is_starving(desk.epoch)


@pytest.mark.parametrize("order", list(Order))
def test_records_that_came_back_and_are_forgotten_are_handed_out_when_fetched_again(
    order,
):
    """They were handed out under a hold, say, and nothing of them was begun."""
    desk = Desk(order, quantum=4, records=10)
    tasks = desk.decisions.queue.claim()
    desk.decisions.complete([Outcome(task=one, left=one.indexes) for one in tasks])
    desk._next = desk.kept.give_back(desk.epoch, Load(0, 10**9), 1)
    assert desk._next == 0
    # A log that was compacted meanwhile has fewer records than were forgotten.
    desk.admit(1)
    assert desk.work() == [0]
