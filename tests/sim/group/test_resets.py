"""G10: an operator moves the offsets of a running group, under a hold of it."""

import asyncio
import math

import pytest
from attrs import evolve
from kafka import ConsumerRebalanceListener
from kafka.errors import CommitFailedError
from kafka.structs import TopicPartition

from safeconsumer import Control, Pump, SafeConsumer, Worker
from safeconsumer._kafka import resetting
from safeconsumer._kafka.pausing.subscription import id_text
from safeconsumer._kafka.resetting import RECREATED
from safeconsumer._kafka.resetting import Resetting as Resets
from safeconsumer.audit import control as audited
from safeconsumer.audit.results import Settings
from safeconsumer.events import PartitionReset, WorkDropped
from safeconsumer.group import clients, topics
from safeconsumer.group.publisher import Change, publish
from safeconsumer.group.wire import ControlHold, ControlKey, Reset
from safeconsumer.holds.ledger import PauseLedger
from tests.harness.audit.journals import check, read
from tests.sim.group.operating import CONTROL, Operator
from tests.sim.group.test_members import QUICK, member
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import COOPERATIVE, EAGER, at, both_protocols

pytestmark = pytest.mark.contract("G10")

T = TopicPartition("t", 0)

# Without reports: a killed member's producer has some on their way, and says so when it
# is collected, in whatever test that is.
SILENT = Control(holds_topic="ops", status_topic=None)


class Resetting(Operator):
    """An operator who holds topics, and moves offsets under the hold."""

    def reset(self, offsets, *, scope="t", owner="alice", topic_ids=(), hold_id="h1"):
        """Write the hold's record with the offsets to which partitions are moved."""
        to = tuple((*tp, offset) for tp, offset in sorted(offsets.items()))
        reset = Reset(to, tuple(topic_ids))
        self._write(scope, owner, ControlHold(hold_id, "test", reset=reset))

    def end(self, scope="t", owner="alice"):
        """Lift the hold, whatever was moved."""
        self._write(scope, owner, None)

    def _write(self, scope, owner, hold):
        writer = clients.producer(self._lab.settings(), 10.0)
        change = Change(ControlKey(GROUP, owner, scope), hold)
        publish(lambda: writer, "ops", [change], 10.0)
        writer.close()


def elsewhere(lab, offset):
    """Commit as no member does: in a transaction, or as a later owner."""
    kept = lab.cluster.offsets._committed[GROUP]
    kept[T.topic, T.partition] = evolve(kept[T.topic, T.partition], offset=offset)


def resets(told):
    """Return a hook that keeps the events of partitions that were moved."""
    return lambda one: told.append(one) if isinstance(one, PartitionReset) else None


def quiet(*members):
    return all(one.consumer.quiet() == one.consumer.assignment() for one in members)


def moved(lab, targets):
    """Tell whether the group has committed the targets."""
    return all(lab.committed(tp) == offset for tp, offset in targets.items())


def since(one, tp, count):
    """Return the values that came of a partition, without the first so many."""
    return one.values(tp)[count:]


def at_work(lab, **settings):
    """Return an operator, and a member that has read the ten records of a topic."""
    operator = Resetting(lab)
    lab.topic("t", records=10)
    one = member(lab, "a", **{"enable_auto_commit": True, **settings})
    lab.until(lambda: len(one.records) == 10)
    return operator, one


def held(lab, **settings):
    """Return the same, while the member obeys a hold of the topic."""
    operator, one = at_work(lab, **settings)
    operator.hold("t")
    lab.until(lambda: quiet(one))
    return operator, one


@pytest.mark.parametrize("target", [3, 15, 10], ids=["back", "forward", "nowhere"])
@simulated(seeds=1, nightly=4)
def test_a_held_partition_is_moved_and_goes_on_at_the_target(lab, target):
    operator, one = held(lab)
    lab.append(T, 10, first=10)
    operator.reset({T: target})
    lab.until(lambda: lab.committed(T) == target)
    lab.sleep(10)
    assert (lab.committed(T), len(one.records)) == (target, 10)
    operator.end("t")
    lab.until(lambda: one.values(T)[-1] == 19)
    assert since(one, T, 10) == [*range(target, 20)]
    one.stop()
    assert lab.running() == []


