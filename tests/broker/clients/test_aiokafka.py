"""Members on aiokafka: what they deliver while something is held, and after it."""

import asyncio
import gc
import ssl
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import aiokafka as upstream
import pytest
from aiokafka import TopicPartition
from aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from kafka.admin import KafkaAdminClient

from safeconsumer import ALL
from safeconsumer.cli.errors import Status
from safeconsumer.clients import aiokafka_control, control_topics
from safeconsumer.clients.aiokafka import AIOKafkaConsumer
from safeconsumer.clients.aiokafka_control import AiokafkaClients, LoopCalls
from safeconsumer.errors import (
    ControlSettingError,
    ControlTopicError,
    HoldSettingError,
    HookTypeError,
    ScopeSyntaxError,
    TargetTypeError,
    UnsupportedAiokafkaError,
)
from safeconsumer.events import (
    ControlTopicReset,
    ControlUnavailable,
    GatesChanged,
    RebalanceCompleted,
)
from safeconsumer.group import topics
from tests.harness.group.aiokafka import (
    ASSIGNORS,
    AiokafkaMember,
    Loop,
    aiokafka,
    owned_by,
    settings_of,
)
from tests.harness.group.team import run
from tests.harness.metrics.scraping import values
from tests.harness.processes import ran_python
from tests.harness.waiting import looks, wait_for

pytestmark = pytest.mark.any_broker

CONTROL, STATUS = "safeconsumer-control", "safeconsumer-status"
ALL_ASSIGNORS = pytest.mark.parametrize("assignor", ASSIGNORS)


@pytest.fixture
def loop():
    """Run an event loop on a thread; at the end nothing is left in it."""
    with Loop() as one:
        yield one


class Member:
    """A consumer of the team whose coroutines run in the loop, one at a time."""

    def __init__(self, loop, consumer):
        self.loop, self.consumer = loop, consumer

    def run(self, name, *arguments, **more):
        return self.loop.run(getattr(self.consumer, name)(*arguments, **more))

    def call(self, name, *arguments, **more):
        return self.loop.call(getattr(self.consumer, name), *arguments, **more)

    def join(self, topic):
        self.call("subscribe", [topic])
        self.run("start")

    @property
    def assignment(self):
        """What it owns."""
        return owned_by(self.consumer)

    def taken(self, condition, what="records"):
        """Ask for records until a condition holds; return where those that came were."""
        came = []
        for turn, _ in enumerate(looks(partial(condition, came), what)):
            came.extend(self.one() if turn % 2 else self.many())
        return came

    def many(self, seconds=0.1, **more):
        found = self.run("getmany", timeout_ms=seconds * 1000, **more)
        return [
            (tp.partition, one.offset)
            for tp, several in found.items()
            for one in several
        ]

    def one(self, seconds=0.1):
        async def asked():
            try:
                found = await asyncio.wait_for(self.consumer.getone(), seconds)
            except TimeoutError:
                return []
            return [(found.partition, found.offset)]

        return self.loop.run(asked())


@pytest.fixture
def member(team, loop):
    """Make members of the team that are started, and stop at the end."""
    with ExitStack() as closing:

        def made(*names, starts=True, **more):
            consumer = loop.call(aiokafka, team, *names, **more)
            one = Member(loop, consumer)
            closing.callback(one.run, "stop")
            if starts:
                one.run("start")
            return one

        yield made


def count(several):
    return lambda came: len(came) >= several


def of(came, partition):
    return [offset for number, offset in came if number == partition]


def is_assigned(team, one):
    return lambda _: len(one.assignment) == len(team.partitions)


# ---------------------------------------------------------------- a held group


@pytest.mark.contract("G1", "G2", "G8", "G9")
@ALL_ASSIGNORS
def test_a_held_group_delivers_nothing_whoever_joins_and_then_all_of_it(
    team, loop, assignor
):
    """And ``--wait`` ends: each member reports by the id and generation that Kafka has."""
    with ExitStack() as running:
        members = [
            running.enter_context(
                AiokafkaMember(loop, team, name, assignor, control=team.quick)
            )
            for name in "ab"
        ]
        everything = {(tp.partition, n) for tp in team.partitions for n in range(5)}

        def came():
            return [one for each in members for one in each.came]

        wait_for(lambda: set(came()) >= everything, "the first records")
        wait_for(lambda: all(one.assignment for one in members), "a share for both")
        asked = ("--group", team.group, "--owner", "alice", "--reason", "x")
        placed = run(team, "pause", team.topic, *asked, "--wait", "60s")
        assert placed.exit_code == 0, placed.output
        before = len(came())
        team.produce(3)
        third = AiokafkaMember(loop, team, "c", assignor, control=team.quick)
        members.append(running.enter_context(third))
        wait_for(lambda: third.assignment, "a share for the third")
        quiet = run(
            team, "wait", "quiet", team.topic, "--group", team.group, "--timeout", "60s"
        )
        assert quiet.exit_code == 0, quiet.output
        assert len(came()) == before
        assert third.came == []
        lifted = run(team, "resume", team.topic, *asked[:4])
        assert lifted.exit_code == 0, lifted.output
        everything |= {(tp.partition, n) for tp in team.partitions for n in (5, 6, 7)}
        wait_for(lambda: set(came()) >= everything, "the records that were held")


