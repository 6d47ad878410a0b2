"""G10: an operator moves the offsets of a running group, under a hold of the group."""

import asyncio
import math

import pytest
from attrs import evolve
from kafka import ConsumerRebalanceListener
from kafka.errors import CommitFailedError

from safeconsumer import Pump, SafeConsumer, Worker
from safeconsumer._kafka import resetting
from safeconsumer._kafka.pausing.subscription import id_text
from safeconsumer._kafka.resetting import RECREATED
from safeconsumer._kafka.resetting import Resetting as Resets
from safeconsumer.audit import control as audited
from safeconsumer.audit.results import Settings
from safeconsumer.cli.control_topics import read_control
from safeconsumer.events import PartitionReset, WorkDropped
from safeconsumer.group import topics
from safeconsumer.holds.ledger import PauseLedger
from tests.harness.audit.journals import check, entries_in, faults_in, read
from tests.sim.group.operating import (
    CONTROL,
    QUICK,
    SILENT,
    T,
    at_work,
    commit_elsewhere,
    cut_off,
    held,
    moved,
    operated,
    quiet,
    since,
)
from tests.sim.lab import GROUP
from tests.sim.reading import COOPERATIVE, EAGER, Listener, at, both_protocols

pytestmark = pytest.mark.contract("G10")


def resets(found):
    """Return a hook that collects the events of partitions that were moved."""
    return lambda one: found.append(one) if isinstance(one, PartitionReset) else None


@pytest.mark.parametrize("target", [3, 15, 10], ids=["back", "forward", "nowhere"])
@operated(nightly=4)
def test_held_partition_is_moved_and_continues_at_the_target(lab, operator, target):
    one = held(lab, operator)
    lab.append(T, 10, first=10)
    operator.reset({T: target})
    lab.until(lambda: lab.committed(T) == target)
    lab.sleep(10)
    assert (lab.committed(T), len(one.records)) == (target, 10)
    operator.lift("t")
    lab.until(lambda: one.values(T)[-1] == 19)
    assert since(one, T, 10) == [*range(target, 20)]
    one.stop()
    assert lab.running() == []


# ---------------------------------------------------------------- members come and go


class Round:
    """Three members, and random failures and changes of the group."""

    def __init__(self, lab, operator, assignor):
        self.lab, self.operator, self._assignor = lab, operator, assignor
        self.tps = lab.topic("t", 4, records=20)
        self.members = []
        for _ in range(3):
            self.join()
        lab.until(lambda: sum(len(one.records) for one in self.members) >= 80)
        lab.sleep(2)

    def join(self):
        made = self.operator.member(
            f"m{len(self.operator._members)}",
            control=SILENT,
            enable_auto_commit=True,
            auto_commit_interval_ms=500,
            assignor=self._assignor,
            poll_ms=100,
            **QUICK,
        )
        self.members.append(made)

    def _one(self):
        return self.members.pop(self.lab.rng.randrange(len(self.members)))

    def kill(self):
        self.lab.kill(self._one().process)

    def leave(self):
        self._one().leave()

    def hurt(self):
        for _ in range(self.lab.rng.randrange(3)):
            event = self.lab.rng.choice([self.kill, self.leave, self.join])
            if event == self.join or len(self.members) > 1:
                event()
            self.lab.sleep(self.lab.rng.random() * 2)

    def play(self):
        """Move everything while members join, leave and die; return the targets."""
        lab, rng = self.lab, self.lab.rng
        targets = {tp: rng.randrange(0, 21) for tp in self.tps}
        self.operator.hold("t")
        lab.sleep(2 * rng.random())
        self.operator.reset(targets)
        lab.sleep(rng.random() * rng.choice([0.05, 0.3, 3]))
        self.hurt()
        if rng.random() < 0.3:
            while self.members:
                self.kill()
            lab.sleep(rng.random() * 8)
            self.join()
        lab.until(lambda: moved(lab, targets) and quiet(*self.members), 200)
        self.hurt()
        lab.sleep(8 * rng.random())
        assert moved(lab, targets)
        return targets

    def lift(self):
        """Lift the hold; return the offsets delivered after the lift, by partition."""
        for tp in self.tps:
            self.lab.append(tp, 10, first=20)
        before = {one: len(one.records) for one in self.members}
        self.operator.lift("t")
        self.lab.until(lambda: moved(self.lab, dict.fromkeys(self.tps, 30)), 200)
        self.lab.sleep(5)
        came = {tp: [] for tp in self.tps}
        for one, count in before.items():
            for record in one.records[count:]:
                came[record.topic, record.partition].append(record.offset)
        return came


