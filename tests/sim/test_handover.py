"""A partition that one member paused can stay paused when another member gets it."""

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from safeconsumer import Lifetime, SafeConsumer
from safeconsumer._kafka import handover
from safeconsumer.events import PauseNotHandedOver
from tests.sim.playing import simulated
from tests.sim.reading import COOPERATIVE, EAGER, Listener

ASSIGNORS = [EAGER, RoundRobinPartitionAssignor, StickyPartitionAssignor, COOPERATIVE]


class Team:
    """Members of a group that share a topic of four partitions with five records each."""

    def __init__(self, lab, partitions=4):
        self.lab = lab
        self.tps = lab.topic("t", partitions, records=5)
        self.events = {}

    def joins(
        self,
        name,
        kind=SafeConsumer,
        assignor=RangePartitionAssignor,
        listener=None,
        **more,
    ):
        """Start a member, which hands pauses over unless its class is kafka-python's."""
        if kind is SafeConsumer:
            events = self.events[name] = []
            more = {"pause_handover": "assignor", "hooks": [events.append], **more}

        def make(**settings):
            consumer = kind(**settings)
            consumer.subscribe(["t"], listener=listener)
            return consumer

        return self.lab.member(make, name=name, assignor=assignor, **more)

    def left_behind(self, name):
        """Return the partitions of each event about pauses that were not handed over."""
        events = self.events[name]
        return [set(e.partitions) for e in events if isinstance(e, PauseNotHandedOver)]


STRICT = Lifetime.UNTIL_RESUMED


def paused_all(team, member, lifetime=None):
    member.call(lambda consumer: consumer.pause(*team.tps, lifetime=lifetime))


def held(member):
    return {str(hold.scope) for hold in member.consumer.holds()}


def values(team, *members):
    return sum(len(one.values(tp)) for one in members for tp in team.tps)


@pytest.mark.contract("G7")
@pytest.mark.parametrize("assignor", ASSIGNORS)
@simulated(seeds=1, nightly=2)
def test_moved_partition_stays_paused_until_its_owner_resumes(lab, assignor):
    """G7: new owners inherit the pause, and the pause does not come back after resume()."""
    team = Team(lab)
    first = team.joins("a", assignor=assignor)
    first.owns(4)
    lab.until(lambda: values(team, first) == 20)
    paused_all(team, first)
    second = team.joins("b", assignor=assignor)
    second.owns(2)
    first.owns(2)
    for tp in team.tps:
        lab.append(tp, 5, first=5)
    lab.sleep(10)
    assert values(team, second) == 0
    assert second.consumer.paused() == second.consumer.assignment()
    first.stop()
    second.owns(4)
    lab.sleep(10)
    assert (values(team, second), len(second.consumer.paused())) == (0, 4)
    second.call(lambda consumer: consumer.resume(*team.tps))
    lab.until(lambda: values(team, second) >= 20)
    third = team.joins("c", assignor=assignor)
    third.owns(2)
    second.owns(2)
    lab.sleep(10)
    assert third.consumer.paused() == second.consumer.paused() == set()
    assert team.left_behind("a") == team.left_behind("b") == []


@pytest.mark.contract("G7")
@simulated(seeds=1, nightly=2)
def test_pauses_with_an_owner_a_topic_or_a_time_limit_are_not_handed_over(lab):
    team = Team(lab, 2)
    first = team.joins("a")
    first.owns(2)
    first.call(lambda consumer: consumer.pause(team.tps[0], owner="other"))
    first.call(lambda consumer: consumer.pause(team.tps[1], for_=3600))
    first.call(lambda consumer: consumer.pause("t", owner="third"))
    second = team.joins("b")
    second.owns(1)
    first.stop()
    second.owns(2)
    lab.sleep(10)
    assert held(second) == set()


@pytest.mark.contract("G7")
def test_no_pause_is_handed_over_if_the_handover_is_off(lab):
    team = Team(lab, 2)
    first = team.joins("a", pause_handover="off")
    first.owns(2)
    lab.until(lambda: values(team, first) == 10)
    paused_all(team, first)
    second = team.joins("b", pause_handover="off")
    second.owns(1)
    lab.until(lambda: values(team, second) == 5)