# ---------------------------------------------------------------- every kind of blow


class Round:
    """Some members, and what came first of each partition after a lift."""

    def __init__(self, lab, assignor, partitions=4, kind=SafeConsumer):
        self.lab, self._assignor, self._kind = lab, assignor, kind
        self.operator = Resetting(lab)
        self.tps = lab.topic("t", partitions, records=20)
        self.members, self._number = [], 0
        for _ in range(3):
            self.join()
        lab.until(lambda: sum(len(one.records) for one in self.members) >= 80)
        lab.sleep(2)

    def join(self):
        self._number += 1
        made = self.lab.member(
            self._kind,
            "t",
            name=f"m{self._number}",
            control=SILENT,
            enable_auto_commit=True,
            auto_commit_interval_ms=500,
            assignor=self._assignor,
            poll_ms=100,
            **QUICK,
        )
        self.members.append(made)

    def kill(self, one=None):
        one = one or self.lab.rng.choice(self.members)
        self.members.remove(one)
        self.lab.kill(one.process)

    def leave(self):
        one = self.lab.rng.choice(self.members)
        self.members.remove(one)
        one.leave()

    def blow(self):
        for _ in range(self.lab.rng.randrange(3)):
            blow = self.lab.rng.choice([self.kill, self.leave, self.join])
            if blow == self.join or len(self.members) > 1:
                blow()
            self.lab.sleep(self.lab.rng.random() * 2)

    def play(self):
        """Move everything while members come, go and die; return what came after."""
        lab, rng = self.lab, self.lab.rng
        targets = {tp: rng.randrange(0, 21) for tp in self.tps}
        self.operator.hold("t")
        lab.sleep(2 * rng.random())
        self.operator.reset(targets)
        lab.sleep(rng.random() * rng.choice([0.05, 0.3, 3]))
        self.blow()
        if rng.random() < 0.3:
            for one in [*self.members]:
                self.kill(one)
            lab.sleep(rng.random() * 8)
            self.join()
        lab.until(lambda: moved(lab, targets) and quiet(*self.members), 200)
        self.blow()
        lab.sleep(8 * rng.random())
        assert moved(lab, targets)
        for tp in self.tps:
            lab.append(tp, 10, first=20)
        before = {one: len(one.records) for one in self.members}
        self.operator.end("t")
        lab.until(self._is_read, 200)
        lab.sleep(5)
        return targets, before

    def _is_read(self):
        return all(self.lab.committed(tp) == 30 for tp in self.tps)


@both_protocols
@simulated(seeds=6, nightly=60)
def test_each_partition_is_moved_once_whoever_dies(lab, assignor):
    """Nothing comes twice after the lift, nothing is left out, and nothing before it."""
    one = Round(lab, assignor)
    targets, before = one.play()
    came = {tp: [] for tp in one.tps}
    for member_, count in before.items():
        for record in member_.records[count:]:
            came[record.topic, record.partition].append(record.offset)
    expected = {tp: [*range(target, 30)] for tp, target in targets.items()}
    assert came == expected
    for each in one.members:
        each.stop()


@both_protocols
@simulated(seeds=1, nightly=10)
def test_the_next_owner_moves_it_before_its_first_record(lab, assignor):
    """Nobody owns it when the record is written."""
    operator = Resetting(lab)
    lab.topic("t", records=10)
    first = member(
        lab, "a", enable_auto_commit=True, assignor=assignor, control=SILENT, **QUICK
    )
    lab.until(lambda: len(first.records) == 10)
    operator.hold("t")
    lab.until(lambda: quiet(first))
    lab.kill(first.process)
    operator.reset({T: 4})
    lab.sleep(10)
    second = member(lab, "b", enable_auto_commit=True, assignor=assignor)
    lab.until(lambda: lab.committed(T) == 4)
    operator.end("t")
    lab.until(lambda: len(second.records) == 6)
    assert second.values(T) == [*range(4, 10)]
    second.stop()


