"""What a queue hands out next, decided without a broker and while time stands still."""

import weakref

import pytest

from safeconsumer.worker import BatchFailure, Reject, Retry, RetryLater, StopWorker
from safeconsumer.worker.calls import (
    Slot,
    all_done,
    batch_failed,
    call_each,
    context_of,
)
from safeconsumer.worker.lanes import Order
from safeconsumer.worker.tasks import Outcome
from tests.harness.worker.desk import KINDS, TP, Desk, done_by


@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
@pytest.mark.parametrize("error", [RetryLater(2.0), ValueError("all")])
def test_all_of_a_batch_that_comes_again_are_told_of(order, error):
    """By one event: together, or one by one since none is to blame yet."""
    desk = Desk(order, is_batch=True, quantum=4, records=6)
    task = desk.decisions.queue.claim()[0]
    desk.decisions.complete([batch_failed(task, error, 0.0)])
    (event,) = desk.events
    delay = error.after if isinstance(error, RetryLater) else 0.0
    assert (event.offset, event.records, event.delay) == (0, 4, delay)
    assert desk.decisions.retries == 4


def test_a_delay_is_told_as_it_is_left():
    """Of a record behind another of its batch, which has waited first."""
    desk = Desk(Order.PARTITION, is_batch=True, quantum=2, records=2)
    _partly(desk, {0: RetryLater(6.0), 1: RetryLater(10.0)})
    desk.pass_time(6.0)
    assert desk.work() == [0]
    assert [(one.offset, one.delay) for one in desk.events] == [(0, 6.0), (1, 4.0)]


def _partly(desk, errors):
    (task,) = desk.decisions.queue.claim()
    desk.decisions.complete([batch_failed(task, BatchFailure(errors), 0.0)])


@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
def test_each_answer_of_a_batch_is_heeded(order):
    """W7: what is rejected is not handled again, what asks for later comes no sooner."""
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


def test_a_batch_that_rejects_each_is_given_up_whole():
    """W7: however many there are, and none is handled again."""
    desk = Desk(
        Order.PARTITION, is_batch=True, quantum=2000, on_exhausted="skip", records=2000
    )
    _partly(desk, dict.fromkeys(range(2000), Reject("planted")))
    assert (desk.work(), desk.decisions.skipped) == ([], 2000)


def test_an_error_for_some_of_a_batch_is_about_these_alone():
    """W7: those that a pump's program has answered for already are not among them."""
    desk = Desk(Order.PARTITION, is_batch=True, quantum=4, records=4)
    (task,) = desk.decisions.queue.claim()
    task.finish(0)
    task.finish(2)
    wrong = ValueError("planted")
    outcome = batch_failed(task, BatchFailure({1: wrong}), 0.0, [1, 3])
    assert (outcome.finished, outcome.failed) == ([1], [(3, wrong)])
    desk.decisions.complete(
        [Outcome(task=task, finished=[0, 1, 2], failed=[(3, wrong)])]
    )
    assert desk.failures == {3: 1}


@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
def test_a_batch_that_rejects_does_not_say_which(order):
    """W7: its records come one by one, and only the one that is meant has failed."""
    desk = Desk(order, is_batch=True, quantum=8, on_exhausted="skip", records=8)
    while tasks := desk.decisions.queue.claim():
        for task in tasks:
            is_meant = any(task.record(at).offset == 5 for at in task.indexes)
            desk.decisions.complete(
                [
                    batch_failed(task, Reject("planted"), 0.0)
                    if is_meant
                    else all_done(task, 0.0)
                ]
            )
    assert (desk.decisions.skipped, desk.kept.records) == (1, 0)


@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
def test_a_batch_may_stop_the_worker_with_any_of_its_answers(order):
    """At once, and the record comes again after the restart."""
    desk = Desk(order, is_batch=True, quantum=4, records=4)
    _partly(desk, {0: RetryLater(5.0), 3: StopWorker()})
    assert desk.decisions.is_stop_asked
    assert desk.kept.records == 2


def test_letters_of_one_batch_go_in_order():
    """W3: the second once the first is acknowledged."""
    desk = Desk(Order.PARTITION, is_batch=True, quantum=4, sink=print, records=4)
    _partly(desk, {1: Reject("planted"), 2: Reject("planted")})
    for offset in (1, 2):
        (task,) = desk.decisions.queue.claim()
        assert task.letter is not None
        assert desk.decisions.queue.claim() == []
        assert done_by(desk.decisions, [task]) == [offset]
    assert (desk.decisions.dead_letters, desk.kept.records) == (2, 0)