@pytest.mark.parametrize("what", ["pause", "resume"])
@simulated(seeds=1, nightly=2)
def test_pause_and_resume_in_a_listener_before_the_join_are_handed_over(lab, what):
    """The join carries the pauses that are in force when JoinGroup is sent."""
    team = Team(lab, 2)
    acts = []
    revoked = Listener(revoked=lambda _: acts.pop()() if acts else None)
    first = team.joins("a", listener=revoked)
    first.owns(2)
    if what == "resume":
        paused_all(team, first)
    acts.append(lambda: getattr(first.consumer, what)(*team.tps))
    second = team.joins("b")
    second.owns(1)
    first.owns(1)
    lab.sleep(5)
    count = 1 if what == "pause" else 0
    assert [len(one.consumer.paused()) for one in (first, second)] == [count, count]
    assert team.left_behind("a") == []


def behind_joingroup(lab, team):
    """Let a member pause while its JoinGroup is in flight."""
    first = team.joins("a")
    first.owns(2)
    late = lab.cluster.fail("JoinGroup", is_held=True, origin="a")
    second = team.joins("b")
    lab.until(lambda: late.kept)
    first.consumer.pause(*team.tps, lifetime=STRICT)
    late.end()
    return first, second


@simulated(seeds=1, nightly=2)
def test_pause_after_joingroup_stays_with_its_owner_and_is_reported(lab):
    """The partition is quiet when it returns to its owner."""
    team = Team(lab, 2)
    first, second = behind_joingroup(lab, team)
    second.owns(1)
    first.owns(1)
    lab.sleep(1)
    assert team.left_behind("a") == [second.consumer.assignment()]
    second.stop()
    first.owns(2)
    for tp in team.tps:
        lab.append(tp, 5, first=5)
    before = values(team, first)
    lab.sleep(10)
    assert first.consumer.paused() == set(team.tps)
    assert values(team, first) == before


@simulated(seeds=1, nightly=2)
def test_pause_under_a_kafka_python_leader_stays_with_its_owner(lab):
    """The user data of our members does not disturb the leader."""
    team = Team(lab)
    plain = team.joins("plain", KafkaConsumer)
    plain.owns(4)
    first = team.joins("b")
    first.owns(2)
    plain.owns(2)
    owned = first.consumer.assignment()
    first.call(lambda consumer: consumer.pause(*owned, lifetime=STRICT))
    third = team.joins("a")
    lab.until(lambda: third.consumer.assignment() and first.consumer.assignment())
    lab.until(lambda: owned - first.consumer.assignment())
    lab.sleep(5)
    gone = owned - first.consumer.assignment()
    assert team.left_behind("b") == [gone]
    assert held(first) == {f"{tp.topic}:{tp.partition}" for tp in owned}
    assert third.consumer.paused() == set()


def test_pauses_beyond_the_size_limit_are_not_handed_over(lab):
    team = Team(lab, 2)
    most, handover.MOST_BYTES_OF_A_GENERATION = handover.MOST_BYTES_OF_A_GENERATION, 1
    try:
        first = team.joins("a")
        first.owns(2)
        paused_all(team, first, STRICT)
        second = team.joins("b")
        second.owns(1)
        first.owns(1)
        lab.sleep(1)
        assert team.left_behind("a") == [second.consumer.assignment()]
        assert len(held(first)) == 2
        first.stop()
        second.stop()
    finally:
        handover.MOST_BYTES_OF_A_GENERATION = most


@simulated(seeds=1, nightly=2)
def test_whole_pause_is_not_handed_over_and_causes_a_warning(lab):
    """G7: the next owner receives the records of its partitions."""
    team = Team(lab, 4)
    first = team.joins("a")
    first.owns(4)
    first.call(lambda consumer: consumer.pause(*consumer.assignment()))
    second = team.joins("b")
    second.owns(2)
    first.owns(2)
    lab.until(lambda: values(team, second) == 10)
    (left,) = [one for one in team.events["a"] if isinstance(one, PauseNotHandedOver)]
    assert set(left.partitions) == second.consumer.assignment()
    assert (left.is_whole, left.severity) == (True, "warning")
    assert "UNTIL_RESUMED" in (left.advice or "")


LEAVING = {
    "unsubscribe": lambda consumer, _: consumer.unsubscribe(),
    "assign": lambda consumer, tps: (consumer.unsubscribe(), consumer.assign(tps)),
}


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
def test_unsubscribe_and_assign_leave_pauses_until_resumed_with_their_owner(
    lab, leave, *, is_known
):
    """No join follows these calls, so no join could hand over the pauses."""
    team = Team(lab, 2)
    first = team.joins("a")
    first.owns(2)
    paused_all(team, first, STRICT)
    if is_known:  # another join has reported the pauses to the group
        generation = lab.generation()
        lab.cluster.fail("Heartbeat", error=27, count=1)
        lab.until(lambda: lab.generation() > generation)
        lab.sleep(5)
    first.call(lambda consumer: leave(consumer, team.tps))
    assert len(held(first)) == 2
