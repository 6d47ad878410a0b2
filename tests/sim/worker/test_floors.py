"""W6, W12: partitions leave in a rebalance while the broker refuses commits."""

import itertools

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import Drain, Pump, events
from tests.sim.playing import simulated
from tests.sim.worker.working import (
    Handler,
    Working,
    committed,
    consumer,
    expel,
    filled,
    put,
)

LOADING = 14  # the coordinator loads its offsets, as after it has moved
ASSIGNORS = {"eager": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}
in_both_ways = pytest.mark.parametrize("protocol", list(ASSIGNORS))


def latest(protocol):
    """Return a consumer's settings: it notices a rebalance soon."""
    return {
        "auto_offset_reset": "latest",
        "partition_assignment_strategy": [ASSIGNORS[protocol]],
        "heartbeat_interval_ms": 200,
    }


class Pumping:
    """A pump in a process of its own that answers each batch at once."""

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
    """Wait until both partitions are committed to their end, and check the calls."""
    lab.until(lambda: committed(lab) == [3, 3])
    assert {(one.partition, one.offset) for one in handler.calls} == {
        *itertools.product(range(2), (1, 2))
    }


@pytest.mark.contract("W6", "W12")
@in_both_ways
@pytest.mark.parametrize("seconds", [0.5, 3.0])
@pytest.mark.parametrize("kind", ["worker", "pump"])
@simulated(seeds=1)
def test_a_join_waits_for_a_floor_that_is_refused_for_a_while(
    lab, kind, protocol, seconds
):
    """The next owner begins at the floor, not at the end of the log."""
    filled(lab, 2, "before")
    loading = lab.cluster.fail("OffsetCommit", error=LOADING)
    handler = Handler(lab)
    first = started(lab, kind, handler, protocol)
    lab.until(lambda: len(first.consumer.assignment()) == 2)
    lab.sleep(1)
    for tp in lab.partitions("t"):
        put(lab, tp, "", "")
    second = Working(lab, handler, name="b", settings=latest(protocol))
    lab.sleep(seconds)
    loading.end()
    second.owns(1)
    expects_all(lab, handler)
    first.stop()
    second.stop()


def cut_off(lab, first, **_):
    lab.network.isolate(first.process)
    lab.world.call_later(4.0, lambda: lab.network.heal(first.process))


def hold(_lab, first, **_):
    first.consumer.pause("t", owner="other", for_=6.0)


def rebalance_again(lab, _first, protocol, handler):
    Working(lab, handler, name="c", settings=latest(protocol))


def stop(_lab, first, **_):
    first.worker.stop()


MEETS = {
    "a hold": hold,
    "a second rebalance": rebalance_again,
    "a broker that is away": cut_off,
    "a stop": stop,
}


@pytest.mark.contract("W6", "W12")
@in_both_ways
@pytest.mark.parametrize("what", list(MEETS))
@simulated(seeds=1)
def test_a_wait_for_a_floor_that_meets_something_passes_nothing_over(
    lab, protocol, what
):
    """One second into the wait; commits are refused for three."""
    filled(lab, 2, "before")
    loading = lab.cluster.fail("OffsetCommit", error=LOADING)
    handler = Handler(lab)
    first = Working(lab, handler, settings=latest(protocol))
    first.owns(2)
    for tp in lab.partitions("t"):
        put(lab, tp, "", "")
    second = Working(lab, handler, name="b", settings=latest(protocol))
    lab.sleep(1)
    MEETS[what](lab, first, protocol=protocol, handler=handler)
    lab.sleep(2)
    loading.end()
    expects_all(lab, handler)
    first.stop()
    second.stop()


@pytest.mark.contract("W6")
@in_both_ways
@simulated(seeds=1)
def test_a_wait_that_is_over_names_the_partitions_without_a_floor(lab, protocol):
    """The group does not wait longer than the drain; no member is expelled."""
    filled(lab, 2, "before")
    loading = lab.cluster.fail("OffsetCommit", error=LOADING)
    drain = Drain(revoke=3.0)
    first = Working(lab, Handler(lab), settings=latest(protocol), drain=drain)
    first.owns(2)
    second = Working(lab, Handler(lab), name="b", settings=latest(protocol))
    at, losses = lab.now, first.consumer._coordinator.losses
    second.owns(1)
    assert 3.0 <= lab.now - at < 5.5
    (drained,) = first.told(events.WorkDrained)
    kept = first.consumer.assignment() if protocol == "cooperative" else set()
    assert {*drained.floorless} == {*lab.partitions("t")} - kept
    assert drained.uncommitted == drained.floorless
    assert drained.severity == "warning"
    assert (lab.members(), first.consumer._coordinator.losses) == (2, losses)
    loading.end()
    for run in (first, second):
        run.stop()


@pytest.mark.contract("W6")
@in_both_ways
@simulated(seeds=1)
def test_work_goes_on_where_the_membership_is_lost_in_the_wait(lab, protocol):
    """Nothing can be committed then; what the member reads next has a floor again."""
    filled(lab, 2, "before")
    loading = lab.cluster.fail("OffsetCommit", error=LOADING)
    handler = Handler(lab)
    first = Working(lab, handler, settings=latest(protocol))
    first.owns(2)
    second = Working(lab, handler, name="b", settings=latest(protocol))
    lab.until(lambda: first.worker._engine.departures.deadline is not None)
    lab.sleep(1)
    expel(lab)
    loading.end()
    lab.until(lambda: None not in committed(lab))
    for tp in lab.partitions("t"):
        put(lab, tp, "", "")
    expects_all(lab, handler)
    first.stop()
    second.stop()


@pytest.mark.contract("W6", "W12")
@simulated(seeds=1)
def test_a_handler_that_hangs_keeps_no_floor_waiting(lab):
    """Handlers, floors and the last commit are waited for together, not in turns."""
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
    for run in (first, second):
        run.worker.stop(drain=False)
