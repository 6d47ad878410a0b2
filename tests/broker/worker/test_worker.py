"""What a worker does beside its executors: limits, health, holds, shutdown, the pump."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition

from safeconsumer.audit.writer import JournalWriter
from safeconsumer.errors import JournalError, WorkerStateError
from safeconsumer.events import worker as worker_events
from safeconsumer.worker import (
    Commit,
    DeadLetter,
    DeadLetterLimitError,
    Drain,
    Limits,
    Pump,
    Retry,
    Worker,
)
from safeconsumer.worker.loop import BACKPRESSURE
from tests.broker.worker.handlers import Recording
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Lab, Running

pytestmark = pytest.mark.any_broker

SMALL: dict[str, Any] = {"max_poll_records": 10}


class Gate:
    """A handler that stands until it is let go."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.began: list[tuple[int, int]] = []

    def __call__(self, record: Any, _context: Any) -> None:  # noqa: ANN401
        self.began.append((record.partition, record.offset))
        assert self.opened.wait(30)


@pytest.mark.contract("W1", "W9")
def test_what_is_held_is_bounded_and_named(lab: Lab) -> None:
    """W1, W9: with stuck handlers it stops at the limit, by a hold of its own."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["v"] * 200, 1: ["v"] * 200})
    gate = Gate()
    consumer = lab.consumer(**SMALL)
    running = lab.run(gate, consumer, limits=Limits(records=40), concurrency=2)
    wait_for(lambda: BACKPRESSURE in running.worker.stats().paused, "a hold")
    consumer.pause(lab.topic, owner="ops", reason="a test")
    stats = running.worker.stats()
    assert stats.queued + stats.running <= 40
    owners = {hold.owner for hold in consumer.holds()}
    assert {"ops", BACKPRESSURE} <= owners
    lines = [line for tp in consumer.assignment() for line in consumer.explain(tp)]
    assert any(BACKPRESSURE in line for line in lines)
    gate.opened.set()
    wait_for(lambda: not running.worker.stats().running, "what had begun to end")
    assert running.worker.stats().queued  # W10: it waits for ops
    assert "ops" in {hold.owner for hold in consumer.holds()}
    assert running.worker.stats().done < 400
    consumer.resume(lab.topic, owner="ops")
    running.wait_done(400)
    wait_for(lambda: not running.worker.stats().paused, "its hold to be lifted")
    assert not consumer.holds()
    assert running.worker.stats().leaked == 0


def test_a_lift_that_cannot_be_written_down_ends_no_thread(
    lab: Lab, tmp_path: Path
) -> None:
    """A full disk for a moment, on the thread that runs handlers; there is but one."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 200})
    writer = JournalWriter(tmp_path)
    writing, polling, refused = writer.write, set(), []

    def full(event: str, fields: Any) -> None:  # noqa: ANN401 - a mapping
        me = threading.get_ident()
        if fields.get("op") == "poll":
            polling.add(me)
        is_lift = event == "call" and fields.get("owner") == BACKPRESSURE
        if is_lift and fields["op"] == "resume" and me not in polling and not refused:
            refused.append(me)
            message = "is the disk full?"
            raise JournalError(message)
        writing(event, fields)

    gate = Gate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "write", full)
        consumer = lab.consumer(**SMALL, journal=writer)
        running = lab.run(gate, consumer, limits=Limits(records=40), concurrency=1)
        wait_for(lambda: BACKPRESSURE in running.worker.stats().paused, "a hold")
        gate.opened.set()
        running.wait_done(200)
        assert refused
        running.end()


