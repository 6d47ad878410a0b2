"""W10: what somebody else holds is not begun; it waits in its place, and comes first."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from kafka.structs import TopicPartition

from safeconsumer.holds.view import View
from safeconsumer.worker import Drain, Pump, RetryLater
from safeconsumer.worker.client import covers
from safeconsumer.worker.handlers import Slot, all_done, call_batch, call_each
from safeconsumer.worker.health import at_work, place
from safeconsumer.worker.loop import BACKPRESSURE
from safeconsumer.worker.queue import Order, Outcome
from tests.broker.worker.handlers import AsyncRecording, Recording
from tests.harness.waiting import wait_for
from tests.harness.worker.bench import bench
from tests.harness.worker.desk import TP, Desk
from tests.harness.worker.lab import Lab
from tests.unit.worker.test_executors import Queueing

EACH_ORDER = pytest.mark.parametrize("order", Order)


@EACH_ORDER
def test_what_is_queued_waits_and_comes_in_its_order(order: Order) -> None:
    """Nothing is handed out under the hold, and afterwards all of it."""
    desk = Desk(order)
    desk.admit(6)
    desk.pause()
    assert desk.work() == []
    desk.admit(3)
    assert desk.work() == []
    desk.resume()
    assert desk.work() == list(range(9))


@EACH_ORDER
def test_what_comes_in_spite_of_a_hold_waits_too(order: Order) -> None:
    """Held before there was an epoch."""
    desk = Desk(order)
    desk.pause()
    desk.admit(3)
    assert desk.work() == []
    desk.resume()
    assert desk.work() == [0, 1, 2]


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


def test_the_workers_own_holds_stop_nothing_of_it() -> None:
    """W9: or what must be worked on before they are lifted would never be."""
    desk = Desk(Order.KEY)
    desk.admit(3)
    desk.pause(BACKPRESSURE)
    assert desk.work() == [0, 1, 2]
    desk.admit(3)
    desk.pause("app")
    assert desk.work() == []
    desk.resume("app")
    assert desk.work() == [3, 4, 5]


@EACH_ORDER
@pytest.mark.parametrize("held", [True, False])
def test_what_is_taken_away_is_not_begun(order: Order, *, held: bool) -> None:
    """
    W10: a hold does not end with the assignment, and without one it is another's.

    In a cooperative rebalance what departs leaves the assignment on kafka-python's
    thread, and the loop drops its work a little later. A look at holds in between found
    the partition not quiet, since only assigned ones are, and began what was shelved.
    """
    desk = Desk(order)
    desk.admit(3)
    if held:
        desk.pause("operator:eve")
        assert desk.work() == []
    desk.ledger.assign([])
    assert desk.work() == []
    desk.ledger.assign([TP])
    assert desk.work() == ([] if held else [0, 1, 2])


def test_a_hold_that_expires_lets_go() -> None:
    """At the next look, and never before."""
    desk = Desk(Order.KEY)
    desk.admit(3)
    desk.pause(for_=5.0)
    desk.pass_time(4.9)
    assert desk.work() == []
    desk.clock.now += 0.1
    assert desk.work() == [0, 1, 2]


@pytest.mark.parametrize("ends", ["turn", "resume"])
def test_who_waits_for_work_is_woken(ends: str) -> None:
    """By the resume itself, and by the turn after an expiry."""
    desk = Desk(Order.KEY)
    desk.admit(3)
    desk.pause(for_=5.0 if ends == "turn" else None)
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.extend(desk.schedule.queue.wait_claim() or ())
    )
    thread.start()
    wait_for(lambda: desk.schedule.queue._resting, "the thread to wait")
    desk.pass_time(5.0) if ends == "turn" else desk.resume()
    thread.join(10)
    assert found


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_task_that_was_claimed_begins_no_more_records(is_batch: bool) -> None:  # noqa: FBT001 - drawn
    """The hold comes between two records of one hand-over, or before the first."""
    desk = Desk(Order.PARTITION, is_batch=is_batch)
    desk.admit(6)
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


def test_each_record_asks_in_threads_of_theirs() -> None:
    """Of a hand-over that has begun; and it is known which one is worked on."""
    began: list[int] = []
    seen: list[Any] = []

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        began.append(record.offset)
        seen.append(at_work(made.runner.slots, is_batch=False))
        if record.offset == 2:
            made.held.epochs[TP].is_held = True

    with bench(
        "threads of theirs", handle, count=1, order=Order.PARTITION, lane_seconds=1.0
    ) as made:
        made.admit(5)
        made.wait(lambda: len(began) > 2 and not made.held.running, "it to be held")
        made.schedule.turn()
        assert made.held.records == 2
    assert began == [0, 1, 2]
    assert seen == [{TP: [offset]} for offset in began]


def test_what_may_yet_begin_in_a_process_is_said_to_run() -> None:
    """What stands behind the record that it is at, or all of it if nobody knows which."""
    desk = Desk(Order.PARTITION, lane_seconds=1.0)
    desk.admit(4)
    (task,) = desk.schedule.queue.claim()
    slot = Slot()
    slot.task, slot.index = task, 1
    assert at_work([slot], is_batch=False) == {TP: [1]}
    slot.goes_on = True
    assert at_work([slot], is_batch=False) == {TP: [1, 2, 3]}
    slot.index = -1
    assert at_work([slot], is_batch=False) == {TP: [0, 1, 2, 3]}
    assert place(task, slot.index) == "orders:0 one of offsets 0 to 3"
    assert place(task, 2) == "orders:0 offset 2"


def test_a_retry_that_is_due_waits_for_the_resume() -> None:
    """It comes first, and keeps its attempts."""
    desk = Desk(Order.PARTITION)
    desk.admit(3)
    (task,) = desk.schedule.queue.claim()
    failed = Outcome(
        task=task, failed=[(task.indexes[0], RetryLater(1.0))], left=task.indexes[1:]
    )
    desk.schedule.complete([failed])
    desk.pause()
    desk.pass_time(2.0)
    assert desk.work() == []
    desk.resume()
    assert desk.work() == [0, 1, 2]


def test_held_records_are_dropped_with_their_partition() -> None:
    """W6: and never committed past."""
    desk = Desk(Order.KEY)
    desk.admit(3)
    desk.pause()
    assert desk.work() == []
    desk.schedule.drop_queued([desk.epoch])
    (mark,) = desk.held.watermarks().values()
    assert mark.offset == 0  # the floor of the ownership
    desk.held.close(desk.epoch)
    desk.resume()
    assert (desk.work(), desk.held.records, desk.held.running) == ([], 0, 0)


def test_quiet_is_told_when_nothing_runs_any_more() -> None:
    """G8: who waits is woken by the last result, not by the next look."""
    desk = Desk(Order.KEY)
    desk.admit(2)
    tasks = [*desk.schedule.queue.claim(), *desk.schedule.queue.claim()]
    desk.pause()
    woken: list[set[TopicPartition]] = []
    desk.ledger.wakers.append(lambda: woken.append(desk.held.busy()))
    desk.schedule.complete([all_done(tasks[0], 0.0)])
    assert (woken, desk.held.busy()) == ([], {TP})
    desk.schedule.complete([all_done(tasks[1], 0.0)])
    assert woken == [set()]


# ---------------------------------------------------------------- with a consumer


@pytest.mark.any_broker
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_a_pause_stops_a_worker(lab: Lab, recording: Recording, executor: str) -> None:
    """No handler begins after ``pause()`` has returned, whoever called it from where."""
    lab.new_topic(partitions=2)
    values = ["sleep=0.002"] * 50 + ["until=paused"] * 250
    count = lab.produce({0: values, 1: values})
    handle = AsyncRecording(recording.folder) if executor == "asyncio" else recording
    consumer = lab.consumer()
    running = lab.run(handle, consumer, executor=executor, order="unordered")
    running.wait_done(50)
    consumer.pause_all(owner="somebody")
    at = time.monotonic()
    (recording.folder / "paused").touch()
    wait_for(lambda: not running.worker.stats().running, "all to be over")
    assert running.worker.stats().queued
    done = running.worker.stats().done
    begun = [one.began for one in recording.traces() if one.began > at]
    assert len(begun) <= 1  # one that had been begun when pause() took effect
    wait_for(lambda: time.monotonic() > at + 1.0, "a second to pass")
    assert running.worker.stats().done == done
    consumer.resume_all(owner="somebody")
    running.wait_done(count)


@pytest.mark.any_broker
def test_a_worker_that_is_stopped_does_not_wait_for_what_is_held(
    lab: Lab, recording: Recording
) -> None:
    """W8: it is not run, and not committed past."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["sleep=0.01"] * 5 + ["until=paused"] * 20})
    consumer = lab.consumer()
    running = lab.run(recording, consumer, drain=Drain(shutdown=20.0))
    running.wait_done(5)
    consumer.pause_all(owner="somebody")
    (recording.folder / "paused").touch()
    wait_for(lambda: not running.worker.stats().running, "all to be over")
    report = running.end()
    assert report.seconds < 10
    assert report.dropped
    assert lab.committed() == {0: report.done}


