"""What churns have found, each as a small scenario."""

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from safeconsumer import SafeConsumer
from tests.sim.playing import simulated


@pytest.mark.contract("P11")
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="kafka-python's sticky assignor gives a member back what it had long ago, "
    "subscribed or not; the member refuses it, and joins again ten times a second",
)
@pytest.mark.parametrize("kind", [SafeConsumer, KafkaConsumer])
def test_who_leaves_a_topic_joins_no_more_than_it_must(lab, kind):
    """P11: a member that subscribes to fewer topics does not spin."""
    topics = ("t", "u", "v")
    for topic, count in zip(topics, (4, 2, 1), strict=True):
        lab.topic(topic, count)
    sticky = {"partition_assignment_strategy": [StickyPartitionAssignor]}
    a = lab.member(kind, *topics, name="a", **sticky)
    a.owns(7)
    lab.network.isolate(a.process)  # past its session: two members claim everything
    b = lab.member(kind, *topics, name="b", **sticky)
    b.owns(7)
    a.call(lambda consumer: consumer.subscribe(["t"]))
    lab.network.heal(a.process)
    lab.member(kind, *topics, name="c", **sticky)
    lab.sleep(30)
    before = len(lab.history())
    lab.sleep(10)
    joins = lab.kinds(before).count("JoinGroup")
    assert joins <= 2, f"{joins} joins in 10 s"


@pytest.mark.contract("P11")
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="as kafka-python, which does so in seven of ten seeds, it asks a broker that "
    "leads no more again without a pause, for as long as no metadata come",
)
@simulated(seeds=1, nodes=3)
def test_a_broker_that_leads_no_more_is_asked_in_measure(lab):
    """P11: it does not spin while it cannot learn who leads a partition now."""
    (tp,) = lab.topic("t", 1, records=1)
    a = lab.member(SafeConsumer, "t", fetch_max_wait_ms=5000)
    lab.until(lambda: a.records)
    lab.cluster.fail("Metadata", is_held=True)
    lab.cluster.lead(tp.topic, tp.partition, 2)
    before = len(lab.history())
    lab.sleep(5)
    asked = lab.kinds(before).count("Fetch")
    assert asked <= 100, f"{asked} Fetches in 5 s"
