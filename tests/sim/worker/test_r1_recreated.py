"""W12, P20: a topic is made again, and its positions have an epoch that the new log lacks."""

import pytest
from kafka.structs import OffsetAndMetadata

from safeconsumer import Commit, SafeConsumer
from tests.sim.lab import GROUP, Lab
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, committed, filled, put

SETTINGS = {"metadata_max_age_ms": 1000, "max_poll_records": 10, "auto_offset_reset": "latest"}


def begins(lab: Lab, epochs: int) -> tuple:
    (tp,) = filled(lab, 1, *["old"] * 5)
    for _ in range(epochs):
        lab.cluster.lead("t", 0, 1)
    first = Working(lab, Handler(lab), commit=Commit(every=0.2), settings={**SETTINGS, "auto_offset_reset": "earliest"})
    first.done(5)
    put(lab, tp, *["old"] * 5)
    first.done(10)
    lab.until(lambda: committed(lab) == [10])
    return tp, first


def again(lab, tp):
    lab.cluster.delete_topic("t")
    lab.topic("t")
    put(lab, tp, *["new"] * 20)


@pytest.mark.contract("W12")
@pytest.mark.parametrize("epochs", [0, 3])
@simulated(seeds=1)
def test_a_worker_begins_at_a_commit_of_the_old_topic(lab: Lab, epochs: int) -> None:
    """With epochs the policy decides, and all is passed over; the number alone gave the half."""
    tp, first = begins(lab, epochs)
    first.stop()
    mark = OffsetAndMetadata(10, "", lab.cluster.committed(GROUP)["t", 0].leader_epoch)
    again(lab, tp)
    late = SafeConsumer(**lab.settings(group_id=GROUP))
    late.assign([tp])
    late.commit({tp: mark})
    late.close()
    handler = Handler(lab)
    second = Working(lab, handler, commit=Commit(every=0.2), settings=SETTINGS)
    lab.sleep(20)
    second.stop()
    print("RESULT", mark, handler.offsets(), [repr(e) for e in second.events if "Range" in repr(type(e))])
    assert handler.offsets() == [*range(20)]


@pytest.mark.contract("W12")
@pytest.mark.parametrize("epochs", [0, 3])
@simulated(seeds=1)
def test_a_live_worker_of_a_topic_that_is_made_again(lab: Lab, epochs: int) -> None:
    tp, first = begins(lab, epochs)
    first.stop()
    handler = Handler(lab)
    told = []
    second = Working(lab, handler, commit=Commit(every=0.2), settings={**SETTINGS, "hooks": [told.append]})
    second.owns(1)
    lab.sleep(3)
    again(lab, tp)
    lab.sleep(20)
    second.stop()
    print("RESULT live", epochs, handler.offsets(), [repr(e) for e in told if "Range" in repr(type(e)) or "Trunc" in repr(type(e))])
    assert handler.offsets() == [*range(20)]