@simulated(seeds=1, nightly=4)
def test_the_next_owner_does_not_begin_a_reset_again_that_is_done(lab, tmp_path):
    """The metadata of the commit name the journal of its owner; a position has none."""
    first_events, second_events = [], []
    operator, first = held(lab, hooks=(resets(first_events),), journal=tmp_path)
    operator.reset({T: 3})
    lab.until(lambda: lab.committed(T) == 3)
    first.leave()
    hooks = (resets(second_events),)
    second = member(lab, "b", enable_auto_commit=True, hooks=hooks, journal=tmp_path)
    lab.until(lambda: quiet(second) and second.consumer.assignment())
    lab.sleep(10)
    assert (len(first_events), second_events) == (1, [])
    operator.end("t")
    lab.until(lambda: len(second.records) == 7)
    second.stop()


@simulated(seeds=1, nightly=4)
def test_it_is_moved_while_its_group_rebalances_without_an_end(lab):
    """A frozen member keeps a join waiting; it is moved when the join is over."""
    operator = Resetting(lab)
    tps = lab.topic("t", 2, records=10)
    a = member(lab, "a", enable_auto_commit=True, **QUICK)
    b = member(lab, "b", enable_auto_commit=True, **QUICK)
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
    operator.end("t")
    lab.until(lambda: all(lab.committed(tp) == 10 for tp in tps))
    for tp in tps:
        assert sorted(a.values(tp) + b.values(tp)) == sorted(
            [*range(10), *range(5, 10)]
        )
    a.stop()
    b.stop()


# ---------------------------------------------------------------- records in hand


@simulated(seeds=1, nightly=4)
def test_it_waits_until_the_program_has_nothing_in_hand(lab):
    operator, one = at_work(lab)
    lab.append(T, 1, first=10)
    one.nap = 30.0
    lab.until(lambda: len(one.records) == 11)
    one.nap = 30.0
    lab.sleep(1)
    operator.reset({T: 2})
    lab.sleep(10)
    assert lab.committed(T) != 2
    lab.until(lambda: lab.committed(T) == 2, 60)
    one.stop()


@pytest.mark.parametrize(
    ("order", "executor", "assignor"),
    [
        ("partition", "thread", EAGER),
        ("partition", "thread", COOPERATIVE),
        ("key", "thread", EAGER),
        ("unordered", "thread", EAGER),
        ("key", "asyncio", EAGER),
    ],
)
@simulated(seeds=1, nightly=4)
def test_a_worker_drops_what_it_has_queued_and_goes_on_at_the_target(
    lab, order, executor, assignor
):
    """A handler that runs is waited for, and what it has done is not committed over it."""
    operator = Resetting(lab)
    lab.topic("t", records=10)
    done, made, told, dropped = [], [], [], []

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
                hooks=[resets(told)],
                partition_assignment_strategy=[assignor],
            ),
        )
        made.append(
            Worker(
                consumer,
                handle=handle if executor == "thread" else handle_in_a_task,
                executor=executor,
                order=order,
                concurrency=2,
                on_event=dropped.append,
            )
        )
        made[0].run()

    _, thread = lab.start("a", live)
    lab.until(lambda: len(done) == 4)
    operator.hold("t")
    operator.reset({T: 2})
    lab.until(lambda: told and lab.committed(T) == 2)
    count = len(done)
    assert count < 10
    lab.sleep(10)
    assert [one.reason for one in dropped if isinstance(one, WorkDropped)] == ["moved"]
    assert (lab.committed(T), len(done)) == (2, count)
    operator.end("t")
    lab.until(lambda: len(done) == count + 8)
    assert sorted(done[count:]) == [*range(2, 10)]
    made[0].stop()
    thread.join()
    assert lab.committed(T) == 10