def test_an_unordered_hung_record_lets_exactly_the_span_pass(lab: Lab) -> None:
    """Invariant 14: completion runs ahead of it by the span and then stops."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 60})
    gate = threading.Event()

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.offset == 0:
            assert gate.wait(30)

    limits = Limits(records=20, span=25)
    running = lab.run(handle, lab.consumer(**SMALL), order="unordered", limits=limits)
    running.wait_done(24)
    wait_for(lambda: running.worker.stats().queued == 20 - 1, "the rest to be queued")
    assert running.worker.stats().done == 24
    gate.set()
    running.wait_done(60)


def test_one_slow_partition_keeps_no_other(lab: Lab) -> None:
    """Fairness: the hog alone is held, the others are finished."""
    lab.new_topic(partitions=4)
    lab.produce({number: ["v"] * 100 for number in range(4)})
    gate = threading.Event()

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.partition == 0:
            assert gate.wait(30)

    running = lab.run(handle, lab.consumer(**SMALL), limits=Limits(records=40))
    running.wait_done(300)
    stats = running.worker.stats()
    assert (stats.done, stats.queued + stats.running <= 40) == (300, True)
    gate.set()
    running.wait_done(400)


def test_a_hanging_handler_is_unhealthy_and_named(lab: Lab) -> None:
    """With partition, offset and its stack; the loop is alive all the while."""
    lab.new_topic(partitions=1)
    gate = Gate()
    running = lab.run(gate, limits=Limits(age=0.2), drain=Drain(shutdown=0.1))
    wait_for(running.worker.healthy, "the loop to turn")
    lab.produce({0: ["v"]})
    found: list[str] = []

    def is_named() -> bool:
        health = running.worker.healthy()
        found[:] = health.reasons
        return health.is_alive and "self.opened.wait(30)" in str(found)

    wait_for(is_named, "the stall, while it is alive", seen=lambda: found)
    (reason,) = found
    assert f"{lab.topic}:0 offset 0" in reason
    wait_for(
        lambda: any(type(e) is worker_events.HandlerStalled for e in running.events),
        "its event",
    )
    report = running.end()
    assert (report.given_up, report.done) == (1, 0)
    gate.opened.set()


def test_a_worker_that_has_ended_is_neither_well_nor_alive(
    lab: Lab, recording: Recording
) -> None:
    """Nor is one well that has not begun; a probe must not say that a dead one lives."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["fail"]})
    worker = Worker(lab.consumer(), recording, retry=Retry(attempts=1))
    health = worker.healthy()
    assert (health.is_alive, health.reasons) == (True, ("the worker has not begun",))
    Running(worker).wait_end()
    health = worker.healthy()
    assert not health.is_alive
    (reason,) = health.reasons
    assert reason.startswith("it has ended: RecordFailedError(")

    stopped = lab.run(recording, lab.groupless())
    stopped.end()
    health = stopped.worker.healthy()
    assert (health.is_alive, health.reasons) == (False, ("it has ended",))


def test_a_blocked_record_is_unhealthy(lab: Lab, recording: Recording) -> None:
    """``on_exhausted="block"``: its lane waits, the others go on, and it is told."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["fail", ""], 1: ["", ""]})
    running = lab.run(
        recording,
        on_exhausted="block",
        retry=Retry(attempts=1),
        limits=Limits(age=0.1),
    )
    running.wait_done(2)
    wait_for(
        lambda: "offset 0 failed for good" in str(running.worker.healthy().reasons),
        "the blocked record",
    )
    running.end()
    assert lab.committed() == {0: 0, 1: 2}


def test_too_many_dead_letters_stop_the_worker(lab: Lab, recording: Recording) -> None:
    """``max_consecutive``: nothing is committed past the one too many."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "reject", "reject", "reject", ""]})
    letters = DeadLetter(lab.producer, lab.other_topic(), max_consecutive=2)
    running = lab.run(recording, dead_letter=letters)
    running.wait_end()
    assert isinstance(running.error, DeadLetterLimitError)
    assert lab.committed() == {0: 3}


def test_a_dead_letter_topic_that_cannot_be_written(
    lab: Lab, recording: Recording
) -> None:
    """W7: the record blocks its lane, nothing is committed past it, and stop is bounded."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["", "reject", ""], 1: ["", ""]})
    producer = lab._make_producer(max_block_ms=200)
    letters = DeadLetter(producer, f"{lab.topic}-missing")
    running = lab.run(
        recording,
        dead_letter=letters,
        limits=Limits(age=0.3),
        retry=Retry(first=0.05, most=0.1),
    )
    running.wait_done(3)
    wait_for(
        lambda: any(
            type(e) is worker_events.DeadLetterFailed and e.attempt > 1
            for e in running.events
        ),
        "a second attempt",
    )
    wait_for(lambda: not running.worker.healthy(), "the worker to tell")
    running.end()
    assert lab.committed() == {0: 1, 1: 2}


def test_a_key_that_raises_is_a_failed_record(lab: Lab) -> None:
    """W7: it does not end the worker; it is tried again, and then a dead letter."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["", "bad", ""], 1: ["", ""]})
    letters: list[Any] = []

    running = lab.run(
        lambda _record, _context: None,
        order="key",
        key=lambda record: 1 / (record.value != b"bad"),
        dead_letter=lambda record, failure: letters.append((record.offset, failure)),
        retry=Retry(attempts=3, first=0.01, most=0.02),
    )
    running.wait_done(5)
    report = running.end()
    assert (report.dead_letters, lab.committed()) == (1, {0: 3, 1: 2})
    ((offset, failure),) = letters
    assert (offset, failure.attempts) == (1, 3)
    assert isinstance(failure.error, ZeroDivisionError)