@pytest.mark.contract("G2")
def test_a_group_that_was_held_before_its_first_member_delivers_nothing(team, member):
    """The gate of a gained partition opens when the holds are read, not before."""
    team.operator_holds(f"{team.topic}:0")
    one = member(team.topic, control=team.quick)
    came = one.taken(count(15))
    assert of(came, 0) == []
    assert one.consumer.quiet() == {TopicPartition(team.topic, 0)}
    assert one.consumer.paused() == set()
    (line,) = one.consumer.explain(f"{team.topic}:0")
    assert "held by operator:alice" in line
    team.operator_lifts(f"{team.topic}:0")
    assert one.taken(count(5)) == [(0, n) for n in range(5)]


class Naive(AIOKafkaConsumer):
    """Pauses when the holds change, as a program with a timer does, and never else."""

    before = ()

    def _apply(self):
        self._notice_assignment()
        if (holds := self.holds()) != self.before:
            self.before = holds
            super()._apply()

    def _may_give(self, found):
        self._member.gave(found)
        return frozenset(found)


def test_a_member_that_only_pauses_when_holds_change_leaks(team, loop):
    """The negative control: the other tests would see it. A rebalance forgets its pauses."""
    team.operator_holds(team.topic)
    kind = {"control": team.quick, "kind": Naive}
    with AiokafkaMember(loop, team, "a", **kind) as one:
        wait_for(lambda: one.consumer.holds() and one.assignment, "the hold")
        with AiokafkaMember(loop, team, "b", **kind) as two:
            wait_for(lambda: one.came or two.came, "a record of what is held")


@pytest.mark.contract("G8", "G9")
def test_a_member_is_busy_until_it_asks_for_records_again(team, member):
    """The record that ``getone`` returned may be worked on: ``--wait`` waits for it."""
    one = member(team.topic, control=team.quick)
    ((given, _),) = one.one(20)
    held = ("pause", team.topic, "--group", team.group, "--owner", "o", "--reason", "x")
    assert run(team, *held).exit_code == Status.DONE

    def status():
        return run(team, "status", "--group", team.group).output

    wait_for(lambda: "3 of 4 quiet" in status(), "a report of the hold")
    assert f"{team.topic}:{given}  not quiet yet" in status()
    waiting = ("wait", "quiet", team.topic, "--group", team.group, "--timeout", "60s")
    asked = one.loop.call(asyncio.create_task, one.consumer.getone())
    try:
        quiet = run(team, *waiting)
    finally:
        one.loop.call(asked.cancel)
    assert quiet.exit_code == 0, quiet.output


@pytest.mark.contract("P14", "G9")
def test_hooks_get_the_rebalance_and_the_gates_of_what_is_gained(team, member):
    came = []
    one = member(team.topic, control=team.quick, hooks=[came.append])
    one.taken(count(20))
    opened = [event for event in came if isinstance(event, GatesChanged)]
    assert sum(len(event.flowing) for event in opened) == 4
    gained = [len(e.gained) for e in came if isinstance(e, RebalanceCompleted)]
    assert gained == [4]
    assert {event.client_id for event in came} == {"a"}
    assert one.consumer.hook_failures == {}


@pytest.mark.contract("P14", "G9")
def test_a_collector_shows_what_is_known_of_a_member(team, member):
    """What aiokafka does not tell is left out."""
    one = member(team.topic, control=team.quick)
    one.taken(count(20))
    one.consumer.hold(f"{team.topic}:0")
    found = values(one.consumer)
    unknown = {"parked_bytes", "purged_bytes_total", "deleted_unread_offsets_total"}
    assert found.keys() & unknown == set()
    assert (found["consumer_assigned_partitions"], found["control_ready"]) == (4, 1)
    assert found["consumer_quiet_partitions"] == found['holds{kind="local"}'] == 1


@pytest.mark.contract("G9", "G10")
def test_a_reset_is_refused_while_a_member_owns_what_it_would_not_move(team, loop):
    """It obeys the hold, and its offsets stay where they are."""
    with AiokafkaMember(loop, team, "a", control=team.quick) as one:
        wait_for(lambda: len(one.came) == 20, "the records")
        whose = ("--group", team.group, "--owner", "alice")
        held = run(team, "pause", team.topic, *whose, "--reason", "x", "--wait", "30s")
        refused = run(team, "reset-offsets", team.topic, *whose, "--to", "earliest")
    assert held.exit_code == Status.DONE, held.output
    assert refused.exit_code == Status.FAILED, refused.output
    assert "moves nothing" in refused.output


