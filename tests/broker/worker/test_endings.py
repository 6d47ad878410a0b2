"""However a worker ends, it says so, has committed what it could, and leaves no hold."""

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from kafka import TopicPartition

from safeconsumer.errors import WorkerSettingError, WorkerStateError
from safeconsumer.worker import (
    Commit,
    Drain,
    HandlersFailError,
    Pump,
    RetryLater,
    Worker,
)
from safeconsumer.worker.handlers import all_done
from safeconsumer.worker.queue import Lanes, Order, Policy, Queue, record_key
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.settings import Retry
from tests.harness.waiting import wait_for
from tests.harness.worker.fake_client import EVERY, Clock, FakeClient
from tests.harness.worker.lab import Lab
from tests.harness.worker.standing import DRAIN, LIMITS, StandingEngine

pytestmark = pytest.mark.any_broker

TP = EVERY[0]


def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
    """Handle a record."""


def test_a_manual_assignment_is_committed_at_the_end(lab: Lab) -> None:
    """W8: it has no generation, and never loses it."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 5})
    consumer = lab._make_consumer(group=lab.group)
    consumer.assign([TopicPartition(lab.topic, 0)])
    running = lab.run(handle, consumer, commit=Commit(every=60.0))
    running.wait_done(5)
    assert running.end().committed
    assert lab.committed() == {0: 5}


def test_what_never_joined_has_nothing_to_commit() -> None:
    """So nothing is missing from the last commit."""
    clock = Clock()
    engine = StandingEngine(
        FakeClient(clock, cooperative=False, most=4),
        limits=LIMITS,
        drain=DRAIN,
        commit=Commit(),
        emit=lambda *_kind, **_fields: None,
        clock=clock,
    )
    policy, lanes = Policy(retry=Retry()), Lanes(Order.PARTITION, record_key)
    engine.begin(
        Schedule(Queue(engine.held, lanes, policy, clock, None), lambda *_: None)
    )
    engine.stop(1.0)
    assert engine.conclude()


class Ending:
    """An engine that owns the only partition with records, four of them."""

    def __init__(self, *, cooperative: bool = False) -> None:
        self.clock = Clock()
        self.events: list[Any] = []
        self.client = FakeClient(self.clock, cooperative=cooperative, most=4)
        self.engine = StandingEngine(
            self.client,
            limits=LIMITS,
            drain=DRAIN,
            commit=Commit(every=0.1),
            emit=lambda kind, **fields: self.events.append(kind(**fields)),
            clock=self.clock,
        )
        policy = Policy(retry=Retry(), quantum=1)
        lanes = Lanes(Order.UNORDERED, record_key)
        self.schedule = Schedule(
            Queue(self.engine.held, lanes, policy, self.clock, None), lambda *_: None
        )
        self.engine.begin(self.schedule)
        self.client.log[TP] = 4
        self.client.rebalance(frozenset({TP}), 0)
        while not self.engine.held.records:
            self.engine.turn()

    def work(self, count: int) -> None:
        """Complete so many records."""
        for _ in range(count):
            (task,) = self.schedule.queue.claim()
            self.schedule.complete([all_done(task, 0.0)])

    def turn(self, condition: Callable[[], object]) -> None:
        """Turn until the condition holds."""
        for _ in range(100):
            if condition():
                return
            self.engine.turn()
            self.client.answer_all()
        pytest.fail("it never came")

    def conclude(self) -> bool:
        """End it."""
        self.engine.stop(1.0)
        return self.engine.conclude()


@pytest.mark.parametrize("is_noticed", [True, False])
def test_what_was_committed_before_a_loss_is_committed(
    is_noticed: bool,  # noqa: FBT001 - a parameter
) -> None:
    """And what was not is not, whoever has noticed the loss by then."""
    for count, is_committed in (4, True), (3, False):
        ending = Ending()
        ending.work(3)
        ending.turn(lambda made=ending: made.client.committed[TP] == 3)
        ending.work(count - 3 if is_committed else 1)
        if is_committed:
            ending.turn(lambda made=ending: made.client.committed[TP] == 4)
        ending.client.lose()
        if is_noticed:
            ending.engine.departures.before_join()
            assert not ending.engine.held.epochs
        assert ending.conclude() is is_committed


def test_what_went_with_its_partition_is_not_committed() -> None:
    """The commit at the rebalance was refused; the next one that succeeds is the last."""
    for goes_on in False, True:
        ending = Ending()
        ending.work(3)
        ending.client.refuses = True
        ending.client.rebalance(frozenset(), 0)
        ending.turn(lambda made=ending: not made.engine.held.epochs)
        ending.client.refuses = False
        assert ending.client.committed[TP] == 0
        if goes_on:
            ending.client.rebalance(frozenset({TP}), 0)
            ending.turn(lambda made=ending: made.engine.held.records)
            ending.work(1)
            ending.turn(lambda made=ending: made.client.committed[TP] == 1)
        assert ending.conclude() is goes_on


def test_what_ends_during_the_last_commit_is_not_told_as_done() -> None:
    """It is not committed: whoever gets the partition next gets it again."""
    ending = Ending()
    ending.work(1)
    (task,) = ending.schedule.queue.claim()
    judge = ending.client.judge

    def during(tp: TopicPartition, offset: int) -> None:
        ending.schedule.complete([all_done(task, 0.0)])
        judge(tp, offset)

    ending.client.judge = during
    assert ending.conclude()
    held, departures = ending.engine.held, ending.engine.departures
    assert ending.client.committed[TP] == 1
    assert (held.done, departures.dropped, held.outlived.total()) == (1, 3, 0)


def test_what_is_complete_and_not_told_yet_is_not_dropped() -> None:
    """A handler marks each record of a hand-over, and tells of all at its end."""
    ending = Ending()
    ending.schedule.queue._most = 4
    ending.engine.held.epochs[TP].pace = 0.0
    (task,) = ending.schedule.queue.claim()
    assert len(task.indexes) > 1
    task.chunk.finish(task.indexes[0])
    assert ending.conclude()
    held, departures = ending.engine.held, ending.engine.departures
    assert (held.done, departures.dropped) == (1, 3)
    assert (held.outlived, held.busy()) == ({TP: len(task.indexes)}, {TP})
    assert ending.client.committed[TP] == 1
    ending.schedule.complete([all_done(task, 0.0)])
    assert (held.done, held.outlived, held.busy()) == (1, {TP: 0}, set())


def test_a_wait_that_ends_with_the_membership_is_told() -> None:
    """As any other one, and its seconds count."""
    ending = Ending()
    ending.schedule.queue.claim()
    ending.client.rebalance(frozenset(), 0)
    departures = ending.engine.departures
    ending.turn(lambda: departures.deadline is not None)
    ending.clock.now += 0.5
    ending.client.lose()
    ending.turn(lambda: departures.deadline is None)
    (drained,) = (one for one in ending.events if one.name == "work_drained")
    assert (drained.running, drained.reason) == (1, "rebalance")
    assert departures.seconds == drained.seconds >= 0.5


@pytest.mark.parametrize("seconds", [30.0, 0.1])
def test_handlers_of_a_lost_ownership_are_waited_for(lab: Lab, seconds: float) -> None:
    """They are said to run, the lifespan is left after them, or they are given up."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    began, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    @contextlib.contextmanager
    def lifespan() -> Iterator[None]:
        yield
        order.append("left")

    def wait(_record: Any, _context: Any) -> None:  # noqa: ANN401
        if not began.is_set():
            began.set()
            assert go_on.wait(30)
            order.append("ended")

    running = lab.run(wait, lifespan=lifespan, drain=Drain(shutdown=seconds))
    worker = running.worker
    assert began.wait(30)
    worker._client._consumer._coordinator.reset_generation()
    wait_for(lambda: worker.stats().dropped, "the loss to be noticed")
    assert worker.stats().running >= 1
    worker.stop()
    wait_for(lambda: worker.stats().state != "running", "it to drain")
    is_given_up = seconds < 1
    if is_given_up:
        running.wait_end()
    go_on.set()
    running.wait_end()
    wait_for(lambda: len(order) == 2, "both to end")
    assert order == (["left", "ended"] if is_given_up else ["ended", "left"])
    assert running.report is not None
    assert running.report.given_up == is_given_up


