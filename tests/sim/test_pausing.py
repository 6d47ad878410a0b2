"""Pauses of a member outlive what happens to its group; stock's do not."""

import logging
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from safeconsumer import SafeConsumer, events
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.reading import both_protocols


@pytest.mark.contract("P6", "P8")
@pytest.mark.parametrize(
    ("kind", "leaked"), [(SafeConsumer, 0), (KafkaConsumer, 50)], ids=["ours", "stock"]
)
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
    lab.until(lambda: lab.members() and len(a.consumer.assignment()) == 4)
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
        lab.until(lambda: a.records)
        a.consumer.pause(*a.consumer.assignment())
        lab.sleep(0.6)
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
