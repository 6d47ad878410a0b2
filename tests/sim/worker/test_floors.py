"""W6, W12, P20: partitions are revoked while commits are refused; a log is truncated."""

import itertools

import pytest
from kafka import TopicPartition

from safeconsumer import Drain, Pump, events
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import Listener, at
from tests.sim.worker.working import (
    ASSIGNORS,
    LOADING,
    OFTEN,
    Handler,
    Working,
    committed,
    consumer,
    expel,
    filled,
    in_both_ways,
    put,
    quick,
)


def latest(protocol):
    return quick(protocol, auto_offset_reset="latest")


class Pumping:
    """A pump in its own process that finishes each batch immediately."""

    def __init__(self, lab, handler, settings, **options):
        self.lab = lab
        self.consumer = consumer(lab, "t", client_id="w", **settings)
        self.pump = Pump(self.consumer, **options)
        self._handler = handler
        self.process, self._thread = lab.start("w", self._live)

    def _live(self):
        with self.pump as pump:
            for batch in pump:
                for record in batch.records:
                    self._handler(record, batch)
                batch.done()
        self.consumer.close()

    def stop(self):
        self.pump.stop()
        self._thread.join(300.0)


def started(lab, kind, handler, protocol, **options):
    if kind == "pump":
        return Pumping(lab, handler, latest(protocol), **options)
    return Working(lab, handler, settings=latest(protocol), **options)


def expects_all(lab, handler):
    """Wait until both partitions are committed up to the log end, and check the calls."""
    lab.until(lambda: committed(lab) == [3, 3])
    assert {(one.partition, one.offset) for one in handler.calls} == {
        *itertools.product(range(2), (1, 2))
    }


def cut_off(lab, first, **_):
    lab.network.isolate(first.process)
    lab.world.call_later(4.0, lambda: lab.network.heal(first.process))


def hold(_lab, first, **_):
    first.consumer.pause("t", owner="other", for_=4.0)


def rebalance_again(lab, _first, protocol, handler):
    Working(lab, handler, name="c", settings=latest(protocol))


def stop(_lab, first, **_):
    first.worker.stop()


MEETS = {
    "a hold": hold,
    "a second rebalance": rebalance_again,
    "an unreachable broker": cut_off,
    "a stop": stop,
}
WAITS = [
    *itertools.product(["worker", "pump"], ["nothing"], ASSIGNORS),
    *itertools.product(["worker"], MEETS, ["eager"]),
    *(
        pytest.param("worker", what, "cooperative", marks=pytest.mark.nightly)
        for what in MEETS
    ),
]


@pytest.mark.contract("W6", "W12")
@pytest.mark.parametrize(("kind", "what", "protocol"), WAITS)
def test_rebalance_during_refused_commits_skips_no_record(lab, kind, what, protocol):
    """The broker refuses commits for three seconds, and a rebalance starts in that time."""
    filled(lab, 2, "before")
    loading = lab.cluster.fail("OffsetCommit", error=LOADING)
    handler = Handler(lab)
    first = started(lab, kind, handler, protocol)
    lab.until(lambda: len(first.consumer.assignment()) == 2)
    lab.sleep(1)
    for tp in lab.partitions("t"):
        put(lab, tp, "", "")
    second = Working(lab, handler, name="b", settings=latest(protocol))
    lab.sleep(1)
    if what in MEETS:
        MEETS[what](lab, first, protocol=protocol, handler=handler)
    lab.sleep(2)
    loading.end()
    expects_all(lab, handler)
    if what == "nothing":
        second.owns(1)


def sought(lab, way):
    """Create a consumer whose first position the program sets."""
    reading = consumer(lab, **latest("eager"))
    if way == "listener":
        start = Listener(assigned=lambda tps: [reading.seek(tp, 0) for tp in tps])
        reading.subscribe(["t"], listener=start)
    else:
        reading.assign([TopicPartition("t", 0)])
        reading.seek(TopicPartition("t", 0), 0)
    return reading


FLOORS = {
    "nothing committed": (None, None, 0),
    "an earlier commit": (3, None, 3),
    "no response to the request": (3, LOADING, 0),
}