def test_commits_come_while_it_runs(lab: Lab) -> None:
    """After so many records, or so many seconds."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 30})
    running = lab.run(lambda _r, _c: None, commit=Commit(every=60.0, records=10))
    running.wait_done(30)
    wait_for(lambda: running.worker.stats().commits, "a commit")
    wait_for(lambda: lab.committed()[0], "an offset")


def test_a_worker_runs_once(lab: Lab) -> None:
    """Its consumer is closed when it has ended; ``stop`` may be called again."""
    lab.new_topic(partitions=1)
    running = lab.run(lambda _r, _c: None)
    wait_for(lambda: running.worker.stats().state == "running", "it to run")
    report = running.end()
    assert running.worker.stop(timeout=1.0) == report
    assert running.worker.stop(drain=False) == report
    with pytest.raises(WorkerStateError, match="runs once"):
        running.worker.run()


def test_a_killed_process_costs_nothing_but_itself(
    lab: Lab, recording: Recording
) -> None:
    """What it was working on is tried again, one by one; another process takes its place."""
    lab.new_topic(partitions=1)
    count = lab.produce({0: [*[""] * 10, "kill", *[""] * 10]})
    running = lab.run(recording, executor="process", concurrency=2)
    running.wait_done(count)
    running.end()
    assert {0: count} == lab.committed()
    died = [e for e in running.events if type(e) is worker_events.WorkerProcessDied]
    assert [event.exit_code for event in died] == [-9]


def test_a_pump_feeds_a_loop_of_ones_own(lab: Lab) -> None:
    """Batches out, completions in from any thread; the rest is the same."""
    lab.new_topic(partitions=2)
    count = lab.produce({0: ["v"] * 50, 1: ["v"] * 50})
    consumer = lab.consumer(**SMALL)
    seen: list[int] = []

    def work(batch: Any) -> None:  # noqa: ANN401
        for index, record in enumerate(batch.records):
            seen.append(record.offset)
            batch.done(index)
        batch.done()  # again: nothing changes

    with Pump(consumer, limits=Limits(records=20)) as pump:
        for batch in pump:
            assert pump.held_records <= 20
            thread = threading.Thread(target=work, args=(batch,))
            thread.start()
            thread.join()
            if len(seen) >= count:
                pump.stop()
    with pytest.raises(WorkerStateError):
        pump.turn()
    assert sorted([*range(50)] * 2) == sorted(seen)
    assert lab.committed() == {0: 50, 1: 50}
    assert not consumer.holds()
    assert consumer.committed(TopicPartition(lab.topic, 0)) == 50  # it is still open


def test_a_pump_waits_for_what_is_out(lab: Lab) -> None:
    """Leaving the block is bounded; what was not done is not committed."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 10})
    with Pump(lab.consumer(**SMALL), drain=Drain(shutdown=0.3)) as pump:
        batch = next(iter(pump))
        batch.done([0, 1, 3])
        with pytest.raises(IndexError):
            batch.done(99)
        began = time.monotonic()
    assert 0.2 < time.monotonic() - began < 5
    assert batch.is_revoked
    batch.done()
    assert lab.committed() == {0: 2}


def test_a_pump_waits_for_nothing_that_was_never_handed_out(lab: Lab) -> None:
    """W6: batches that a revocation took before they were taken out are not running."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 10})
    with Pump(lab.consumer(**SMALL)) as pump:
        wait_for(lambda: pump.held_records, "records to be held")
        epochs = tuple(pump._engine.held.epochs.values())
        assert not pump._schedule.running(epochs)
        pump._schedule.drop_queued(epochs)
        assert not pump.turn()
        assert not pump._schedule.running(epochs)