@simulated(seeds=1, nightly=4)
def test_a_pump_answers_what_it_has_before_it_is_moved(lab):
    operator = Resetting(lab)
    lab.topic("t", records=10)
    values, is_over = [], []

    def live():
        consumer = SafeConsumer(
            "t",
            **lab.settings(
                group_id=GROUP, client_id="a", control=CONTROL, max_poll_records=2
            ),
        )
        with Pump(consumer) as pump:
            is_over.append(pump.stop)
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
    operator.end("t")
    lab.until(lambda: values[count:] and values[-1] == 9)
    assert values[count:] == [*range(1, 10)]
    is_over[0]()
    thread.join()


class Heard(ConsumerRebalanceListener):
    def __init__(self):
        self.calls = []

    def on_partitions_revoked(self, revoked):
        self.calls.append(("revoked", [*revoked]))

    def on_partitions_assigned(self, assigned):
        self.calls.append(("assigned", [*assigned]))


@simulated(seeds=1)
def test_the_listener_hears_of_an_ownership_that_ends_and_of_one_that_begins(lab):
    """So a program that keeps something by partition drops it."""
    operator = Resetting(lab)
    tps = lab.topic("t", 2, records=10)
    one = member(lab, "a", enable_auto_commit=True)
    lab.until(lambda: len(one.records) == 20)
    heard = Heard()
    one.call(lambda consumer: consumer.subscribe(["t"], listener=heard))
    lab.sleep(5)
    del heard.calls[:]
    operator.hold("t")
    operator.reset({tps[1]: 4})
    lab.until(lambda: lab.committed(tps[1]) == 4)
    lab.sleep(10)
    assert heard.calls == [("revoked", [tps[1]]), ("assigned", [tps[1]])]
    one.stop()


@simulated(seeds=1, nightly=4)
def test_lifted_while_the_listener_hears_of_the_end_it_hears_of_a_beginning(lab):
    """Or a program that forgets what is revoked had records of no partition it knows."""
    operator = Resetting(lab)
    lab.topic("t", records=10)
    one = member(lab, "a", enable_auto_commit=True)
    lab.until(lambda: len(one.records) == 10)
    heard = Heard()
    one.call(lambda consumer: consumer.subscribe(["t"], listener=heard))
    lab.sleep(5)
    del heard.calls[:]

    def take_long(revoked):
        heard.calls.append(("revoked", [*revoked]))
        lab.sleep(3)

    heard.on_partitions_revoked = take_long
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: heard.calls)
    operator.end("t")
    lab.append(T, 3, first=10)
    lab.until(lambda: len(one.records) == 13)
    assert since(one, T, 10) == [10, 11, 12]
    assert heard.calls == [("revoked", [T]), ("assigned", [T])]
    one.stop()


@both_protocols
@simulated(seeds=1, nightly=20)
def test_after_a_join_meanwhile_the_listener_has_heard_who_owns_what(lab, assignor):
    operator = Resetting(lab)
    tps = lab.topic("t", 2, records=10)
    one = member(lab, "a", enable_auto_commit=True, assignor=assignor, **QUICK)
    lab.until(lambda: len(one.records) == 20)
    heard = Heard()
    one.call(lambda consumer: consumer.subscribe(["t"], listener=heard))
    lab.sleep(5)
    del heard.calls[:]

    def take_long(revoked):
        heard.calls.append(("revoked", [*revoked]))
        lab.sleep(2)

    heard.on_partitions_revoked = take_long
    operator.hold("t")
    operator.reset(dict.fromkeys(tps, 4))
    lab.until(lambda: heard.calls)
    two = member(lab, "b", enable_auto_commit=True, assignor=assignor, **QUICK)
    lab.sleep(lab.rng.random() * 2)
    operator.end("t")
    lab.until(two.consumer.assignment)
    lab.sleep(5)
    last = {tp: name for name, several in heard.calls for tp in several}
    owned = one.consumer.assignment()
    assert last == {tp: "assigned" if tp in owned else "revoked" for tp in tps}
    one.stop()
    two.stop()


