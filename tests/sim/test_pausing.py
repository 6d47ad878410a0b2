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


@pytest.mark.contract("P6")
@leaks(stock=60)
@simulated()
def test_partitions_that_move_away_and_back(
    lab: Lab, kind: type[KafkaConsumer], leaked: int
) -> None:
    """P6: no rebalance that gives the partition back ends a pause."""
    paused = lab.topic("t", 4, records=30)
    a = lab.member(kind, "t", name="a")
    a.owns(4)
    before = quiet(a)
    b = lab.member(KafkaConsumer, "t", name="b")
    b.owns(2)
    a.owns(2)
    b.stop()
    a.owns(4)
    lab.sleep(5)
    assert len(a.records) - before == leaked
    a.consumer.resume(*paused)
    lab.until(lambda: all(a.consumer.position(tp) == 30 for tp in paused))
    a.stop()


@pytest.mark.contract("P6")
@leaks(stock=120)
@simulated()
def test_a_handler_of_400_s_at_kafkas_limit_of_300_s(
    lab: Lab, kind: type[KafkaConsumer], leaked: int
) -> None:
    """P6: max.poll.interval exceeded ends no pause that the next join gives back."""
    lab.topic("t", 4, records=30)
    a = lab.member(kind, "t", max_poll_interval_ms=300_000)
    a.owns(4)
    before, generation = quiet(a), lab.generation()
    a.nap = 400
    lab.sleep(410)
    joined(lab, a, 4)
    lab.sleep(5)
    assert lab.generation() > generation
    assert len(a.records) - before == leaked
    a.stop()


@pytest.mark.contract("P6")
@leaks(stock=120)
@simulated()
def test_frozen_for_a_minute_past_its_session(
    lab: Lab, kind: type[KafkaConsumer], leaked: int
) -> None:
    """P6: a lost membership ends no pause that the next join gives back."""
    lab.topic("t", 4, records=30)
    a = lab.member(kind, "t", session_timeout_ms=45_000)
    a.owns(4)
    before = quiet(a)
    lab.freeze(a.process)
    lab.sleep(60)
    assert not lab.members()
    lab.thaw(a.process)
    joined(lab, a, 4)
    lab.sleep(5)
    assert len(a.records) - before == leaked
    a.stop()


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


@pytest.mark.contract("P2", "P3")
@pytest.mark.parametrize("wide", ["t", "re:t.*", "@all"])
@simulated(seeds=1)
def test_a_resume_lifts_the_hold_of_its_own_scope_only(lab: Lab, wide: str) -> None:
    """P3: a partition's own hold stays, and is returned, when a wider one is lifted."""
    held, flowing = lab.topic("t", 2, records=3)
    a = lab.member(SafeConsumer, "t", start_paused=True)
    a.owns(2)
    a.consumer.pause("t:0", owner="ops")
    a.consumer.pause(wide, owner="ops")
    a.consumer.resume_all("app")
    (left,) = a.consumer.resume(wide, owner="ops")
    assert str(left.scope) == "t:0"
    lab.until(lambda: a.values(flowing) == [0, 1, 2])
    lab.sleep(5)
    assert a.values(held) == []
    a.stop()


@pytest.mark.contract("P1", "P2")
@simulated()
def test_a_hold_expires_by_itself_and_never_early(lab: Lab) -> None:
    """P2: a hold with an expiry ends when it is over, whoever else lifted theirs."""
    lab.topic("t", 1, records=1)
    a = lab.member(SafeConsumer, "t", start_paused=True)
    a.owns(1)
    a.consumer.pause("t", owner="ops", for_=120)
    a.consumer.resume_all("app")
    began = lab.now
    lab.until(lambda: a.records)
    assert 120 <= lab.now - began < 120.2
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


@pytest.mark.contract("P5", "P7")
@simulated()
def test_what_is_not_assigned_yet_is_held_when_it_comes(lab: Lab) -> None:
    """P7: a topic's hold covers a partition from the instant it is assigned."""
    lab.topic("t", 4, records=20)
    b = lab.member(KafkaConsumer, "t", name="b")
    b.owns(4)
    a = lab.member(SafeConsumer, "t", name="a")
    a.consumer.pause("t", owner="ops")
    a.owns(2)
    before = len(a.records)
    b.stop()
    a.owns(4)
    lab.sleep(10)
    assert len(a.records) == before
    a.consumer.resume("t", owner="ops")
    lab.until(lambda: all(a.consumer.position(tp) == 20 for tp in lab.partitions("t")))
    a.stop()


@pytest.mark.contract("P11")
@simulated()
def test_what_is_paused_is_not_fetched_and_stays_a_member(lab: Lab) -> None:
    """P11: a paused member keeps its generation, sends no Fetch and does not spin."""
    lab.topic("t", 2, records=5)
    a = lab.member(SafeConsumer, "t", poll_ms=10_000)
    a.owns(2)
    quiet(a)
    lab.sleep(10)
    asked, turns = len(lab.history()), lab.world.turns
    generation, began = lab.generation(), lab.now
    lab.sleep(150)
    kinds = lab.kinds(asked)
    assert "Fetch" not in kinds
    assert kinds.count("Heartbeat") == 50
    assert lab.generation() == generation
    assert (lab.world.turns - turns) / (lab.now - began) < 50
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
