"""
``for record in consumer``, while something changes in the middle of a batch.

A change takes effect immediately, and each undelivered record arrives once, later (P1, P8).
"""

import threading

import pytest

from safeconsumer import SafeConsumer
from tests.sim.lab import GROUP
from tests.sim.meddling import Meddled, both_steps, elsewhere
from tests.sim.playing import simulated
from tests.sim.reading import Listener, Reader, both_protocols, both_ways, stock_fails

__all__ = ["both_steps"]  # a fixture
pytestmark = pytest.mark.usefixtures("both_steps")


def iterating(lab, taken=3, **settings):
    """Return a reader of two partitions that has read ``taken`` records of the first."""
    reader = Meddled(lab, how="iterate", **settings)
    reader.take(taken)
    assert reader.offsets(reader.in_order[0]) == [*range(taken)]
    return reader


@pytest.mark.contract("P8")
def test_position_advances_with_each_record(lab):
    """P8: a commit includes the yielded records."""
    reader = iterating(lab, 0, group_id=GROUP)
    for number in range(1, 5):
        reader.take(1)
        first, second = reader.in_order
        assert reader.consumer.position(first) == number
        reader.consumer.commit()
        assert (lab.committed(first), lab.committed(second)) == (number, 0)


@pytest.mark.contract("P1")
@pytest.mark.parametrize(
    "where", [lambda act: act(), elsewhere], ids=["same thread", "other thread"]
)
def test_pause_in_the_middle_of_a_batch_takes_effect_immediately(lab, where):
    """P1: no further record arrives; after the resume the rest arrives without a fetch."""
    reader = iterating(lab)
    held, flowing = reader.in_order
    where(lambda: reader.consumer.pause(held))
    reader.is_silent(of=[held])
    assert reader.offsets(flowing) == [*range(10)]
    assert reader.consumer.position(held) == 3
    late = lab.cluster.fail("Fetch", is_held=True)
    where(lambda: reader.consumer.resume(held))
    reader.reads(held, range(3, 10))
    late.end()


@both_ways
@pytest.mark.parametrize("to", [0, 7])
@pytest.mark.parametrize("which", [0, 1])
def test_seek_in_the_middle_of_a_batch_takes_effect_immediately(lab, how, to, which):
    """All records of the other partition are delivered."""
    reader = Meddled(lab, how=how)
    reader.take(2)
    sought, other = reader.in_order[which], reader.in_order[1 - which]
    since = len(reader.log)
    reader.consumer.seek(sought, to)
    left = 10 - to + 10 - len(reader.offsets(other))
    reader.until(lambda: len(reader.log) == since + left)
    reader.is_silent(seconds=2)
    assert reader.offsets(sought, since) == [*range(to, 10)]
    assert reader.offsets(other) == [*range(10)]


@both_ways
def test_assign_in_the_middle_of_a_batch_does_not_disturb_the_kept_partitions(lab, how):
    """A partition that is unassigned and assigned again starts at its new position."""
    reader = Meddled(lab, how=how)
    reader.take(3)
    first, second = reader.in_order
    new = lab.topic("u", 1, records=2)
    reader.consumer.assign([first, second, *new])
    assert reader.consumer.position(first) == 3
    reader.take(2)
    reader.consumer.assign([second, *new])
    reader.is_silent(of=[first])
    assert reader.offsets(second) == [*range(10)]
    assert reader.offsets(new[0]) == [0, 1]
    reader.consumer.assign([first, second, *new])
    reader.consumer.seek(first, 8)
    reader.reads(first, [8, 9])


def test_poll_after_an_iteration_step_returns_the_rest_of_its_batch(lab):
    reader = iterating(lab)
    first = reader.in_order[0]
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.how = "poll"
    reader.poll(0, limit=5)
    assert reader.offsets(first) == [*range(8)]
    assert reader.consumer.position(first) == 8
    reader.how = "iterate"
    reader.take(12)
    late.end()
    reader.reads_everything()


# ------------------------------------------------------------ gates


