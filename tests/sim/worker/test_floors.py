"""W6, W12: partitions leave in a rebalance while the broker refuses commits."""

import itertools
from typing import Any

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import Pump
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, committed, consumer, filled, put

LOADING = 14  # the coordinator loads its offsets, as after it has moved
ASSIGNORS = {"eager": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}
in_both_ways = pytest.mark.parametrize("protocol", list(ASSIGNORS))


def latest(protocol: str) -> dict[str, Any]:
    """Return a consumer's settings: it notices a rebalance soon."""
    return {
        "auto_offset_reset": "latest",
        "partition_assignment_strategy": [ASSIGNORS[protocol]],
        "heartbeat_interval_ms": 200,
    }


class Pumping:
    """A pump in a process of its own that answers each batch at once."""

    def __init__(
        self, lab: Lab, handler: Handler, settings: dict[str, Any], **options: Any
    ) -> None:
        self.lab = lab
        self.consumer = consumer(lab, "t", client_id="w", **settings)
        self.pump = Pump(self.consumer, **options)
        self._handler = handler
        self.process, self._thread = lab.start("w", self._live)

    def _live(self) -> None:
        with self.pump as pump:
            for batch in pump:
                for record in batch.records:
                    self._handler(record, batch)
                batch.done()
        self.consumer.close()

    def stop(self) -> None:
        self.pump.stop()
        self._thread.join(300.0)


def started(
    lab: Lab, kind: str, handler: Handler, protocol: str, **options: Any
) -> Any:
    if kind == "pump":
        return Pumping(lab, handler, latest(protocol), **options)
    return Working(lab, handler, settings=latest(protocol), **options)


@in_both_ways
@pytest.mark.parametrize("seconds", [2.0, 3.0, 5.0])
@pytest.mark.parametrize("kind", ["worker", "pump"])
@pytest.mark.xfail(strict=True, reason="a join begins though a floor is not committed")
@simulated(seeds=1)
def test_a_join_waits_for_a_floor_that_is_refused_for_a_while(
    lab: Lab, kind: str, protocol: str, seconds: float
) -> None:
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
    lab.until(lambda: committed(lab) == [3, 3])
    first.stop()
    second.stop()
    assert {(one.partition, one.offset) for one in handler.calls} == {
        *itertools.product(range(2), (1, 2))
    }