@pytest.mark.contract("G6", "G9")
def test_an_operator_s_hold_ends_by_the_brokers_time(team, member):
    team.operator_holds(f"{team.topic}:0", for_=1.0)
    one = member(team.topic, control=team.quick)
    assert of(one.taken(count(20)), 0) == list(range(5))
    assert one.consumer.holds() == ()


@pytest.mark.contract("G5")
@pytest.mark.embedded_broker
def test_a_holds_topic_that_is_gone_leaves_its_holds_in_force(team, member):
    told = []
    team.operator_holds(f"{team.topic}:0")
    one = member(team.topic, control=team.quick, hooks=[told.append])
    one.taken(count(15))
    team.broker.delete_topic(team.settings.holds_topic)
    team.produce(1)
    came = one.taken(
        lambda came: (
            len(came) == 3 and any(isinstance(one, ControlUnavailable) for one in told)
        )
    )
    assert of(came, 0) == []
    assert len(one.consumer.holds()) == 1


@pytest.mark.contract("G4")
def test_a_holds_topic_whose_last_offset_is_no_record_is_read(team, member):
    """A transaction ends with its marker, of which a consumer hears nothing."""
    team.operator_holds(f"{team.topic}:0")
    servers = team.broker.client_config["bootstrap_servers"]
    one = member(control=team.quick, starts=False)

    async def write():
        name = f"t-{team.group}"
        settings = {"bootstrap_servers": servers, "transactional_id": name}
        async with (
            upstream.AIOKafkaProducer(**settings) as producer,
            producer.transaction(),
        ):
            topic = team.settings.holds_topic
            await producer.send_and_wait(topic, b"no hold", b"no key", 0)

    one.loop.run(write())
    one.join(team.topic)
    assert of(one.taken(count(15)), 0) == []


@pytest.mark.contract("G5")
@pytest.mark.embedded_broker
def test_a_holds_topic_that_is_made_again_lifts_nothing(team, member, monkeypatch):
    """Neither by what it lacks, nor by offsets that are others' now."""
    monkeypatch.setattr(control_topics, "COMPARE_EVERY", 0.1)  # not 30 s
    told, name = [], team.settings.holds_topic
    team.operator_holds(f"{team.topic}:0")
    one = member(team.topic, control=team.quick, hooks=[told.append])
    one.taken(count(15))
    # Else aiokafka, which asks for it, would have it created first, and as any topic.
    team.broker.command(lambda cluster: setattr(cluster, "creates_topics", False))
    team.broker.delete_topic(name)
    team.create(name, topics.HOLDS_SETTINGS)
    team.operator_holds(f"{team.topic}:1")

    def is_read(_):
        return len(one.consumer.holds()) == 2

    one.taken(is_read, "the new topic's hold")
    (reset,) = [one for one in told if isinstance(one, ControlTopicReset)]
    assert (reset.topic, reset.applied) == (name, 1)
    team.produce(1)
    came = one.taken(count(2))
    assert {0, 1}.isdisjoint(number for number, _ in came)


@pytest.mark.contract("G2")
@pytest.mark.embedded_broker
def test_no_end_is_told_of_a_holds_topic_that_is_made_again(team, loop):
    """It may be as long as the one before it: a gate would open by offsets of that."""
    name, came = team.settings.holds_topic, []
    team.operator_holds(f"{team.topic}:0")
    calls = loop.call(LoopCalls)
    reading = AiokafkaClients(settings_of(team), calls).holds_topic(name)
    reading.begin()
    wait_for(lambda: reading.turn(100) or reading.is_complete, "the hold")
    reading.ask_end(came.append)
    wait_for(lambda: came == [{(name, 0): 1}], "an end")
    # Else aiokafka, which asks for it, would have it created first, and as any topic.
    team.broker.command(lambda cluster: setattr(cluster, "creates_topics", False))
    team.broker.delete_topic(name)
    team.create(name, topics.HOLDS_SETTINGS)
    team.operator_holds(f"{team.topic}:1")
    reading.ask_end(came.append)
    wait_for(lambda: len(came) == 2, "an answer")
    loop.run(calls.end())
    assert came[1] is None


def test_the_last_record_is_read_again_and_nothing_is_said_of_it(
    team, member, monkeypatch
):
    """So a topic that was made again is found; nobody sees it where it was not."""
    monkeypatch.setattr(control_topics, "COMPARE_EVERY", 0.0)
    told = []
    team.operator_holds(f"{team.topic}:0")
    one = member(team.topic, control=team.quick, hooks=[told.append])
    one.taken(count(15))
    team.operator_holds(f"{team.topic}:1")
    one.taken(lambda _: len(one.consumer.holds()) == 2)
    kinds = {type(event) for event in told}
    assert kinds.isdisjoint({ControlTopicReset, ControlUnavailable})