@pytest.mark.contract("W12")
@pytest.mark.parametrize("way", ["listener", "assign"])
@pytest.mark.parametrize(("earlier", "error", "floor"), FLOORS.values(), ids=FLOORS)
def test_ownership_that_starts_with_a_seek_has_a_floor(lab, way, earlier, error, floor):
    """After a seek the client does not fetch the committed offset, so the worker does."""
    (tp,) = filled(lab, 1, *map(str, range(5)))
    if earlier is not None:
        before = consumer(lab, "t")
        before.poll(10_000)
        before.commit({tp: at(earlier)})
        before.close(autocommit=False)
    if error is not None:
        lab.cluster.fail("OffsetFetch", error=error)
    handler = Handler(lab, **{"0": 1000.0})
    given, drain = sought(lab, way), Drain(shutdown=2.0)
    run = Working(lab, handler, given=given, drain=drain, commit=OFTEN)
    lab.until(lambda: handler.calls)
    lab.sleep(5)
    assert (handler.offsets(), committed(lab)) == ([0], [floor])
    run.worker.stop()
    run.ends()
    assert committed(lab) == [floor]


@pytest.mark.contract("W6")
@in_both_ways
def test_drain_without_a_commit_reports_partitions_without_a_floor(lab, protocol):
    """The group waits only for the drain, and no member is evicted."""
    filled(lab, 2, "before")
    loading = lab.cluster.fail("OffsetCommit", error=LOADING)
    drain = Drain(revoke=3.0)
    first = Working(lab, Handler(lab), settings=latest(protocol), drain=drain)
    first.owns(2)
    second = Working(lab, Handler(lab), name="b", settings=latest(protocol))
    at, losses = lab.now, first.consumer._coordinator.losses
    second.owns(1)
    assert 3.0 <= lab.now - at < 5.5
    (drained,) = first.of_kind(events.WorkDrained)
    kept = first.consumer.assignment() if protocol == "cooperative" else set()
    assert {*drained.floorless} == {*lab.partitions("t")} - kept
    assert drained.uncommitted == drained.floorless
    assert drained.severity == "warning"
    assert (lab.members(), first.consumer._coordinator.losses) == (2, losses)
    loading.end()


@pytest.mark.contract("W6")
@in_both_ways
def test_work_continues_after_a_membership_lost_during_refused_commits(lab, protocol):
    filled(lab, 2, "before")
    loading = lab.cluster.fail("OffsetCommit", error=LOADING)
    handler = Handler(lab)
    first = Working(lab, handler, settings=latest(protocol))
    first.owns(2)
    Working(lab, handler, name="b", settings=latest(protocol))
    lab.until(lambda: first.worker._engine.departures.deadline is not None)
    lab.sleep(1)
    expel(lab)
    loading.end()
    lab.until(lambda: None not in committed(lab))
    for tp in lab.partitions("t"):
        put(lab, tp, "", "")
    expects_all(lab, handler)


@pytest.mark.contract("W6", "W12")
def test_hanging_handler_does_not_delay_the_commit_of_a_floor(lab):
    """The worker waits for handlers, floors and the last commit at the same time."""
    (one,) = filled(lab, 1, "before")
    handler = Handler(lab, hangs=60.0)
    settings = {**latest("eager"), "metadata_max_age_ms": 1000}
    first = Working(lab, handler, settings=settings, drain=Drain(revoke=4.0))
    lab.until(lambda: committed(lab) == [1])
    put(lab, one, "hangs")
    lab.until(lambda: handler.calls)
    loading = lab.cluster.fail("OffsetCommit", error=LOADING)
    lab.cluster.add_partitions("t", 2)
    first.owns(2)
    lab.sleep(1)
    second = Working(lab, Handler(lab), name="b", settings=settings)
    lab.until(lambda: first.worker._engine.departures.deadline is not None)
    loading.end()
    lab.sleep(1)
    assert committed(lab) == [1, 0]
    assert first.worker._engine.departures.deadline is not None
    second.owns(1)


# A worker's log is truncated, and no record of the new leader is skipped


SETTINGS = {"metadata_max_age_ms": 1000, "max_poll_records": 10}


