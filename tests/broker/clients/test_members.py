"""Tests members on confluent-kafka and aiokafka during holds and after lifts."""

import threading
from contextlib import ExitStack

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from safeconsumer import ALL
from safeconsumer.cli.errors import Status
from safeconsumer.clients import control_topics
from safeconsumer.errors import (
    ControlSettingError,
    ControlTopicError,
    HoldSettingError,
    HookTypeError,
    MemberClosedError,
    ScopeSyntaxError,
    TargetTypeError,
)
from safeconsumer.events import (
    ControlTopicReset,
    ControlUnavailable,
    GatesChanged,
    HoldCoversNothing,
    RebalanceCompleted,
)
from safeconsumer.group import topics
from tests.harness.group.aiokafka import ASSIGNORS
from tests.harness.group.confluent import NEWER
from tests.harness.group.team import run
from tests.harness.metrics.scraping import values
from tests.harness.polling import poll_until, read
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.any_broker

_CLASSIC = [
    *("confluent-range", "confluent-cooperative-sticky"),
    *(f"aiokafka-{one}" for one in ASSIGNORS),
]
CLASSIC = pytest.mark.parametrize("client", _CLASSIC, indirect=True)
ALL_PROTOCOLS = pytest.mark.parametrize(
    "client",
    [*_CLASSIC, pytest.param(f"confluent-{NEWER}", marks=pytest.mark.real_broker)],
    indirect=True,
)
ALICE = ("--owner", "alice")


def came(member, count):
    """Poll for this many records; return their partitions and offsets, sorted."""
    return sorted((one.partition, one.offset) for one in read(member, count, 60.0))


def everything(team, offsets=range(5)):
    return [(tp.partition, offset) for tp in team.partitions for offset in offsets]


def owns(team, member):
    return lambda: member.assignment() == set(team.partitions)


# ---------------------------------------------------------------- a held group


@pytest.mark.contract("G1", "G2", "G8", "G9")
@ALL_PROTOCOLS
def test_held_group_delivers_no_record_until_the_lift_even_to_new_members(team, client):
    """``--wait`` succeeds, because members report the same ids and generation as Kafka."""
    with ExitStack() as running:
        members = [
            running.enter_context(client.running(name, control=team.quick))
            for name in "ab"
        ]

        def delivered():
            return {one for each in members for one in each.came}

        wait_for(lambda: delivered() >= {*everything(team)}, "the first records")
        wait_for(lambda: all(one.assignment for one in members), "a share for both")
        group = ("--group", team.group)
        why = ("--reason", "x", "--wait", "60s")
        placed = run(team, "pause", team.topic, *group, *ALICE, *why)
        assert placed.exit_code == 0, placed.output
        before = [len(one.came) for one in members]
        team.produce(3)
        third = running.enter_context(client.running("c", control=team.quick))
        wait_for(lambda: third.assignment, "a share for the third")
        quiet = run(team, "wait", "quiet", team.topic, *group, "--timeout", "60s")
        assert quiet.exit_code == 0, quiet.output
        assert [len(one.came) for one in [*members, third]] == [*before, 0]
        members.append(third)
        lifted = run(team, "resume", team.topic, *group, *ALICE)
        assert lifted.exit_code == 0, lifted.output
        whole = {*everything(team, range(8))}
        wait_for(lambda: delivered() >= whole, "the records that were held")


@pytest.mark.contract("G2")
@CLASSIC
def test_group_held_before_its_first_member_delivers_no_held_record(team, client):
    """The gate of a new partition opens only after the member has read the holds."""
    team.operator_holds(f"{team.topic}:0")
    member = client.subscribed(control=team.quick)
    assert came(member, 15) == everything(team)[5:]
    assert member.quiet() == {team.partitions[0]}
    (line,) = member.consumer.explain(f"{team.topic}:0")
    assert "held by operator:alice" in line
    team.operator_lifts(f"{team.topic}:0")
    assert came(member, 5) == everything(team)[:5]