@both_protocols
@operated(3, nightly=60)
def test_each_partition_is_moved_once_if_a_member_dies(lab, operator, assignor):
    """Nothing is delivered before the lift; then all records from the target arrive once."""
    one = Round(lab, operator, assignor)
    targets = one.play()
    assert one.lift() == {tp: [*range(at, 30)] for tp, at in targets.items()}


@both_protocols
@operated(nightly=10)
def test_next_owner_moves_a_partition_before_its_first_record(lab, operator, assignor):
    first = at_work(lab, operator, assignor=assignor, control=SILENT, **QUICK)
    operator.hold("t")
    lab.until(lambda: quiet(first))
    lab.kill(first.process)
    operator.reset({T: 4})
    lab.sleep(10)
    second = operator.member("b", enable_auto_commit=True, assignor=assignor)
    lab.until(lambda: lab.committed(T) == 4)
    operator.lift("t")
    lab.until(lambda: len(second.records) == 6)
    assert second.values(T) == [*range(4, 10)]


@operated(nightly=4)
def test_next_owner_does_not_repeat_a_reset_that_is_done(lab, operator, tmp_path):
    """The committed offset has metadata (a journal's name), which a position never has."""
    first_events, second_events = [], []
    first = held(lab, operator, hooks=(resets(first_events),), journal=tmp_path)
    operator.reset({T: 3})
    lab.until(lambda: lab.committed(T) == 3)
    first.leave()
    more = {"hooks": (resets(second_events),), "journal": tmp_path}
    second = operator.member("b", enable_auto_commit=True, **more)
    lab.until(lambda: quiet(second) and second.consumer.assignment())
    lab.sleep(10)
    assert (len(first_events), second_events) == (1, [])
    operator.lift("t")
    lab.until(lambda: len(second.records) == 7)


@operated(nightly=4)
def test_frozen_member_in_a_join_does_not_prevent_a_reset(lab, operator):
    tps = lab.topic("t", 2, records=10)
    a, b = (operator.member(n, enable_auto_commit=True, **QUICK) for n in "ab")
    lab.until(lambda: a.consumer.assignment() and b.consumer.assignment())
    lab.until(lambda: len(a.records) + len(b.records) >= 20)
    operator.hold("t")
    lab.until(lambda: quiet(a, b))
    lab.freeze(b.process)
    targets = dict.fromkeys(tps, 5)
    operator.reset(targets)
    lab.until(lambda: moved(lab, targets), 100)
    lab.thaw(b.process)
    lab.sleep(10)
    assert moved(lab, targets)
    operator.lift("t")
    lab.until(lambda: moved(lab, dict.fromkeys(tps, 10)))
    expected = sorted([*range(10), *range(5, 10)])
    for tp in tps:
        assert sorted(a.values(tp) + b.values(tp)) == expected


# ---------------------------------------------------------------- records in hand


@operated(nightly=4)
def test_reset_waits_until_the_program_has_finished_its_records(lab, operator):
    one = at_work(lab, operator)
    lab.append(T, 1, first=10)
    one.nap = 30.0
    lab.until(lambda: len(one.records) == 11)
    one.nap = 30.0
    lab.sleep(1)
    operator.reset({T: 2})
    lab.sleep(10)
    assert lab.committed(T) != 2
    lab.until(lambda: lab.committed(T) == 2, 60)


