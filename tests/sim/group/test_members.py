"""A group's holds reach every member, including members that join later."""

import itertools
import sys
from collections import Counter

import pytest

from safeconsumer import SafeConsumer
from safeconsumer.cli import waiting
from safeconsumer.errors import ControlTopicError
from safeconsumer.group import events as control_events
from safeconsumer.group import topics, verdicts
from safeconsumer.group.follower import Follower
from safeconsumer.group.operator import Operator
from safeconsumer.group.wire import ControlKey, encode_key
from tests.harness.polling import poll_until
from tests.harness.waiting import wait_for
from tests.sim.group.operating import (
    CONTROL,
    QUICK,
    cut_off,
    latecomer,
    operated,
    quiet,
    read,
)
from tests.sim.group.teams import played
from tests.sim.lab import GROUP
from tests.sim.playing import simulated


@pytest.mark.contract("G1")
@operated(nightly=4)
def test_hold_reaches_two_members_and_a_third_that_joins_later(lab, operator):
    partitions = lab.topic("t", 4, records=5)
    members = [operator.member("a"), operator.member("b")]
    lab.until(lambda: read(*members) == 20)
    operator.hold()
    began = lab.now
    lab.until(lambda: quiet(*members))
    assert lab.now - began < 1.0
    for tp in partitions:
        lab.append(tp, 10, first=5)
    lab.sleep(10)
    members.append(operator.member("c"))
    lab.sleep(20)
    assert read(*members) == 20
    operator.lift()
    lab.until(lambda: read(*members) >= 60)
    operator.stop_members()
    assert lab.running() == []


@pytest.mark.contract("G2")
@operated(nightly=4)
def test_hold_that_a_new_owner_reads_late_is_obeyed_from_the_start(lab, operator):
    """The hold was acknowledged before the partition was assigned."""
    partitions = lab.topic("t", 2, records=5)
    a = operator.member("a")
    lab.until(lambda: len(a.records) == 10)
    operator.hold()
    lab.until(lambda: quiet(a))
    b, away = latecomer(lab, operator)
    for tp in partitions:
        lab.append(tp, 10, first=5)
    lab.sleep(15)
    for one in away:
        one.end()
    lab.sleep(15)
    assert read(a, b) == 10
    operator.lift()
    lab.until(lambda: read(a, b) >= 30)


@pytest.mark.contract("G3")
@operated(nightly=4)
def test_no_member_lifts_an_operators_hold(lab, operator):
    """``resume()`` returns the remaining hold."""
    (tp,) = lab.topic("t", records=5)
    a = operator.member("a")
    lab.until(lambda: len(a.records) == 5)
    operator.hold()
    lab.until(lambda: len(a.consumer.holds()) == 1)
    a.consumer.pause(tp)
    (left,) = a.consumer.resume(tp)
    a.consumer.resume_all("app")
    assert left.owner == "operator:alice"
    lab.append(tp, 5, first=5)
    lab.sleep(20)
    assert len(a.records) == 5
    (line,) = a.consumer.explain(tp)
    assert "operator:alice" in line
    operator.lift()
    lab.until(lambda: len(a.records) == 10)


@pytest.mark.contract("G4")
@operated(nightly=4)
def test_garbage_is_skipped_and_a_record_of_a_later_version_counts_as_a_hold(
    lab, operator
):
    (tp,) = lab.topic("t", records=5)
    a = operator.member("a")
    lab.until(lambda: len(a.records) == 5)
    key = encode_key(ControlKey(GROUP, "bob", "t"))
    garbage = [(b"garbage-%d" % number, b"\xff" * 20) for number in range(50)]
    operator.write(*garbage, (key, b'{"v":9}'))
    lab.until(lambda: a.consumer.quiet() == {tp})
    assert a.consumer._safe_control._state.skipped == 50
    b = operator.member("b")
    lab.append(tp, 5, first=5)
    lab.sleep(20)
    assert (len(a.records), len(b.records)) == (5, 0)
    operator.write((key, None))
    lab.until(lambda: read(a, b) >= 10)


