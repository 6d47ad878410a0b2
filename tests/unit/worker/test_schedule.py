"""Tests which records a queue hands out next, with a simulated clock."""

import weakref

import pytest
from kafka.structs import TopicPartition

from safeconsumer.errors.base import HandlersCannotRunError
from safeconsumer.holds.view import covers
from safeconsumer.worker import (
    BatchFailure,
    Reject,
    Retry,
    RetryLater,
    StopWorker,
    calls,
)
from safeconsumer.worker.calls import (
    Slot,
    all_done,
    batch_failed,
    call_each,
    context_of,
)
from safeconsumer.worker.durations import BOUNDS
from safeconsumer.worker.health import running_offsets
from safeconsumer.worker.partition import Order, Outcome
from safeconsumer.worker.watermarks import Load
from tests.harness.holds.lab import assign_to
from tests.harness.worker.desk import KINDS, TP, Desk, done_by


@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
@pytest.mark.parametrize("error", [RetryLater(2.0), ValueError("all")])
def test_one_event_reports_all_retried_records_of_a_batch(order, error):
    desk = Desk(order, is_batch=True, quantum=4, records=6)
    task = desk.decisions.queue.claim()
    desk.decisions.complete(batch_failed(task, error, 0.0))
    (event,) = desk.events
    delay = error.after if isinstance(error, RetryLater) else 0.0
    assert (event.offset, event.records, event.delay) == (0, 4, delay)
    assert desk.decisions.retries == 4


def test_reported_delay_is_the_remaining_wait():
    """A record has already waited while an earlier record of its batch waited."""
    desk = Desk(Order.PARTITION, is_batch=True, quantum=2, records=2)
    _partly(desk, {0: RetryLater(6.0), 1: RetryLater(10.0)})
    desk.pass_time(6.0)
    assert desk.work() == [0]
    assert [(one.offset, one.delay) for one in desk.events] == [(0, 6.0), (1, 4.0)]


def _partly(desk, errors):
    task = desk.decisions.queue.claim()
    desk.decisions.complete(batch_failed(task, BatchFailure(errors), 0.0))


@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
def test_each_record_of_a_batch_is_treated_according_to_its_own_error(order):
    desk = Desk(order, is_batch=True, quantum=8, on_exhausted="skip", records=8)
    _partly(
        desk,
        {
            1: ValueError("planted"),
            2: Reject("planted"),
            4: RetryLater(5.0),
            5: Reject("planted"),
            6: Reject("planted"),
        },
    )
    desk.pass_time(0.9)
    assert desk.work() == []
    desk.pass_time(0.2)
    assert desk.work() == [1]
    desk.pass_time(3.8)
    assert desk.work() == []
    desk.pass_time(0.2)
    assert desk.work() == [4]
    assert (desk.decisions.skipped, desk.kept.records) == (3, 0)
    assert not desk.epoch.failed


def test_error_for_part_of_a_batch_affects_only_that_part():
    desk = Desk(Order.PARTITION, is_batch=True, quantum=4, records=4)
    task = desk.decisions.queue.claim()
    task.finish(0)
    task.finish(2)
    wrong = ValueError("planted")
    outcome = batch_failed(task, BatchFailure({1: wrong}), 0.0, [1, 3])
    assert (outcome.finished, outcome.failed) == ([1], [(3, wrong)])
    desk.decisions.complete(Outcome(task=task, finished=[0, 1, 2], failed=[(3, wrong)]))
    assert desk.failures == {3: 1}


@pytest.mark.parametrize(
    "error", [SystemExit(3), HandlersCannotRunError("planted")], ids=repr
)
def test_error_that_stops_the_worker_does_not_wait_for_earlier_records(error):
    desk = Desk(Order.PARTITION, is_batch=True, quantum=4, records=4)
    task = desk.decisions.queue.claim()
    errors = BatchFailure({0: ValueError("planted"), 2: error})
    desk.decisions.complete(batch_failed(task, errors, 0.0))
    assert desk.decisions.fatal is error


