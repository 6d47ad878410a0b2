"""Resets (G10) combined with broker failures, static members and transactions."""

import pytest
from kafka import KafkaProducer
from kafka.consumer.group import ConsumerGroupMetadata

from safeconsumer.group.movements import movements
from tests.sim.group.operating import (
    CONTROL,
    QUICK,
    SILENT,
    T,
    at_work,
    commit_elsewhere,
    held,
    moved,
    operated,
    quiet,
    since,
)
from tests.sim.lab import GROUP
from tests.sim.reading import at, both_protocols

pytestmark = pytest.mark.contract("G10")


def unmoved(operator):
    """Return why partitions have not been moved yet, as ``status`` prints the reasons."""
    found = movements(operator.view())
    return {one.name: one.why for one in found if not one.is_moved}


class Fleet:
    """Members that have read and committed ten records of each of four partitions."""

    def __init__(self, lab, operator, names, **settings):
        self._lab, self._operator = lab, operator
        self._settings = {"enable_auto_commit": True, "control": SILENT, **QUICK}
        self._settings |= settings
        self.tps = lab.topic("t", 4, records=10)
        self.members = [self.member(name) for name in names]
        lab.until(lambda: sum(len(one.records) for one in self.members) == 40)
        self._until_all_is_committed()
        operator.hold("t")
        lab.until(lambda: quiet(*self.members))

    def member(self, name, **more):
        return self._operator.member(name, **self._settings, **more)

    def _until_all_is_committed(self):
        self._lab.until(lambda: moved(self._lab, dict.fromkeys(self.tps, 10)), 100)

    def judge(self, targets):
        """Lift the hold; each partition must deliver its records from the target on, once."""
        self._lab.until(lambda: moved(self._lab, targets), 100)
        self._operator.lift("t")
        self._until_all_is_committed()
        for tp, first in targets.items():
            came = sorted(value for one in self.members for value in one.values(tp))
            assert came == sorted([*range(10), *range(first, 10)])


# ---------------------------------------------------------------- brokers


@both_protocols
@pytest.mark.parametrize("way", ["moved", "killed"])
@operated(nightly=10, nodes=3)
def test_coordinator_change_merely_delays_a_reset(lab, operator, assignor, way):
    """The new coordinator has the commits; a member without a response commits again."""
    fleet = Fleet(lab, operator, "ab", assignor=assignor, control=CONTROL)
    targets = dict(zip(fleet.tps, (3, 0, 10, 7), strict=True))
    operator.reset(targets)
    lab.sleep(lab.rng.choice([0, 0.01, 0.1]))
    old = lab.coordinator()
    if way == "moved":
        lab.cluster.move_coordinator(GROUP, 1 + old % 3)
    else:
        lab.cluster.down(old, failover=3)
    fleet.judge(targets)


@operated(nightly=10, nodes=3)
def test_repeated_broker_restarts_merely_delay_a_reset(lab, operator):
    """Random brokers, which include leaders and the coordinator, restart eleven times."""
    fleet = Fleet(lab, operator, "ab")
    targets = dict.fromkeys(fleet.tps, 4)
    operator.reset(targets)
    for _ in range(11):
        node = lab.rng.randrange(1, 4)
        lab.cluster.down(node, failover=1)
        lab.sleep(3 * lab.rng.random())
        lab.cluster.up(node)
        lab.sleep(lab.rng.random())
    lab.until(lambda: moved(lab, targets), 100)
    lab.sleep(10)
    fleet.judge(targets)


# ---------------------------------------------------------------- members


class StaticFleet(Fleet):
    def member(self, name):
        return super().member(name, group_instance_id=name)


@both_protocols
@operated(nightly=10)
def test_restarted_static_member_moves_its_partitions_without_a_rebalance(
    lab, operator, assignor
):
    """The member is killed before it commits, and returns before its session ends."""
    session = {"session_timeout_ms": 20_000, "assignor": assignor}
    fleet = StaticFleet(lab, operator, "ab", **session)
    away = lab.cluster.fail("OffsetCommit", is_held=True, client_id="a")
    targets = dict.fromkeys(fleet.tps, 4)
    operator.reset(targets)
    lab.until(lambda: away.kept)
    generation = lab.generation()
    lab.kill(fleet.members[0].process)
    lab.cluster.faults.clear()
    fleet.members.append(fleet.member("a"))
    lab.until(lambda: moved(lab, targets), 100)
    assert lab.generation() == generation
    fleet.judge(targets)