# ---------------------------------------------------------------- its own pauses


@pytest.mark.contract("P6", "G9")
@ALL_ASSIGNORS
def test_a_pause_lasts_through_rebalances_that_give_its_partition_back(
    team, loop, member, assignor
):
    """In an eager one it is revoked, and assigned anew to the same member."""
    one = member(team.topic, assignor=assignor)
    one.taken(count(20))
    one.run("commit")
    with AiokafkaMember(loop, team, "z", assignor) as other:
        one.taken(lambda _: len(other.assignment) == len(one.assignment) == 2)
        kept, given = sorted(one.consumer.assignment())
        one.call("pause", kept, given)
    one.taken(is_assigned(team, one))
    assert one.consumer.quiet() == one.consumer.paused() == {kept, given}
    team.produce(1)
    came = one.taken(count(2))
    assert {kept.partition, given.partition}.isdisjoint(number for number, _ in came)
    one.call("resume", kept)
    assert one.taken(count(1)) == [(kept.partition, 5)]


def test_a_pause_ends_where_a_rebalance_leaves_its_partition_out(team, loop, member):
    """So a program that resumes only what it owns does not stall; a hold stays."""
    one = member(team.topic)
    one.taken(count(20))
    one.run("commit")
    one.call("pause", *one.consumer.assignment())
    with AiokafkaMember(loop, team, "z") as other:
        one.taken(lambda _: len(other.assignment) == 2)
        gone = sorted(tp.partition for tp in other.assignment)
        one.consumer.hold(f"{team.topic}:{gone[0]}", owner="strict")
    one.taken(is_assigned(team, one))
    team.produce(1)
    assert one.taken(count(1)) == [(gone[1], 5)]
    assert len(one.consumer.quiet()) == 3


def test_pause_and_resume_refuse_what_aiokafka_s_refuse(team, member):
    one = member(team.topic)
    for name in ("pause", "resume"):
        with pytest.raises(IllegalStateError):
            one.call(name, TopicPartition(team.topic, 0), TopicPartition("other", 0))
        with pytest.raises(TypeError):
            one.call(name, team.topic)
    assert one.consumer.holds() == ()
    assert len(one.taken(count(20))) == 20


@pytest.fixture
def thread():
    """Another thread than the loop's."""
    with ThreadPoolExecutor(1) as one:
        yield one


def test_a_pause_on_another_thread_holds_until_it_is_resumed_there(
    team, member, thread
):
    """Aiokafka's flags have futures of the loop, which no other thread can make."""
    one = member(team.topic)
    one.taken(count(20))
    paused = TopicPartition(team.topic, 0)
    thread.submit(one.consumer.pause, paused).result()
    assert one.consumer.paused() == {paused}
    team.produce(2)
    assert of(one.taken(count(6)), 0) == []
    thread.submit(one.consumer.resume, paused).result()
    assert one.taken(count(2)) == [(0, 5), (0, 6)]


def test_a_resume_on_another_thread_leaves_the_holds_of_others(team, member, thread):
    """Aiokafka's task that fetches ended with an error, and ``stop`` with it."""
    one = member(team.topic)
    one.taken(count(20))
    held = TopicPartition(team.topic, 0)
    one.call("pause", held)
    one.consumer.hold(f"{team.topic}:0", owner="db")
    for _ in range(20):
        thread.submit(one.consumer.resume, held).result()
        one.call("pause", held)
    thread.submit(one.consumer.resume, held).result()
    team.produce(2)
    assert of(one.taken(count(6)), 0) == []
    one.consumer.lift(f"{team.topic}:0", owner="db")
    assert one.taken(count(2)) == [(0, 5), (0, 6)]


@pytest.mark.parametrize("name", ["pause", "resume"])
def test_other_threads_are_refused_what_aiokafka_s_refuse(team, member, thread, name):
    one = member(team.topic)
    for wrong, error in (
        (TopicPartition("other", 0), IllegalStateError),
        ("t", TypeError),
    ):
        with pytest.raises(error):
            thread.submit(getattr(one.consumer, name), wrong).result()
    assert one.consumer.holds() == ()


def test_a_hold_ends_by_itself_while_a_call_waits(team, member):
    """Also one that was placed where another one, lifted since, held already."""
    one = member(starts=False)
    one.consumer.hold(team.topic, owner="first")
    one.consumer.hold(team.topic, owner="second", for_=0.5)
    one.join(team.topic)
    one.consumer.lift(team.topic, owner="first")
    assert one.one(20)


@pytest.mark.contract("P10", "G9")
def test_a_lift_on_another_thread_ends_a_wait(team, member):
    one = member(starts=False)
    one.consumer.hold(ALL)
    one.join(team.topic)
    asked = asyncio.run_coroutine_threadsafe(one.consumer.getone(), one.loop.loop)
    one.consumer.lift(ALL)
    assert asked.result(20).offset == 0


