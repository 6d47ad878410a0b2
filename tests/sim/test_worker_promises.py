"""What a worker promises, in virtual time: bounds, ends of records, drains, holds."""

import threading
from collections import Counter
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition

from safeconsumer import Control, Drain, Limits, Pause, Retry, SafeConsumer, Worker
from safeconsumer.holds.hold import OUTAGE
from safeconsumer.worker import DeadLetter, RecordFailedError
from safeconsumer.worker.loop import BACKPRESSURE
from tests.sim.lab import GROUP, Lab
from tests.sim.playing import simulated

SMALL = {"max_poll_records": 5}


class Working:
    """A worker that runs in a thread of its own, and its report, or what it raised."""

    def __init__(self, lab: Lab, handler: Any, **options: Any) -> None:  # noqa: ANN401 - a Worker's own
        settings = options.pop("settings", {})
        self.consumer = SafeConsumer("t", **lab.settings(group_id=GROUP, **settings))
        self.worker = Worker(self.consumer, handler, **options)
        self.error: Exception | None = None
        self._reports: list[Any] = []
        self._thread = threading.Thread(target=self._run, name="worker")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._reports.append(self.worker.run())
        except Exception as error:  # noqa: BLE001 - a test asks for it
            self.error = error

    def stop(self) -> Any:  # noqa: ANN401 - the report
        """Stop it, and return its report."""
        self.worker.stop()
        self._thread.join()
        return self._reports[0]


class Handled:
    """A handler that takes its time, and notes what it began and ended, and when."""

    def __init__(self, lab: Lab, seconds: float) -> None:
        self._lab = lab
        self.seconds = seconds
        self.began: list[tuple[float, TopicPartition, int]] = []
        self.ended: Counter[tuple[TopicPartition, int]] = Counter()

    def __call__(self, record: Any, _: Any) -> None:  # noqa: ANN401 - a handler's own
        tp = TopicPartition(record.topic, record.partition)
        self.began.append((self._lab.now, tp, record.offset))
        self._lab.sleep(self.seconds)
        self.ended[tp, record.offset] += 1


def owners(run: Working) -> set[str]:
    """Return who holds something."""
    return {hold.owner for hold in run.consumer.holds()}


@pytest.mark.contract("W1", "W9")
@simulated(seeds=1)
def test_what_is_held_is_bounded_by_a_hold_of_its_own(lab: Lab) -> None:
    """W1: no more than the limit; W9: others' holds stay, and lift none of it."""
    partitions = lab.topic("t", 2, records=60)
    handled = Handled(lab, 5.0)
    run = Working(lab, handled, settings=SMALL, limits=Limits(records=40))
    lab.until(lambda: BACKPRESSURE in owners(run))
    run.consumer.pause(partitions[0])
    run.consumer.resume(*partitions)
    assert BACKPRESSURE in owners(run)
    run.consumer.pause("t", owner="ops")
    for _ in range(20):
        stats = run.worker.stats()
        assert stats.queued + stats.running <= 40
        lab.sleep(1.0)
    handled.seconds = 0.0
    lab.until(lambda: not run.worker.stats().running)
    lab.sleep(10)
    assert "ops" in owners(run)
    run.consumer.resume("t", owner="ops")
    lab.until(lambda: run.worker.stats().done == 120, 300)
    lab.until(lambda: not owners(run), what="its own hold is lifted")
    assert run.stop().committed
    assert run.worker.stats().leaked == 0


@pytest.mark.contract("W5", "W7")
@simulated()
def test_each_record_ends_once(lab: Lab) -> None:
    """W5: done, a letter, or undone when it stopped; W7: a letter is acknowledged first."""
    (tp,) = lab.topic("t", records=20)
    lab.topic("letters")
    producer = KafkaProducer(**lab.connection)
    tried: list[tuple[float, int]] = []

    def handle(record: Any, _: Any) -> None:  # noqa: ANN401 - a handler's own
        tried.append((lab.now, record.offset))
        if record.offset == 3:
            raise ValueError
        if record.offset == 10:
            lab.sleep(3600)

    unanswered = lab.cluster.fail("Produce", is_held=True)
    run = Working(
        lab,
        handle,
        retry=Retry(attempts=3, first=10.0, factor=2.0, jitter=False),
        dead_letter=DeadLetter(producer, "letters", max_ratio=None),
        drain=Drain(shutdown=5.0),
    )
    lab.until(lambda: unanswered.kept, 120, what="a letter is on its way")
    lab.sleep(5)
    assert lab.committed(tp) == 3
    unanswered.end()
    lab.until(lambda: tried[-1][1] == 10, 1000, what="the last one begins")
    first, second, third = (at for at, offset in tried if offset == 3)
    assert (second - first, third - second) == pytest.approx((10, 20), abs=0.5)
    report = run.stop()
    producer.close()
    assert (report.done, report.dead_letters, report.dropped) == (10, 1, 10)
    assert lab.committed(tp) == 10
    assert Counter(offset for _, offset in tried) == Counter([*range(11), 3, 3])


