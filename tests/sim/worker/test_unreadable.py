"""W7: unreadable batches go to the policy; each deserializer serves one thread at a time."""

import pytest
from kafka.errors import CorruptRecordError
from kafka.serializer import Deserializer

from safeconsumer import Pump
from safeconsumer.errors import CorruptBatchError, RecordFailedError
from safeconsumer.worker import Limits, Retry, events
from tests.harness.worker.journals import broken, entries
from tests.sim.playing import simulated
from tests.sim.reading import corrupt
from tests.sim.worker.working import (
    Handler,
    Working,
    committed,
    consumer,
    filled,
    in_both,
    put_marker,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*_deserializer:DeprecationWarning")
OWNER = "worker:unreadable"
TWICE = {"retry": Retry(attempts=2, first=1.0, most=1.0, jitter=False)}


def spoiled(lab):
    """Create two partitions; return the one that has a broken batch among good records."""
    bad, good = lab.topic("t", 2, records=2)
    corrupt(lab, bad, 3)
    lab.append(bad, 2, first=5)
    lab.append(good, 5, first=2)
    return bad


def repair(lab, tp):
    """Remove the broken batch from the log."""
    log = lab.cluster.log(*tp)
    log.batches[:] = [one for one in log.batches if one.base != 2]


@in_both
@simulated(seeds=1, nightly=2)
def test_records_before_an_unreadable_batch_are_done_and_the_worker_stops(
    lab, executor
):
    spoiled(lab)
    for starts in range(2):
        handler = Handler(lab)
        run = Working(lab, handler, executor=executor, **TWICE)
        error = run.ends()
        assert isinstance(error, RecordFailedError)
        assert isinstance(error.__cause__, CorruptBatchError)
        assert "t:0 offset 2 cannot be read" in str(error)
        assert handler.offsets() == ([] if starts else [0, 1])
        reported = [
            (one.partition, one.offset, one.then)
            for one in run.of_kind(events.BatchUnreadable)
        ]
        assert reported == [("t:0", 2, "retry"), ("t:0", 2, "stop")]
    assert committed(lab)[0] == 2


@in_both
@simulated(seeds=1, nightly=2)
def test_unreadable_batch_is_skipped(lab, tmp_path, executor):
    spoiled(lab)
    handler = Handler(lab)
    how = {"executor": executor, "settings": {"journal": tmp_path}, **TWICE}
    run = Working(lab, handler, on_exhausted="skip", **how)
    run.done(14)
    assert handler.offsets() == [0, 1, 5, 6]
    assert handler.offsets(1) == [*range(7)]
    report = run.stop()
    assert (report.done, report.skipped) == (14, 3)
    assert [one.then for one in run.of_kind(events.BatchUnreadable)] == [
        "retry",
        "skip",
    ]
    assert committed(lab) == [7, 7]
    completed = [(one["offset"], one["why"]) for one in entries(tmp_path, "completed")]
    assert completed == [(2, "skipped"), (3, "skipped"), (4, "skipped")]
    assert broken(tmp_path) - {"A2"} == set()


@simulated(seeds=1, nightly=2)
def test_unreadable_batch_after_a_marker_is_skipped(lab):
    """Each response has one batch, so one poll passes the marker and finds the batch."""
    (tp,) = lab.topic("t", 1, records=2)
    put_marker(lab, tp)
    corrupt(lab, tp, 3)
    lab.append(tp, 2, first=5)
    handler, settings = Handler(lab), {"max_partition_fetch_bytes": 1}
    run = Working(lab, handler, on_exhausted="skip", settings=settings, **TWICE)
    lab.until(lambda: committed(lab) == [8], 30.0)
    run.stop()
    assert handler.offsets() == [0, 1, 6, 7]


@pytest.mark.contract("W5")
@pytest.mark.parametrize(("target", "then"), [(6, [6]), (0, [0, 1, 5, 6])])
def test_seek_in_the_hook_for_a_skip_is_kept(lab, tmp_path, target, then):
    """The batch counts as skipped only if the worker itself skips it."""
    bad = spoiled(lab)
    handler, reading, sought = Handler(lab), consumer(lab, "t", journal=tmp_path), []

    def seek_once(event):
        if getattr(event, "then", None) == "skip" and not sought:
            sought.append(event.offset)
            reading.seek(bad, target)

    how = {"given": reading, "on_exhausted": "skip", "on_event": seek_once}
    run = Working(lab, handler, **how, **TWICE)
    lab.until(lambda: committed(lab) == [7, 7])
    assert (sought, handler.offsets()) == ([2], [0, 1, *then])
    assert run.stop().skipped == 3 * (target == 0)
    assert broken(tmp_path) - {"A2"} == set()


@simulated(seeds=1, nightly=2)
def test_partition_of_an_unreadable_batch_is_held_until_it_can_be_read(lab):
    bad = spoiled(lab)
    handler = Handler(lab)
    limits = Limits(age=3.0)
    run = Working(lab, handler, on_exhausted="block", limits=limits, **TWICE)
    run.done(9)
    lab.sleep(5)
    (hold,) = run.consumer.holds()
    assert (hold.owner, str(hold.scope)) == (OWNER, "t:0")
    assert hold.deadline is not None
    assert OWNER in run.worker.stats().paused
    health = run.worker.healthy()
    assert health.is_alive
    assert health.reasons[0].startswith("t:0 offset 2 cannot be read for ")
    lab.until(lambda: committed(lab) == [2, 7], what="all before it is committed")
    repair(lab, bad)
    run.done(11)
    assert handler.offsets() == [0, 1, 5, 6]
    assert run.worker.healthy()


def test_unreadable_batch_ends_a_pump(lab):
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


@pytest.mark.parametrize("answers", ["one", "all"])
@simulated(seeds=1, nightly=2)
def test_batch_that_the_broker_cannot_read_is_refetched(lab, answers):
    """The log is intact, so no record is skipped."""
    (tp,) = lab.topic("t", 1, records=5)
    count = {"count": 1} if answers == "one" else {}
    away = lab.cluster.fail("Fetch", error=CorruptRecordError.errno, **count)
    handler = Handler(lab)
    run = Working(lab, handler, on_exhausted="skip", **TWICE)
    if answers == "all":
        lab.sleep(10)
        reported = [one.then for one in run.of_kind(events.BatchUnreadable)]
        assert reported == ["retry", "block"]
        away.end()
    run.done(5)
    assert handler.offsets() == [*range(5)]
    assert run.stop().skipped == 0
    assert lab.committed(tp) == 5


@simulated(seeds=1, nightly=2)
def test_next_unreadable_batch_gets_all_its_attempts(lab):
    (tp,) = lab.topic("t", 1, records=2)
    corrupt(lab, tp, 3)
    corrupt(lab, tp, 2)
    lab.append(tp, 2, first=7)
    handler = Handler(lab)
    run = Working(lab, handler, on_exhausted="skip", **TWICE)
    run.done(9)
    reported = [(one.offset, one.then) for one in run.of_kind(events.BatchUnreadable)]
    assert reported == [(2, "retry"), (2, "skip"), (5, "retry"), (5, "skip")]
    assert (handler.offsets(), run.stop().skipped) == ([0, 1, 7, 8], 5)


# One thread at a time calls deserializers, as in kafka-python


VALUES = [str(number) for number in range(20)]


class Stateful(Deserializer):
    """
    A deserializer that stores the data, waits, and returns the stored data.

    Attributes:
        inside: the number of threads that are in the deserializer now.
        most: the largest number of threads in the deserializer at the same time.
    """

    def __init__(self, lab):
        self._lab = lab
        self._data = b""
        self.inside = self.most = 0

    def decode(self, data):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self._data = data
        self._lab.sleep(0.01)
        self.inside -= 1
        return self._data.decode()

    def deserialize(self, _topic, _headers, data):
        return self.decode(data)

    def close(self): ...


def of_one_value(made):
    return {"value_deserializer": made}


def of_key_and_value(made):
    return {"key_deserializer": made, "value_deserializer": made}


def of_methods(made):
    return {"key_deserializer": made.decode, "value_deserializer": made.decode}


def of_functions_around(made):
    return {
        "key_deserializer": lambda data: f"{made.decode(data)}",
        "value_deserializer": lambda data: f"{made.decode(data)}",
    }


@pytest.mark.contract("W4")
@pytest.mark.parametrize(
    "given", [of_one_value, of_key_and_value, of_methods, of_functions_around]
)
@pytest.mark.parametrize("batch", [None, 5])
def test_deserializer_is_called_by_one_thread_at_a_time(lab, given, batch):
    filled(lab, 4, *VALUES, keys=VALUES)
    shared = Stateful(lab)
    seen = []

    def handle(records, _context):
        seen.extend((one.key, one.value) for one in (records if batch else [records]))

    run = Working(lab, handle, settings=given(shared), order="unordered", batch=batch)
    run.done(80)
    assert shared.most == 1
    keys = VALUES if "key_deserializer" in given(shared) else map(str.encode, VALUES)
    assert sorted(seen) == sorted([*zip(keys, VALUES, strict=True)] * 4)


@pytest.mark.contract("W4")
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_deserializer_shared_by_two_workers_is_called_by_one_thread_at_a_time(
    lab, executor
):
    """The consumers have different objects, because each access creates a bound method."""
    filled(lab, 2, *VALUES)
    shared = Stateful(lab)
    seen = []

    def handle(record, _context):
        seen.append(record.value)

    settings = {"value_deserializer": shared.decode}
    runs = [
        Working(lab, handle, name=name, settings=settings, executor=executor)
        for name in ("w1", "w2")
    ]
    lab.until(lambda: sum(run.worker.stats().done for run in runs) >= 40, what="all")
    assert shared.most == 1
    assert sorted(set(seen)) == sorted(VALUES)
    for run in runs:
        run.stop()
