"""Under ``latest`` no record of an added partition is skipped (W12)."""

import pytest
from kafka import KafkaConsumer

from safeconsumer import SafeConsumer
from safeconsumer._kafka.membership import Membership
from tests.sim.playing import simulated
from tests.sim.reading import Reader, both_protocols


def reading(lab, *topics, **settings):
    """Create a member that reads added partitions from their start, as a worker does."""
    more = {"auto_offset_reset": "latest", "metadata_max_age_ms": 5_000, **settings}
    reader = Reader(lab, SafeConsumer, *topics, **more)
    Membership(reader.consumer).skip_no_record()
    return reader


@pytest.mark.contract("W12")
@both_protocols
@simulated(seeds=1, nightly=10)
def test_added_partitions_are_read_from_their_start_and_others_from_their_end(
    lab, assignor
):
    """W12: even records written before metadata listed the partition are delivered."""
    (p0,) = lab.topic("t", 1, records=3)
    reader = reading(lab, "t", assignor=assignor)
    reader.owns([p0])
    reader.poll(1)
    other = lab.member(KafkaConsumer, "t", name="b", assignor=assignor)
    lab.sleep(1)
    reader.poll(5)
    other.stop()
    lab.cluster.add_partitions("t", 3)
    _, p1, p2 = lab.partitions("t")
    for tp in (p1, p2):
        lab.append(tp, 4)
    reader.owns([p0, p1, p2])
    lab.append(p0, 1, first=3)
    reader.until(lambda: len(reader.log) >= 9)
    assert reader.offsets(p0) == [3]
    assert reader.offsets(p1) == reader.offsets(p2) == [*range(4)]


@pytest.mark.contract("W12")
@simulated(seeds=1, nightly=10)
def test_partition_added_while_the_leader_assigns_counts_as_added(lab):
    """W12: metadata lists the partition while an assignment that lacks it is in flight."""
    p0, p1 = lab.topic("t", 2, records=1)
    reader = reading(lab, "t", metadata_max_age_ms=500)
    assert reader.consumer.partitions_for_topic("t") == {0, 1}
    late = lab.cluster.fail("SyncGroup", is_held=True)
    reader.until(lambda: late.kept)
    lab.cluster.add_partitions("t", 3)
    p2 = lab.partitions("t")[2]
    lab.append(p2, 2)
    lab.sleep(3)
    late.end()
    reader.owns([p0, p1, p2])
    reader.reads(p2, [0, 1])
    lab.append(p1, 1)
    reader.reads(p1, [1])


@simulated(seeds=1, nightly=10)
def test_partitions_of_a_resubscribed_topic_are_counted_again(lab):
    """Partitions created while the topic was not subscribed do not count as added."""
    (p0,), (q0,) = lab.topic("t", 1), lab.topic("u", 1)
    reader = reading(lab, "t")
    reader.owns([p0])
    reader.consumer.subscribe(["u"])
    reader.owns([q0])
    lab.cluster.add_partitions("t", 2)
    p1 = lab.partitions("t")[1]
    lab.append(p1, 3)
    reader.consumer.subscribe(["t", "u"])
    reader.owns([p0, p1, q0])
    reader.poll(1)
    lab.append(p1, 1, first=3)
    reader.until(lambda: 3 in reader.offsets(p1))
    assert reader.offsets(p1) == [3]


@pytest.mark.contract("W12")
@simulated(seeds=1, nightly=10)
def test_topic_recreated_with_fewer_partitions_may_grow(lab):
    """W12: the partition count of the deleted topic does not matter."""
    tps = lab.topic("t", 4)
    reader = reading(lab, "t", metadata_max_age_ms=500)
    reader.owns(tps)
    lab.cluster.delete_topic("t")
    lab.cluster.create_topic("t", 1)
    reader.owns(tps[:1])
    lab.cluster.add_partitions("t", 2)
    lab.append(tps[1], 3)
    reader.reads(tps[1], range(3))