@pytest.mark.contract("P2", "P5", "G9")
def test_holds_have_owners_reasons_and_ends(team, member):
    one = member(starts=False)
    one.consumer.hold("re:.*", owner="db", reason="migration")
    one.consumer.hold(ALL, for_=3600)
    one.join(team.topic)
    one.taken(is_assigned(team, one))
    assert len(one.consumer.quiet()) == len(one.consumer.paused()) == 4
    first, second = one.consumer.explain(f"{team.topic}:0")
    assert "re:.* held by db" in first
    assert "because migration" in first
    assert "@all held by app" in second
    assert one.many(0.2) == []
    assert [hold.owner for hold in one.consumer.lift(ALL)] == ["db"]
    assert one.consumer.paused() == set()
    one.consumer.lift("re:.*", owner="db")
    assert len(one.taken(count(20))) == 20


class HoldingAtTheEnd(AIOKafkaConsumer):
    """Something else holds a partition after a record was taken out of aiokafka."""

    held = None

    def _may_give(self, found):
        if self.held is not None and found:
            self.hold(self.held)
        return super()._may_give(found)


@pytest.mark.contract("P1", "P8", "G9")
def test_what_was_taken_as_a_hold_arrived_is_first_after_it(team, member):
    """Neither committed meanwhile, nor counted as given, nor in the position."""
    one = member(kind=HoldingAtTheEnd, starts=False)
    one.consumer.hold(*[f"{team.topic}:{n}" for n in (1, 2, 3)], owner="others")
    one.join(team.topic)
    assert one.one(20) + one.one(20) == [(0, 0), (0, 1)]
    one.consumer.held = f"{team.topic}:0"
    assert one.one(0.3) == []
    assert one.many(0.3) == []
    assert one.consumer._member.busy() == frozenset()
    zero = TopicPartition(team.topic, 0)
    assert one.run("position", zero) == 2
    one.run("commit")
    assert one.run("committed", zero) == 2
    one.consumer.held = None
    one.consumer.lift(f"{team.topic}:0")
    assert one.taken(count(3)) == [(0, 2), (0, 3), (0, 4)]
    one.run("commit")
    assert one.run("committed", zero) == 5


def test_getmany_waits_on_where_all_was_put_back(team, member):
    """A hold that arrives late costs other partitions none of the time that was given."""
    one = member(kind=HoldingAtTheEnd, starts=False)
    one.consumer.hold(*[f"{team.topic}:{n}" for n in (1, 2, 3)], owner="others")
    one.consumer.held = f"{team.topic}:0"
    one.join(team.topic)
    asked = one.consumer.getmany(timeout_ms=20_000, max_records=2)
    asked = asyncio.run_coroutine_threadsafe(asked, one.loop.loop)
    wait_for(lambda: len(one.consumer.holds()) == 4, "the late hold")
    one.consumer.lift(f"{team.topic}:1", owner="others")
    one.consumer.held = None
    ((tp, records),) = asked.result(20).items()
    assert (tp.partition, [record.offset for record in records]) == (1, [0, 1])


def test_what_is_put_back_is_not_committed_by_itself(team, member):
    """``enable_auto_commit`` commits positions: those of what was given."""
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    one = member(kind=HoldingAtTheEnd, starts=False, **settings)
    one.consumer.hold(*[f"{team.topic}:{n}" for n in (1, 2, 3)], owner="others")
    one.join(team.topic)
    one.one(20)
    one.consumer.held = f"{team.topic}:0"
    one.many(0.3)
    one.run("stop")
    other = member()
    assert other.run("committed", TopicPartition(team.topic, 0)) == 1


@pytest.mark.contract("P6", "P7", "G9")
def test_a_manual_assignment_that_is_made_again_stays_held(team, member):
    """Aiokafka's paused flags are gone each time."""
    one = member()
    theirs = [TopicPartition(team.topic, n) for n in range(4)]
    one.consumer.hold(f"{team.topic}:0")
    for _ in range(2):
        one.call("assign", theirs)
        one.run("seek_to_beginning")
        assert of(one.taken(count(15)), 0) == []
        paused = one.loop.call(upstream.AIOKafkaConsumer.paused, one.consumer)
        assert paused == {theirs[0]}  # or it would be fetched, and put back, on and on
    one.call("assign", theirs[:1])
    one.run("seek_to_beginning")
    assert one.many(0.2) == []
    one.consumer.lift(f"{team.topic}:0")
    assert one.taken(count(5)) == [(0, n) for n in range(5)]


def test_a_consumer_without_a_group_holds_what_it_is_given(team, member):
    """There aiokafka calls no listener: each call looks at the assignment."""
    one = member(team.topic, group_id=None, starts=False)
    one.consumer.hold(f"{team.topic}:0")
    one.run("start")
    assert of(one.taken(count(15)), 0) == []
    one.consumer.lift(f"{team.topic}:0")
    assert one.taken(count(5)) == [(0, n) for n in range(5)]


