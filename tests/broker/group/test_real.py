"""Tests control topics on a broker: their policies, their deletion, their compaction."""

import threading
import time
from contextlib import closing

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError

from safeconsumer.errors import ControlWriteError
from safeconsumer.group import clients, topics
from safeconsumer.group import events as control_events
from safeconsumer.group.history import entries, history_of
from safeconsumer.group.operator import Operator
from safeconsumer.group.publisher import changes, new_hold, publish
from safeconsumer.holds.ledger import PauseLedger
from tests.harness.group.team import LIMIT
from tests.harness.polling import poll_until
from tests.harness.waiting import retried, wait_for

pytestmark = pytest.mark.any_broker

# By default Kafka's log cleaner checks for work every 15 s; test brokers check more
# often.
CLEANED_WITHIN = 60.0


def delete(team, name):
    """Delete a topic, and wait until the broker no longer lists it."""
    with KafkaAdminClient(**team.broker.client_config) as admin:
        admin.delete_topics([name])
        wait_for(lambda: name not in admin.list_topics(), "the deletion", LIMIT)


def create(team, name, settings):
    """Create a topic; retry while the broker is still deleting the previous one."""
    retried(lambda: team.create(name, settings), KafkaError, limit=LIMIT)


@pytest.mark.contract("G5")
def test_holds_topic_with_a_wrong_policy_raises_an_alarm_and_keeps_its_holds(team):
    """Once the policy is correct again, the member continues to read the topic."""
    consumer = team.ready(control=team.with_settings(check_interval=0.2))
    emitted, name = team.emitted(consumer), team.settings.holds_topic
    team.operator_holds("@all")
    poll_until(consumer, team.is_quiet(consumer))
    assert consumer.paused() == set()  # the program itself has not paused any partition
    set_policy(team, name, "delete")
    poll_until(consumer, lambda: emitted.of(control_events.ControlUnavailable))
    alarm = emitted.only(control_events.ControlUnavailable)
    assert f"{name} has cleanup.policy=delete" in alarm.reason
    assert consumer.quiet() == set(team.partitions)
    set_policy(team, name, "compact")
    poll_until(consumer, lambda: len(emitted.of(control_events.ControlReady)) == 2)
    team.operator_lifts("@all")
    poll_until(consumer, lambda: not consumer.quiet())


def set_policy(team, name, policy):
    """Change a topic's cleanup policy."""
    change = ConfigResource(
        ConfigResourceType.TOPIC, name, configs={"cleanup.policy": policy}
    )
    with KafkaAdminClient(**team.broker.client_config) as admin:
        admin.alter_configs([change])


@pytest.mark.contract("G5")
def test_missing_holds_topic_gates_partitions_until_it_is_created(team):
    """The alarm names the command that creates the topic. The member does not create it."""
    name = f"later-{team.group}"
    consumer = team.subscribed(control=team.with_settings(holds_topic=name))
    emitted = team.emitted(consumer)
    poll_until(consumer, lambda: emitted.of(control_events.ControlUnavailable))
    assert poll_until(consumer, team.has_all(consumer)) == {}
    assert "control init" in emitted.of(control_events.ControlUnavailable)[0].reason
    with KafkaAdminClient(**team.broker.client_config) as admin:
        assert name not in admin.list_topics()
    team.create(name, topics.HOLDS_SETTINGS)
    got = {}
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)


@pytest.mark.contract("G5")
def test_recreated_holds_topic_lifts_no_hold(team):
    """A hold is lifted only by a tombstone on the new topic."""
    consumer = team.ready()
    emitted, name = team.emitted(consumer), team.settings.holds_topic
    team.operator_holds(f"{team.topic}:0", f"{team.topic}:1")
    poll_until(consumer, lambda: len(consumer.quiet()) == 2)
    delete(team, name)
    poll_until(consumer, lambda: emitted.of(control_events.ControlUnavailable))
    create(team, name, topics.HOLDS_SETTINGS)
    poll_until(consumer, lambda: emitted.of(control_events.ControlTopicReset))
    held = set(team.partitions[:2])
    assert held <= consumer.quiet()
    # After a new assignment, the gate may keep the other partitions quiet for some
    # time.
    poll_until(consumer, lambda: consumer.quiet() == held)
    again(team, f"{team.topic}:1")
    poll_until(consumer, lambda: consumer.quiet() == {team.partitions[0]})


@pytest.mark.contract("G5")
def test_recreated_holds_topic_is_read_from_its_first_record(team):
    """Before the member notices the new topic, the topic has grown beyond old positions."""
    consumer = team.ready()
    name = team.settings.holds_topic
    team.operator_holds(f"{team.topic}:0")
    poll_until(consumer, lambda: len(consumer.quiet()) == 1)
    delete(team, name)
    create(team, name, topics.HOLDS_SETTINGS)
    scopes = [f"{team.topic}:{n}" for n in (1, 2, 3)]
    with closing(clients.producer(team.broker.client_config, LIMIT)) as writer:
        wanted = changes(team.group, "alice", scopes, new_hold("test", None))
        publish(lambda: writer, name, wanted, LIMIT)
    poll_until(consumer, team.is_quiet(consumer))


