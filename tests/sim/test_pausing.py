"""The scope, the lifetime and the events of a pause."""

import logging

import pytest
from kafka import KafkaConsumer

from safeconsumer import Lifetime, SafeConsumer, events
from safeconsumer.errors import NotConsumedError, ScopeSyntaxError
from tests.sim.playing import simulated
from tests.sim.reading import Reader, both_protocols, both_ways, stock_fails

UNKNOWN_MEMBER_ID = 25
QUICK = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}


@pytest.mark.contract("P3")
def test_strict_hold_under_a_plain_pause_is_listed_and_explained(lab):
    """A rebalance ends the plain pause, and the strict hold keeps its own reason."""
    tps = lab.topic("t", 2)
    reader = Reader(lab, SafeConsumer, "t", client_id="a")
    reader.owns(tps)
    consumer = reader.consumer
    for tp in tps:
        consumer.pause(tp, lifetime=Lifetime.UNTIL_RESUMED, for_=600, reason="DB-4211")
        consumer.pause(tp)
    assert [["DB-4211" in line for line in consumer.explain(tp)] for tp in tps] == [
        [False, True],
        [False, True],
    ]
    assert [one.reason for one in consumer.holds()] == [None, "DB-4211"] * 2
    other = lab.member(SafeConsumer, "t", name="b")
    reader.until(lambda: len(consumer.assignment()) == 1)
    (left,) = {*tps} - consumer.assignment()
    other.stop()
    reader.owns(tps)
    (line,) = consumer.explain(left)
    assert "DB-4211" in line
    assert left in consumer.quiet()


@pytest.mark.contract("P2")
@simulated(seeds=1, nightly=2)
def test_expiry_does_not_follow_the_wall_clock(lab):
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


@pytest.mark.contract("P2")
@both_protocols
@pytest.mark.parametrize("event", ["lost membership", "rebalance"])
def test_each_owner_lifts_its_own_hold_after_the_group_has_changed(
    lab, event, assignor
):
    """P2: the member gets its partitions back after a rebalance or a lost membership."""
    p0, p1 = lab.topic("t", 2, records=3)
    settings = {"assignor": assignor, **QUICK}
    reader = Reader(lab, SafeConsumer, "t", **settings)
    reader.owns([p0, p1])
    reader.consumer.pause(p0, owner="ops")
    reader.consumer.pause("t")
    if event == "rebalance":
        b = lab.member(KafkaConsumer, "t", name="b", **settings)
        reader.until(lambda: len(reader.consumer.assignment()) == 1)
        b.stop()
    else:
        lab.cluster.fail("Heartbeat", error=UNKNOWN_MEMBER_ID, count=1)
        generation = lab.generation()
        reader.until(lambda: lab.generation() > generation)
    reader.owns([p0, p1])
    for tp in (p0, p1):
        lab.append(tp, 3, first=3)
    reader.is_silent()
    (left,) = reader.consumer.resume("t")
    assert (left.owner, reader.consumer.quiet()) == ("ops", {p0})
    reader.until(lambda: 5 in reader.offsets(p1))
    assert 3 not in reader.offsets(p0)
    assert reader.consumer.resume_all("ops") == ()
    reader.until(lambda: 5 in reader.offsets(p0))


@pytest.mark.contract("P4")
def test_call_with_a_bad_target_changes_nothing_during_a_join(lab):
    """P4: no partition is assigned during the join."""
    p0, p1 = lab.topic("t", 2, records=3)
    reader = Reader(lab, SafeConsumer, "t", **QUICK)
    reader.owns([p0, p1])
    reader.consumer.pause(p0, owner="ops")
    late = lab.cluster.fail("JoinGroup", is_held=True)
    lab.cluster.fail("Heartbeat", error=UNKNOWN_MEMBER_ID, count=1)
    reader.until(lambda: late.kept and not reader.consumer.assignment())
    holds = reader.consumer.holds()
    for call in (reader.consumer.pause, reader.consumer.held):
        with pytest.raises(NotConsumedError):
            call(p1, "u").__enter__()  # only the result of ``held`` has ``__enter__``
    with pytest.raises(ScopeSyntaxError):
        reader.consumer.resume(p0, "a b", owner="ops")
    assert reader.consumer.holds() == holds
    late.end()
    reader.owns([p0, p1])
    assert reader.consumer.quiet() == {p0}