@pytest.mark.contract("G4")
@simulated(seeds=1)
@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_constructor_refuses_a_topic_that_loses_holds(lab, policy):
    lab.cluster.create_topic("ops", 1, {"cleanup.policy": policy})
    lab.cluster.create_topic("status", 1, topics.HOLDS_SETTINGS)
    with pytest.raises(ControlTopicError, match=r"set cleanup\.policy=compact"):
        SafeConsumer(**lab.settings(group_id=GROUP, control=CONTROL))
    lab.sleep(60)
    assert lab.running() == []


@pytest.mark.contract("G6")
@operated()
@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_hold_expires_late_by_at_most_the_clock_skew_and_never_early(
    lab, operator, ahead
):
    """The broker's time counts, even if the member's own clock is wrong."""
    (tp,) = lab.topic("t", records=5)
    a = operator.member("a", poll_ms=100)
    lab.step_clock(a.process, ahead)
    lab.until(lambda: len(a.records) == 5)
    began = lab.now
    operator.hold(for_=20.0)
    acknowledged = lab.now
    lab.until(lambda: a.consumer.quiet() == {tp})
    lab.append(tp, 5, first=5)
    lab.until(lambda: len(a.records) == 10, 200)
    assert lab.now - began >= 20.0
    assert lab.now - acknowledged <= 20.0 + CONTROL.clock_skew + 1.0


@pytest.mark.contract("G8")
@operated(nightly=4)
def test_frozen_member_is_not_quiet(lab, operator):
    """The verdict says that one of two members is quiet, and names the other's partition."""
    lab.topic("t", 2, records=5)
    a, b = operator.member("a"), operator.member("b")
    a.owns(1)
    b.owns(1)
    lab.until(lambda: read(a, b) >= 10)
    assert not operator.quietness().is_reached
    lab.freeze(b.process)
    operator.hold()
    lab.until(lambda: quiet(a))
    (unknown,) = b.consumer.assignment()
    lab.sleep(5)
    seen = operator.quietness()
    assert not seen.is_reached
    assert seen.sentence().startswith("1 of 2 members quiet")
    assert f"t:{unknown.partition}" in seen.sentence()
    lab.thaw(b.process)
    lab.sleep(10)
    assert operator.quietness().is_reached


@pytest.mark.contract("G8")
@operated()
def test_member_that_stopped_reporting_long_ago_is_not_said_to_flow(lab, operator):
    """A program keeps one operator, and does not look at the group for a long time."""
    lab.topic("t", records=5)
    a = operator.member("a", group_instance_id="a", session_timeout_ms=1_800_000)
    a.owns(1)
    with operator.looking() as looking:
        assert waiting.is_flowing(looking.look(GROUP), ())[0]
        lab.sleep(600)
        lab.freeze(a.process)
        lab.sleep(600)
        seen = looking.look(GROUP)
    lab.thaw(a.process)
    assert not waiting.is_flowing(seen, ())[0]
    assert seen.reporting == 0


@pytest.mark.contract("G8")
@operated()
def test_follower_after_an_outage_does_not_show_a_frozen_member_as_reporting(
    lab, operator
):
    lab.topic("t", records=5)
    a = operator.member("a", group_instance_id="a", session_timeout_ms=1_800_000)
    a.owns(1)
    with Follower(lab.connection, CONTROL) as following:
        lab.until(lambda: _reporting(following) == 1)
        fault = lab.cluster.fail("*", is_cut=True, client_id="safeconsumer-console")
        lab.sleep(60)
        lab.freeze(a.process)
        lab.sleep(60)
        fault.end()
        lab.until(lambda: following.snapshot().trouble is None)
        seen = _reporting(following)
    lab.thaw(a.process)
    assert seen == 0


def _reporting(following):
    view = following.snapshot().views.get(GROUP)
    return None if view is None else view.reporting