@pytest.mark.parametrize("order", [Order.PARTITION, Order.KEY])
def test_a_regained_partition_waits_for_what_still_runs_of_it(order):
    """W3: of the same key, or of all of it; the rest goes on. By however many losses."""
    desk = Desk(order, quantum=1, records=6)
    (old,) = desk.decisions.queue.claim()
    same = [0, 3] if order is Order.KEY else [0, 1, 2, 3, 4, 5]
    others = sorted(set(range(6)) - set(same))
    for _ in range(2):
        desk.regain()
        desk.admit(6)
        assert desk.work() == others
    desk.decisions.complete([all_done(old, 0.0)])
    assert desk.work() == same
    assert not desk.kept.records


def test_what_an_ended_ownership_had_in_a_bundle_is_waited_for():
    """W3: each key of it, also behind others that may go on together."""
    desk = Desk(Order.KEY, key=lambda record: record.offset)
    desk.epoch.pace = 1e-6
    desk.admit(4)
    (old,) = desk.decisions.queue.claim()
    assert len(old.keys) == 4
    desk.regain()
    desk.epoch.pace = 1e-6
    desk.admit(6)
    assert desk.work() == [4, 5]
    desk.decisions.complete([Outcome(task=old, left=old.indexes)])
    assert desk.work() == [0, 1, 2, 3]
    assert not desk.kept.left_behind


def test_what_was_handed_out_and_not_begun_is_not_begun_once_it_is_lost():
    """Whoever owns the partition by now does it."""
    desk = Desk(Order.PARTITION)
    desk.epoch.pace = 1e-6
    desk.admit(3)
    (task,) = desk.decisions.queue.claim()
    seen = []

    def handle(record, _context):
        seen.append(record.offset)
        desk.regain()

    outcome = call_each(handle, task, Slot(), context_of(task, lambda: None), 60.0)
    assert (seen, list(outcome.left)) == ([0], [1, 2])


def _sizes(desk):
    """Complete all that can be claimed, and return the offsets of each call."""
    found = []
    while tasks := desk.decisions.queue.claim():
        for task in tasks:
            found.append([task.record(i).offset for i in task.indexes])
            desk.decisions.complete([all_done(task, 0.0)])
    return found


in_both_orders = pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])


@in_both_orders
def test_a_batch_has_records_of_several_polls(order):
    """Each of them is done, failed or left where it came from."""
    desk = Desk(order, lambda _: 1, is_batch=True, quantum=8, on_exhausted="skip")
    for _ in range(3):
        desk.admit(2)
    (task,) = desk.decisions.queue.claim()
    assert [task.record(at).offset for at in task.indexes] == [*range(6)]
    desk.decisions.complete([batch_failed(task, RetryLater(2.0), 0.0)])
    assert desk.work() == []
    desk.pass_time(2.0)
    _partly(desk, {1: ValueError("planted"), 4: Reject("planted")})
    assert (desk.kept.records, desk.kept.running) == (2, 0)
    assert desk.kept.watermarks()[TP].offset == 1
    desk.pass_time(1.0)
    assert (desk.work(), desk.decisions.skipped, desk.kept.done) == ([1], 1, 6)
    assert desk.kept.watermarks()[TP].offset == 6


@in_both_orders
def test_a_batch_waits_for_more_so_long_and_no_longer(order):
    """Counted from its first record; a full one does not wait."""
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
def test_what_failed_waits_for_no_batch(order, error):
    """W7: its time has come, and it comes by itself."""
    desk = Desk(order, is_batch=True, quantum=6, within=60.0, records=6)
    _partly(desk, {0: error})
    desk.pass_time(1.0)
    assert desk.work() == [0]


def test_a_batch_does_not_wait_for_records_that_cannot_be_read():
    """They may not come for long, and its handler would be idle."""
    desk = Desk(Order.PARTITION, is_batch=True, quantum=6, within=2.0, records=2)
    assert desk.work() == []
    desk.epoch.unreadable = object()
    desk.decisions.turn()
    assert desk.work() == [0, 1]


@pytest.mark.contract("W6")
def test_a_batch_that_waits_for_more_goes_with_its_partition():
    """W6: and nothing of it is begun, then or later."""
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


def test_what_waits_for_its_retry_goes_with_its_partition():
    """W6: a batch's record too, whose time comes while the revocation waits for others."""
    desk = Desk(Order.KEY, quantum=1, records=3)
    bad, running, _ = (desk.decisions.queue.claim()[0] for _ in range(3))
    desk.decisions.complete([batch_failed(bad, ValueError("planted"), 0.0)])
    desk.decisions.queue.drop_queued([desk.epoch])
    desk.pass_time(1.0)
    assert desk.work() == []
    desk.decisions.complete([all_done(running, 0.0)])
    assert desk.decisions.queue.claim() == []


