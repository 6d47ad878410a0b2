"""Brokers, connections and clocks fail; pauses and memberships outlive it."""

import pytest

from safeconsumer import SafeConsumer
from tests.sim.playing import simulated
from tests.sim.reading import stock_fails


def two_members(lab, records):
    """Start two members that share six partitions, and let them read all there is."""
    lab.topic("t", 6, records=records)
    a, b = (lab.member(SafeConsumer, "t", name=n, fetch_max_wait_ms=5000) for n in "ab")
    a.owns(3)
    b.owns(3)
    lab.until(lambda: read(a, b) == 6 * records)
    return a, b


def read(*members):
    """Return how many records came to members."""
    return sum(len(one.records) for one in members)


def reach(lab, offset, *members):
    """Wait until each partition's owner has come so far."""

    def has_come(number):
        tp = lab.partitions("t")[number]
        owners = [one for one in members if tp in one.consumer.assignment()]
        return any(one.consumer.position(tp) == offset for one in owners)

    lab.until(lambda: all(has_come(number) for number in range(6)))


@pytest.mark.contract("P11")
@stock_fails("it asks for a coordinator that is away without a pause")
@simulated(seeds=1, nightly=2, nodes=3)
def test_a_coordinator_that_is_away_is_asked_for_in_measure(lab, kind):
    """P11: held, for the 3 s until another is elected, at most ten times a second."""
    lab.topic("t", 3, records=20)
    a = lab.member(kind, "t")
    a.owns(3)
    lab.until(lambda: len(a.records) == 60)
    a.consumer.pause(*a.consumer.assignment())
    lab.sleep(1)
    asked, turns = len(lab.history()), lab.world.turns
    lab.cluster.down(lab.coordinator(), failover=3.0)
    lab.sleep(3)
    rate = lab.kinds(asked).count("FindCoordinator") / 3
    assert rate <= 10, f"FindCoordinator: {rate:.0f} a second"
    assert (lab.world.turns - turns) / 3 < 150
    lab.sleep(60)
    assert lab.members() == 1
    a.stop()


@pytest.mark.contract("P6", "P8")
@simulated(seeds=1, nightly=2, nodes=3)
def test_a_member_that_reaches_its_coordinator_and_not_a_leader(lab):
    """P8: it stays a member, goes on with the other leaders, and then with all."""
    a, b = two_members(lab, records=5)
    away = next(n for n in (1, 2, 3) if n != lab.coordinator())
    lab.network.isolate(a.process, f"broker-{away}")
    generation = lab.generation()
    for tp in lab.partitions("t"):
        lab.append(tp, 5, first=5)
    lab.sleep(60)
    assert lab.generation() == generation
    assert 30 <= read(a, b) < 60
    lab.network.heal(a.process, f"broker-{away}")
    reach(lab, 10, a, b)
    assert read(a, b) == 60
    a.stop()
    b.stop()


@pytest.mark.contract("P6", "P8")
@simulated(seeds=1, nightly=2, nodes=3)
def test_a_member_that_reaches_the_leaders_and_not_its_coordinator(lab):
    """P6: it is evicted, joins again, and its strict hold is still there."""
    a, b = two_members(lab, records=5)
    a.consumer.pause("t", owner="ops")
    coordinator = f"broker-{lab.coordinator()}"
    lab.network.isolate(a.process, coordinator)
    b.owns(6)
    lab.network.heal(a.process, coordinator)
    a.owns(3)
    b.owns(3)
    before = len(a.records)
    for tp in lab.partitions("t"):
        lab.append(tp, 5, first=5)
    lab.sleep(60)
    assert len(a.records) == before
    a.consumer.resume("t", owner="ops")
    reach(lab, 10, a, b)
    a.stop()
    b.stop()


@pytest.mark.contract("P6")
@simulated(seeds=1, nightly=2)
def test_a_wall_clock_that_steps_changes_no_membership(lab):
    """P6: sessions and poll intervals follow the monotonic clock."""
    (tp,) = lab.topic("t", 1, records=5)
    a = lab.member(SafeConsumer, "t")
    lab.until(lambda: len(a.records) == 5)
    generation = lab.generation()
    for seconds in (86_400, -2 * 86_400, 86_400):
        lab.step_clock(a.process, seconds)
        lab.sleep(30)
    assert lab.generation() == generation
    lab.append(tp, 1, first=5)
    lab.until(lambda: len(a.records) == 6)
    a.stop()


@pytest.mark.contract("P6", "P8")
@simulated(seeds=1, nightly=2, nodes=3)
def test_a_broker_that_takes_connections_and_answers_nothing(lab):
    """P8: while one of three brokers stands still, nothing is lost or comes twice."""
    a, b = two_members(lab, records=5)
    still = next(n for n in (1, 2, 3) if n != lab.coordinator())
    lab.cluster.freeze(still)
    for tp in lab.partitions("t"):
        lab.append(tp, 5, first=5)
    lab.sleep(60)
    lab.cluster.unfreeze(still)
    reach(lab, 10, a, b)
    for tp in lab.partitions("t"):
        assert a.values(tp) + b.values(tp) == list(range(10))
    a.stop()
    b.stop()