@pytest.mark.contract("G9", "G10")
def test_reset_is_refused_if_an_owner_cannot_reset_its_partitions(team, client):
    """The member obeys the hold, and its offsets do not change."""
    whose = ("--group", team.group, *ALICE)
    with client.running("a", control=team.quick) as member:
        wait_for(lambda: len(member.came) == 20, "the records")
        held = run(team, "pause", team.topic, *whose, "--reason", "x", "--wait", "30s")
        refused = run(team, "reset-offsets", team.topic, *whose, "--to", "earliest")
        assert held.exit_code == Status.DONE, held.output
        assert refused.exit_code == Status.FAILED, refused.output
        assert "moves nothing" in refused.output
        run(team, "resume", team.topic, *whose)
        team.produce(1)
        wait_for(lambda: len(member.came) >= 24, "the next records")
        assert sorted(member.came) == everything(team, range(6))


@pytest.mark.contract("G6", "G9")
def test_operators_hold_expires_by_the_brokers_clock(team, client):
    team.operator_holds(f"{team.topic}:0", for_=1.0)
    member = client.subscribed(control=team.quick)
    assert came(member, 20) == everything(team)
    assert member.consumer.holds() == ()


@pytest.mark.contract("G5")
@pytest.mark.embedded_broker
def test_holds_stay_in_force_after_the_holds_topic_is_deleted(team, client):
    events, got = [], {}
    team.operator_holds(f"{team.topic}:0")
    member = client.subscribed(control=team.quick, hooks=[events.append])
    came(member, 15)
    team.broker.delete_topic(team.settings.holds_topic)
    team.produce(1)
    poll_until(
        member,
        lambda: any(isinstance(one, ControlUnavailable) for one in events),
        got=got,
    )
    poll_until(member, lambda: len(got) == 3, got=got)
    assert {tp.partition for tp in got} == {1, 2, 3}
    assert len(member.consumer.holds()) == 1


