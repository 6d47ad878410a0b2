"""Joins that a short poll begins are not forgotten, and a resume brings what was left."""

import pytest
from kafka import KafkaConsumer

from safeconsumer import SafeConsumer
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.reading import Reader, both_ways, stock_fails


@simulated(seeds=5)
def test_partitions_are_added_to_a_member_that_polls_briefly(lab: Lab) -> None:
    """A join that takes longer than a poll is made; stock forgets it in half the seeds."""
    lab.topic("t", 2, records=5)
    a = lab.member(SafeConsumer, "t", poll_ms=20, metadata_max_age_ms=500)
    a.owns(2)
    lab.cluster.add_partitions("t", 6)
    a.owns(6)
    for tp in lab.partitions("t")[2:]:
        lab.append(tp, 5)
    lab.until(lambda: len(a.records) == 30)
    a.stop()


@simulated(seeds=5)
def test_a_topic_appears_while_another_member_is_slow_to_rejoin(lab: Lab) -> None:
    """Nobody goes on with what it does not own any more: no record comes to both."""
    pattern = {"poll_ms": 50, "metadata_max_age_ms": 500, "session_timeout_ms": 10_000}
    lab.topic("orders-1", 4, records=5)
    a = lab.member(SafeConsumer, "orders-1", name="a", **pattern)
    b = lab.member(KafkaConsumer, "orders-1", name="b", **pattern)
    a.owns(2)
    b.owns(2)
    for one in (a, b):
        one.call(lambda consumer: consumer.unsubscribe())
        one.call(lambda consumer: consumer.subscribe(pattern="orders-.*"))
    a.owns(2)
    lab.topic("orders-2", 4, records=5)
    b.nap = 2
    lab.until(lambda: len(a.consumer.assignment()) + len(b.consumer.assignment()) == 8)
    assert not a.consumer.assignment() & b.consumer.assignment()
    lab.kill(b.process)
    a.owns(8)
    a.stop()


@pytest.mark.contract("P10")
@pytest.mark.parametrize(
    ("kind", "left"),
    [
        pytest.param(SafeConsumer, 290, id="ours"),
        pytest.param(KafkaConsumer, 0, id="stock"),
    ],
)
@simulated()
def test_a_pause_in_the_middle_of_a_batch_starves_nobody(
    lab: Lab, kind: type[KafkaConsumer], left: int
) -> None:
    """P10: what was fetched comes after the resume; stock waits for it for ever."""
    held, other = lab.topic("t", 2)
    lab.append(held, 300)
    consumer = kind(**lab.settings(group_id=None))
    consumer.assign([held, other])
    found = 0
    while not found:
        found = sum(map(len, consumer.poll(100, max_records=10).values()))
    consumer.pause(held)
    lab.append(other, 50)
    while consumer.position(other) < 50:
        consumer.poll(100, max_records=10)
    consumer.resume(held)
    began, came = lab.now, 0
    while lab.now - began < 10:
        came += sum(map(len, consumer.poll(100, max_records=50).values()))
    consumer.close()
    assert (found, came) == (10, left)


@pytest.mark.contract("P11")
@pytest.mark.parametrize("is_member", [True, False])
@both_ways
@stock_fails("its timer says 0 in the last millisecond, and that it has not expired")
@simulated()
def test_a_brief_poll_waits_once(
    lab: Lab, kind: type[KafkaConsumer], how: str, *, is_member: bool
) -> None:
    """P11: with everything paused it looks, waits and ends: three turns of two threads."""
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
