"""Random members of a group, observed by a judge; each seed can be repeated."""

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from safeconsumer import SafeConsumer
from tests.sim.churn.judge import ViolationError
from tests.sim.churn.nemesis import Churn
from tests.sim.churn.planted import OF_GROUPS, OF_WORKERS, PLANTS, planted
from tests.sim.churn.playing import played
from tests.sim.playing import simulated

SHORT = Churn(minutes=8)
LONG = Churn(
    minutes=30,
    wanted={"delivered": 200, "gained": 10, "held with records waiting": 1},
)
WORKERS = Churn(minutes=4, are_workers=True, wanted={"delivered": 20, "committed": 1})
CONTROLLED = Churn(minutes=30, is_controlled=True)
SEEDS = 20  # the number of seeds within which a planted fault must be found


def with_seeds(seeds):
    """Run a test once for each seed, with the id ``seed=N``."""
    seeds = list(seeds)
    return pytest.mark.parametrize("seed", seeds, ids=[f"seed={n}" for n in seeds])


@pytest.mark.contract("P1", "P7", "P8", "P9", "P11")
@with_seeds(range(5))
def test_churn_breaks_no_promise(seed):
    """P1, P7 to P9 and P11 hold despite random faults of members and brokers."""
    played(SHORT, seed)


@pytest.mark.nightly
@with_seeds(range(200))
def test_long_churn_breaks_no_promise(seed):
    """P1, P7 to P9 and P11 hold for 30 virtual minutes."""
    played(LONG, seed)


@pytest.mark.nightly
@pytest.mark.contract("W3", "W4", "W5", "W10")
@with_seeds(range(50))
def test_churn_of_workers_breaks_no_promise(seed):
    """W3 to W5 and W10 hold despite random faults of Workers and brokers."""
    played(WORKERS, seed)


def play_until_a_violation(churn):
    for seed in range(SEEDS):
        played(churn, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("plant", PLANTS)
def test_planted_fault_is_found_within_20_seeds(plant):
    """Each planted fault breaks a promise, and the judge notices it within 20 seeds."""
    churn = {OF_WORKERS: WORKERS, OF_GROUPS: CONTROLLED}.get(PLANTS[plant][1], LONG)
    with planted(plant), pytest.raises(ViolationError):
        play_until_a_violation(churn)


# Two known breaches of P11 that churn tests have found.


@pytest.mark.contract("P11")
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="kafka-python's sticky assignor returns partitions that a member had long ago, "
    "subscribed or not; the member refuses them, and rejoins ten times a second",
)
@pytest.mark.parametrize("kind", [SafeConsumer, KafkaConsumer])
def test_sticky_member_that_leaves_a_topic_does_not_join_endlessly(lab, kind):
    """P11: a member that subscribes to fewer topics does not spin."""
    topics = ("t", "u", "v")
    for topic, count in zip(topics, (4, 2, 1), strict=True):
        lab.topic(topic, count)
    sticky = {"partition_assignment_strategy": [StickyPartitionAssignor]}
    a = lab.member(kind, *topics, name="a", **sticky)
    a.owns(7)
    # The wait is longer than the session timeout, so two members then claim everything.
    lab.network.isolate(a.process)
    b = lab.member(kind, *topics, name="b", **sticky)
    b.owns(7)
    a.call(lambda consumer: consumer.subscribe(["t"]))
    lab.network.heal(a.process)
    lab.member(kind, *topics, name="c", **sticky)
    lab.sleep(12)
    before = len(lab.history())
    lab.sleep(3)
    joins = lab.kinds(before).count("JoinGroup")
    assert joins <= 2, f"{joins} joins in 3 s"


@pytest.mark.contract("P11")
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="like kafka-python, which does so in seven of ten seeds, it fetches from a "
    "former leader without a backoff, for as long as no metadata arrives",
)
@simulated(seeds=1, nodes=3)
def test_fetches_to_a_former_leader_are_rare(lab):
    """P11: a consumer does not spin while no broker names a partition's new leader."""
    (tp,) = lab.topic("t", 1, records=1)
    a = lab.member(SafeConsumer, "t", fetch_max_wait_ms=5000)
    lab.until(lambda: a.records)
    lab.cluster.fail("Metadata", is_held=True)
    lab.cluster.lead(tp.topic, tp.partition, 2)
    before = len(lab.history())
    lab.sleep(1)
    asked = lab.kinds(before).count("Fetch")
    assert asked <= 20, f"{asked} Fetches in 1 s"