@pytest.mark.contract("W7")
@simulated()
def test_nothing_is_committed_past_what_failed_for_good(lab: Lab) -> None:
    """W7: the worker stops with the handler's error, and the next one begins there."""
    (tp,) = lab.topic("t", records=5)

    def handle(record: Any, _: Any) -> None:  # noqa: ANN401 - a handler's own
        if record.offset == 2:
            raise ValueError

    run = Working(lab, handle, retry=Retry(attempts=2, first=1.0))
    lab.until(lambda: run.error is not None, 60)
    assert isinstance(run.error, RecordFailedError)
    assert isinstance(run.error.__cause__, ValueError)
    assert lab.committed(tp) == 2


@pytest.mark.contract("W6")
@simulated()
@pytest.mark.parametrize(("seconds", "is_waited_for"), [(8.0, True), (60.0, False)])
def test_a_join_waits_for_what_runs(
    lab: Lab, seconds: float, *, is_waited_for: bool
) -> None:
    """W6: up to its deadline, and commits what is done; what is lost is dropped."""
    partitions = lab.topic("t", 2, records=1)
    handled = Handled(lab, seconds)
    first = Working(lab, handled, drain=Drain(revoke=10.0))
    lab.until(lambda: len(handled.began) == 2)
    began = lab.now
    generation = lab.generation()
    second = Working(lab, handled, drain=Drain(revoke=10.0))
    lab.until(lambda: lab.generation() > generation, what="a new generation")
    assert lab.now - began <= 14.0  # a heartbeat says so, within 3 s
    committed = {lab.committed(tp) for tp in partitions}
    assert committed == ({1} if is_waited_for else {0})
    lab.until(lambda: all(lab.committed(tp) == 1 for tp in partitions), 300)
    # The one that stayed went on; the one that moved began again.
    assert len(handled.began) == (2 if is_waited_for else 3)
    for run in (first, second):
        run.stop()


@pytest.mark.contract("W8")
@simulated(seeds=2)
@pytest.mark.parametrize("is_controlled", [False, True])
@pytest.mark.parametrize("is_answered", [True, False])
def test_stop_takes_a_bounded_time(
    lab: Lab, *, is_answered: bool, is_controlled: bool
) -> None:
    """W8: two seconds beyond the drain at most, whatever hangs; a later call does nothing."""
    (tp,) = lab.topic("t", records=3)

    def handle(record: Any, _: Any) -> None:  # noqa: ANN401 - a handler's own
        lab.sleep(3600 if record.offset else 0)

    control = Control(trust_topic=True, unavailable="run", run_after=0.1)
    for name in control.topics:
        lab.topic(name)
    settings = {"control": control} if is_controlled else {}
    run = Working(lab, handle, settings=settings, drain=Drain(shutdown=4.0))
    lab.until(lambda: lab.committed(tp) == 1)
    if not is_answered:
        lab.cluster.fail("*", is_held=True)
    began = lab.now
    report = run.stop()
    assert 4.0 <= lab.now - began <= 6.1
    run.worker.stop()
    assert (report.done, report.dropped, report.given_up) == (1, 2, 1)


@pytest.mark.contract("W10")
@simulated(seeds=2)
def test_no_handler_begins_under_a_hold(lab: Lab) -> None:
    """W10: what is queued waits in its place, and comes first after the resume."""
    held, flowing = lab.topic("t", 2, records=50)
    handled = Handled(lab, 1.0)
    run = Working(lab, handled)
    lab.until(lambda: run.worker.stats().done >= 10)
    run.consumer.pause(held, owner="ops")
    since = lab.now
    before = [offset for _, tp, offset in handled.began if tp == held]
    lab.until(lambda: handled.ended[flowing, 49], 300)
    assert all(at <= since for at, tp, _ in handled.began if tp == held)
    run.consumer.resume(held, owner="ops")
    lab.until(lambda: handled.ended[held, 49], 300)
    offsets = [offset for _, tp, offset in handled.began if tp == held]
    assert offsets == [*before, *range(len(before), 50)]
    assert run.stop().committed


@pytest.mark.contract("W11")
@simulated(seeds=1)
@pytest.mark.parametrize("scope", ["partition", "topic"])
def test_a_handler_pauses_for_a_time(lab: Lab, scope: Any) -> None:  # noqa: ANN401 - a name
    """W11: a hold with an owner; its record comes first when it is over."""
    partition, other = lab.topic("t", 2, records=20)
    began: list[tuple[float, TopicPartition, int]] = []
    paused: list[float] = []

    def handle(record: Any, _: Any) -> None:  # noqa: ANN401 - a handler's own
        tp = TopicPartition(record.topic, record.partition)
        began.append((lab.now, tp, record.offset))
        lab.sleep(1.0)
        if (tp, record.offset) == (partition, 3) and not paused:
            paused.append(lab.now)
            raise Pause(30.0, scope, "the bank is down")

    run = Working(lab, handle)
    lab.until(lambda: OUTAGE in owners(run))
    (hold,) = run.consumer.holds()
    assert hold.reason == "the bank is down"
    lab.until(lambda: run.worker.stats().done == 40, 300)
    assert not owners(run)
    quiet = {"partition": {partition}, "topic": {partition, other}}[scope]
    (at,) = paused
    meanwhile = {tp for when, tp, _ in began if at + 0.5 < when < at + 30}
    assert meanwhile == {partition, other} - quiet
    again = [offset for when, tp, offset in began if tp == partition and when > at]
    assert again == [*range(3, 20)]
    assert run.stop().committed