@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
def test_rejected_batch_is_retried_record_by_record(order):
    """Only the record that the handler rejects fails."""
    desk = Desk(order, is_batch=True, quantum=8, on_exhausted="skip", records=8)
    while task := desk.decisions.queue.claim():
        is_meant = any(task.record(at).offset == 5 for at in task.indexes)
        desk.decisions.complete(
            batch_failed(task, Reject("planted"), 0.0)
            if is_meant
            else all_done(task, 0.0)
        )
    assert (desk.decisions.skipped, desk.kept.records) == (1, 0)


@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
def test_any_record_in_a_batch_may_stop_the_worker(order):
    desk = Desk(order, is_batch=True, quantum=4, records=4)
    _partly(desk, {0: RetryLater(5.0), 3: StopWorker()})
    assert desk.decisions.is_stop_asked
    assert desk.kept.records == 2


def test_dead_letters_of_one_batch_are_written_in_order():
    desk = Desk(Order.PARTITION, is_batch=True, quantum=4, sink=print, records=4)
    _partly(desk, {1: Reject("planted"), 2: Reject("planted")})
    for offset in (1, 2):
        task = desk.decisions.queue.claim()
        assert task.letter is not None
        assert desk.decisions.queue.claim() is None
        assert done_by(desk.decisions, task) == [offset]
    assert (desk.decisions.dead_letters, desk.kept.records) == (2, 0)


def test_record_not_started_when_its_partition_is_lost_is_not_handled():
    desk = Desk(Order.PARTITION)
    desk.epoch.pace = 1e-6
    desk.admit(3)
    task = desk.decisions.queue.claim()
    seen = []

    def handle(record, _context):
        seen.append(record.offset)
        desk.regain()

    outcome = call_each(handle, task, Slot(), context_of(task, lambda: None), 60.0)
    assert (seen, list(outcome.left)) == ([0], [1, 2])


def _sizes(desk):
    """Complete all claimable records, and return the offsets of each call."""
    found = []
    while task := desk.decisions.queue.claim():
        found.append([task.record(i).offset for i in task.indexes])
        desk.decisions.complete(all_done(task, 0.0))
    return found


in_both_orders = pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])


@in_both_orders
def test_batch_contains_records_of_several_polls(order):
    desk = Desk(order, lambda _: 1, is_batch=True, quantum=8, on_exhausted="skip")
    for _ in range(3):
        desk.admit(2)
    task = desk.decisions.queue.claim()
    assert [task.record(at).offset for at in task.indexes] == [*range(6)]
    desk.decisions.complete(batch_failed(task, RetryLater(2.0), 0.0))
    assert desk.work() == []
    desk.pass_time(2.0)
    _partly(desk, {1: ValueError("planted"), 4: Reject("planted")})
    assert (desk.kept.records, desk.kept.running) == (2, 0)
    assert desk.kept.watermarks()[TP].offset == 1
    desk.pass_time(1.0)
    assert (desk.work(), desk.decisions.skipped, desk.kept.done) == ([1], 1, 6)
    assert desk.kept.watermarks()[TP].offset == 6


@in_both_orders
def test_batch_waits_for_more_records_up_to_its_time_limit(order):
    """The time is measured from the first record; a full batch does not wait."""
    desk = Desk(order, lambda _: 1, is_batch=True, quantum=6, within=2.0, records=2)
    assert desk.work() == []
    desk.pass_time(1.5)
    desk.admit(2)
    assert desk.work() == []
    assert desk.decisions.turn() == 0.5
    assert not desk.decisions.is_starving(desk.epoch)
    desk.pass_time(0.5)
    assert [sorted(one) for one in _sizes(desk)] == [[0, 1, 2, 3]]
    desk.admit(3)
    assert desk.work() == []
    desk.admit(4)
    assert [len(one) for one in _sizes(desk)] == [6]
    desk.pass_time(2.0)
    assert len(desk.work()) == 1
    assert not desk.decisions.queue._filling


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (Order.PARTITION, ValueError("planted")),
        (Order.UNORDERED, ValueError("planted")),
        (Order.UNORDERED, RetryLater(1.0)),
    ],
)
def test_failed_record_is_retried_without_waiting_for_a_full_batch(order, error):
    desk = Desk(order, is_batch=True, quantum=6, within=60.0, records=6)
    _partly(desk, {0: error})
    desk.pass_time(1.0)
    assert desk.work() == [0]


