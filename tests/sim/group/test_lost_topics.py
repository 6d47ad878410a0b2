"""Deleted control topics, and a deleted topic of the group."""

from itertools import product

import pytest
from attrs import evolve

from safeconsumer.cli.errors import Status
from safeconsumer.group import topics
from safeconsumer.group.carry_out import carry_out
from safeconsumer.group.operator import Operator
from safeconsumer.group.plan import place_action
from tests.harness.group.team import run
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.harness.waiting import wait_for
from tests.sim.group.operating import CONTROL, QUICK, operated, read
from tests.sim.group.teams import played


@pytest.mark.contract("G5")
@played()
def test_holds_kept_by_members_after_their_topic_was_lost_are_lifted_by_name(team):
    team.settings = team.quick
    member = team.ready()
    scopes = [f"{team.topic}:{number}" for number in range(4)]
    with Polled(member):
        team.operator_holds(*scopes, team.topic, "@all")
        wait_for(lambda: len(member.holds()) == 6, "the holds")
        name = team.settings.holds_topic
        team.broker.delete_topic(name)

        def shown():
            return run(team, "status", "--group", team.group).stdout

        wait_for(lambda: "  unavailable  " in shown(), "a report of that", pause=1.0)
        assert "1 member, 1 reports" in shown()
        assert f"not read: no topic {name}: " in shown()
        team.create(name, topics.HOLDS_SETTINGS)
        wait_for(lambda: "kept by members" in shown(), "a report of it", pause=1.0)
        assert "; and 2 more" in shown()
        whose = ("--group", team.group, "--owner", "alice")
        for scope in (*scopes, team.topic, "@all"):
            ended = run(team, "resume", scope, *whose)
            assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
            assert f"lifted {scope} operator:alice" in ended.stdout
        wait_for(lambda: not member.holds(), "the lifts")
        ended = run(team, "resume", "@all", *whose)
        assert "was not held: @all operator:alice" in ended.stdout


@played()
def test_wait_for_flowing_fails_for_a_deleted_topic(team):
    """A member that assigned the topic manually still reports the topic as flowing."""
    team.settings = team.quick
    team.broker.lab.cluster.creates_topics = False
    member = team.member()
    member.assign(team.partitions)
    waits = ("wait", "flowing", team.topic, "--group", team.group, "--timeout")
    with Polled(member):
        wait_for(
            lambda: run(team, *waits, "0s").exit_code == Status.DONE,
            "a report of it",
            pause=1.0,
        )
        team.broker.delete_topic(team.topic)
        for what in (waits, ("wait", "flowing", *waits[3:])):
            ended = run(team, *what, "5s")
            assert ended.exit_code == Status.FAILED
            assert ended.stderr == (
                f"safeconsumer: not flowing: there is no topic {team.topic} any more\n"
            )


@pytest.mark.contract("G1")
@played()
def test_long_lived_connection_places_a_hold_again_on_a_recreated_topic(team):
    """Members that start later do not know the hold of the deleted topic."""
    action = place_action(
        group=team.group, owner="alice", texts=["@all"], reason="x", for_=None
    )

    def place():
        view = operator.look(team.group, is_strict=True)
        return carry_out(operator, view, action, operator, lambda _: True)

    with Operator(team.broker.client_config, team.settings) as operator:
        assert [place().plan.is_done for _ in range(2)] == [False, True]
        team.broker.delete_topic(team.settings.holds_topic)
        team.create(team.settings.holds_topic, topics.HOLDS_SETTINGS)
        done = place()
        assert [one.key.scope for one in done.plan.renewed] == ["@all"]
        assert len(done.acknowledged) == 1
        assert place().plan.is_done
    newcomer = team.ready()
    poll_until(newcomer, lambda: newcomer.quiet() == {*team.partitions})
    assert [newcomer.position(tp) for tp in team.partitions] == [0] * 4


TOPIC_AUTHORIZATION_FAILED = 29


def refuse(lab):
    refused = TOPIC_AUTHORIZATION_FAILED
    for api, name in product(("Fetch", "ListOffsets"), ("a-control", "b-control")):
        lab.cluster.fail(api, error=refused, client_id=name)


def make_unfit(lab):
    topic = lab.cluster.topics.get("ops")
    assert topic is not None
    topic.settings["cleanup.policy"] = "delete"


WRONG = {
    "deleted": lambda lab: lab.cluster.delete_topic("ops"),
    "refused": refuse,
    "unfit": make_unfit,
}


