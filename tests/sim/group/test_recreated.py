"""P21: a topic is deleted and recreated under a hold of its group."""

import json

import pytest

from safeconsumer.events import TopicRecreated
from tests.harness.group.team import run
from tests.harness.members import Polled
from tests.harness.waiting import wait_for
from tests.sim.group.operating import latecomer, operated
from tests.sim.group.teams import played

pytestmark = pytest.mark.contract("P21")


def recreate(lab, count, partitions=1):
    lab.cluster.delete_topic("t")
    tps = lab.topic("t", partitions)
    for tp in tps:
        lab.append(tp, count, first=100)
    return tps


def new(one, tp):
    return [value for value in one.values(tp) if value >= 100]


@pytest.mark.contract("G1")
@pytest.mark.parametrize("count", [25, 3], ids=["longer", "shorter"])
@operated(nightly=4)
def test_recreated_held_topic_is_read_from_its_first_record(lab, operator, count):
    (tp,) = lab.topic("t", records=10)
    one = operator.member("a", enable_auto_commit=True, auto_offset_reset="latest")
    one.owns(1)
    lab.append(tp, 10)
    lab.until(lambda: len(one.records) >= 10)
    operator.hold()
    lab.until(lambda: one.consumer.quiet() == {tp})
    lab.sleep(10)
    recreate(lab, count)
    lab.sleep(60)
    assert lab.committed(tp) in {None, 0}
    assert new(one, tp) == []
    operator.lift()
    lab.until(lambda: len(new(one, tp)) >= count)
    lab.sleep(5)
    assert new(one, tp) == [*range(100, 100 + count)]


@pytest.mark.contract("G2")
@operated(nightly=4)
def test_recreated_gated_topic_is_read_from_its_first_record(lab, operator):
    """The control topics cannot be read before the topic is recreated."""
    lab.topic("t", 2, records=10)
    a = operator.member("a")
    lab.until(lambda: len(a.records) == 20)
    b, away = latecomer(lab, operator)
    (owned,) = b.consumer.assignment()
    recreate(lab, 5, partitions=2)
    lab.sleep(20)
    assert b.records == []
    for one in away:
        one.end()
    lab.until(lambda: len(b.values(owned)) >= 5)
    lab.sleep(5)
    assert b.values(owned) == [*range(100, 105)]


@played(partitions=2)
def test_status_names_a_recreated_topic(team):
    """``status`` names the topic until its member has read a record of the new topic."""
    group = ("--group", team.group)
    consumer = team.ready("billing-1", metadata_max_age_ms=1000)
    with Polled(consumer):
        consumer.commit()
        held = run(team, "pause", team.topic, *group, "--reason", "x", "--wait", "60s")
        assert held.exit_code == 0
        team.broker.delete_topic(team.topic)
        team.broker.create_topic(team.topic, 2)
        line = (
            f"{team.topic}: deleted and recreated, and nothing of the new topic was "
            "read yet"
        )
        wait_for(lambda: line in run(team, "status", *group).stdout, "a report of it")
        document = json.loads(run(team, "status", *group, "-o", "json").stdout)
        assert document["by_member"][0]["report"]["recreated"] == [team.topic]
        waited = run(team, "wait", "quiet", *group, "--timeout", "20s")
        assert line in waited.stdout + waited.stderr, waited
        assert run(team, "resume", team.topic, *group).exit_code == 0
        team.produce(1)
        wait_for(
            lambda: all(consumer.position(tp) == 1 for tp in team.partitions),
            "it is read",
        )
        consumer.commit()
        wait_for(
            lambda: line not in run(team, "status", *group).stdout,
            "a report of what was read",
        )
    assert team.emitted(consumer).of(TopicRecreated)