@pytest.mark.parametrize(
    ("order", "executor", "assignor"),
    [
        ("partition", "thread", EAGER),
        ("unordered", "thread", COOPERATIVE),
        ("key", "asyncio", EAGER),
    ],
)
@operated(nightly=4)
def test_worker_drops_its_queue_and_continues_at_the_target(
    lab, operator, order, executor, assignor
):
    """The worker waits for a running handler, and does not commit that handler's record."""
    lab.topic("t", records=10)
    done, made, found, dropped = [], [], [], []

    def handle(record, _):
        lab.sleep(2)
        done.append(int(record.value))

    async def handle_in_a_task(record, _):
        await asyncio.sleep(2)
        done.append(int(record.value))

    def live():
        consumer = SafeConsumer(
            "t",
            **lab.settings(
                group_id=GROUP,
                client_id="a",
                control=CONTROL,
                hooks=[resets(found)],
                partition_assignment_strategy=[assignor],
            ),
        )
        worker = Worker(
            consumer,
            handle=handle if executor == "thread" else handle_in_a_task,
            executor=executor,
            order=order,
            concurrency=2,
            on_event=dropped.append,
        )
        made.append(worker)
        worker.run()

    _, thread = lab.start("a", live)
    lab.until(lambda: len(done) == 4)
    operator.hold("t")
    operator.reset({T: 2})
    lab.until(lambda: found and lab.committed(T) == 2)
    count = len(done)
    assert count < 10
    lab.sleep(10)
    assert [one.reason for one in dropped if isinstance(one, WorkDropped)] == ["moved"]
    assert (lab.committed(T), len(done)) == (2, count)
    operator.lift("t")
    lab.until(lambda: len(done) == count + 8)
    assert sorted(done[count:]) == [*range(2, 10)]
    made[0].stop()
    thread.join()
    assert lab.committed(T) == 10


@operated(nightly=4)
def test_pump_finishes_its_batch_before_the_partition_is_moved(lab, operator):
    lab.topic("t", records=10)
    values, stop = [], []

    def live():
        settings = {"group_id": GROUP, "control": CONTROL, "max_poll_records": 2}
        consumer = SafeConsumer("t", **lab.settings(client_id="a", **settings))
        with Pump(consumer) as pump:
            stop.append(pump.stop)
            for batch in pump:
                lab.sleep(3)
                values.extend(int(one.value) for one in batch.records)
                batch.done()
        consumer.close()

    _, thread = lab.start("a", live)
    lab.until(lambda: len(values) >= 4)
    operator.hold("t")
    operator.reset({T: 1})
    lab.until(lambda: lab.committed(T) == 1)
    count = len(values)
    lab.sleep(10)
    assert (lab.committed(T), len(values)) == (1, count)
    operator.lift("t")
    lab.until(lambda: values[count:] and values[-1] == 9)
    assert values[count:] == [*range(1, 10)]
    stop[0]()
    thread.join()


# ---------------------------------------------------------------- listeners


class Calls(ConsumerRebalanceListener):
    """Records its calls; ``on_revoked`` and ``on_assigned`` also get the partitions."""

    def __init__(self):
        self.calls = []
        self.on_revoked = self.on_assigned = len

    def on_partitions_revoked(self, revoked):
        self.calls.append(("revoked", [*revoked]))
        self.on_revoked(revoked)

    def on_partitions_assigned(self, assigned):
        self.calls.append(("assigned", [*assigned]))
        self.on_assigned(assigned)


def listening(lab, operator, partitions=1, **settings):
    """Return the partitions of a topic, a member that has read them, and its listener."""
    tps = lab.topic("t", partitions, records=10)
    one = operator.member(**{"enable_auto_commit": True, **settings})
    lab.until(lambda: len(one.records) == 10 * partitions)
    listener = Calls()
    one.call(lambda consumer: consumer.subscribe(["t"], listener=listener))
    lab.sleep(5)
    listener.calls.clear()
    return tps, one, listener