def plant(consumer: Any) -> None:  # noqa: ANN401
    """Make its commits fail in a way that none should."""

    def commit(*_args: object, **_kwargs: object) -> None:
        message = "planted"
        raise ZeroDivisionError(message)

    consumer.commit = commit


def test_a_last_commit_that_breaks_ends_the_worker_all_the_same(lab: Lab) -> None:
    """W8: it is closed, whoever waits for its end is told, and ``run`` raises the error."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    consumer = lab.consumer()
    running = lab.run(handle, consumer, commit=Commit(every=60.0))
    running.wait_done(1)
    plant(consumer)
    report = running.worker.stop(timeout=30.0)
    running.wait_end()
    assert isinstance(running.error, ZeroDivisionError)
    assert report is not None
    assert (report.done, report.committed) == (1, False)
    assert running.worker.stats().state == "closed"


def test_what_runs_is_waited_for_when_poll_breaks(lab: Lab) -> None:
    """W6, W8: handlers end, what they did is committed, and ``run`` raises the error."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["v", "v"]})
    began, opened, broken = (threading.Event() for _ in range(3))

    def wait(_record: Any, _context: Any) -> None:  # noqa: ANN401
        began.set()
        assert opened.wait(30)

    consumer = lab.consumer()
    poll = consumer.poll

    def breaking(**how: Any) -> Any:  # noqa: ANN401
        if began.is_set() and not broken.is_set():
            broken.set()
            message = "planted"
            raise ZeroDivisionError(message)
        return poll(**how)

    consumer.poll = breaking
    running = lab.run(wait, consumer, concurrency=1)
    assert began.wait(30)
    wait_for(lambda: running.worker.stats().state != "running", "poll to break")
    assert running.worker.stats().state == "draining"
    opened.set()
    running.wait_end()
    assert isinstance(running.error, ZeroDivisionError)
    assert lab.committed() == {0: 1, 1: 0}


