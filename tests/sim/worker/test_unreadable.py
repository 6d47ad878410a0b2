"""W7: a batch that cannot be read ends by the policy, like any other poison."""

import pytest
from kafka.errors import CorruptRecordError

from safeconsumer import Pump
from safeconsumer.errors import CorruptBatchError, RecordFailedError
from safeconsumer.worker import Limits, Retry, events
from tests.sim.playing import simulated
from tests.sim.test_fetching import corrupt
from tests.sim.worker.working import Handler, Working, committed, consumer, in_both

OWNER = "worker:unreadable"
TWICE = {"retry": Retry(attempts=2, first=1.0, most=1.0, jitter=False)}


def spoiled(lab):
    """Make two partitions: two records, a batch of three that is broken, and two more."""
    bad, good = lab.topic("t", 2, records=2)
    corrupt(lab, bad, 3)
    lab.append(bad, 2, first=5)
    lab.append(good, 5, first=2)
    return bad


def repair(lab, tp):
    """Have the broker serve the batch as it was sent."""
    log = lab.cluster.log(*tp)
    log.batches[:] = [one for one in log.batches if one.base != 2]


@in_both
@simulated(seeds=2)
def test_what_stands_before_it_is_done_then_the_worker_stops(lab, executor):
    """And at each start anew, with nothing passed over and none repeated."""
    spoiled(lab)
    for starts in range(2):
        handler = Handler(lab)
        run = Working(lab, handler, executor=executor, **TWICE)
        error = run.ends()
        assert isinstance(error, RecordFailedError)
        assert isinstance(error.__cause__, CorruptBatchError)
        assert "t:0 offset 2 cannot be read" in str(error)
        assert handler.offsets() == ([] if starts else [0, 1])
        told = [
            (one.partition, one.offset, one.then)
            for one in run.told(events.BatchUnreadable)
        ]
        assert told == [("t:0", 2, "retry"), ("t:0", 2, "stop")]
    assert committed(lab)[0] == 2


@in_both
@simulated(seeds=2)
def test_all_of_it_is_passed_over(lab, executor):
    """Its three offsets and no others; they count as skipped, and are told once."""
    spoiled(lab)
    handler = Handler(lab)
    run = Working(lab, handler, executor=executor, on_exhausted="skip", **TWICE)
    run.done(14)
    assert handler.offsets() == [0, 1, 5, 6]
    assert handler.offsets(1) == [*range(7)]
    report = run.stop()
    assert (report.done, report.skipped) == (14, 3)
    assert [one.then for one in run.told(events.BatchUnreadable)] == ["retry", "skip"]
    assert committed(lab) == [7, 7]


@simulated(seeds=2)
def test_its_partition_is_held_until_it_can_be_read(lab):
    """The others go on, and the worker is not well, and says where."""
    bad = spoiled(lab)
    handler = Handler(lab)
    limits = Limits(age=3.0)
    run = Working(lab, handler, on_exhausted="block", limits=limits, **TWICE)
    run.done(9)
    lab.sleep(5)
    assert [(one.owner, str(one.scope)) for one in run.consumer.holds()] == [
        (OWNER, "t:0")
    ]
    assert OWNER in run.worker.stats().paused
    health = run.worker.healthy()
    assert health.is_alive
    assert health.reasons[0].startswith("t:0 offset 2 cannot be read for ")
    lab.until(lambda: committed(lab) == [2, 7], what="all before it is committed")
    repair(lab, bad)
    run.done(11)
    assert handler.offsets() == [0, 1, 5, 6]
    assert run.worker.healthy()
    run.stop()


@simulated(seeds=2)
def test_an_answer_that_was_broken_on_its_way_is_fetched_again(lab):
    """The log is whole, so the next fetch brings all, and nothing was passed over."""
    (tp,) = lab.topic("t", 1, records=5)
    lab.cluster.fail("Fetch", error=CorruptRecordError.errno, count=1)
    handler = Handler(lab)
    run = Working(lab, handler, on_exhausted="skip", **TWICE)
    run.done(5)
    assert handler.offsets() == [*range(5)]
    assert run.stop().skipped == 0
    assert lab.committed(tp) == 5


@simulated(seeds=1)
def test_a_pump_ends_with_it(lab):
    """Once what stood before it is done."""
    spoiled(lab)
    pump = Pump(consumer(lab, "t"), **TWICE)
    found = []

    def pumps():
        with pump:
            for batch in pump:
                found.extend(one.offset for one in batch.records if one.partition == 0)
                batch.done()

    with pytest.raises(RecordFailedError, match="t:0 offset 2 cannot be read"):
        pumps()
    assert found == [0, 1]


@simulated(seeds=2)
def test_what_the_broker_cannot_read_now_is_not_passed_over(lab):
    """It says so of its log, whose records may be good: it is asked again and again."""
    (tp,) = lab.topic("t", 1, records=5)
    away = lab.cluster.fail("Fetch", error=CorruptRecordError.errno)
    handler = Handler(lab)
    run = Working(lab, handler, on_exhausted="skip", **TWICE)
    lab.sleep(60)
    assert [one.then for one in run.told(events.BatchUnreadable)] == ["retry", "block"]
    away.end()
    run.done(5)
    assert handler.offsets() == [*range(5)]
    assert run.stop().skipped == 0
    assert lab.committed(tp) == 5


@simulated(seeds=2)
def test_another_batch_behind_it_is_tried_anew(lab):
    """That both are wrong may be the fault of what is between us and the broker."""
    (tp,) = lab.topic("t", 1, records=2)
    corrupt(lab, tp, 3)
    corrupt(lab, tp, 2)
    lab.append(tp, 2, first=7)
    handler = Handler(lab)
    run = Working(lab, handler, on_exhausted="skip", **TWICE)
    run.done(9)
    told = [(one.offset, one.then) for one in run.told(events.BatchUnreadable)]
    assert told == [(2, "retry"), (2, "skip"), (5, "retry"), (5, "skip")]
    assert (handler.offsets(), run.stop().skipped) == ([0, 1, 7, 8], 5)