@operated()
def test_listener_is_called_for_the_old_and_the_new_ownership(lab, operator):
    """A program that keeps state for each partition can drop that state."""
    (_, tp), _, listener = listening(lab, operator, 2)
    operator.hold("t")
    operator.reset({tp: 4})
    lab.until(lambda: lab.committed(tp) == 4)
    lab.sleep(10)
    assert listener.calls == [("revoked", [tp]), ("assigned", [tp])]


@operated(nightly=4)
def test_lift_during_the_listeners_call_is_followed_by_an_assignment(lab, operator):
    """Otherwise a program would get records of a partition whose state it has dropped."""
    _, one, listener = listening(lab, operator)
    listener.on_revoked = lambda _: lab.sleep(3)
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: listener.calls)
    operator.lift("t")
    lab.append(T, 3, first=10)
    lab.until(lambda: len(one.records) == 13)
    assert since(one, T, 10) == [10, 11, 12]
    assert listener.calls == [("revoked", [T]), ("assigned", [T])]


@both_protocols
@operated(nightly=20)
def test_listener_knows_the_owned_partitions_after_a_join(lab, operator, assignor):
    more = {"assignor": assignor, **QUICK}
    tps, one, listener = listening(lab, operator, 2, **more)
    listener.on_revoked = lambda _: lab.sleep(2)
    operator.hold("t")
    operator.reset(dict.fromkeys(tps, 4))
    lab.until(lambda: listener.calls)
    two = operator.member("b", enable_auto_commit=True, **more)
    lab.sleep(lab.rng.random() * 2)
    operator.lift("t")
    lab.until(two.consumer.assignment)
    lab.sleep(5)
    last = {tp: name for name, several in listener.calls for tp in several}
    owned = one.consumer.assignment()
    assert last == {tp: "assigned" if tp in owned else "revoked" for tp in tps}


@operated()
def test_listener_that_fails_does_not_prevent_a_reset(lab, operator):
    _, _, listener = listening(lab, operator)

    def fail(_):
        raise ValueError

    listener.on_revoked = listener.on_assigned = fail
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    listener.on_revoked = len


# ---------------------------------------------------------------- commits


def refusal(consumer, offset):
    """Return the text of a commit's error, or None if the commit succeeded."""
    try:
        consumer.commit({T: at(offset)})
    except CommitFailedError as error:
        return str(error)


@pytest.mark.parametrize("target", [3, 15], ids=["back", "forward"])
@operated(nightly=2)
def test_ownership_after_a_reset_commits_between_target_and_delivered_offset(
    lab, operator, target
):
    """An older commit, under the hold or after it, would undo the reset."""
    one = held(lab, operator, enable_auto_commit=False)
    lab.append(T, 10, first=10)
    one.call(lambda consumer: consumer.commit())
    operator.reset({T: target})
    lab.until(lambda: lab.committed(T) == target)
    assert "reset-offsets" in one.call(lambda consumer: refusal(consumer, 10))
    operator.lift("t")
    lab.until(lambda: len(one.records) >= 10 + 20 - target)
    assert one.call(lambda consumer: refusal(consumer, target + 1)) is None
    assert "reset-offsets" in one.call(lambda consumer: refusal(consumer, target - 1))
    assert lab.committed(T) == target + 1
    one.call(lambda consumer: consumer.seek(T, 0))
    one.call(lambda consumer: consumer.commit({T: at(0)}))
    assert lab.committed(T) == 0


@operated()
def test_commit_in_the_listener_does_not_undo_a_reset(lab, operator):
    _, one, listener = listening(lab, operator, enable_auto_commit=False)
    listener.on_revoked = lambda _: one.consumer.commit_async({T: at(9)})
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    lab.sleep(10)
    assert lab.committed(T) == 4
    listener.on_revoked = len


def counted(monkeypatch, where, name):
    """Return a list that grows by one with each call of a method."""
    calls, call = [], getattr(where, name)
    monkeypatch.setattr(where, name, lambda *given: calls.append(0) or call(*given))
    return calls