def listening(lab, **settings):
    """Return an operator, a member at work, and its listener."""
    operator, one = at_work(lab, **settings)
    heard = Heard()
    one.call(lambda consumer: consumer.subscribe(["t"], listener=heard))
    lab.sleep(5)
    return operator, one, heard


@simulated(seeds=1)
def test_a_listener_that_fails_stops_nothing(lab):
    operator, one, heard = listening(lab)

    def fail(_):
        raise ValueError

    heard.on_partitions_revoked = heard.on_partitions_assigned = fail
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    heard.on_partitions_revoked = lambda _: None
    one.stop()


# ---------------------------------------------------------------- commits


def refusal(consumer, offset):
    """Return the words of the error of a commit; None if it is done."""
    try:
        consumer.commit({T: at(offset)})
    except CommitFailedError as error:
        return str(error)


@pytest.mark.parametrize("target", [3, 15], ids=["back", "forward"])
@simulated(seeds=1, nightly=2)
def test_an_ownership_that_a_reset_began_commits_between_target_and_delivered(
    lab, target
):
    """While it is held, and after: what is from before would undo the reset."""
    operator, one = held(lab, enable_auto_commit=False)
    lab.append(T, 10, first=10)
    one.call(lambda consumer: consumer.commit())
    operator.reset({T: target})
    lab.until(lambda: lab.committed(T) == target)
    assert "reset-offsets" in one.call(lambda consumer: refusal(consumer, 10))
    operator.end("t")
    lab.until(lambda: len(one.records) >= 10 + 20 - target)
    assert one.call(lambda consumer: refusal(consumer, target + 1)) is None
    assert "reset-offsets" in one.call(lambda consumer: refusal(consumer, target - 1))
    assert lab.committed(T) == target + 1
    one.call(lambda consumer: consumer.seek(T, 0))
    one.call(lambda consumer: consumer.commit({T: at(0)}))
    assert lab.committed(T) == 0
    one.stop()


@simulated(seeds=1)
def test_a_listener_that_commits_what_it_had_undoes_nothing(lab):
    operator, one, heard = listening(lab, enable_auto_commit=False)
    consumer = one.consumer
    heard.on_partitions_revoked = lambda _: consumer.commit_async({T: at(9)})
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    lab.sleep(10)
    assert lab.committed(T) == 4
    heard.on_partitions_revoked = lambda _: None
    one.stop()


def counted(monkeypatch, where, name):
    """Return a list that grows by one with each call of a method."""
    calls, call = [], getattr(where, name)

    def counting(*given):
        calls.append(given)
        return call(*given)

    monkeypatch.setattr(where, name, counting)
    return calls


@pytest.mark.parametrize(
    ("most", "expected"),
    [(250, range(10, 26)), (0.1, range(2, 9))],
    ids=["few", "many"],
)
@simulated(seeds=1)
def test_what_was_moved_costs_next_to_nothing_while_the_hold_stands(
    lab, monkeypatch, most, expected
):
    """Thousands of partitions were looked at five times a second, then asked about often."""
    monkeypatch.setattr(resetting, "_MOST_PER_SECOND", most)
    operator, one = at_work(lab)
    operator.hold("t")
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    lab.sleep(11)
    looks = counted(monkeypatch, Resets, "_due")
    lab.sleep(30)
    assert len(looks) in expected
    elsewhere(lab, 7)
    lab.until(lambda: lab.committed(T) == 4, 11)
    one.stop()