@pytest.mark.contract("G5")
@pytest.mark.parametrize("name", WRONG)
@operated()
def test_member_stays_and_keeps_its_holds_when_a_control_topic_is_lost(
    lab, operator, name
):
    """A new member's partitions are gated, and stay so when they move to the old member."""
    emitted = []
    zero, one = lab.topic("t", 2, records=5)
    control = evolve(CONTROL, check_interval=1.0)
    a = operator.member("a", hooks=[emitted.append], control=control, **QUICK)
    lab.until(lambda: read(a) == 10)
    operator.hold("t:0")
    lab.until(lambda: a.consumer.quiet() == {zero})
    generation = lab.generation()
    WRONG[name](lab)
    lab.until(lambda: "control_unavailable" in {event.name for event in emitted})
    for tp in (zero, one):
        lab.append(tp, 5, first=5)
    lab.until(lambda: read(a) == 15)
    lab.sleep(2)
    assert (read(a), lab.generation()) == (15, generation)
    if name != "unfit":  # the constructor would refuse that topic (G4)
        b = operator.member("b", control=control, **QUICK)
        b.owns(1)
        lab.sleep(1)
        lab.kill(b.process) if name == "deleted" else b.stop()
        a.owns(2)
        lab.sleep(1)
        assert (read(a), read(b)) == (15, 0)
        assert a.consumer.quiet() == {zero, one}


@pytest.mark.contract("G5")
@pytest.mark.parametrize("unavailable", ["hold", "run"])
@operated()
def test_member_that_starts_without_its_control_topics_waits_or_delivers(
    lab, operator, unavailable
):
    emitted = []
    zero, one = lab.topic("t", 2, records=5)
    operator.hold("t:0")
    away = lab.cluster.fail("Fetch", is_held=True, client_id="a-control")
    control = evolve(CONTROL, unavailable=unavailable, run_after=2.0)
    a = operator.member("a", hooks=[emitted.append], control=control, **QUICK)
    a.owns(2)
    lab.sleep(4)
    is_open = unavailable == "run"
    assert read(a) == (10 if is_open else 0)
    names = [event.name for event in emitted]
    assert names.count("gates_opened_unread") == int(is_open)
    away.end()
    lab.until(lambda: a.consumer.quiet() == {zero})
    lab.append(zero, 5, first=5)
    lab.append(one, 5, first=5)
    lab.until(lambda: read(a) == (15 if is_open else 10))


@pytest.mark.contract("G8")
@operated()
def test_member_soon_reports_again_after_one_unknown_topic_error(lab, operator):
    """A broker may return this error while the leader of an existing topic moves."""
    lab.topic("t", 1, records=5)
    operator.member("a")
    lab.sleep(30)
    reports = lab.cluster.log(str(CONTROL.status_topic), 0)
    lab.cluster.fail("Produce", error=3, count=1)
    lab.sleep(10)
    before = reports.end
    lab.sleep(5)
    assert reports.end > before


@operated()
def test_broker_that_flaps_is_reported_once_a_minute(lab, operator):
    emitted = []
    lab.topic("t", 1)
    a = operator.member("a", hooks=[emitted.append])
    a.owns(1)

    def names():
        wanted = {"control_unavailable", "control_ready"}
        return [one.name for one in emitted if one.name in wanted]

    for _ in range(15):
        lab.cluster.fail(
            "Fetch", error=TOPIC_AUTHORIZATION_FAILED, client_id="a-control", count=1
        )
        lab.sleep(3)
    assert names() == ["control_ready", "control_unavailable", "control_ready"]
    away = lab.cluster.fail(
        "Fetch", error=TOPIC_AUTHORIZATION_FAILED, client_id="a-control"
    )
    lab.sleep(15)
    assert names()[3:] == ["control_unavailable"]
    away.end()
    lab.sleep(5)
    assert names()[4:] == ["control_ready"]


@pytest.mark.contract("G2")
@operated(nightly=4)
def test_gate_is_not_opened_by_the_offsets_of_an_earlier_holds_topic(lab, operator):
    """The new topic has as many records as the old one, and fetches get no response."""
    tps = lab.topic("t", 2, records=5)
    operator.hold("later")
    operator.lift("later")
    a, b = operator.member("a"), operator.member("b")
    lab.until(lambda: read(a, b) == 10)
    lab.sleep(10)
    slow = lab.cluster.fail("Fetch", is_held=True, client_id="a-control")
    (gained,) = {*tps} - a.consumer.assignment()
    b.stop()
    lab.cluster.delete_topic("ops")
    lab.cluster.create_topic("ops", 1, topics.HOLDS_SETTINGS)
    operator.hold("t")
    operator.hold("u")
    assert gained not in a.consumer.assignment()
    lab.append(gained, 10, first=100)
    a.owns(2)
    lab.sleep(4)
    assert [value for value in a.values(gained) if value >= 100] == []
    slow.end()
    lab.until(lambda: [str(one.scope) for one in a.consumer.holds()] == ["t", "u"])
    assert [value for value in a.values(gained) if value >= 100] == []