@pytest.mark.parametrize(
    ("most", "expected"),
    [(250, range(10, 26)), (0.1, range(2, 9))],
    ids=["few", "many"],
)
@operated()
def test_moved_partition_costs_little_while_the_hold_is_in_force(
    lab, operator, monkeypatch, most, expected
):
    """Thousands of partitions used to be examined five times a second."""
    monkeypatch.setattr(resetting, "_MOST_PER_SECOND", most)
    at_work(lab, operator)
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    lab.sleep(11)
    questions = counted(monkeypatch, Resets, "_due")
    lab.sleep(30)
    assert len(questions) in expected
    commit_elsewhere(lab, 7)
    lab.until(lambda: lab.committed(T) == 4, 11)


@operated()
def test_moved_partitions_are_released_in_one_change(lab, operator, monkeypatch):
    """3,000 separate changes used to keep the heartbeat thread busy for seconds."""
    tps = lab.topic("t", 20, records=2)
    one = operator.member(enable_auto_commit=True)
    lab.until(lambda: len(one.records) == 40)
    changes = counted(monkeypatch, PauseLedger, "follow")
    operator.reset(dict.fromkeys(tps, 1))
    lab.until(lambda: moved(lab, dict.fromkeys(tps, 1)))
    lab.sleep(5)
    assert len(changes) < 10


# ---------------------------------------------------------------- lifted too early


@operated(nightly=4)
def test_lift_of_an_unfinished_reset_moves_nothing(lab, operator):
    one = at_work(lab, operator)
    lab.sleep(6)
    fault = lab.cluster.fail("OffsetCommit", error=14, count=1000)
    operator.hold("t")
    lab.until(lambda: quiet(one))
    fault.end()
    lab.cluster.faults.clear()
    away = lab.cluster.fail("OffsetFetch", is_held=True, client_id="a")
    operator.reset({T: 4})
    lab.sleep(5)
    operator.lift("t")
    lab.sleep(5)
    lab.append(T, 2, first=10)
    lab.sleep(5)
    assert len(one.records) == 10  # the member first requests the committed offset
    away.end()
    lab.until(lambda: len(one.records) == 12)
    assert since(one, T, 10) == [10, 11]


@operated(nightly=4)
def test_old_position_is_dropped_if_another_member_moved_it_before_the_lift(
    lab, operator
):
    """The member is evicted, has not noticed the eviction yet, and reads the lift."""
    one = held(lab, operator)
    lab.append(T, 5, first=10)
    lab.sleep(6)
    away = lab.cluster.fail("OffsetFetch", is_held=True, client_id="a")
    operator.reset({T: 4})
    lab.sleep(5)
    operator.lift("t")
    lab.sleep(1)
    commit_elsewhere(lab, 4)
    away.end()
    lab.until(lambda: one.values(T)[-1] == 14)
    assert since(one, T, 10) == [*range(4, 15)]


@operated(nightly=4)
def test_position_set_by_seek_is_kept_when_the_hold_of_an_unfinished_reset_is_lifted(
    lab, operator
):
    """The group's offset was not moved, and this ownership never requested that offset."""
    lab.topic("t", records=15)
    earlier = SafeConsumer(**lab.settings(group_id=GROUP))
    earlier.assign([T])
    earlier.commit({T: at(10)})
    earlier.close(autocommit=False)
    more = {"enable_auto_commit": False, "max_poll_records": 5, "control": CONTROL}
    consumer = SafeConsumer(**lab.settings(group_id=GROUP, **more))
    came = []

    def seek(tps):  # the program stores its offset outside Kafka
        for tp in tps:
            consumer.seek(tp, came[-1] + 1 if came else 0)

    def poll():
        came.extend(record.offset for record in consumer.poll(500).get(T, ()))

    consumer.subscribe(["t"], listener=Listener(assigned=seek))

    while not came:
        poll()
    operator.hold("t")  # while the program works on records 0 to 4
    lab.sleep(2)
    operator.reset({T: 7})
    lab.sleep(2)
    operator.lift("t")
    lab.sleep(2)
    for _ in range(20):
        poll()
    consumer.close(autocommit=False)
    assert (came, lab.committed(T)) == ([*range(15)], 10)