@pytest.mark.any_broker
def test_a_pump_hands_out_nothing_held(lab: Lab) -> None:
    """What it has waits, and comes first."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 20})
    with Pump(lab.consumer(max_poll_records=5)) as pump:
        wait_for(lambda: pump.held_records, "something to wait")
        consumer: Any = pump._engine._client
        consumer._consumer.pause_all(owner="somebody")
        assert pump.turn() == []
        consumer._consumer.resume_all(owner="somebody")
        batches = pump.turn()
        assert batches[0].records[0].offset == 0
        for batch in batches:
            batch.done()


@pytest.mark.any_broker
def test_busy_partitions_are_not_reported_quiet(lab: Lab) -> None:
    """G8: while a handler still runs on one."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    go_on = threading.Event()
    begun = threading.Event()

    def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
        begun.set()
        go_on.wait(20)

    consumer = lab.consumer()
    running = lab.run(handle, consumer, concurrency=1)
    assert begun.wait(20)
    busy: Callable[[], Any] = consumer._safe_ledger.busy
    consumer.pause_all(owner="somebody")
    assert busy() == {TopicPartition(lab.topic, 0)}
    go_on.set()
    wait_for(lambda: not busy(), "nothing to run")
    consumer.resume_all(owner="somebody")
    running.wait_done(3)


