"""Two hundred members of one group; the test is nightly because it takes a minute."""

from functools import partial

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from safeconsumer import SafeConsumer
from tests.sim.lab import Member
from tests.sim.playing import simulated

PAUSED, FLOWING = "paused", ("one", "two")
TOPICS = (PAUSED, *FLOWING)
PARTITIONS = 80  # of each topic


class PausedTopic(SafeConsumer):
    """A consumer that has paused a topic before its first poll."""

    def __init__(self, *topics, **settings):
        super().__init__(*topics, **settings)
        self.pause(PAUSED)


class Team:
    """Members of the group, many of which join or leave together."""

    def __init__(self, lab, assignor):
        self.lab = lab
        self.members = []
        self._count = 0
        self._settings = {"partition_assignment_strategy": [assignor]}

    def come(self, count):
        """Start this many members, and wait until each partition has an owner."""
        wanted = len(self.members) + count
        for _ in range(count):
            self._count += 1
            self.lab.world.spawn(partial(self._start, f"member-{self._count}"))
        self.lab.until(lambda: len(self.members) == wanted)
        self._settle()

    def _start(self, name):
        self.members.append(
            Member(self.lab, PausedTopic, TOPICS, name, dict(self._settings))
        )

    def go(self, members):
        """Let these members close, and wait until the others own all partitions."""
        for one in members:
            one.leave()
        self.members = [one for one in self.members if one not in members]
        self._settle()

    def _settle(self):
        tps = {tp for name in TOPICS for tp in self.lab.partitions(name)}
        count = len(self.members)

        def is_settled():
            if self.lab.members() != count:
                return False
            owned = [tp for one in self.members for tp in one.consumer.assignment()]
            return len(owned) == len(tps) and set(owned) == tps

        self.lab.until(is_settled, what=f"{count} members own all")

    def came(self, topic):
        """Return the values received from each partition of a topic."""
        found = {}
        for one in self.members:
            for record in one.records:
                if record.topic == topic:
                    found.setdefault(record.partition, set()).add(int(record.value))
        return found


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "assignor",
    [RoundRobinPartitionAssignor, CooperativeStickyAssignor],
    ids=["eager", "cooperative"],
)
@pytest.mark.nightly
@simulated(seeds=1)
def test_pauses_hold_while_two_hundred_members_join_and_leave(lab, assignor):
    """All members pause one topic; ten of them pause everything that they own."""
    for name in TOPICS:
        lab.topic(name, PARTITIONS, records=1)
    team = Team(lab, assignor)
    team.come(150)
    quiet = team.members[:10]
    for one in quiet:
        one.call(lambda consumer: consumer.pause_all(owner="test"))
    before = [len(one.records) for one in quiet]
    team.come(50)
    team.go(team.members[10:40])
    tps = [tp for name in FLOWING for tp in lab.partitions(name)]
    for tp in tps:
        lab.append(tp, first=1)
    held = {tp for one in quiet for tp in one.consumer.assignment()}
    flowing = [tp for tp in tps if tp not in held]
    lab.until(
        lambda: all(1 in team.came(tp.topic).get(tp.partition, ()) for tp in flowing)
    )
    assert [len(one.records) for one in quiet] == before
    assert team.came(PAUSED) == {}
    for one in team.members:
        one.call(lambda consumer: consumer.resume(PAUSED))
    held_of_topic = {tp.partition for tp in held if tp.topic == PAUSED}
    wanted = {*range(PARTITIONS)} - held_of_topic
    lab.until(lambda: team.came(PAUSED).keys() >= wanted)
    assert team.came(PAUSED).keys() == wanted