# ---------------------------------------------------------------- unmoved partitions


def reported(operator):
    """Return the report of the only member."""
    (one,) = operator.view().members
    return one.report


@operated()
def test_recreated_topic_is_left_alone_and_named_in_the_report(lab, operator):
    one = at_work(lab, operator)
    old_id = id_text(lab.cluster.topics.get("t").id)
    operator.hold("t")
    lab.until(lambda: quiet(one))
    lab.cluster.delete_topic("t")
    lab.topic("t", records=20)
    operator.reset({T: 4}, topic_ids=[("t", old_id)])
    lab.sleep(30)
    assert lab.committed(T) != 4
    assert reported(operator).resets == (f"t:0 {RECREATED}",)
    operator.lift("t")
    lab.until(lambda: len(one.records) == 30)


@operated(nodes=2)
def test_recreated_topic_is_left_alone_if_older_metadata_arrives_late(lab, operator):
    """The response to an earlier request arrives while the member waits for the id."""
    found = []
    one = held(lab, operator, metadata_max_age_ms=1000, hooks=[resets(found)])
    old_id = id_text(lab.cluster.topics.get("t").id)
    client_id = one.consumer.config["client_id"]
    late = lab.cluster.fail("Metadata", is_held=True, client_id=client_id)
    lab.until(lambda: late.kept)
    lab.cluster.delete_topic("t")
    lab.topic("t", records=20)
    lab.sleep(1)
    operator.reset({T: 4}, topic_ids=[("t", old_id)])
    lab.sleep(0.2)
    late.end()
    lab.sleep(30)
    assert found == []
    assert lab.committed(T) != 4
    assert reported(operator).resets == (f"t:0 {RECREATED}",)
    operator.lift("t")
    lab.until(lambda: len(one.records) == 30)


@operated()
def test_recreating_the_holds_topic_keeps_the_hold_and_moves_nothing(lab, operator):
    """Members cannot know what the deleted topic's last records lifted or moved."""
    one = held(lab, operator)
    away = lab.cluster.fail("OffsetFetch", is_held=True, client_id="a")
    operator.reset({T: 4})
    lab.sleep(5)
    lab.cluster.delete_topic("ops")
    lab.sleep(1)
    lab.cluster.create_topic("ops", 1, topics.HOLDS_SETTINGS)
    lab.sleep(20)
    away.end()
    lab.sleep(20)
    assert (lab.committed(T), quiet(one)) == (10, True)
    (kept,) = reported(operator).kept
    assert "because (its reset is forgotten: request it again) test" in kept.line


@operated(nightly=4)
def test_later_reset_by_another_owner_applies_after_each_lift(lab, operator):
    one = at_work(lab, operator)
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    operator.reset({T: 7}, scope="t:0", owner="bob", hold_id="h2")
    lab.until(lambda: lab.committed(T) == 7)
    operator.lift("t")
    lab.sleep(10)
    assert lab.committed(T) == 7
    operator.lift("t:0", owner="bob")
    lab.until(lambda: len(one.records) == 13)
    assert since(one, T, 10) == [7, 8, 9]


@operated()
def test_repeated_reset_is_ignored_and_a_reset_to_a_new_target_is_applied(
    lab, operator
):
    found = []
    at_work(lab, operator, hooks=[resets(found)])
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    operator.reset({T: 4})
    lab.sleep(10)
    operator.reset({T: 6})
    lab.until(lambda: lab.committed(T) == 6)
    lab.sleep(2)
    assert [(one.position, one.offset) for one in found] == [(10, 4), (4, 6)]


@operated()
def test_reset_moves_only_partitions_under_its_hold(lab, operator):
    tps = lab.topic("t", 2, records=10)
    one = operator.member(enable_auto_commit=True)
    lab.until(lambda: len(one.records) == 20)
    lab.sleep(6)
    operator.reset(dict.fromkeys(tps, 4), scope="t:0")
    lab.until(lambda: lab.committed(tps[0]) == 4)
    lab.sleep(10)
    assert lab.committed(tps[1]) == 10