@pytest.mark.contract("P6", "P8")
@both_protocols
@pytest.mark.parametrize("takes", [0.0, 2.0])
@simulated(seeds=1, nightly=10)
def test_partition_gained_after_a_lost_membership_is_delivered(lab, assignor, takes):
    """
    The partition's gate opens after half a second; the paused partition stays paused.

    1. Everything is paused.
    2. The membership is lost.
    3. The member regains its partition and one more, during a step without a time limit,
       or so late that another poll starts first.
    """
    (p0,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, SafeConsumer, "t", how="iterate", assignor=assignor)
    reader.reads(p0, range(3))
    # names one partition, so gained partitions are not paused
    reader.consumer.pause(p0)
    waiting = threading.Thread(target=reader.poll, args=(1000, 1))
    waiting.start()
    lab.network.isolate(lab.world.outside)
    lab.until(lambda: not lab.members())
    lab.cluster.add_partitions("t", 2)
    p1 = lab.partitions("t")[1]
    lab.append(p1, 2)
    lab.append(p0, 2, first=3)
    lab.cluster.fail("JoinGroup", delay=takes)
    lab.network.heal(lab.world.outside)
    waiting.join()
    assert reader.offsets(p1) == [0]
    began = lab.now
    reader.reads(p1, [1])
    assert lab.now - began < 1
    reader.is_silent(of=[p0])
    assert reader.consumer.quiet() == {p0}


@both_ways
def test_new_subscription_delivers_in_the_poll_that_gains_its_partitions(lab, how):
    """No partition of the new topic was paused, so none has a gate."""
    (p0,), (q0,) = lab.topic("t", 1, records=3), lab.topic("u", 1, records=3)
    reader = Reader(lab, SafeConsumer, "t", how=how, group_id=None)
    reader.reads(p0, range(3))
    reader.consumer.pause(p0)
    reader.is_silent()
    reader.consumer.unsubscribe()
    reader.consumer.subscribe(["u"])
    assert reader.poll(1, limit=3)
    reader.until(lambda: reader.offsets(q0) == [0, 1, 2])


@pytest.mark.contract("P10")
@both_ways
@simulated(seeds=1, nightly=10)
def test_resume_in_an_assignment_listener_opens_gates_of_gained_partitions(lab, how):
    """P10: the poll that gained the partitions returns their records."""
    lab.topic("t", 2, records=3)
    reader = Reader(lab, SafeConsumer, how=how, start_paused=True)

    def resume(_):
        elsewhere(reader.consumer.resume_all)

    reader.consumer.subscribe(["t"], listener=Listener(assigned=resume))
    began = lab.now
    assert reader.poll(600, limit=1)
    assert lab.now - began < 10
    reader.until(lambda: len(reader.log) == 6)


@pytest.mark.contract("P11")
@both_ways
def test_paused_member_that_waits_does_not_spin(lab, how):
    """P11: the member keeps its id and generation, and sends no Fetch."""
    tps = lab.topic("t", 2, records=3)
    reader = Reader(lab, SafeConsumer, "t", how=how)
    reader.until(lambda: len(reader.log) == 6)
    reader.consumer.pause(*tps)
    reader.poll(10)
    group = lab.cluster.groups.find(GROUP)
    before = set(group.members), group.generation
    since, turns, began = len(lab.history()), lab.world.turns, lab.now
    assert reader.poll(60) == []
    assert (set(group.members), group.generation) == before
    assert set(lab.kinds(since)) <= {"Heartbeat", "Metadata"}
    assert (lab.world.turns - turns) / (lab.now - began) < 50


@pytest.mark.contract("P11")
@pytest.mark.parametrize("is_member", [True, False])
@both_ways
@stock_fails("its timer reports 0 ms in the last millisecond, but has not expired")
@simulated(seeds=1, nightly=2)
def test_brief_poll_waits_only_once(lab, kind, how, *, is_member):
    """P11: a poll with everything paused takes three turns on two threads."""
    (p0,) = lab.topic("t", 1, records=5)
    topics, tps = (("t",), ()) if is_member else ((), (p0,))
    reader = Reader(lab, kind, *topics, tps=tps, how=how)
    reader.take(5)
    reader.consumer.pause(p0)
    reader.poll(1)
    turns, began = lab.world.turns, lab.now
    for _ in range(60):
        reader.poll(0.05)
    assert (lab.world.turns - turns) / 60 < 4
    assert 3.0 <= lab.now - began < 3.1
