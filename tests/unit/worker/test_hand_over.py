"""How work comes to threads: which wake, and what they look for."""

import sys
import threading

import pytest
from kafka.structs import TopicPartition

from safeconsumer.holds.view import covers
from safeconsumer.worker import calls
from safeconsumer.worker.calls import Slot, batch_failed, call_each, context_of
from safeconsumer.worker.durations import BOUNDS
from safeconsumer.worker.handlers import BatchFailure, RetryLater
from safeconsumer.worker.health import at_work, place
from safeconsumer.worker.lanes import Order
from tests.harness.holds.lab import assign_to
from tests.harness.waiting import wait_for
from tests.harness.worker.desk import TP, Desk, done_by


class Resting:
    """Threads that wait for work, and who of them got which."""

    def __init__(self, desk, count):
        self.desk = desk
        self.got = []
        self.threads = [threading.Thread(target=self._take) for _ in range(count)]
        for number, thread in enumerate(self.threads, 1):
            thread.start()
            self.wait_resting(number)

    def wait_resting(self, count):
        wait_for(
            lambda: len(self.desk.decisions.queue._resting) == count, "them to rest"
        )

    def _take(self):
        while (tasks := self.desk.decisions.queue.wait_claim()) is not None:
            self.got.append(threading.current_thread().name)
            done = [calls.all_done(task, 0.0) for task in tasks]
            self.desk.decisions.complete(done)


def test_one_is_roused_for_quick_work_however_much_comes_meanwhile(request):
    """The others would find nothing, and only get in its way."""
    # A second one, roused when the first has finished some, is given the interpreter
    # only if that one takes a second for them.
    interval = sys.getswitchinterval()
    request.addfinalizer(lambda: sys.setswitchinterval(interval))
    sys.setswitchinterval(1)
    desk = Desk(Order.KEY, key=lambda record: record.offset)
    desk.epoch.pace = 1e-6
    resting = Resting(desk, 3)
    desk.decisions.queue.halt()
    for _ in range(4):
        desk.admit(3)
    with desk.kept.lock:
        desk.decisions.queue._is_halted = False
        for _ in range(4):
            desk.decisions.queue.wake_one()
        assert (len(desk.decisions.queue._resting), desk.decisions.queue._coming) == (
            2,
            1,
        )
    wait_for(lambda: not desk.kept.records, "the work")
    desk.decisions.queue.end()
    for thread in resting.threads:
        thread.join(10)
    assert len(set(resting.got)) == 1


@pytest.mark.contract("W1")
def test_keys_take_memory_only_while_they_are_busy():
    """W1: keys that never come again do not add up, however large they are."""
    desk = Desk(Order.KEY, key=lambda record: 1000 * str(record.offset % 7), records=50)
    desk.epoch.pace = 0.0005  # two records for each
    out = [task for _ in range(5) for task in desk.decisions.queue.claim()]
    assert desk.epoch.busy
    assert desk.epoch.lanes
    done_by(desk.decisions, [out[1]])
    desk.regain()
    desk.admit(50)
    done_by(desk.decisions, [out[0], *out[2:]])
    desk.work()
    assert not desk.epoch.busy
    assert not desk.epoch.lanes


class Watched(Slot):
    """A place that notes what stands in it the moment its task does."""

    def __init__(self):
        self.seen = []
        super().__init__()
        self.index, self.began = 99, -1.0  # what the last one was at

    def __setattr__(self, name, value):
        if name == "task" and value is not None:
            self.seen.append((self.index, self.began))
        super().__setattr__(name, value)


@pytest.mark.parametrize("is_batch", [False, True], ids=["one by one", "batch"])
def test_who_looks_for_stalls_never_sees_what_a_place_was_at_before(*, is_batch):
    """W8: another thread looks at the task first, and at index and time for it."""
    desk = Desk(Order.PARTITION, records=3)
    (task,) = desk.decisions.queue.claim()
    slot, context = Watched(), context_of(task, lambda: None)
    if is_batch:
        calls.call_batch(lambda _r, _c: None, task, slot, context)
    else:
        call_each(lambda _r, _c: None, task, slot, context, 1.0)
    ((index, began),) = slot.seen
    assert index == task.indexes[0]
    assert began > 0


@pytest.mark.parametrize(
    "error", [RetryLater(2.0), ValueError(), BatchFailure({1: RetryLater(2.0)})]
)
def test_a_batch_that_fails_counts_once_for_each_of_its_records(error):
    """With their mean, also where only one of them has failed."""
    desk = Desk(Order.PARTITION, is_batch=True, quantum=4, records=4)
    (task,) = desk.decisions.queue.claim()
    desk.decisions.complete([batch_failed(task, error, 2.0)])
    taken = desk.decisions.durations.histogram()
    counted = dict(zip((*BOUNDS, None), taken.counts, strict=True))
    assert taken.total == pytest.approx(2.0)
    assert {bound: n for bound, n in counted.items() if n} == {0.5: 4}


def test_records_of_one_partition_ask_about_no_other(monkeypatch):
    """With a thousand of them, each poll would ask a million times."""
    desk = Desk(Order.PARTITION)
    others = [TopicPartition(TP.topic, number) for number in range(1, 10)]
    assign_to(desk.ledger, [TP, *others])
    for tp in others:
        desk.kept.open(tp, 1, 0, 0)
    desk.admit(1)
    asked = []

    def tell(view, tp):
        asked.append(tp)
        return covers(view, tp)

    monkeypatch.setattr("safeconsumer.worker.queue.covers", tell)
    desk.admit(1)
    assert asked == [TP]


def test_only_the_record_that_a_handler_is_at_is_said_to_run():
    """What was handed over behind it waits."""
    desk = Desk(Order.PARTITION, lane_seconds=1.0, records=4)
    (task,) = desk.decisions.queue.claim()
    slot = Slot()
    slot.task, slot.index = task, 1
    assert at_work([slot], is_batch=False) == {TP: [1]}
    assert place(task, 2) == "orders:0 offset 2"