@simulated(seeds=1)
def test_partitions_that_were_moved_begin_to_flow_in_one_change(lab, monkeypatch):
    """Each changed all holds alone: 3,000 kept the thread of heartbeats busy for seconds."""
    operator = Resetting(lab)
    tps = lab.topic("t", 20, records=2)
    one = member(lab, "a", enable_auto_commit=True)
    lab.until(lambda: len(one.records) == 40)
    changes = counted(monkeypatch, PauseLedger, "follow")
    operator.reset(dict.fromkeys(tps, 1))
    lab.until(lambda: moved(lab, dict.fromkeys(tps, 1)))
    lab.sleep(5)
    assert len(changes) < 10
    one.stop()


# ---------------------------------------------------------------- lifted while undone


@simulated(seeds=1, nightly=4)
def test_lifted_while_undone_it_stays_where_it_was(lab):
    operator, one = at_work(lab)
    lab.sleep(6)
    fault = lab.cluster.fail("OffsetCommit", error=14, count=1000)
    operator.hold("t")
    lab.until(lambda: quiet(one))
    fault.end()
    lab.cluster.faults.clear()
    away = lab.cluster.fail("OffsetFetch", is_held=True, client_id="a")
    operator.reset({T: 4})
    lab.sleep(5)
    operator.end("t")
    lab.sleep(5)
    lab.append(T, 2, first=10)
    lab.sleep(5)
    assert len(one.records) == 10  # it asks first
    away.end()
    lab.until(lambda: len(one.records) == 12)
    assert since(one, T, 10) == [10, 11]
    one.stop()


@simulated(seeds=1, nightly=4)
def test_lifted_while_another_has_moved_it_the_old_place_is_forgotten(lab):
    """The member is expelled, does not know it yet, and reads the lift."""
    operator, one = held(lab)
    lab.append(T, 5, first=10)
    lab.sleep(6)
    away = lab.cluster.fail("OffsetFetch", is_held=True, client_id="a")
    operator.reset({T: 4})
    lab.sleep(5)
    operator.end("t")
    lab.sleep(1)
    elsewhere(lab, 4)
    away.end()
    lab.until(lambda: one.values(T)[-1] == 14)
    assert since(one, T, 10) == [*range(4, 15)]
    one.stop()


# ---------------------------------------------------------------- what is left alone


@simulated(seeds=1)
def test_a_topic_recreated_since_is_left_alone_and_the_report_says_so(lab):
    operator = Resetting(lab)
    lab.topic("t", records=10)
    old_id = id_text(lab.cluster.topics.get("t").id)
    one = member(lab, "a", enable_auto_commit=True)
    lab.until(lambda: len(one.records) == 10)
    operator.hold("t")
    lab.until(lambda: quiet(one))
    lab.cluster.delete_topic("t")
    lab.topic("t", records=20)
    operator.reset({T: 4}, topic_ids=[("t", old_id)])
    lab.sleep(30)
    assert lab.committed(T) != 4
    assert reported(operator).resets == (f"t:0 {RECREATED}",)
    operator.end("t")
    lab.until(lambda: len(one.records) == 30)
    one.stop()


def reported(operator):
    """Return the report of the only member."""
    with operator.looking() as looking:
        (one,) = looking.look(GROUP).members
    return one.report


@simulated(seeds=1)
def test_a_holds_topic_made_again_keeps_the_hold_and_moves_nothing(lab):
    """Whether it was lifted meanwhile, and what was committed then, is not known."""
    operator, one = held(lab)
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
    assert "because (its reset is forgotten: ask for it again) test" in kept.line
    one.stop()


@simulated(seeds=1, nightly=4)
def test_two_owners_the_later_counts_whoever_lifts(lab):
    operator, one = at_work(lab)
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    operator.reset({T: 7}, scope="t:0", owner="bob", hold_id="h2")
    lab.until(lambda: lab.committed(T) == 7)
    operator.end("t")
    lab.sleep(10)
    assert lab.committed(T) == 7
    operator.end("t:0", owner="bob")
    lab.until(lambda: len(one.records) == 13)
    assert since(one, T, 10) == [7, 8, 9]
    one.stop()


