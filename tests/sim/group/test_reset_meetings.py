"""G10 meets what else happens to a group: brokers, static members, transactions."""

import pytest
from kafka import KafkaProducer
from kafka.consumer.group import ConsumerGroupMetadata
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.group.movements import movements
from tests.sim.group.test_members import QUICK, member
from tests.sim.group.test_resets import (
    SILENT,
    Resetting,
    at_work,
    elsewhere,
    held,
    moved,
    quiet,
    since,
)
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import both_protocols

pytestmark = pytest.mark.contract("G10")

T = TopicPartition("t", 0)


def whys(operator):
    """Return why partitions are not moved, as ``status`` says it; empty: all are."""
    with operator.looking() as looking:
        found = movements(looking.look(GROUP))
    return {one.name: one.why for one in found if not one.is_moved}


def taken(members, tps):
    """Return the sorted values that came of partitions, by partition."""
    return {tp: sorted(v for one in members for v in one.values(tp)) for tp in tps}


# ---------------------------------------------------------------- brokers


@both_protocols
@pytest.mark.parametrize("way", ["moved", "killed"])
@simulated(seeds=1, nightly=10, nodes=3)
def test_a_coordinator_that_moves_in_the_middle_delays_it(lab, assignor, way):
    """Its successor knows what was committed; who did not hear so commits again."""
    operator = Resetting(lab)
    tps = lab.topic("t", 4, records=10)
    several = [
        member(lab, name, enable_auto_commit=True, assignor=assignor, **QUICK)
        for name in "ab"
    ]
    lab.until(lambda: sum(len(one.records) for one in several) == 40)
    operator.hold("t")
    lab.until(lambda: quiet(*several))
    lab.until(lambda: all(lab.committed(tp) == 10 for tp in tps))
    targets = dict(zip(tps, (3, 0, 10, 7), strict=True))
    operator.reset(targets)
    lab.sleep(lab.rng.choice([0, 0.01, 0.1]))
    old = lab.coordinator()
    if way == "moved":
        lab.cluster.move_coordinator(GROUP, 1 + old % 3)
    else:
        lab.cluster.down(old, failover=3)
    lab.until(lambda: moved(lab, targets), 100)
    lab.until(lambda: not whys(operator), 100)
    operator.end("t")
    lab.until(lambda: all(lab.committed(tp) == 10 for tp in tps), 100)
    expected = {tp: sorted([*range(10), *range(at, 10)]) for tp, at in targets.items()}
    assert taken(several, tps) == expected
    for one in several:
        one.stop()


@simulated(seeds=1, nightly=10, nodes=3)
def test_brokers_that_go_again_and_again_delay_it(lab):
    """Eleven times: the leader of the holds topic, the coordinator, or another one."""
    operator = Resetting(lab)
    tps = lab.topic("t", 4, records=10)
    several = [
        member(lab, name, enable_auto_commit=True, control=SILENT, **QUICK)
        for name in "ab"
    ]
    lab.until(lambda: sum(len(one.records) for one in several) == 40)
    lab.until(lambda: all(lab.committed(tp) == 10 for tp in tps))
    operator.hold("t")
    lab.until(lambda: quiet(*several))
    operator.reset(dict.fromkeys(tps, 4))
    for _ in range(11):
        node = lab.rng.randrange(1, 4)
        lab.cluster.down(node, failover=1)
        lab.sleep(3 * lab.rng.random())
        lab.cluster.up(node)
        lab.sleep(lab.rng.random())
    lab.until(lambda: moved(lab, dict.fromkeys(tps, 4)), 100)
    lab.sleep(10)
    operator.end("t")
    lab.until(lambda: all(lab.committed(tp) == 10 for tp in tps), 100)
    expected = sorted([*range(10), *range(4, 10)])
    assert taken(several, tps) == dict.fromkeys(tps, expected)
    for one in several:
        one.stop()


# ---------------------------------------------------------------- members


@both_protocols
@simulated(seeds=1, nightly=10)
def test_a_static_member_that_is_restarted_moves_it_without_a_rebalance(lab, assignor):
    """It is killed between the record and its commit, and comes back in its session."""
    operator = Resetting(lab)
    tps = lab.topic("t", 4, records=10)
    settings = {
        "enable_auto_commit": True,
        "assignor": assignor,
        "control": SILENT,
        "session_timeout_ms": 20_000,
        "heartbeat_interval_ms": 1000,
    }
    several = [
        member(lab, name, group_instance_id=name, **settings) for name in ("a", "b")
    ]
    lab.until(lambda: sum(len(one.records) for one in several) == 40)
    lab.until(lambda: all(lab.committed(tp) == 10 for tp in tps))
    operator.hold("t")
    lab.until(lambda: quiet(*several))
    away = lab.cluster.fail("OffsetCommit", is_held=True, client_id="a")
    operator.reset(dict.fromkeys(tps, 4))
    lab.until(lambda: away.kept)
    generation = lab.generation()
    lab.kill(several[0].process)
    lab.cluster.faults.clear()
    again = member(lab, "a", group_instance_id="a", **settings)
    lab.until(lambda: moved(lab, dict.fromkeys(tps, 4)), 100)
    assert lab.generation() == generation
    operator.end("t")
    lab.until(lambda: all(lab.committed(tp) == 10 for tp in tps), 100)
    expected = sorted([*range(10), *range(4, 10)])
    assert taken([*several, again], tps) == dict.fromkeys(tps, expected)
    again.stop()
    several[1].stop()


