"""After a resume the next record comes, whatever was parked meanwhile."""

import pytest
from kafka import KafkaConsumer, TopicPartition

from safeconsumer import SafeConsumer
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.reading import Listener, Reader, both_ways, stock_fails

SLOT = "a batch that was read to its end stays in the slot of what is read next"


@pytest.mark.contract("P10")
@both_ways
@pytest.mark.parametrize("flows_on", [True, False])
@simulated(seeds=1)
def test_a_resume_after_another_partition_was_read(
    lab: Lab, how: str, *, flows_on: bool
) -> None:
    """P10: paused inside a batch, another partition read, resumed: all comes."""
    p0, p1 = lab.topic("t", 2)
    lab.append(p1, 300)
    reader = Reader(lab, SafeConsumer, tps=[p0, p1], how=how)
    reader.take(10)
    reader.consumer.pause(p1)
    lab.append(p0, 5)
    reader.take(5)
    assert (reader.offsets(p0), reader.offsets(p1)) == ([*range(5)], [*range(10)])
    if flows_on:
        lab.append(p0, 20, first=5)
    reader.consumer.resume(p1)
    reader.until(lambda: len(reader.log) == (325 if flows_on else 305))
    assert reader.offsets(p0) == list(range(25 if flows_on else 5))
    assert reader.offsets(p1) == list(range(300))


@pytest.mark.contract("P8")
@stock_fails(SLOT)
@simulated()
def test_pausing_around_fetches_on_their_way_loses_nothing(
    lab: Lab, kind: type[KafkaConsumer]
) -> None:
    """P8: two partitions, paused with a fetch on its way, five times over."""
    p0, p1 = lab.topic("t", 2)
    reader = Reader(lab, kind, tps=[p0, p1])
    for turn in range(5):
        lab.append(p1, 200, first=200 * turn)
        reader.take(3)
        late = lab.cluster.fail("Fetch", is_held=True)
        lab.append(p0, 5, first=5 * turn)
        reader.until(lambda late=late: late.kept, limit=1)
        reader.consumer.pause(p0, p1)  # p1 is half read, a fetch is on its way
        late.end()
        reader.is_silent(seconds=2)
        reader.consumer.resume(p0)
        reader.reads(p0, range(5 * turn, 5 * turn + 5))
        reader.consumer.resume(p1)
        total = 205 * (turn + 1)
        reader.until(lambda total=total: len(reader.log) == total)
    assert reader.offsets(p0) == list(range(25))
    assert reader.offsets(p1) == list(range(1000))


@simulated(seeds=1)
def test_five_hundred_partitions_paused_and_resumed_in_the_listener(lab: Lab) -> None:
    """Pausing all and resuming all inside the listener leaves none silent."""
    tps = lab.topic("t", 500, records=1)
    reader = Reader(lab, SafeConsumer)
    consumer = reader.consumer

    def pause_then_resume(assigned: set[TopicPartition]) -> None:
        consumer.pause(*assigned)
        consumer.resume(*assigned)

    consumer.subscribe(["t"], listener=Listener(assigned=pause_then_resume))
    reader.owns(tps)
    reader.until(lambda: len(reader.log) == 500)
    assert all(reader.offsets(tp) == [0] for tp in tps)