def test_batch_does_not_wait_for_records_that_cannot_be_read():
    desk = Desk(Order.PARTITION, is_batch=True, quantum=6, within=2.0, records=2)
    assert desk.work() == []
    desk.epoch.unreadable = object()
    desk.decisions.turn()
    assert desk.work() == [0, 1]


@pytest.mark.contract("W6")
def test_waiting_batch_is_dropped_with_its_partition():
    desk = Desk(Order.PARTITION, is_batch=True, quantum=6, within=2.0, records=2)
    assert desk.work() == []
    desk.decisions.queue.drop_queued([desk.epoch])
    desk.pass_time(2.0)
    assert desk.work() == []
    desk.regain()
    desk.admit(2)
    assert desk.work() == []
    desk.pass_time(2.0)
    assert sorted(desk.work()) == [0, 1]


def test_waiting_retry_is_dropped_with_its_partition():
    desk = Desk(Order.KEY, quantum=1, records=3)
    bad, running, _ = (desk.decisions.queue.claim() for _ in range(3))
    desk.decisions.complete(batch_failed(bad, ValueError("planted"), 0.0))
    desk.decisions.queue.drop_queued([desk.epoch])
    desk.pass_time(1.0)
    assert desk.work() == []
    desk.decisions.complete(all_done(running, 0.0))
    assert desk.decisions.queue.claim() is None


def test_record_waiting_for_an_earlier_ownership_is_dropped_with_its_partition():
    desk = Desk(Order.KEY, quantum=1, records=1)
    left_behind = desk.decisions.queue.claim()
    desk.regain()
    desk.admit(3)
    bad = desk.decisions.queue.claim()
    assert bad.keys != left_behind.keys
    desk.decisions.complete(batch_failed(bad, ValueError("planted"), 0.0))
    running = desk.decisions.queue.claim()
    desk.decisions.queue.drop_queued([desk.epoch])
    desk.decisions.complete(all_done(left_behind, 0.0))
    assert desk.work() == []
    desk.decisions.complete(all_done(running, 0.0))


def test_dead_letter_of_an_ended_ownership_does_not_complete_a_record():
    desk = Desk(Order.PARTITION, sink=print, retry=Retry(attempts=1), records=2)
    bad = desk.decisions.queue.claim()
    desk.decisions.complete(batch_failed(bad, ValueError("planted"), 0.0))
    letter = desk.decisions.queue.claim()
    desk.regain()
    desk.admit(2)
    done_by(desk.decisions, letter)
    assert (desk.decisions.dead_letters, desk.kept.records, desk.kept.done) == (0, 2, 0)


@pytest.mark.parametrize(("order", "is_batch"), KINDS)
def test_dead_letter_acknowledged_during_a_revocation_completes_its_record(
    order, is_batch
):
    """Otherwise the next owner would handle the record and write the letter again."""
    desk = Desk(
        order,
        is_batch=is_batch,
        quantum=1,
        sink=print,
        retry=Retry(attempts=1),
        records=2,
    )
    bad = desk.decisions.queue.claim()
    desk.decisions.complete(Outcome(task=bad, failed=[(0, ValueError("planted"))]))
    letter = desk.decisions.queue.claim()
    desk.decisions.queue.drop_queued([desk.epoch])
    assert done_by(desk.decisions, letter) == [0]
    assert desk.epoch.progress.watermark(()).offset == 1
    assert (desk.kept.records, desk.kept.done, desk.decisions.dead_letters) == (1, 1, 1)
    assert desk.work() == []


def _answer(desk, error):
    task = desk.decisions.queue.claim()
    if task is not None:
        failed, left = [(task.indexes[0], error)], task.indexes[1:]
        desk.decisions.complete(Outcome(task=task, failed=failed, left=left))