@pytest.mark.contract("G4")
def test_holds_topic_that_ends_with_a_transaction_marker_is_read_to_its_end(
    team, client
):
    """The marker has the last offset, but consumers do not return it as a record."""
    team.operator_holds(f"{team.topic}:0")
    producer = KafkaProducer(
        **team.broker.client_config, transactional_id=f"t-{team.group}"
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(team.settings.holds_topic, b"no hold", b"no key", partition=0)
    producer.commit_transaction()
    producer.close()
    member = client.subscribed(control=team.quick)
    assert came(member, 15) == everything(team)[5:]


def make_again(team):
    """Delete the holds topic, create it again, and place another hold."""
    name = team.settings.holds_topic
    # aiokafka requests the deleted topic's metadata. A broker that creates topics on
    # request would create it with default settings.
    team.broker.command(lambda cluster: setattr(cluster, "creates_topics", False))
    team.broker.delete_topic(name)
    team.create(name, topics.HOLDS_SETTINGS)
    team.operator_holds(f"{team.topic}:1")


@pytest.mark.contract("G5")
@pytest.mark.embedded_broker
def test_recreated_holds_topic_lifts_no_hold(team, client, monkeypatch):
    """Holds that the new topic lacks stay in force; old offsets are not used any more."""
    monkeypatch.setattr(control_topics, "COMPARE_EVERY", 0.1)  # the default is 30 s
    events = []
    team.operator_holds(f"{team.topic}:0")
    member = client.subscribed(control=team.quick, hooks=[events.append])
    came(member, 15)
    make_again(team)
    poll_until(member, lambda: len(member.consumer.holds()) == 2)
    (reset,) = [one for one in events if isinstance(one, ControlTopicReset)]
    assert (reset.topic, reset.applied) == (team.settings.holds_topic, 1)
    team.produce(1)
    assert came(member, 2) == [(2, 5), (3, 5)]


@pytest.mark.contract("G2")
@pytest.mark.embedded_broker
def test_request_for_the_end_of_a_recreated_holds_topic_returns_none(team, client):
    """If both topics had the same length, the old topic's offsets would open a gate."""
    answers = []
    team.operator_holds(f"{team.topic}:0")
    topic = client.control_clients().holds_topic(team.settings.holds_topic)
    topic.begin()
    wait_for(lambda: topic.turn(100) or topic.is_complete, "the hold")
    topic.ask_end(answers.append)
    end = {(team.settings.holds_topic, 0): 1}
    wait_for(lambda: answers == [end], "an end")
    make_again(team)
    topic.ask_end(answers.append)
    wait_for(lambda: len(answers) == 2, "an answer")
    topic.close()
    assert answers[1] is None


@pytest.mark.contract("G1", "G5", "G9")
@pytest.mark.usefixtures("patient")
def test_control_topic_records_are_read_again_after_a_read_raises(team, client):
    """A client starts to read again in this way after five seconds without a response."""
    team.operator_holds(f"{team.topic}:0")
    topic = client.control_clients().holds_topic(team.settings.holds_topic)
    topic.begin()
    topic._progress.lose("is lost, for this test")
    with pytest.raises(control_topics.TopicLostError):
        topic.turn(100)
    topic.close()
    topic.begin()
    offsets = [one.offset for one in topic.turn(100)]
    assert (offsets, topic.is_complete) == ([0], True)
    topic.close()


@pytest.mark.contract("P14", "G9")
def test_hooks_and_metrics_describe_a_member(team, client):
    """Unavailable metrics are absent; counters keep their values after the close."""
    events = []
    member = client.subscribed(control=team.quick, hooks=[events.append])
    came(member, 20)
    opened = [one for one in events if isinstance(one, GatesChanged)]
    assert sum(len(one.flowing) for one in opened) == 4
    gained = [len(one.gained) for one in events if isinstance(one, RebalanceCompleted)]
    assert gained == [4]
    assert {one.client_id for one in events} == {"a"}
    assert member.consumer.hook_failures == {}
    member.consumer.hold(f"{team.topic}:0")
    found = values(member.consumer)
    unknown = {"parked_bytes", "purged_bytes_total", "deleted_unread_offsets_total"}
    assert found.keys() & {*unknown, "parked_dropped_bytes_total"} == set()
    assert (found["consumer_assigned_partitions"], found["control_ready"]) == (4, 1)
    assert found["consumer_quiet_partitions"] == found['holds{kind="local"}'] == 1
    assert found['partition_moves_total{how="gained"}'] == 4
    member.close()
    after = values(member.consumer)
    assert "control_ready" not in after
    assert after['hold_changes_total{change="placed",kind="local"}'] == 1


# ---------------------------------------------------------------- holds of a member


@pytest.mark.contract("P6", "G9")
@CLASSIC
def test_pause_survives_rebalances_that_return_its_partition(team, client):
    """An eager rebalance revokes the partition and assigns it to the same member again."""
    member = client.subscribed()
    came(member, 20)
    member.commit()
    with client.running("z") as other:
        poll_until(
            member,
            lambda: len(other.assignment) == len(member.assignment()) == 2,
        )
        kept, given = sorted(member.assignment())
        member.pause(kept, given)
    poll_until(member, owns(team, member))
    assert member.quiet() == {kept, given}
    team.produce(1)
    flowing = sorted({*team.partitions} - {kept, given})
    assert came(member, 2) == [(tp.partition, 5) for tp in flowing]
    member.resume(kept)
    assert came(member, 1) == [(kept.partition, 5)]


@CLASSIC
def test_pause_ends_if_a_rebalance_moves_its_partition_away(team, client):
    """A program that resumes only owned partitions therefore does not stall; holds stay."""
    member = client.subscribed()
    came(member, 20)
    member.commit()
    member.pause(*member.assignment())
    with client.running("z") as other:
        poll_until(member, lambda: len(other.assignment) == 2)
        first, second = sorted(tp.partition for tp in other.assignment)
        member.consumer.hold(f"{team.topic}:{first}", owner="strict")
    poll_until(member, owns(team, member))
    team.produce(1)
    assert came(member, 1) == [(second, 5)]
    assert len(member.quiet()) == 3


@pytest.mark.contract("P2", "P5", "G9")
def test_holds_have_owners_reasons_and_time_limits(team, client):
    member = client.member()
    consumer = member.consumer
    consumer.hold("re:.*", owner="db", reason="migration")
    consumer.hold(ALL, for_=3600)
    consumer.hold(team.topic, owner="brief", for_=0.5)
    member.subscribe([team.topic])
    poll_until(member, owns(team, member))
    assert member.quiet() == {*team.partitions}
    lines = consumer.explain(f"{team.topic}:0")
    assert any(
        "re:.* held by db" in one and "because migration" in one for one in lines
    )
    assert any("@all held by app" in one for one in lines)
    assert member.poll(200) == {}
    poll_until(member, lambda: len(consumer.holds()) == 2)
    assert [hold.owner for hold in consumer.lift(ALL)] == ["db"]
    consumer.lift("re:.*", owner="db")
    assert came(member, 20) == everything(team)


@pytest.mark.contract("P5", "G9")
def test_hold_of_a_mistyped_name_emits_a_warning_event(team, client):
    """Both clients know the subscribed topics, but only aiokafka knows their partitions."""
    events = []
    member = client.member(hooks=[events.append])
    consumer, mistyped = member.consumer, f"{team.topic}x"
    consumer.hold(mistyped, f"{mistyped}:0", owner="early")
    member.subscribe([team.topic])
    poll_until(member, owns(team, member))
    consumer.hold(f"{team.topic}:0-77", mistyped, f"re:{team.topic}", owner="late")
    found = [one for one in events if isinstance(one, HoldCoversNothing)]
    names = [[str(hold.scope) for hold in one.holds] for one in found]
    unknown = [f"{team.topic}:{number}" for number in range(4, 78)]
    is_known = client.kind == "aiokafka"
    late = [*(unknown if is_known else []), mistyped]
    assert names == [[mistyped, f"{mistyped}:0"], late]


@pytest.mark.contract("G9")
def test_hold_on_a_closed_consumer_is_refused(client):
    member = client.member()
    member.close()
    with pytest.raises(MemberClosedError):
        member.consumer.hold(ALL)
    assert member.consumer.holds() == member.consumer.lift(ALL) == ()


# ---------------------------------------------------------------- refusals, settings


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"control": object()}, ControlSettingError),
        ({"hooks": print}, HookTypeError),
        ({"no_such_setting": 1}, Exception),
    ],
)
def test_invalid_settings_of_a_member_are_refused(client, more, error):
    with pytest.raises(error):
        client.make(**more)


