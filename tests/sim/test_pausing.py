"""Pauses of a member outlive what happens to its group; stock's do not."""

import logging
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from safeconsumer import SafeConsumer, events
from tests.sim.lab import Lab, Member
from tests.sim.playing import simulated
from tests.sim.reading import both_protocols


def leaks(stock: int) -> pytest.MarkDecorator:
    """Play a test with both clients; say how many records stock's pause lets through."""
    both = [
        pytest.param(SafeConsumer, 0, id="ours"),
        pytest.param(KafkaConsumer, stock, id="stock"),
    ]
    return pytest.mark.parametrize(("kind", "leaked"), both)


def quiet(member: Member, *paused: TopicPartition) -> int:
    """Pause partitions, wait out the poll that runs, and return what came until then."""
    member.lab.until(lambda: member.records)
    member.consumer.pause(*(paused or member.consumer.assignment()))
    member.lab.sleep(0.6)
    return len(member.records)


def joined(lab: Lab, member: Member, count: int) -> None:
    """Wait until the coordinator has a member again, and it owns so many partitions."""
    lab.until(lambda: lab.members() and len(member.consumer.assignment()) == count)


@pytest.mark.contract("P6", "P8")
@leaks(stock=50)
@simulated()
def test_one_of_two_topics_is_held_through_a_cut_and_a_lost_session(
    lab: Lab, kind: type[KafkaConsumer], leaked: int
) -> None:
    """P8: the topic that flows loses nothing, the one that is held gives nothing."""
    held = lab.topic("t", 2)
    lab.topic("u", 2)
    a = lab.member(kind, "t", "u")
    a.owns(4)
    a.consumer.pause(*held)
    sender = KafkaProducer(client_id="sender", **lab.connection)
    for number in range(100):
        sender.send("tu"[number % 2], b"%d" % number, partition=number // 2 % 2)
        if number == 50:
            lab.network.reset(a.process)
    sender.close()
    lab.until(lambda: sum(one.topic == "u" for one in a.records) == 50)
    lab.network.isolate(a.process)
    lab.sleep(70)
    lab.network.heal(a.process)
    joined(lab, a, 4)
    lab.sleep(5)
    assert sum(one.topic == "t" for one in a.records) == leaked
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


@pytest.mark.contract("P2")
@simulated()
def test_an_expiry_does_not_follow_the_wall_clock(lab: Lab) -> None:
    """P2: how long a hold lasts is not changed by a wall clock that is set."""
    lab.topic("t", 1, records=1)
    a = lab.member(SafeConsumer, "t", start_paused=True)
    a.consumer.pause("t", owner="ops", for_=120)
    a.consumer.resume_all("app")
    began = lab.now
    lab.step_clock(a.process, 3600)
    lab.sleep(60)
    lab.step_clock(a.process, -7200)
    lab.until(lambda: a.records)
    assert 120 <= lab.now - began < 120.2
    a.stop()


@pytest.mark.contract("P6", "P8")
@pytest.mark.parametrize("kind", [KafkaConsumer, SafeConsumer])
@simulated()
def test_a_member_that_was_killed_leaves_its_partitions_to_the_others(
    lab: Lab, kind: type[KafkaConsumer]
) -> None:
    """P8: across ownerships the committed offset rules; the survivor's pause stays."""
    partitions = lab.topic("t", 4, records=10)
    a = lab.member(SafeConsumer, "t", name="a")
    b = lab.member(kind, "t", name="b")
    a.owns(2)
    b.owns(2)
    lab.until(lambda: len(a.records) + len(b.records) == 40)
    lost = sorted(b.consumer.assignment())
    b.call(lambda consumer: consumer.commit())
    kept = [TopicPartition(*tp) for tp in a.consumer.assignment()]
    a.consumer.pause(*kept)
    lab.kill(b.process)
    a.owns(4)
    for tp in partitions:
        lab.append(tp, 5, first=10)
    lab.until(lambda: all(a.consumer.position(tp) == 15 for tp in lost))
    assert all(a.values(tp) == [10, 11, 12, 13, 14] for tp in lost)
    assert a.consumer.paused() == set(kept)
    a.stop()


@pytest.mark.contract("P6", "P14")
@both_protocols
@simulated()
def test_what_a_program_that_does_nothing_wrong_is_told(
    lab: Lab, caplog: pytest.LogCaptureFixture, assignor: type
) -> None:
    """P6: a pause that rebalances keep, with what comes under it, is no warning."""
    lab.topic("t", 4, records=30)
    told: list[events.Event] = []
    settings: dict[str, Any] = {"partition_assignment_strategy": [assignor]}
    with caplog.at_level(logging.WARNING, logger="safeconsumer"):
        a = lab.member(SafeConsumer, "t", name="a", hooks=[told.append], **settings)
        a.owns(4)
        quiet(a)
        b = lab.member(KafkaConsumer, "t", name="b", **settings)
        b.owns(2)
        a.owns(2)
        b.stop()
        a.owns(4)
    bit = [one for one in told if isinstance(one, events.HoldsBit)]
    assert {one.severity for one in bit} == {"info"}
    assert [one for one in told if one.severity in {"warning", "error"}] == []
    assert [one for one in caplog.records if one.name == "safeconsumer"] == []
    a.stop()