@pytest.mark.contract("P6", "P14")
@both_protocols
@simulated(seeds=1, nightly=2)
def test_pause_kept_across_rebalances_causes_no_warning(lab, caplog, assignor):
    """P6: a partition that is gained during the pause causes no warning, either."""
    lab.topic("t", 4, records=30)
    reported = []
    settings = {"assignor": assignor}
    with caplog.at_level(logging.WARNING, logger="safeconsumer"):
        a = lab.member(SafeConsumer, "t", name="a", hooks=[reported.append], **settings)
        a.owns(4)
        lab.until(lambda: a.records)
        a.consumer.pause(*a.consumer.assignment())
        lab.sleep(0.6)
        b = lab.member(KafkaConsumer, "t", name="b", **settings)
        b.owns(2)
        a.owns(2)
        b.stop()
        a.owns(4)
    held = [one for one in reported if isinstance(one, events.AssignedWhileHeld)]
    assert {one.severity for one in held} == {"info"}
    assert [one for one in reported if one.severity in {"warning", "error"}] == []
    assert [one for one in caplog.records if one.name == "safeconsumer"] == []


def _is_held_on_assignment(event):
    return isinstance(event, events.AssignedWhileHeld)


@pytest.mark.contract("P6")
@both_protocols
@pytest.mark.parametrize("is_whole", [False, True], ids=["by name", "whole"])
def test_plain_pause_that_outlives_a_lost_membership_warns_once(
    lab, caplog, assignor, *, is_whole
):
    """A program may have forgotten its pauses in ``on_partitions_lost``."""
    (p0,) = lab.topic("t", 1, records=3)
    reported = []
    reader = Reader(lab, SafeConsumer, "t", assignor=assignor, hooks=[reported.append])
    reader.reads(p0, range(3))
    reader.consumer.pause(*(reader.consumer.assignment() if is_whole else [p0]))
    with caplog.at_level(logging.WARNING, logger="safeconsumer"):
        lab.network.isolate(lab.world.outside)
        lab.until(lambda: not lab.members())
        lab.network.heal(lab.world.outside)
        reader.until(lambda: any(map(_is_held_on_assignment, reported)), seconds=60)
        reader.is_silent()
    (event,) = filter(_is_held_on_assignment, reported)
    assert event.severity == "warning"
    assert event.lost == (p0,)
    assert "outlive" in (event.advice or "")
    (line,) = [one for one in caplog.records if one.name == "safeconsumer"]
    assert "assigned_while_held" in line.getMessage()


@pytest.mark.contract("P7")
@stock_fails("partitions that a poll gains were not assigned when the loop paused")
@both_ways
@simulated(seeds=1, nightly=2)
def test_partition_gained_in_the_kafka_13463_loop_is_gated_until_the_poll_returns(
    lab, kind, how
):
    """P7: no pause covers a partition that another member has owned from the start."""
    first, second = lab.topic("t", 2, records=10)
    other = lab.member(KafkaConsumer, "t", name="a", poll_ms=2000)  # it sorts first
    other.owns(2)
    reader = Reader(lab, kind, "t", how=how, client_id="z")
    reader.owns([second], each=5, limit=1)
    reader.take(5 - len(reader.log))

    def pausing():
        assigned = reader.consumer.assignment()
        reader.consumer.pause(*assigned)
        return first in assigned

    pausing()
    other.leave()
    reader.until(pausing, each=5, seconds=60)
    reader.is_silent()
    assert reader.offsets(first) == []
    reader.consumer.resume(first)
    reader.until(lambda: reader.consumer.position(first) == 10)


@simulated(seeds=1, nightly=2)
def test_strict_hold_survives_a_changed_subscription_without_a_group(lab):
    """
    The program subscribes to the topic again, together with a new topic.

    Without a group, kafka-python applies a changed subscription only if it adds topics whose
    metadata kafka-python did not have.
    """
    tps, others, new = lab.topic("t", 2, records=10), lab.topic("u"), lab.topic("v")
    reader = Reader(lab, SafeConsumer, "t", group_id=None)
    reader.owns(tps)
    reader.consumer.pause(*tps, lifetime=Lifetime.UNTIL_RESUMED)
    reader.consumer.subscribe(["u"])
    reader.owns(others)
    reader.consumer.subscribe(["t", "v"])
    reader.owns([*tps, *new])
    reader.is_silent()
    assert reader.consumer.quiet() == set(tps)
    lab.append(new[0])
    reader.reads(new[0], [0])
