"""Passes: stop() in the middle of a drain whose commits are refused repeats nothing."""
import asyncio
from typing import Any
import pytest
from safeconsumer import Commit, Drain
from tests.sim.lab import GROUP, Lab
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, committed, filled, put, UNAVAILABLE
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor


@pytest.mark.parametrize("protocol", ["eager", "coop"])
@pytest.mark.parametrize("reset", ["latest", "earliest"])
@simulated(seeds=3)
def test_stop_in_a_drain_with_refused_commits(lab: Lab, protocol, reset) -> None:
    """stop() in the middle of the drain; the broker accepts again right after."""
    how = {"partition_assignment_strategy": [CooperativeStickyAssignor if protocol == "coop" else RangePartitionAssignor], "heartbeat_interval_ms": 200, "auto_offset_reset": "earliest"}
    filled(lab, 4, *["x"] * 5)
    h = Handler(lab)
    a = Working(lab, h, settings=how, commit=Commit(every=60), drain=Drain(revoke=20.0, shutdown=5.0))
    a.done(20)
    fault = lab.cluster.fail("OffsetCommit", error=UNAVAILABLE)
    h2 = Handler(lab)
    b = Working(lab, h2, name="b", settings={**how, "auto_offset_reset": reset})
    lab.sleep(6)
    fault.end() if hasattr(fault, "end") else None
    a.stop()
    for tp in lab.partitions("t"):
        put(lab, tp, "y")
    lab.until(lambda: committed(lab) == [6] * 4, 100)
    again = [c.offset for c in h2.calls if c.offset < 5]
    b.stop()
    assert again == []
