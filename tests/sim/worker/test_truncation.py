"""W4, P20: a log is cut under a worker; no record that the new leader has is left out."""

import pytest

from safeconsumer import Commit, events
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, committed, filled, put

OFTEN = Commit(every=0.2)
SETTINGS = {"metadata_max_age_ms": 1000, "max_poll_records": 10}


def done(handler):
    """Return the values of the calls that ended, in order."""
    return [one.value for one in handler.calls if one.ended is not None]


def started(run):
    return [(one.offset, one.is_reset) for one in run.told(events.PartitionStarted)]


@pytest.mark.contract("P20", "W4")
@simulated(seeds=2)
def test_a_restarted_worker_begins_where_the_log_was_cut(lab):
    (tp,) = filled(lab, 1, *["old"] * 10)
    first = Working(lab, Handler(lab), commit=OFTEN, settings=SETTINGS)
    first.done(10)
    first.stop()
    lab.cluster.truncate("t", 0, 5)
    put(lab, tp, *["new"] * 10)
    handler = Handler(lab)
    second = Working(lab, handler, commit=OFTEN, settings=SETTINGS)
    second.done(10)
    second.stop()
    assert [(one.offset, one.value) for one in handler.calls] == [
        (offset, b"new") for offset in range(5, 15)
    ]
    assert committed(lab) == [15]


@pytest.mark.contract("P20", "W4")
@pytest.mark.parametrize("cut", [1, 7], ids=["below-the-work", "behind-the-work"])
@simulated(seeds=2)
def test_a_worker_with_records_in_hand_goes_on_at_what_is_left(lab, cut):
    """Records that are in the log still, and were not handled, come again."""
    (tp,) = filled(lab, 1, "a", "b", "slow", *["old"] * 7)
    handler = Handler(lab, slow=20.0)
    run = Working(lab, handler, concurrency=1, commit=OFTEN, settings=SETTINGS)
    lab.until(lambda: len(handler.calls) == 3)
    lab.cluster.truncate("t", 0, cut)
    put(lab, tp, *["new"] * 10)
    lab.until(lambda: committed(lab) == [cut + 10], 200.0)
    run.stop()
    kept = {one.offset for one in handler.calls if one.value != b"new"}
    assert kept >= set(range(cut))
    new = {one.offset for one in handler.calls if one.value == b"new"}
    assert new == set(range(cut, cut + 10))


@pytest.mark.contract("P20", "W4")
@simulated(seeds=2)
def test_the_first_commit_of_an_ownership_has_its_epoch(lab):
    """Under ``latest``; what a cut leaves below it would be passed over else."""
    (tp,) = filled(lab, 1, *["old"] * 10)
    lab.cluster.lead("t", 0, 1)
    latest = {**SETTINGS, "auto_offset_reset": "latest"}
    first = Working(lab, Handler(lab), commit=OFTEN, settings=latest)
    lab.until(lambda: committed(lab) == [10])
    first.stop()
    assert lab.cluster.committed(GROUP)["t", 0].leader_epoch == 1
    lab.cluster.truncate("t", 0, 5)
    put(lab, tp, *["new"] * 10)
    handler = Handler(lab)
    second = Working(lab, handler, commit=OFTEN, settings=latest)
    second.done(10)
    second.stop()
    assert done(handler) == [b"new"] * 10


@pytest.mark.contract("P20")
@simulated(seeds=2)
def test_an_offset_behind_a_transactions_end_has_the_epoch_of_that(lab):
    """With the epoch of the record before it the log would seem to have been cut."""
    filled(lab, 1, *["old"] * 10)
    first = Working(lab, Handler(lab), commit=OFTEN, settings=SETTINGS)
    first.done(10)
    lab.cluster.lead("t", 0, 1)
    lab.cluster.log("t", 0).end_transaction(7, 0, 0, is_committed=True)
    lab.until(lambda: committed(lab) == [11])
    first.stop()
    assert lab.cluster.committed(GROUP)["t", 0].leader_epoch == 1
