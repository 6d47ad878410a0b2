"""Holds of a group reach every member, and those that come later."""

import pytest
from kafka import KafkaProducer

from safeconsumer import Control, SafeConsumer
from safeconsumer.group import clients, topics
from safeconsumer.group.publisher import changes, new_hold, publish
from tests.sim.lab import GROUP, Lab, Member
from tests.sim.playing import simulated

CONTROL = Control(operator_topic="ops", group_topic="own", status_topic="status")


class Operator:
    """Writes operator holds on the whole group."""

    def __init__(self, lab: Lab) -> None:
        for name in ("ops", "own"):
            lab.cluster.create_topic(name, 1, topics.HOLDS_SETTINGS)
        lab.cluster.create_topic("status", 1, topics.STATUS_SETTINGS)
        self._lab = lab

    def hold(self) -> None:
        """Place a hold."""
        self._publish(new_hold("test", None))

    def lift(self) -> None:
        """Lift it."""
        self._publish(None)

    def _publish(self, hold: object) -> None:
        writer: KafkaProducer = clients.producer(self._lab.settings(), 10.0)
        change = changes(GROUP, "alice", ["@all"], hold)  # type: ignore[arg-type]
        publish(lambda: writer, "ops", change, 10.0)
        writer.close()


def member(lab: Lab, name: str) -> Member:
    """Start a member that obeys the control topics."""
    return lab.member(SafeConsumer, "t", name=name, control=CONTROL)


def read(*members: Member) -> int:
    """Return how many records came to members."""
    return sum(len(one.records) for one in members)


@pytest.mark.contract("G1", "G2")
@simulated(seeds=2)
def test_a_hold_reaches_two_members_and_a_third_that_comes_later(lab: Lab) -> None:
    """G1: for every member, now and in the future, until it is lifted."""
    operator = Operator(lab)
    partitions = lab.topic("t", 4, records=5)
    members = [member(lab, "a"), member(lab, "b")]
    lab.until(lambda: read(*members) == 20)
    operator.hold()
    began = lab.now
    lab.until(
        lambda: all(m.consumer.paused() == m.consumer.assignment() for m in members)
    )
    assert lab.now - began < 1.0
    for tp in partitions:
        lab.append(tp, 10, first=5)
    lab.sleep(10)
    members.append(member(lab, "c"))
    lab.sleep(30)
    assert read(*members) == 20
    operator.lift()
    lab.until(lambda: read(*members) >= 60)
    for one in members:
        one.stop()
    assert lab.running() == []


@pytest.mark.contract("G2", "G5")
@simulated(seeds=2)
def test_what_is_assigned_while_the_control_topic_is_away_stays_quiet(
    lab: Lab,
) -> None:
    """G5: newly assigned partitions stay gated; the topic's return opens them."""
    Operator(lab)
    partitions = lab.topic("t", 2, records=5)
    a = member(lab, "a")
    lab.until(lambda: len(a.records) == 10)
    away = lab.cluster.fail("ListOffsets", is_held=True)
    b = member(lab, "b")
    lab.sleep(120)
    for tp in partitions:
        lab.append(tp, 10, first=5)
    lab.sleep(60)
    assert b.records == []
    away.end()
    lab.until(lambda: read(a, b) >= 30)
    a.stop()
    b.stop()