@operated(nightly=4)
def test_idle_member_sends_only_fetches_and_reports(lab, operator):
    lab.topic("t", 4)
    a = operator.member("a")
    a.owns(4)
    lab.sleep(10)
    since = len(lab.cluster.requests)
    lab.sleep(30)
    asked = Counter(
        one.api
        for one in [*lab.cluster.requests][since:]
        if one.client_id == "a-control"
    )
    assert asked.keys() <= {"Fetch", "Produce", "Metadata", "DescribeConfigs"}
    assert 9 <= asked["Produce"] <= 11  # status_interval is 3 s
    assert asked["Fetch"] <= 61  # fetch_max_wait_ms is 500


@pytest.mark.contract("W8")
@operated(nightly=4)
@pytest.mark.parametrize("is_answered", [True, False])
def test_close_takes_no_longer_than_its_timeout(lab, *, is_answered):
    """Threads, clients and leaving the group share one deadline."""
    lab.topic("t", 4)
    consumer = SafeConsumer("t", **lab.settings(group_id=GROUP, control=CONTROL))
    while not consumer.assignment():
        consumer.poll(100)
    if not is_answered:
        lab.cluster.fail("*", is_held=True)
    began = lab.now
    consumer.close(autocommit=False, timeout_ms=500)
    assert lab.now - began <= 0.6
    lab.sleep(60)
    assert lab.running() == []


@simulated(seeds=1)
def test_member_rarely_requests_a_missing_status_topic(lab, caplog):
    """A member reports once the topic is created."""
    lab.topic("t", 1)
    lab.cluster.create_topic("ops", 1, topics.HOLDS_SETTINGS)
    a = lab.member(SafeConsumer, "t", control=CONTROL)
    a.owns(1)
    since = len(lab.cluster.requests)
    caplog.clear()
    lab.sleep(40)
    assert lab.kinds(since).count("Metadata") < 10
    errors = [one for one in caplog.records if one.name.startswith("kafka.")]
    assert len(errors) <= 4  # kafka-python logs errors for each of two requests
    lab.cluster.create_topic("status", 1, topics.STATUS_SETTINGS)
    since = len(lab.cluster.requests)
    lab.until(lambda: "Produce" in lab.kinds(since))


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    "settings", [{}, {"group_instance_id": "a"}], ids=["dynamic", "static"]
)
@operated(nightly=5)
def test_killed_member_that_was_quiet_stays_quiet(lab, operator, settings):
    """The verdict covers the killed member until the next owner has its partitions."""
    lab.topic("t", 4, records=5)
    quick = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 1000}
    a, b = operator.member("a", **quick, **settings), operator.member("b", **quick)
    for one in (a, b):
        one.owns(2)
    operator.hold()
    operator.wait_until_quiet()
    lab.kill(a.process)
    seen, is_held_again = [], False
    with operator.looking() as looking:
        began = lab.now
        while lab.now < began + 80:
            if lab.now > began + 16 and not is_held_again:
                operator.hold("t")  # the dead member had applied the first hold
                is_held_again = True
                lab.sleep(1)
            view = looking.look(GROUP)
            if view.facts.state == "Stable":
                owners = {one.owner for one in view.partitions}
                seen.append((owners, view.verdict.words))
            lab.sleep(2)
    first, *between, last = [one for one, _ in itertools.groupby(seen)]
    assert (first, last) == (({"a", "b"}, "quiet"), ({"b"}, "quiet"))
    # The group is stable 0.1 s before its member reports the new partitions.
    assert between in ([], [({"b"}, "unknown")])


@operated()
def test_restarted_static_member_is_quiet_once_it_has_reported(lab, operator):
    lab.topic("t", 2, records=5)
    a = operator.member("a", group_instance_id="a", **QUICK)
    a.owns(2)
    operator.hold()
    operator.wait_until_quiet()
    lab.kill(a.process)
    lab.sleep(2)
    again = operator.member("a", group_instance_id="a", **QUICK)
    again.owns(2)
    operator.wait_until_quiet(seconds=5)
    with operator.looking() as looking:
        began = lab.now
        while lab.now < began + 20:  # the killed member's session ends within this time
            assert looking.look(GROUP).verdict.words == "quiet"
            lab.sleep(2)


