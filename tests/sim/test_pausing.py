"""Pauses of one member outlive what its group does."""

import pytest
from kafka import KafkaConsumer, TopicPartition

from safeconsumer import SafeConsumer
from tests.sim.lab import Lab
from tests.sim.playing import simulated


@pytest.mark.contract("P6")
@simulated()
def test_a_partition_that_moves_away_and_back_is_still_paused(lab: Lab) -> None:
    """P6: no rebalance that gives the partition back ends a plain pause."""
    paused = lab.topic("t", 4, records=30)
    a = lab.member(SafeConsumer, "t", name="a")
    a.owns(4)
    a.consumer.pause(*paused)
    lab.sleep(1)
    before = len(a.records)
    b = lab.member(KafkaConsumer, "t", name="b")
    b.owns(2)
    a.owns(2)
    b.stop()
    a.owns(4)
    assert a.consumer.paused() == set(paused)
    lab.sleep(5)
    assert len(a.records) == before
    a.consumer.resume(*paused)
    lab.until(lambda: all(a.consumer.position(tp) == 30 for tp in paused))
    a.stop()
    assert lab.running() == []


@pytest.mark.contract("P10")
@simulated()
def test_resume_from_another_thread_ends_a_wait_of_poll_within_50_ms(lab: Lab) -> None:
    """P10: parked data comes within 50 ms of resume()."""
    (tp,) = lab.topic("t", 1, records=100)
    a = lab.member(SafeConsumer, "t", poll_ms=60_000, max_poll_records=1)
    lab.until(lambda: a.records)
    a.consumer.pause(tp)
    lab.sleep(30)
    count, began = len(a.records), lab.now
    a.consumer.resume(tp)
    lab.until(lambda: len(a.records) > count)
    assert lab.now - began <= 0.05 + 1e-3
    a.stop()


@pytest.mark.contract("P6")
@simulated()
def test_a_member_that_was_frozen_past_its_session_keeps_its_pauses(lab: Lab) -> None:
    """P6: a lost membership ends no pause that the next join gives back."""
    lab.topic("t", 2, records=5)
    a = lab.member(SafeConsumer, "t")
    a.owns(2)
    a.consumer.pause("t")
    lab.sleep(1)
    before = len(a.records)
    group = lab.cluster.coordinator.groups["g"]
    lab.freeze(a.process)
    lab.until(lambda: not group.members)
    lab.thaw(a.process)
    lab.until(lambda: group.members and len(a.consumer.assignment()) == 2)
    lab.sleep(5)
    assert len(a.records) == before
    assert a.consumer.paused() == {TopicPartition("t", 0), TopicPartition("t", 1)}
    a.stop()