@pytest.mark.contract("P20", "W4")
@pytest.mark.parametrize("reset", ["earliest", "latest"])
@simulated(seeds=1, nightly=2)
def test_restarted_worker_starts_where_the_log_was_truncated(lab, reset):
    """Under ``latest`` the first commit has the epoch even before any record arrives."""
    (tp,) = filled(lab, 1, *["old"] * 10)
    if reset == "latest":
        lab.cluster.lead("t", 0, 1)
    settings = {**SETTINGS, "auto_offset_reset": reset}
    first = Working(lab, Handler(lab), commit=OFTEN, settings=settings)
    lab.until(lambda: committed(lab) == [10])
    first.stop()
    epoch = lab.cluster.committed(GROUP)["t", 0].leader_epoch
    assert epoch == (1 if reset == "latest" else 0)
    lab.cluster.truncate("t", 0, 5)
    put(lab, tp, *["new"] * 10)
    handler = Handler(lab)
    second = Working(lab, handler, commit=OFTEN, settings=settings)
    second.done(10)
    second.stop()
    new = [(one.offset, one.value) for one in handler.calls]
    assert new == [(offset, b"new") for offset in range(5, 15)]
    assert committed(lab) == [15]


@pytest.mark.contract("P20", "W4")
@pytest.mark.parametrize(
    ("end", "count"),
    [(1, 10), (7, 10), (7, 0)],
    ids=["before-the-work", "after-the-work", "nothing-new"],
)
@simulated(seeds=1, nightly=2)
def test_worker_with_queued_records_continues_after_a_truncation(lab, end, count):
    """Unhandled records that are still in the log are delivered again."""
    (tp,) = filled(lab, 1, "a", "b", "slow", *["old"] * 7)
    handler = Handler(lab, slow=5.0)
    run = Working(lab, handler, concurrency=1, commit=OFTEN, settings=SETTINGS)
    lab.until(lambda: len(handler.calls) == 3)
    lab.cluster.truncate("t", 0, end)
    if count:
        put(lab, tp, *["new"] * count)
    lab.until(lambda: committed(lab) == [end + count], 200.0)
    lab.sleep(10)
    run.stop()
    assert committed(lab) == [end + count]
    kept = {one.offset for one in handler.calls if one.value != b"new"}
    assert kept >= set(range(end))
    new = {one.offset for one in handler.calls if one.value == b"new"}
    assert new == set(range(end, end + count))


@pytest.mark.contract("P20", "W5")
@pytest.mark.parametrize(
    ("target", "first"), [(0, 0), (5, 2), (12, 2), ("beginning", 0)]
)
@simulated(seeds=1, nightly=2)
def test_seek_during_the_poll_that_finds_the_log_truncated_is_kept(lab, target, first):
    """Unhandled records are delivered again, wherever the target of the seek is."""
    (tp,) = filled(lab, 1, "a", "b", "slow", *["old"] * 7)
    handler = Handler(lab, slow=5.0)
    run = Working(lab, handler, concurrency=1, commit=OFTEN, settings=SETTINGS)
    lab.until(lambda: len(handler.calls) == 3)
    poll = run.consumer.poll

    def sought(**how):
        polled = poll(**how)
        if run.consumer.position(tp) == 7:
            run.consumer.poll = poll
            while not (polled := poll(**how)):
                pass
            if target == "beginning":
                run.consumer.seek_to_beginning(tp)
            else:
                run.consumer.seek(tp, target)
        return polled

    run.consumer.poll = sought
    lab.cluster.truncate("t", 0, 7)
    put(lab, tp, *["new"] * 10)
    lab.until(lambda: committed(lab) == [17], 200.0)
    run.stop()
    assert handler.offsets()[3:] == [*range(first, 17)]


@pytest.mark.contract("P20")
@simulated(seeds=1, nightly=2)
def test_offset_after_a_transaction_has_the_epoch_of_the_transactions_end(lab):
    """If it had the previous record's epoch, the log would seem truncated."""
    filled(lab, 1, *["old"] * 10)
    first = Working(lab, Handler(lab), commit=OFTEN, settings=SETTINGS)
    first.done(10)
    lab.cluster.lead("t", 0, 1)
    lab.cluster.log("t", 0).end_transaction(7, 0, 0, is_committed=True)
    lab.until(lambda: committed(lab) == [11])
    first.stop()
    assert lab.cluster.committed(GROUP)["t", 0].leader_epoch == 1