def test_a_poll_that_breaks_again_and_again_ends_in_time(lab: Lab) -> None:
    """W8: the drain has a deadline, and does not spin meanwhile."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    began, polls = threading.Event(), []
    consumer = lab.consumer()

    def poll(**_: Any) -> None:  # noqa: ANN401
        polls.append(None)
        message = "planted"
        raise ZeroDivisionError(message)

    def wait(_record: Any, context: Any) -> None:  # noqa: ANN401
        consumer.poll = poll
        began.set()
        context.revoked.wait(30)

    running = lab.run(wait, consumer, drain=Drain(shutdown=0.5))
    assert began.wait(30)
    running.wait_end()
    report = running.worker.stop()
    assert isinstance(running.error, ZeroDivisionError)
    assert report is not None
    assert report.seconds >= 0.5
    assert (report.done, report.given_up) == (0, 1)
    assert len(polls) < 30


def test_the_drain_is_counted_from_when_it_was_asked_for(lab: Lab) -> None:
    """W8: what the polling thread waits for meanwhile, such as a commit, is part of it."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    began, waits, goes_on = (threading.Event() for _ in range(3))
    consumer = lab.consumer()

    def poll(**_: Any) -> dict[Any, Any]:  # noqa: ANN401
        waits.set()
        assert goes_on.wait(30)
        return {}

    def wait(_record: Any, context: Any) -> None:  # noqa: ANN401
        consumer.poll = poll
        began.set()
        context.revoked.wait(30)

    running = lab.run(wait, consumer, drain=Drain(shutdown=1.0))
    assert began.wait(30)
    assert waits.wait(30)
    over = time.monotonic() + 1.0
    running.worker.stop()
    while time.monotonic() < over:
        time.sleep(0.01)
    goes_on.set()
    running.wait_end()
    (drained,) = (one for one in running.events if one.name == "work_drained")
    assert drained.seconds < 0.5  # nothing was left of the second
    assert running.report is not None
    assert running.report.given_up == 1


@pytest.mark.embedded_broker
def test_a_commit_that_a_rebalance_waits_for_is_part_of_the_drain(lab: Lab) -> None:
    """W8: the drain and 2 s are all that a stop takes, whatever the broker does."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["v"], 1: ["v"]})
    setting = Commit(every=1000.0, timeout=20.0)
    running = lab.run(
        handle,
        lab.consumer(client_id="w"),
        drain=Drain(shutdown=0.5),
        commit=setting,
    )
    running.wait_done(2)
    over = threading.Event()
    second = lab.consumer()

    def poll() -> None:
        while not over.is_set():
            second.poll(100)

    thread = threading.Thread(target=poll)
    with lab.broker.hold("OffsetCommit", "w") as hold:
        thread.start()
        hold.wait(1, 30)
        began = time.monotonic()
        running.worker.stop()
        running.wait_end()
        took = time.monotonic() - began
        over.set()
    thread.join(30)
    assert took < 5  # 2.5 s, on a machine that is free
    assert running.report is not None
    assert not running.report.committed


def test_a_pump_whose_last_commit_breaks_leaves_no_hold(lab: Lab) -> None:
    """W9: the consumer is the user's, and goes on."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 2})
    consumer = lab.consumer()
    plant(consumer)
    drain = Drain(shutdown=0.2)
    with pytest.raises(ZeroDivisionError), Pump(consumer, drain=drain) as pump:
        next(iter(pump)).done(0)
    assert not consumer.holds()
    assert not pump.held_records