def again(team, scope):
    """Lift a scope; retry while the writer still has the deleted topic's metadata."""
    retried(lambda: team.operator_lifts(scope), ControlWriteError, limit=LIMIT)


QUICK = {
    **topics.HOLDS_SETTINGS,
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "segment.ms": "50",
}


def test_compacted_holds_topic_is_read_to_its_end(team):
    """The member reads to the end even if compaction has removed the last records."""
    name = f"cleaned-{team.group}"
    team.create(name, QUICK)
    team.settings = team.with_settings(holds_topic=name)
    team.operator_holds(f"{team.topic}:0")
    wait_until_cleaned(team, f"{team.topic}:1")
    consumer = team.subscribed()
    got = team.settled(consumer)
    assert team.partitions[0] not in got
    assert consumer.quiet() == {team.partitions[0]}


@pytest.mark.nightly
def test_recent_records_of_the_holds_topic_are_not_compacted(team):
    """Records of recently lifted holds are kept, because the history needs them."""
    name = f"journal-{team.group}"
    team.create(name, {**QUICK, "min.compaction.lag.ms": "8000"})
    team.settings = team.with_settings(holds_topic=name)
    team.operator_holds(f"{team.topic}:0")
    wait_until_cleaned(team, f"{team.topic}:1")
    team.operator_lifts(f"{team.topic}:0")
    records = wait_until_cleaned(team, f"{team.topic}:2")
    newest = max(one.at or 0.0 for one in records)
    lately = [one.offset for one in records if (one.at or 0.0) > newest - 7.0]
    assert lately == list(range(lately[0], lately[-1] + 1))
    past = entries(records, lambda _: 0.0)
    mine = [one.what for one in past if one.record.key.scope == f"{team.topic}:0"]
    assert mine == ["held", "lifted"]


def wait_until_cleaned(team, scope):
    """Hold and lift a scope until compaction removes records; return the remaining ones."""
    read = []

    def lost(records):
        return records[-1].offset + 1 - len(records)

    def is_cleaned():
        team.operator_holds(scope)
        team.operator_lifts(scope)
        # A reader from before the compaction would still know the removed records.
        with Operator(team.broker.client_config, team.settings) as operator:
            operator.board.keep_all_records()
            operator.holds()
            read.append(history_of(operator.board.records, team.group))
        return lost(read[-1]) > lost(read[0])

    wait_for(is_cleaned, "the broker's cleaner", CLEANED_WITHIN, pause=0.2)
    return read[-1]


@pytest.mark.contract("G4")
def test_hold_in_a_flood_of_garbage_records_is_obeyed(team):
    """The test writes 10,000 garbage records a second."""
    consumer = team.subscribed()
    got = team.settled(consumer)
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
    over = threading.Event()
    flood = threading.Thread(target=pour, args=(team, over))
    flood.start()
    try:
        emitted = team.emitted(consumer)
        poll_until(consumer, lambda: emitted.of(control_events.ControlRecordsSkipped))
        team.operator_holds("@all")
        poll_until(consumer, team.is_quiet(consumer))
        assert flood.is_alive()
        team.produce(1)
        assert consumer.poll(100) == {}
        assert {consumer.position(tp) for tp in team.partitions} == {5}
    finally:
        over.set()
        flood.join()
    team.operator_lifts("@all")
    later = {}
    poll_until(consumer, lambda: len(later) == 4, got=later)
    assert later == {tp: [5] for tp in team.partitions}


def pour(team, over):
    """Write up to 10,000 garbage records a second, until ``over`` is set."""
    number = 0
    while not over.wait(0.01):
        for _ in range(100):
            number += 1
            team.producer.send(
                team.settings.holds_topic, key=b"%d" % number, value=b"\xff" * 20
            )


@pytest.mark.contract("G6")
@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_member_with_a_wrong_clock_follows_the_brokers_clock(team, ahead, monkeypatch):
    """The member keeps and expires holds by the broker's clock."""
    team.operator_holds(f"{team.topic}:0", for_=0.001)
    began = time.monotonic()
    team.operator_holds(f"{team.topic}:1", for_=600)
    defaults = PauseLedger.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "wall", lambda: time.time() + ahead)
    consumer = team.subscribed(control=team.quick)
    got = {}
    one_is_held = {team.partitions[1]}
    poll_until(consumer, lambda: consumer.quiet() == one_is_held and bool(got), got=got)
    (hold,) = (one for one in consumer.holds() if one.deadline is not None)
    assert began + 600 <= hold.deadline <= time.monotonic() + 600.5
    assert team.partitions[1] not in got