@pytest.mark.parametrize(
    ("target", "error"),
    [("or:ders:x", ScopeSyntaxError), (7, TargetTypeError), ("*", ScopeSyntaxError)],
)
@pytest.mark.contract("P4", "G9")
def test_invalid_target_of_a_hold_raises_and_places_no_hold(
    team, client, target, error
):
    consumer = client.member().consumer
    with pytest.raises(error):
        consumer.hold(team.topic, target)
    assert consumer.holds() == ()
    with pytest.raises(TargetTypeError):
        consumer.explain(team.topic)
    with pytest.raises(HoldSettingError):
        consumer.hold(team.topic, owner="operator:alice")


def test_holds_topic_with_cleanup_policy_delete_is_refused(team, client):
    """The refused member leaves no thread behind."""
    control = team.with_settings(holds_topic=team.settings.status_topic + "x")
    team.create(control.holds_topic, {"cleanup.policy": "delete"})
    with pytest.raises(ControlTopicError, match=r"cleanup\.policy=delete"):
        client.subscribed(control=control)
    names = {one.name for one in threading.enumerate()}
    assert names.isdisjoint({"safeconsumer-control", "safeconsumer-status"})


def test_missing_control_topics_are_not_created(team, client):
    """If a client requested a topic's metadata by name, the broker would create the topic."""
    missing = {"holds_topic": f"h-{team.group}", "status_topic": f"s-{team.group}"}
    events = []
    control = team.with_settings(**missing)
    member = client.subscribed(control=control, hooks=[events.append])
    (gone,) = [one for one in events if isinstance(one, ControlUnavailable)]
    assert "safeconsumer control init" in gone.reason
    assert member.poll(200) == {}
    reporter = member.consumer._member._control._reporter
    wait_for(lambda: reporter._is_missing, "a report that could not be sent")
    with KafkaAdminClient(**team.broker.client_config) as admin:
        assert set(missing.values()).isdisjoint(admin.list_topics())