def test_a_changed_subscription_keeps_pauses_and_unsubscribing_ends_them(team, member):
    one = member(team.topic)
    one.taken(count(20))
    paused = TopicPartition(team.topic, 0)
    one.call("pause", paused)
    one.call("subscribe", [team.topic])
    one.taken(is_assigned(team, one))
    assert one.consumer.paused() == {paused}
    one.call("unsubscribe")  # or aiokafka takes no pattern
    assert (one.consumer.holds(), one.consumer.quiet()) == ((), set())
    one.call("subscribe", pattern=f"{team.topic}$")
    one.taken(is_assigned(team, one))
    assert one.consumer.paused() == set()


class Noting(ConsumerRebalanceListener):
    """A program's listener: plain functions or coroutines, as aiokafka takes both."""

    def __init__(self):
        self.called, self.consumer = [], None

    def on_partitions_revoked(self, revoked):
        self.called.append(("revoked", len(revoked)))

    async def on_partitions_assigned(self, assigned):
        self.called.append(("assigned", len(assigned), len(self.consumer.quiet())))


@pytest.mark.contract("P7", "G9")
def test_listeners_are_the_programs_and_find_held_partitions_quiet(team, member):
    listener = Noting()
    one = member(starts=False)
    listener.consumer = one.consumer
    one.consumer.hold(f"{team.topic}:0")
    one.call("subscribe", [team.topic], listener=listener)
    one.run("start")
    one.taken(lambda _: len(listener.called) == 2)
    assert listener.called == [("revoked", 0), ("assigned", 4, 1)]
    with pytest.raises(TypeError, match="ConsumerRebalanceListener"):
        one.call("subscribe", [team.topic], listener=print)


# ---------------------------------------------------------------- start and end


def test_stop_ends_threads_tasks_and_calls_that_wait(team, loop):
    """The fixture of the loop finds tasks that are left, and what nobody heard."""
    threads = set(threading.enumerate())
    consumer = loop.call(aiokafka, team, team.topic, control=team.quick)
    loop.run(consumer.start())
    consumer.hold(ALL)
    asked = asyncio.run_coroutine_threadsafe(consumer.getone(), loop.loop)
    loop.run(consumer.stop())
    loop.run(consumer.stop())
    with pytest.raises(ConsumerStoppedError):
        asked.result(20)
    left = set(threading.enumerate()) - threads
    assert not [one for one in left if "asyncio" not in one.name]


def test_start_may_be_cancelled_and_stop_ends_what_it_began(team, loop):
    threads = set(threading.enumerate())
    consumer = loop.call(aiokafka, team, team.topic, control=team.quick)

    async def begin():
        task = asyncio.ensure_future(consumer.start())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await consumer.stop()

    loop.run(begin())
    left = set(threading.enumerate()) - threads
    assert not [one for one in left if "asyncio" not in one.name]


def control_threads():
    names = [one.name for one in threading.enumerate()]
    return sorted(one for one in names if one in {CONTROL, STATUS})


def test_start_that_failed_leaves_nothing_and_may_be_tried_again(team, loop):
    """Programs do so until a broker is there, or drop the consumer, which is no member."""
    told = []
    consumer = loop.call(aiokafka, team, control=team.quick, hooks=[told.append])
    failing = [OSError("no broker")]

    async def wait_topics():
        assert control_threads() == [CONTROL, STATUS]
        if failing:
            raise failing.pop()

    consumer._wait_topics = wait_topics
    with pytest.raises(OSError, match="no broker"):
        loop.run(consumer.start())
    assert control_threads() == []
    assert consumer._member.ledger.wakers == []
    assert consumer._calls._clients == {}
    loop.run(consumer.start())
    assert control_threads() == [CONTROL, STATUS]
    with pytest.raises(AssertionError):
        loop.run(consumer.start())
    assert control_threads() == [CONTROL, STATUS]
    wait_for(lambda: consumer._member.is_caught_up, "the holds")
    loop.run(consumer.stop())
    assert control_threads() == []


@pytest.mark.embedded_broker
@pytest.mark.parametrize("again", [True, False], ids=["started again", "dropped"])
def test_start_that_is_cancelled_leaves_one_control_at_most(team, loop, again):
    """As ``wait_for(consumer.start(), 1)`` does while brokers are slow."""
    consumer = loop.call(aiokafka, team, control=team.quick)
    held = team.broker.hold("DescribeConfigs", client_id="a-control")
    task = loop.call(asyncio.ensure_future, consumer.start())
    held.wait()
    loop.call(task.cancel)
    if again:
        starting = asyncio.run_coroutine_threadsafe(consumer.start(), loop.loop)
    held.release()
    if again:
        starting.result(60)
        assert consumer._ending.done()  # of the first control, not of this one
        assert control_threads() == [CONTROL, STATUS]
    else:
        wait_for(lambda: control_threads() == [], "the end of its threads")
    loop.run(consumer.stop())
    assert control_threads() == []