@both_protocols
@simulated(seeds=1, nightly=10)
def test_several_topics_are_moved_by_one_record(lab, assignor):
    """One member has a topic of its own, one has two, and one of them dies."""
    operator = Resetting(lab)
    tps = [*lab.topic("t", 2, records=10), *lab.topic("u", 2, records=10)]
    settings = {"enable_auto_commit": True, "assignor": assignor, "control": SILENT}
    several = [
        lab.member(SafeConsumer, *topics, name=name, **settings, **QUICK)
        for name, topics in (("a", "tu"), ("b", "tu"), ("c", "u"))
    ]
    lab.until(lambda: sum(len(one.records) for one in several) >= 40)
    lab.until(lambda: all(lab.committed(tp) == 10 for tp in tps))
    before = {one: len(one.records) for one in several}
    operator.hold()
    lab.until(lambda: quiet(*several))
    targets = dict(zip(tps, (2, 5, 10, 7), strict=True))
    operator.reset(targets, scope="@all")
    lab.kill(several[1].process)
    lab.until(lambda: moved(lab, targets), 100)
    operator.end("@all")
    lab.until(lambda: all(lab.committed(tp) == 10 for tp in tps), 100)
    for tp, target in targets.items():
        came = [
            record.offset
            for one, count in before.items()
            for record in one.records[count:]
            if (record.topic, record.partition) == tp
        ]
        assert came == [*range(target, 10)]
    several[0].stop()
    several[2].stop()


# ---------------------------------------------------------------- transactions


def transaction(lab, offset):
    """Begin a transaction that commits an offset of the group, and return its producer."""
    producer = KafkaProducer(**lab.connection, transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        {T: OffsetAndMetadata(offset, "", -1)},
        ConsumerGroupMetadata(GROUP, -1, "", None),
    )
    return producer


@simulated(seeds=1, nightly=4)
def test_it_waits_for_a_transaction_that_is_open_and_is_not_undone_by_it(lab):
    operator, one = held(
        lab, enable_auto_commit=False, isolation_level="read_committed"
    )
    producer = transaction(lab, 9)
    operator.reset({T: 4})
    lab.sleep(20)
    assert lab.committed(T) != 4
    assert "waits: " in whys(operator)["t:0"]
    producer.commit_transaction()
    producer.close()
    lab.until(lambda: lab.committed(T) == 4)
    lab.until(lambda: not whys(operator))
    operator.end("t")
    lab.until(lambda: len(one.records) == 16)
    assert since(one, T, 10) == [*range(4, 10)]
    one.stop()


@simulated(seeds=1, nightly=4)
def test_a_transaction_that_ends_after_the_move_is_put_right_while_the_hold_stands(lab):
    operator, one = at_work(lab, enable_auto_commit=False)
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    producer = transaction(lab, 9)
    producer.commit_transaction()
    producer.close()
    lab.until(lambda: lab.committed(T) == 9)
    assert "has not committed it yet" in whys(operator)["t:0"]
    lab.until(lambda: lab.committed(T) == 4, 10)
    one.stop()


# ---------------------------------------------------------------- what is done


@simulated(seeds=1, nightly=4)
def test_a_target_that_is_committed_already_is_done_when_its_owner_begins_there(lab):
    """Until then it would go on, and commit, where it was."""
    operator, one = at_work(lab, auto_commit_interval_ms=60_000)
    one.call(lambda consumer: consumer.commit({T: OffsetAndMetadata(4, "", -1)}))
    operator.hold("t")
    lab.until(lambda: quiet(one))
    away = lab.cluster.fail("OffsetFetch", is_held=True, client_id="a")
    operator.reset({T: 4})
    lab.until(lambda: away.kept)
    lab.sleep(1)
    assert lab.committed(T) == 4
    assert whys(operator) == {"t:0": "at a it is being moved"}
    away.end()
    lab.until(lambda: not whys(operator))
    operator.end("t")
    lab.until(lambda: len(one.records) == 16)
    assert since(one, T, 10) == [*range(4, 10)]
    one.stop()


@simulated(seeds=1)
def test_what_is_done_and_undone_again_is_said(lab):
    """A commit from elsewhere, that Kafka lets nobody put right."""
    operator, one = at_work(lab)
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    lab.until(lambda: not whys(operator))
    fault = lab.cluster.fail("OffsetCommit", error=14, count=10_000)
    elsewhere(lab, 9)
    lab.sleep(8)
    assert "waits: " in whys(operator)["t:0"]
    fault.end()
    lab.cluster.faults.clear()
    lab.until(lambda: lab.committed(T) == 4)
    one.stop()


@simulated(seeds=1, nightly=4)
def test_a_move_that_is_committed_again_does_not_undo_what_came_after_the_lift(lab):
    """Kafka refuses that commit once, and the hold is lifted before it is sent again."""
    operator, one = at_work(
        lab,
        enable_auto_commit=False,
        retry_backoff_ms=1500,
        reconnect_backoff_max_ms=1500,
    )
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    lab.until(lambda: not whys(operator))
    refused = len([kind for kind in lab.kinds() if kind == "OffsetCommit"])
    lab.cluster.fail("OffsetCommit", error=14, count=1)
    elsewhere(lab, 9)
    lab.until(lambda: lab.kinds().count("OffsetCommit") > refused)
    operator.end("t")
    lab.until(lambda: len(one.records) == 16)
    one.call(lambda consumer: consumer.commit())
    lab.sleep(10)
    assert lab.committed(T) == 10
    assert since(one, T, 10) == [*range(4, 10)]
    one.stop()