@simulated(seeds=1)
def test_the_same_hold_written_again_moves_nothing_and_another_offset_does(lab):
    told = []
    operator, one = at_work(lab, hooks=[resets(told)])
    operator.reset({T: 4})
    lab.until(lambda: lab.committed(T) == 4)
    operator.reset({T: 4})
    lab.sleep(10)
    operator.reset({T: 6})
    lab.until(lambda: lab.committed(T) == 6)
    lab.sleep(2)
    assert [(one.position, one.offset) for one in told] == [(10, 4), (4, 6)]
    one.stop()


@simulated(seeds=1)
def test_a_hold_that_covers_less_than_its_reset_moves_what_it_covers(lab):
    operator = Resetting(lab)
    tps = lab.topic("t", 2, records=10)
    one = member(lab, "a", enable_auto_commit=True)
    lab.until(lambda: len(one.records) == 20)
    lab.sleep(6)
    operator.reset(dict.fromkeys(tps, 4), scope="t:0")
    lab.until(lambda: lab.committed(tps[0]) == 4)
    lab.sleep(10)
    assert lab.committed(tps[1]) == 10
    one.stop()


# ---------------------------------------------------------------- slow brokers


@simulated(seeds=1)
def test_a_coordinator_that_is_silent_delays_no_other_partition(lab):
    operator = Resetting(lab)
    tps = lab.topic("t", 2, records=10)
    one = member(lab, "a")
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
    one.stop()


@pytest.mark.parametrize("is_read", [True, False], ids=["read-later", "never-read"])
@simulated(seeds=1)
def test_a_gate_opened_by_time_moves_nothing_before_the_holds_topic_is_read(
    lab, is_read
):
    """The member knows a reset from before, which may have been lifted meanwhile."""
    operator = Resetting(lab)
    lab.topic("t", records=10)
    run = Control(
        holds_topic="ops", status_topic="status", unavailable="run", run_after=2
    )
    one = member(lab, "a", enable_auto_commit=True, control=run, **QUICK)
    lab.until(lambda: len(one.records) == 10)
    lab.sleep(6)
    fetches = lab.cluster.fail("OffsetFetch", is_held=True, client_id="a")
    operator.reset({T: 4})
    lab.until(lambda: quiet(one))
    away = [
        lab.cluster.fail(api, is_held=True, client_id="a-control")
        for api in ("ListOffsets", "Fetch")
    ]
    one.nap = 400.0  # it loses its membership, and gains the partition again
    lab.sleep(420)
    fetches.end()
    lab.sleep(10)
    assert lab.committed(T) == 10
    if is_read:
        for each in away:
            each.end()
        lab.until(lambda: lab.committed(T) == 4)
    one.stop()


# ---------------------------------------------------------------- the audit


@pytest.mark.parametrize("target", [3, 15], ids=["back", "forward"])
@pytest.mark.parametrize("is_confirmed", [True, False], ids=["confirmed", "made up"])
@simulated(seeds=1)
def test_the_audit_accepts_a_reset_that_the_holds_topic_confirms(
    lab, tmp_path, target, is_confirmed
):
    """And finds one that no operator has asked for."""
    operator, one = at_work(lab, journal=tmp_path)
    lab.append(T, 10, first=10)
    lab.until(lambda: len(one.records) == 20)
    operator.hold("t")
    operator.reset({T: target})
    lab.until(lambda: lab.committed(T) == target)
    lab.append(T, 10, first=20)
    operator.end("t")
    lab.until(lambda: lab.committed(T) == 30)
    one.stop()
    key = GROUP, "operator:alice", "t:0", target
    targets = {key: [(-math.inf, math.inf)]} if is_confirmed else {}
    settings = Settings(control=audited.Control(targets=targets))
    (verdict,) = check(
        [read(path) for path in tmp_path.glob("*.journal")], settings
    ).values()
    assert {each.check for each in verdict.findings} == (
        {"A4"} - {is_confirmed and "A4"}
    )
    assert not {"A2", "A4", "A5", "A6"} & verdict.unjudged.keys()