def test_signals_that_cannot_be_taken_leave_it_as_it_was(lab: Lab) -> None:
    """Nothing has begun, the handlers are those from before, and it can still run."""
    lab.new_topic(partitions=1)
    worker = Worker(lab.consumer(), handle)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises((OSError, ValueError)):
        worker.run(signals=(signal.SIGTERM, signal.SIGKILL))
    assert signal.getsignal(signal.SIGTERM) is before
    assert worker.stats().state == "new"
    worker.stop(drain=False)
    assert worker.run().done == 0


@pytest.mark.parametrize("after", [float("nan"), float("inf"), -1, True, "1"])
def test_a_time_that_never_comes_is_refused(after: Any) -> None:  # noqa: ANN401
    """In front of the heap of sleepers it would keep all others asleep."""
    with pytest.raises(WorkerSettingError, match="after must be"):
        RetryLater(after)


def test_a_worker_that_was_stopped_before_it_began_joins_no_group(lab: Lab) -> None:
    """W8: it polled once more, and a handler could begin."""
    lab.new_topic(partitions=1)
    consumer = lab.consumer()
    polls: list[Any] = []
    consumer.poll = lambda **asked: polls.append(asked) or {}
    worker = Worker(consumer, handle)
    worker.stop()
    assert worker.run().done == 0
    assert not polls


@pytest.mark.parametrize("is_logged", [True, False])
def test_what_a_hook_raises_is_counted(
    lab: Lab, caplog: pytest.LogCaptureFixture, *, is_logged: bool
) -> None:
    """P14: and breaks nothing; a consumer without a log has none here either."""
    caplog.set_level(logging.INFO, logger="safeconsumer")
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})

    def hook(_event: Any) -> None:  # noqa: ANN401
        raise ZeroDivisionError

    running = lab.run(handle, lab.consumer(log=is_logged), on_event=hook)
    running.wait_done(1)
    running.end()
    (failures,) = running.worker.hook_failures.values()
    assert failures > 1
    assert ("worker_stopped" in caplog.text) is is_logged


def test_a_consumer_has_one_worker(lab: Lab) -> None:
    """The second says so, and leaves the first one alone."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    consumer = lab.consumer()
    second, pump = Worker(consumer, handle), Pump(consumer)
    running = lab.run(handle, consumer)
    running.wait_done(3)
    with pytest.raises(WorkerStateError, match="another Worker or Pump"):
        second.run()
    with pytest.raises(WorkerStateError, match="another Worker or Pump"), pump:
        pass
    assert running.end().committed
    assert lab.committed() == {0: 3}


def test_a_time_may_be_a_timedelta() -> None:
    """As that of a pause."""
    assert RetryLater(timedelta(minutes=5)).after == 300.0


def test_what_nobody_handled_is_not_committed_by_a_handler(lab: Lab) -> None:
    """W4: the habit of a loop of one's own would commit all that was polled."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 20})
    consumer = lab.consumer()
    refused: list[Exception] = []

    def commit(_record: Any, _context: Any) -> None:  # noqa: ANN401
        try:
            consumer.commit_async()
        except HandlersFailError as error:
            refused.append(error)
        consumer.commit()

    running = lab.run(commit, consumer, concurrency=1, on_exhausted="skip")
    running.wait_end()
    assert isinstance(running.error, HandlersFailError)
    assert "without offsets" in str(running.error)
    assert [str(error) for error in refused] == [str(running.error)]
    assert lab.committed()[0] in (None, 0)


def test_what_nobody_answered_is_not_committed_by_a_pumps_loop(lab: Lab) -> None:
    """W4: in the block; behind it the consumer is its owner's again."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 20})
    consumer = lab.consumer()

    def loop() -> None:
        with Pump(consumer) as pump:
            next(iter(pump)).done([0, 1])
            consumer.commit()

    with pytest.raises(HandlersFailError, match="without offsets"):
        loop()
    assert lab.committed() == {0: 2}
    assert consumer.position(TopicPartition(lab.topic, 0)) == 2
    consumer.commit()
    assert lab.committed() == {0: 2}


def test_a_handler_in_a_pool_of_threads_is_told_of_a_revocation(lab: Lab) -> None:
    """And until when it is waited for: it runs in this process."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["x"]})
    deadlines: list[float | None] = []
    begun = threading.Event()

    def handle(_record: Any, context: Any) -> None:  # noqa: ANN401 - upstream's
        begun.set()
        wait_for(lambda: context.deadline is not None, "a deadline", 10.0)
        deadlines.append(context.deadline)

    with ThreadPoolExecutor(1) as pool:
        running = lab.run(handle, executor=pool, concurrency=1)
        assert begun.wait(30)
        running.end()
    assert deadlines[0] is not None