@both_protocols
@operated(nightly=10)
def test_one_record_resets_the_offsets_of_several_topics(lab, operator, assignor):
    """Two members subscribe to both topics, and one is killed; a third subscribes to one."""
    tps = [*lab.topic("t", 2, records=10), *lab.topic("u", 2, records=10)]
    settings = {"enable_auto_commit": True, "assignor": assignor, "control": SILENT}
    several = [
        operator.member(name, *topics, **settings, **QUICK)
        for name, topics in (("a", "tu"), ("b", "tu"), ("c", "u"))
    ]
    lab.until(lambda: sum(len(one.records) for one in several) >= 40)
    lab.until(lambda: moved(lab, dict.fromkeys(tps, 10)))
    before = {one: len(one.records) for one in several}
    operator.hold()
    lab.until(lambda: quiet(*several))
    targets = dict(zip(tps, (2, 5, 10, 7), strict=True))
    operator.reset(targets, scope="@all")
    lab.kill(several[1].process)
    lab.until(lambda: moved(lab, targets), 100)
    operator.lift("@all")
    lab.until(lambda: moved(lab, dict.fromkeys(tps, 10)), 100)
    for tp, target in targets.items():
        came = [
            record.offset
            for one, count in before.items()
            for record in one.records[count:]
            if (record.topic, record.partition) == tp
        ]
        assert came == [*range(target, 10)]


# ---------------------------------------------------------------- transactions


def transaction(lab, offset):
    """Start a transaction that commits an offset of the group, and return its producer."""
    producer = KafkaProducer(**lab.connection, transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    group = ConsumerGroupMetadata(GROUP, -1, "", None)
    producer.send_offsets_to_transaction({T: at(offset)}, group)
    return producer


@operated(nightly=4)
def test_reset_waits_for_an_open_transaction_and_is_not_undone_by_it(lab, operator):
    one = held(
        lab, operator, enable_auto_commit=False, isolation_level="read_committed"
    )
    producer = transaction(lab, 9)
    operator.reset({T: 4})
    lab.sleep(20)
    assert lab.committed(T) != 4
    assert "waits: " in unmoved(operator)["t:0"]
    producer.commit_transaction()
    producer.close()
    lab.until(lambda: lab.committed(T) == 4)
    lab.until(lambda: not unmoved(operator))
    operator.lift("t")
    lab.until(lambda: len(one.records) == 16)
    assert since(one, T, 10) == [*range(4, 10)]


@operated(nightly=4)
def test_commit_of_a_transaction_after_the_move_is_corrected_under_the_hold(
    lab, operator
):
    at_work(lab, operator, enable_auto_commit=False)
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    producer = transaction(lab, 9)
    producer.commit_transaction()
    producer.close()
    lab.until(lambda: lab.committed(T) == 9)
    assert "has not committed it yet" in unmoved(operator)["t:0"]
    lab.until(lambda: lab.committed(T) == 4, 10)


# ---------------------------------------------------------------- done, and undone


@operated(nightly=4)
def test_reset_counts_as_done_once_the_owner_starts_at_the_committed_target(
    lab, operator
):
    """Before that, the owner would continue and commit at its old position."""
    one = at_work(lab, operator, auto_commit_interval_ms=60_000)
    one.call(lambda consumer: consumer.commit({T: at(4)}))
    operator.hold("t")
    lab.until(lambda: quiet(one))
    away = lab.cluster.fail("OffsetFetch", is_held=True, client_id="a")
    operator.reset({T: 4})
    lab.until(lambda: away.kept)
    lab.sleep(1)
    assert lab.committed(T) == 4
    assert unmoved(operator) == {"t:0": "at a it is being moved"}
    away.end()
    lab.until(lambda: not unmoved(operator))
    operator.lift("t")
    lab.until(lambda: len(one.records) == 16)
    assert since(one, T, 10) == [*range(4, 10)]


@operated()
def test_reset_undone_by_another_commit_is_reported_as_waiting_again(lab, operator):
    """Another client's commit undoes the reset, and Kafka refuses the member's correction."""
    at_work(lab, operator)
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    lab.until(lambda: not unmoved(operator))
    fault = lab.cluster.fail("OffsetCommit", error=14, count=10_000)
    commit_elsewhere(lab, 9)
    lab.sleep(8)
    assert "waits: " in unmoved(operator)["t:0"]
    fault.end()
    lab.cluster.faults.clear()
    lab.until(lambda: lab.committed(T) == 4)


@operated(nightly=4)
def test_repeated_commit_of_a_move_does_not_undo_progress_after_the_lift(lab, operator):
    """Kafka refuses the repeated commit once, and the hold is lifted before its retry."""
    slow = {"retry_backoff_ms": 1500, "reconnect_backoff_max_ms": 1500}
    one = at_work(lab, operator, enable_auto_commit=False, **slow)
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    lab.until(lambda: not unmoved(operator))
    refused = lab.kinds().count("OffsetCommit")
    lab.cluster.fail("OffsetCommit", error=14, count=1)
    commit_elsewhere(lab, 9)
    lab.until(lambda: lab.kinds().count("OffsetCommit") > refused)
    operator.lift("t")
    lab.until(lambda: len(one.records) == 16)
    one.call(lambda consumer: consumer.commit())
    lab.sleep(10)
    assert lab.committed(T) == 10
    assert since(one, T, 10) == [*range(4, 10)]