@pytest.mark.contract("G2")
@played()
def test_manually_assigned_partitions_wait_for_the_control_topics(team):
    team.operator_holds(f"{team.topic}:0")
    consumer = team.member()
    consumer.assign(team.partitions[:2])
    got = {}
    poll_until(consumer, lambda: len(got.get(team.partitions[1], ())) == 5, got=got)
    assert team.partitions[0] not in got


@played()
def test_hook_that_raises_system_exit_does_not_end_the_reader(team):
    asked = []

    def leave(event):
        if isinstance(event, control_events.ControlReady) and not asked:
            asked.append(event)
            sys.exit(1)

    consumer = team.ready(hooks=(leave,))
    assert asked
    team.operator_holds("@all")
    poll_until(consumer, team.is_quiet(consumer))


@played()
def test_closed_static_member_counts_as_stopped(team):
    """Kafka lists the member until its session ends."""
    consumer = team.ready("a", control=team.quick, group_instance_id="one")
    consumer.close()
    with Operator(team.broker.client_config, team.quick) as operator:
        wait_for(lambda: not operator.look(team.group).reports, "its last report")
        (found,) = operator.look(team.group).members
    assert found.verdict == verdicts.STOPPED


# ---------------------------------------------------------------- a program's own pauses

PAUSES = {
    "the rest": lambda it: it.pause(*(it.assignment() - it.paused())),
    "the rest, listed": lambda it: it.pause(
        *[tp for tp in it.assignment() if tp not in it.paused()]
    ),
    "unless paused": lambda it: None if it.paused() else it.pause(*it.assignment()),
}


def gains_stay_quiet(lab, mine, other):
    """Stop the other member; assert that all partitions of this member stay quiet."""
    before = len(mine.records)
    other.stop()
    mine.owns(4)
    for tp in lab.partitions("t"):
        lab.append(tp, 5, first=5)
    lab.sleep(10)
    assert len(mine.records) == before


@pytest.mark.contract("P3", "P7", "G1")
@pytest.mark.parametrize(
    ("pause", "held"),
    [
        ("the rest", "one"),
        ("the rest, listed", "topic"),
        pytest.param("unless paused", "one", marks=pytest.mark.nightly),
    ],
)
@operated(nightly=3)
def test_operators_hold_does_not_cause_a_leak_during_the_programs_pause(
    lab, operator, pause, held
):
    """No partition is delivered during the pause, even after the hold is lifted."""
    lab.topic("t", 4, records=5)
    a, b = operator.member("a"), operator.member("b")
    a.owns(2)
    b.owns(2)
    lab.until(lambda: len(a.records) + len(b.records) >= 20)
    first = min(a.consumer.assignment())
    scope = f"t:{first.partition}" if held == "one" else "t"
    operator.hold(scope)
    lab.until(lambda: first in a.consumer.quiet())
    assert a.consumer.paused() == set()
    a.call(PAUSES[pause])
    gains_stay_quiet(lab, a, b)
    operator.lift(scope)
    lab.sleep(10)
    assert a.consumer.quiet() == a.consumer.paused() == set(lab.partitions("t"))
    before = len(a.records)
    a.call(lambda consumer: consumer.resume(*consumer.paused()))
    lab.until(lambda: len(a.records) >= before + 20)
    assert a.consumer.quiet() == set()


@pytest.mark.contract("P3", "P7", "G2")
@operated(nightly=3)
def test_program_can_pause_before_the_control_topics_are_read(lab, operator):
    """A closed gate is not a pause by the program, so the program can pause everything."""
    lab.topic("t", 4, records=5)
    b = operator.member("b")
    lab.until(lambda: len(b.records) == 20)
    away = cut_off(lab, "a")
    a = operator.member("a")
    a.owns(2)
    assert a.consumer.quiet() == a.consumer.assignment()
    assert a.consumer.paused() == set()
    a.call(PAUSES["the rest"])
    for one in away:
        one.end()
    lab.until(lambda: not a.consumer._safe_ledger.control_gates())
    gains_stay_quiet(lab, a, b)
    a.call(lambda consumer: consumer.resume(*consumer.paused()))
    lab.until(lambda: len(a.records) >= 20)