def test_what_waits_for_an_earlier_ownership_goes_with_its_own():
    """W6: once that one's task comes back, though something else has failed."""
    desk = Desk(Order.KEY, quantum=1, records=1)
    (left_behind,) = desk.decisions.queue.claim()
    desk.regain()
    desk.admit(3)
    (bad,) = desk.decisions.queue.claim()
    assert bad.keys != left_behind.keys
    desk.decisions.complete([batch_failed(bad, ValueError("planted"), 0.0)])
    (running,) = desk.decisions.queue.claim()
    desk.decisions.queue.drop_queued([desk.epoch])
    desk.decisions.complete([all_done(left_behind, 0.0)])
    assert desk.work() == []
    desk.decisions.complete([all_done(running, 0.0)])


@pytest.mark.parametrize(("order", "is_batch"), KINDS)
def test_a_letter_that_arrives_during_a_revocation_completes_its_record(
    order, is_batch
):
    """W5: it was waited for, so nobody handles the record and writes the letter again."""
    desk = Desk(
        order,
        is_batch=is_batch,
        quantum=1,
        sink=print,
        retry=Retry(attempts=1),
        records=2,
    )
    (bad,) = desk.decisions.queue.claim()
    desk.decisions.complete([Outcome(task=bad, failed=[(0, ValueError("planted"))])])
    letter = desk.decisions.queue.claim()
    desk.decisions.queue.drop_queued([desk.epoch])
    assert done_by(desk.decisions, letter) == [0]
    assert desk.epoch.progress.watermark(()).offset == 1
    assert (desk.kept.records, desk.kept.done, desk.decisions.dead_letters) == (1, 1, 1)
    assert desk.work() == []


def _answer(desk, error):
    for task in desk.decisions.queue.claim():
        failed, left = [(task.indexes[0], error)], task.indexes[1:]
        desk.decisions.complete([Outcome(task=task, failed=failed, left=left)])


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
def test_ended_ownerships_keep_no_records(step, order, is_batch, collect):
    """W1: no limit counts them any more, and what waits may wait for ever."""
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
    assert not queue._asleep


@pytest.mark.parametrize("order", Order)
def test_a_handler_that_hangs_keeps_no_more_than_its_own_records(order, collect):
    """W1: it has its task, which has the ended ownership; that keeps nothing."""
    desk = Desk(order, quantum=2, records=10)
    tasks = desk.decisions.queue.claim()
    behind = [weakref.ref(one) for one in desk.admit(10)]
    desk.regain()
    desk.pass_time(0.1)
    collect()
    assert tasks
    assert tasks[0].epoch.is_closed
    assert not [one for one in behind if one() is not None]


@pytest.mark.parametrize("is_full", [True, False])
def test_a_batch_that_is_held_waits_in_its_place(*, is_full):
    """W10: also one whose time comes meanwhile."""
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


def test_only_lanes_within_the_span_are_woken():
    """One record completed lets one more begin, however many wait."""
    desk = Desk(
        Order.KEY, key=lambda record: record.offset, span=10, quantum=1, records=1000
    )
    out = [task for _ in range(10) for task in desk.decisions.queue.claim()]
    assert not desk.decisions.queue.claim()
    assert not desk.decisions.queue.ready
    desk.decisions.complete([all_done(out[5], 0.0)])
    assert not desk.decisions.queue.ready
    desk.decisions.complete([all_done(out[0], 0.0)])
    (ready,) = desk.decisions.queue.ready
    assert next(iter(ready)) == 10
    desk.decisions.complete([all_done(one, 0.0) for one in out[1:5] + out[6:]])
    assert len(desk.work()) == 990


def test_what_is_put_back_within_the_span_begins():
    """Although what stands behind it in its lane does not."""
    desk = Desk(Order.UNORDERED, span=4, quantum=2)
    desk.epoch.pace = 1e-6
    desk.admit(8)
    one, other = desk.decisions.queue.claim() + desk.decisions.queue.claim()
    assert not desk.decisions.queue.claim()
    desk.decisions.complete([Outcome(task=one, left=one.indexes)])
    desk.decisions.complete([all_done(other, 0.0)])
    assert desk.work() == [0, 1, 4, 5, 6, 7]


def test_records_that_failed_together_are_handed_out_one_by_one():
    """W5: together they would fail again, and nothing would say which is to blame."""
    desk = Desk(Order.PARTITION, quantum=4, records=5, is_batch=True)
    (task,) = desk.decisions.queue.claim()
    assert list(task.indexes) == [0, 1, 2, 3]
    desk.decisions.complete([batch_failed(task, ValueError(), 0.0)])
    desk.pass_time(1.0)
    for offset in range(4):
        desk.epoch.pace = 1e-6  # its records are quick, so several might come at once
        (again,) = desk.decisions.queue.claim()
        assert done_by(desk.decisions, [again]) == [offset]
    assert desk.work() == [4]