def test_start_and_stop_do_not_wait_for_the_programs_executor(team, loop):
    with ThreadPoolExecutor(1) as busy:
        loop.call(loop.loop.set_default_executor, busy)
        done = threading.Event()
        loop.call(loop.loop.run_in_executor, None, done.wait)
        try:
            consumer = loop.call(aiokafka, team, control=team.quick)
            loop.run(consumer.start())
            loop.run(consumer.stop())
        finally:
            done.set()


@pytest.mark.embedded_broker
def test_stop_ends_what_it_has_where_no_broker_answers(team, loop):
    """It waits for the control topics no longer than for the group, and leaves no task."""
    consumer = loop.call(
        aiokafka, team, team.topic, control=team.quick, request_timeout_ms=2000
    )
    loop.run(consumer.start())
    team.broker.freeze()
    try:
        loop.run(consumer.stop())
    finally:
        team.broker.heal()


@pytest.mark.embedded_broker
@pytest.mark.nightly
@pytest.mark.parametrize("whose", ["the control reader's", "its own"])
def test_stop_ends_all_where_a_fetch_waits_to_be_repeated(team, loop, whose):
    """Aiokafka's own ``stop()`` ends cancelled there, with its connections open."""
    team.broker.create_topic(f"empty-{team.group}", 1)
    consumer = loop.call(aiokafka, team, control=team.quick)
    loop.run(consumer.start())
    loop.call(consumer.assign, [TopicPartition(f"empty-{team.group}", 0)])
    wait_for(lambda: consumer._member.is_caught_up, "the holds")
    reader = consumer._member._control._reader._topic._reader
    client = consumer if whose == "its own" else reader
    client._fetcher._retry_backoff = 3600

    def is_waiting():
        fetches = tuple(client._fetcher._pending_tasks)
        awaited = [one.get_coro().cr_await for one in fetches]
        return any(getattr(one, "__name__", None) == "sleep" for one in awaited)

    name = "a" if whose == "its own" else "a-control"
    team.broker.hold("Fetch", client_id=name).wait()
    team.broker.down()
    try:
        wait_for(is_waiting, "a fetch that waits")
        loop.run(consumer.stop())
    finally:
        team.broker.heal()
    assert not any(one.connected() for one in client._client._conns.values())
    assert consumer._calls._clients == {}


def test_nothing_of_it_waits_in_the_event_loop(team, loop, monkeypatch):
    """Neither for a thread nor for what runs in the loop itself."""
    waiting = set()

    def noting(call):
        def noted(*arguments, **more):
            waiting.add(threading.current_thread())
            return call(*arguments, **more)

        return noted

    monkeypatch.setattr(threading.Thread, "join", noting(threading.Thread.join))
    monkeypatch.setattr(LoopCalls, "run", noting(LoopCalls.run))
    with AiokafkaMember(loop, team, "a", control=team.quick) as one:
        wait_for(lambda: len(one.came) == 20, "the records")
        team.operator_holds(team.topic)
        wait_for(lambda: len(one.consumer.quiet()) == 4, "the hold")
    assert {thread.name for thread in waiting} >= {"safeconsumer-control"}
    assert loop.thread not in waiting