@pytest.mark.contract("W10")
@pytest.mark.any_broker
def test_a_call_that_waits_in_somebodys_executor_comes_back(lab: Lab) -> None:
    """W10: the executor may begin it minutes after the hold."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["v"] * 3, 1: ["v"] * 3})
    handled: list[tuple[int, int]] = []
    pool = Queueing()
    consumer = lab.consumer()
    running = lab.run(
        lambda record, _context: handled.append((record.partition, record.offset)),
        consumer,
        executor=pool,
        concurrency=2,
        order="partition",
    )
    wait_for(lambda: len(pool.queued) == 2, "both partitions to wait")
    consumer.pause(TopicPartition(lab.topic, 0), owner="somebody")
    wait_for(lambda: len(consumer._safe_ledger.busy()) == 1, "one to be back")

    def work() -> bool:
        pool.run_all()
        return running.worker.stats().done >= 3

    wait_for(work, "the other one to be done")
    assert {partition for partition, _ in handled} == {1}
    consumer.resume(TopicPartition(lab.topic, 0), owner="somebody")
    wait_for(lambda: work() and running.worker.stats().done == 6, "all to be done")
    assert handled == [(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)]
    assert running.end().done == 6


class Late(ThreadPoolExecutor):
    """A pool that has taken a call and not begun it yet, until it may."""

    def __init__(self) -> None:
        super().__init__(1)
        self.took, self.may = threading.Event(), threading.Event()

    def submit(self, call: Any, /, *args: Any, **named: Any) -> Future[Any]:  # noqa: ANN401
        """Submit it so."""

        def late() -> Any:  # noqa: ANN401 - the call's own
            self.took.set()
            assert self.may.wait(30)
            return call(*args, **named)

        return super().submit(late)


@pytest.mark.any_broker
def test_a_call_that_a_pool_has_taken_asks_once_more(lab: Lab) -> None:
    """W10: it is no longer to be cancelled then, and not begun."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    handled: list[int] = []
    consumer = lab.consumer()
    with Late() as pool:
        running = lab.run(
            lambda record, _context: handled.append(record.offset),
            consumer,
            executor=pool,
            concurrency=1,
        )
        assert pool.took.wait(30)
        consumer.pause_all(owner="somebody")
        pool.may.set()
        wait_for(lambda: not running.worker.stats().running, "it to be back")
        assert handled == []
        consumer.resume_all(owner="somebody")
        running.wait_done(1)
        assert handled == [0]
        running.end()
