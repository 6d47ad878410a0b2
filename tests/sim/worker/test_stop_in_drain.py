"""Stop while a drain's commit is tried again, and no coordinator answers."""

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import Drain
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, filled


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, CooperativeStickyAssignor]
)
@pytest.mark.parametrize("how", ["loading", "isolated"])
@pytest.mark.parametrize("revoke", [3.0, 30.0])
@simulated(seeds=1)
def test_a_stop_in_a_drain_is_bounded(lab, assignor, how, revoke):
    settings = {
        "partition_assignment_strategy": [assignor],
        "heartbeat_interval_ms": 200,
        "auto_offset_reset": "earliest",
    }
    filled(lab, 2, *["v"] * 10)
    handler = Handler(lab, v=0.5)
    first = Working(
        lab, handler, settings=settings, drain=Drain(revoke=revoke, shutdown=1.0)
    )
    first.owns(2)
    lab.sleep(2)
    lab.cluster.fail("OffsetCommit", error=14)
    second = Working(lab, handler, name="b", settings=settings)
    lab.sleep(1.0)
    if how == "isolated":
        lab.network.isolate(first.process)
    began = lab.now
    first.worker.stop()
    lab.until(lambda: first.report is not None or first.error is not None, 200.0)
    assert lab.now - began < 1.0 + 2.0 + 0.2
    second.worker.stop(drain=False)