def _ask_for_later(desk):
    _answer(desk, RetryLater(3600.0))


def _fail_for_good(desk):
    _answer(desk, Reject("planted"))


def _hang(desk):
    desk.decisions.queue.claim()


def _leave(_desk):
    pass


@pytest.mark.parametrize(("order", "is_batch"), KINDS)
@pytest.mark.parametrize("step", [_ask_for_later, _fail_for_good, _hang, _leave])
def test_ended_ownerships_do_not_keep_records_alive(step, order, is_batch, collect):
    settings = {"is_batch": is_batch, "quantum": 2}
    desk = Desk(order, on_exhausted="block", **settings)
    before = []
    for _ in range(3):
        chunks = [desk.admit(10), desk.admit(10)]
        step(desk)
        before += [weakref.ref(one) for chunk in chunks for one in chunk[3:]]
        del chunks
        desk.regain()
        desk.pass_time(0.1)
    queue = desk.decisions.queue
    collect()
    assert not [one for one in before if one() is not None]
    assert not queue.ready
    assert not queue._delayed


@pytest.mark.parametrize("is_full", [True, False])
def test_held_batch_waits_until_the_resume(*, is_full):
    desk = Desk(
        Order.PARTITION,
        is_batch=True,
        quantum=2 if is_full else 6,
        within=2.0,
        records=2,
    )
    desk.pause()
    desk.pass_time(3.0)
    assert desk.work() == []
    desk.resume()
    assert desk.work() == [0, 1]


def test_quickly_processed_record_wakes_a_thread_only_if_no_handler_is_running():
    """A second thread that uses the CPU would slow down the first."""
    desk, woken = Desk(Order.KEY, quantum=1), []
    desk.epoch.pace = 1e-6
    desk.decisions.queue.listen(lambda: woken.append(desk.kept.running))
    desk.admit(1)
    assert woken == [0]
    assert desk.decisions.queue.claim()
    desk.admit(1)
    assert woken == [0]


def test_only_keys_of_records_within_the_span_become_ready():
    """When the oldest record completes, one more record can start, however many wait."""
    desk = Desk(
        Order.KEY, key=lambda record: record.offset, span=10, quantum=1, records=1000
    )
    out = [desk.decisions.queue.claim() for _ in range(10)]
    assert not desk.decisions.queue.claim()
    assert not desk.decisions.queue.ready
    desk.decisions.complete(all_done(out[5], 0.0))
    assert not desk.decisions.queue.ready
    desk.decisions.complete(all_done(out[0], 0.0))
    (ready,) = desk.epoch.ready
    assert next(iter(ready)) == 10
    for one in out[1:5] + out[6:]:
        desk.decisions.complete(all_done(one, 0.0))
    assert len(desk.work()) == 990


def test_record_put_back_into_the_queue_starts_if_it_is_within_the_span():
    desk = Desk(Order.UNORDERED, span=4, quantum=2)
    desk.epoch.pace = 1e-6
    desk.admit(8)
    one, other = desk.decisions.queue.claim(), desk.decisions.queue.claim()
    assert not desk.decisions.queue.claim()
    desk.decisions.complete(Outcome(task=one, left=one.indexes))
    desk.decisions.complete(all_done(other, 0.0))
    assert desk.work() == [0, 1, 4, 5, 6, 7]


def test_records_that_failed_together_are_handed_out_one_by_one():
    """In one batch they would fail again, without showing which record is the cause."""
    desk = Desk(Order.PARTITION, quantum=4, records=5, is_batch=True)
    task = desk.decisions.queue.claim()
    assert list(task.indexes) == [0, 1, 2, 3]
    desk.decisions.complete(batch_failed(task, ValueError(), 0.0))
    desk.pass_time(1.0)
    for offset in range(4):
        # At this pace, one call could get several records.
        desk.epoch.pace = 1e-6
        again = desk.decisions.queue.claim()
        assert done_by(desk.decisions, again) == [offset]
    assert desk.work() == [4]


# Records that a partition gives back to make room for another partition's records