def test_a_consumer_that_is_never_stopped_can_be_collected(team, loop):
    """Nothing of ours keeps it; aiokafka then complains, as of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loop.call(aiokafka, team, team.topic)
        loop.call(gc.collect)
    assert loop.complaints.pop().startswith("Unclosed AIOKafkaConsumer")


@pytest.mark.contract("G9")
def test_a_member_that_is_dropped_without_stop_ends_its_control(team, loop):
    """Its threads and tasks do not keep it, and end with a last report, as its clients."""
    consumer = loop.call(aiokafka, team, team.topic, control=team.quick)
    loop.run(consumer.start())
    member, calls = consumer._member, consumer._calls
    wait_for(lambda: member.is_caught_up, "the holds")
    assert control_threads() == [CONTROL, STATUS]
    left = consumer._coordinator, consumer._fetcher, consumer._client
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        del consumer
        loop.call(gc.collect)
    assert loop.complaints.pop().startswith("Unclosed AIOKafkaConsumer")
    wait_for(lambda: control_threads() == [], "the end of its threads")
    wait_for(
        lambda: (calls._clients, calls._running) == ({}, set()), "that of its tasks"
    )
    status = run(team, "status", "--group", team.group)
    for one in left:  # by aiokafka itself
        loop.run(one.close())
    assert "stopped" in status.output, status.output


# ---------------------------------------------------------------- refusals, settings


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"control": object()}, ControlSettingError),
        ({"hooks": print}, HookTypeError),
        ({"no_such_setting": 1}, TypeError),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(team, loop, more, error):
    with pytest.raises(error):
        loop.call(AIOKafkaConsumer, **{**settings_of(team), **more})


@pytest.mark.parametrize(
    ("target", "error"),
    [("or:ders:x", ScopeSyntaxError), (7, TargetTypeError), ("*", ScopeSyntaxError)],
)
@pytest.mark.contract("P4", "G9")
def test_a_bad_target_changes_nothing(team, member, target, error):
    consumer = member(starts=False).consumer
    with pytest.raises(error):
        consumer.hold(team.topic, target)
    assert consumer.holds() == ()
    with pytest.raises(HoldSettingError):
        consumer.explain(team.topic)
    with pytest.raises(HoldSettingError):
        consumer.hold(team.topic, owner="operator:alice")


def test_control_needs_a_group_and_its_own_client_s_settings(team, loop):
    control = team.with_settings(client_configs={"fetch_max_wait_ms": 50})
    with pytest.raises(ControlSettingError, match="own client's settings"):
        loop.call(AIOKafkaConsumer, **settings_of(team), control=control)
    control = team.with_settings(client_configs={})
    with pytest.raises(ControlSettingError, match="group_id"):
        loop.call(AIOKafkaConsumer, control=control)


def test_a_topic_that_would_lose_holds_is_refused(team, loop):
    control = team.with_settings(holds_topic=team.settings.status_topic + "x")
    team.create(control.holds_topic, {"cleanup.policy": "delete"})
    consumer = loop.call(aiokafka, team, control=control)
    with pytest.raises(ControlTopicError, match=r"cleanup\.policy=delete"):
        loop.run(consumer.start())
    names = [one.name for one in threading.enumerate()]
    assert "safeconsumer-control" not in names
    loop.run(consumer.stop())


def test_control_topics_that_are_missing_are_not_created(team, member):
    """Where brokers create topics that are asked for by their name, too."""
    missing = {"holds_topic": f"h-{team.group}", "status_topic": f"s-{team.group}"}
    control = team.with_settings(**missing)
    told = []
    one = member(team.topic, control=control, hooks=[told.append])
    (gone,) = [event for event in told if isinstance(event, ControlUnavailable)]
    assert "safeconsumer control init" in gone.reason
    assert one.many(0.2) == []
    reporter = one.consumer._member._control._reporter
    wait_for(lambda: reporter._is_missing, "a report that could not be sent")
    with KafkaAdminClient(**team.broker.client_config) as admin:
        assert set(missing.values()).isdisjoint(admin.list_topics())


@pytest.mark.parametrize("version", ["0.12.0", "0.15.0", "1.0"])
def test_another_aiokafka_is_refused(loop, monkeypatch, version):
    monkeypatch.setattr(aiokafka_control, "__version__", version)
    with pytest.raises(
        UnsupportedAiokafkaError, match=rf"aiokafka {version} .*install"
    ):
        loop.call(AIOKafkaConsumer)


def test_it_needs_no_kafka_python(team):
    """Whichever version is installed is not in the way of members on aiokafka."""
    code = (
        "import asyncio, sys; sys.modules['kafka'] = None\n"
        "from safeconsumer import Control\n"
        "from safeconsumer.clients.aiokafka import AIOKafkaConsumer\n"
        "async def main():\n"
        f"    settings = dict(bootstrap_servers={settings_of(team)['bootstrap_servers']!r},"
        f" group_id={team.group!r}, auto_offset_reset='earliest')\n"
        f"    control = Control.prefixed({team.prefix!r})\n"
        f"    async with AIOKafkaConsumer({team.topic!r}, control=control, log=False,"
        " **settings) as consumer:\n"
        "        consumer.hold('orders')\n"
        "        await consumer.getone()\n"
        "asyncio.run(main(), debug=True)\n"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-W", "error", "-c", code],
        check=False,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_aiokafka_the_import_says_what_to_install():
    code = "import sys; sys.modules['aiokafka'] = None; import safeconsumer.clients.aiokafka"
    done = ran_python("-c", code)
    assert "pip install 'safeconsumer[aiokafka]'" in done.stderr


class Token(AbstractTokenProvider):
    """Stands in for a login that a program brings."""

    async def token(self):
        return "token"


def test_control_clients_have_the_members_connection_and_nothing_of_its_group(loop):
    connection = {
        "bootstrap_servers": "b:9092",
        "connections_max_idle_ms": 1000,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Token(),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(),
    }
    of_the_group = {
        "auto_offset_reset": "earliest",
        "client_id": "billing",
        "client_rack": "r",
        "enable_auto_commit": True,
        "group_id": "g",
        "group_instance_id": "i",
        "session_timeout_ms": 1,
        "value_deserializer": print,
    }
    calls = loop.call(LoopCalls)
    clients = AiokafkaClients({**connection, **of_the_group}, calls)
    assert (clients.group_id, clients.client_id) == ("g", "billing")
    assert clients._base == {**connection, "client_id": "billing-control"}