# ---------------------------------------------------------------- slow brokers


@operated()
def test_silent_coordinator_does_not_delay_other_partitions(lab, operator):
    tps = lab.topic("t", 2, records=10)
    one = operator.member()
    lab.until(lambda: len(one.records) == 20)
    operator.hold("t:0")
    away = lab.cluster.fail("OffsetFetch", is_held=True, client_id="a")
    operator.reset({tps[0]: 4}, scope="t:0")
    lab.until(lambda: away.kept)
    for number in range(10):
        lab.append(tps[1], first=10 + number)
        began, count = lab.now, len(one.values(tps[1]))
        lab.until(lambda known=count: len(one.values(tps[1])) > known)
        assert lab.now - began < 1.0
    away.end()
    lab.until(lambda: lab.committed(tps[0]) == 4)


@pytest.mark.parametrize("is_read", [True, False], ids=["read-later", "never-read"])
@operated()
def test_gate_opened_by_timeout_moves_nothing_until_the_holds_topic_is_read(
    lab, operator, is_read
):
    """A reset that the member has read earlier may have been lifted since."""
    run = evolve(CONTROL, unavailable="run", run_after=2)
    one = at_work(lab, operator, control=run, max_poll_interval_ms=30_000, **QUICK)
    lab.sleep(6)
    fetches = lab.cluster.fail("OffsetFetch", is_held=True, client_id="a")
    operator.reset({T: 4})
    lab.until(lambda: quiet(one))
    away = cut_off(lab, "a")
    one.nap = 40.0  # the member loses its membership, and gains the partition again
    lab.sleep(60)
    fetches.end()
    lab.sleep(10)
    assert lab.committed(T) == 10
    if is_read:
        for each in away:
            each.end()
        lab.until(lambda: lab.committed(T) == 4)


# ---------------------------------------------------------------- the audit


@pytest.mark.parametrize("target", [3, 15], ids=["back", "forward"])
@pytest.mark.parametrize("is_confirmed", [True, False], ids=["confirmed", "made up"])
@operated()
def test_audit_accepts_only_a_reset_recorded_in_the_holds_topic(
    lab, operator, tmp_path, target, is_confirmed
):
    one = at_work(lab, operator, journal=tmp_path)
    lab.append(T, 10, first=10)
    lab.until(lambda: len(one.records) == 20)
    operator.hold("t")
    operator.reset({T: target})
    lab.until(lambda: lab.committed(T) == target)
    lab.append(T, 10, first=20)
    operator.lift("t")
    lab.until(lambda: lab.committed(T) == 30)
    one.stop()
    key = GROUP, "operator:alice", "t:0", target
    targets = {key: [(-math.inf, math.inf)]} if is_confirmed else {}
    settings = Settings(control=audited.Control(targets=targets))
    journals = [read(path) for path in tmp_path.glob("*.journal")]
    (verdict,) = check(journals, settings).values()
    assert {each.check for each in verdict.findings} == (
        set() if is_confirmed else {"A4"}
    )
    assert not {"A2", "A4", "A5", "A6"} & verdict.unjudged.keys()


@operated()
def test_audit_accepts_a_seek_after_a_reset_to_the_current_offset(
    lab, operator, tmp_path
):
    """The program seeks to 3 and commits; the member then restores the committed offset."""
    one = held(lab, operator, enable_auto_commit=False, journal=tmp_path)
    one.call(lambda consumer: consumer.commit())
    operator.reset({T: 10})
    lab.sleep(5)
    one.call(lambda consumer: consumer.seek(T, 3))
    one.call(lambda consumer: consumer.commit())
    assert lab.committed(T) == 3
    lab.until(lambda: lab.committed(T) == 10)
    operator.lift("t")
    one.stop()
    (begun,) = entries_in(tmp_path, "reset")
    assert (begun["tp"], begun["offset"]) == ("t:0", 10)
    assert faults_in(tmp_path, control=read_control(lab.connection, "ops")) == []