@pytest.mark.parametrize("error", [RetryLater(60.0), ValueError()])
@pytest.mark.parametrize("order", list(Order))
def test_started_record_is_kept_with_all_earlier_records(order, error):
    """A record that waits for its next attempt counts as started."""
    desk = Desk(order, quantum=1, records=10)
    last = [one for _ in range(3) if (one := desk.decisions.queue.claim())][-1]
    record = last.record(0)
    failed, left = [(last.indexes[0], error)], last.indexes[1:]
    desk.decisions.complete(Outcome(task=last, failed=failed, left=left))
    if not isinstance(error, RetryLater):
        desk.pass_time(30.0)  # the second attempt is due
    offset = desk.kept.give_back(desk.epoch, Load(), 1)
    assert offset == record.offset + 1
    assert desk.epoch.records == desk.kept.records == offset
    assert desk.epoch.progress.next_offset == offset


def test_record_waiting_for_an_earlier_ownership_counts_as_not_started():
    """Such a record may be given back to the consumer and fetched again."""
    desk = Desk(Order.PARTITION, is_batch=True, quantum=20, records=1)
    assert desk.decisions.queue.claim()
    desk.regain()
    for count in (9, 91):
        desk.admit(count)
    assert desk.decisions.queue.claim() is None
    assert desk.kept.give_back(desk.epoch, Load(5, 10**9), 20) == 5


def test_partition_with_an_empty_lane_does_not_starve_while_its_tasks_run():
    desk = Desk(Order.UNORDERED, quantum=1, records=3)
    one, _, _ = (desk.decisions.queue.claim() for _ in range(3))
    desk.decisions.complete(all_done(one, 0.001))
    assert not desk.decisions.is_starving(desk.epoch)


@pytest.mark.parametrize("order", list(Order))
def test_records_given_back_and_fetched_again_are_handed_out(order):
    """The records were returned before any handler started, for example because of a hold."""
    desk = Desk(order, quantum=4, records=10)
    task = desk.decisions.queue.claim()
    desk.decisions.complete(Outcome(task=task, left=task.indexes))
    desk._next = desk.kept.give_back(desk.epoch, Load(0, 10**9), 1)
    assert desk._next == 0
    # Only one record is fetched again, because the log was compacted in the meantime.
    desk.admit(1)
    assert desk.work() == [0]


# The index and the start time of a call


class Watched(Slot):
    """A slot that records its index and start time when its task is set."""

    def __init__(self):
        self.seen = []
        super().__init__()
        self.index, self.began = 99, -1.0  # the values of the previous record

    def __setattr__(self, name, value):
        if name == "task" and value is not None:
            self.seen.append((self.index, self.began))
        super().__setattr__(name, value)


@pytest.mark.parametrize("is_batch", [False, True], ids=["one by one", "batch"])
def test_slot_with_a_new_task_never_shows_the_previous_records_start_time(*, is_batch):
    """Another thread that looks for stalls reads the task before the index and the time."""
    desk = Desk(Order.PARTITION, records=3)
    task = desk.decisions.queue.claim()
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
def test_failed_batch_adds_one_duration_for_each_record(error):
    desk = Desk(Order.PARTITION, is_batch=True, quantum=4, records=4)
    task = desk.decisions.queue.claim()
    desk.decisions.complete(batch_failed(task, error, 2.0))
    taken = desk.decisions.durations.histogram()
    counted = dict(zip((*BOUNDS, None), taken.counts, strict=True))
    assert taken.total == pytest.approx(2.0)
    assert {bound: n for bound, n in counted.items() if n} == {0.5: 4}


def test_adding_records_looks_up_the_holds_of_their_partition_only(monkeypatch):
    """Otherwise a poll with a thousand partitions would look up holds a million times."""
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


def test_only_the_record_in_the_handler_counts_as_running():
    desk = Desk(Order.PARTITION, lane_seconds=1.0, records=4)
    task = desk.decisions.queue.claim()
    slot = Slot()
    slot.task, slot.index = task, 1
    assert running_offsets([slot], is_batch=False) == {TP: [1]}
    assert task.place(2) == "orders:0 offset 2"
