"""Tests members on aiokafka only; ``test_members`` tests both clients."""

import asyncio
import gc
import ssl
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import aiokafka as upstream
import pytest
from aiokafka import TopicPartition
from aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

from safeconsumer import ALL
from safeconsumer.cli.errors import Status
from safeconsumer.clients import aiokafka_control, control_topics
from safeconsumer.clients.aiokafka import AIOKafkaConsumer
from safeconsumer.clients.aiokafka_control import LoopCalls
from safeconsumer.errors import UnsupportedAiokafkaError
from safeconsumer.events import ControlTopicReset, ControlUnavailable
from safeconsumer.group import topics
from tests.harness.group.aiokafka import (
    AiokafkaMember,
    BlockingConsumer,
    Loop,
    aiokafka,
    settings_of,
)
from tests.harness.group.team import run
from tests.harness.polling import poll_until, read
from tests.harness.processes import ran_python
from tests.harness.waiting import LIMIT, result_of, wait_for

pytestmark = pytest.mark.any_broker

CONTROL, STATUS = "safeconsumer-control", "safeconsumer-status"


@pytest.fixture
def loop():
    """Run an event loop on a thread; fail if a task is left at the end."""
    with Loop() as one:
        yield one


@pytest.fixture
def member(team, loop):
    """Return a factory for members of the team; stop the members at the end."""
    with ExitStack() as closing:

        def made(**more):
            one = BlockingConsumer(loop, loop.call(aiokafka, team, **more))
            closing.callback(one.close)
            return one

        yield made


@pytest.fixture
def reading(team, member):
    """Return a factory for subscribed members that have read all 20 records."""

    def made(**more):
        one = member(**more)
        one.subscribe([team.topic])
        read(one, 20, 60.0)
        return one

    return made


def came(member, count):
    """Poll for this many records; return their partitions and offsets, sorted."""
    return sorted((one.partition, one.offset) for one in read(member, count, 60.0))


def zero(team):
    return TopicPartition(team.topic, 0)


def others_held(team, member):
    """Hold all partitions except the first one."""
    names = [f"{team.topic}:{number}" for number in (1, 2, 3)]
    member.consumer.hold(*names, owner="others")


@pytest.mark.contract("G8", "G9")
def test_partition_of_a_returned_record_is_busy_until_the_next_fetch(team, member):
    """The program may still process the record that ``getone`` returned."""
    one = member(control=team.quick)
    one.subscribe([team.topic])
    given = one.run("getone").partition
    whose = ("--group", team.group)
    held = ("pause", team.topic, *whose, "--owner", "o", "--reason", "x")
    assert run(team, *held).exit_code == Status.DONE

    def status():
        return run(team, "status", *whose).output

    wait_for(lambda: "3 of 4 quiet" in status(), "a report of the hold")
    assert f"{team.topic}:{given}  not quiet yet" in status()
    asked = one.loop.call(asyncio.create_task, one.consumer.getone())
    try:
        quiet = run(team, "wait", "quiet", team.topic, *whose, "--timeout", "60s")
    finally:
        one.loop.call(asked.cancel)
    assert quiet.exit_code == 0, quiet.output


def test_reader_rereads_the_last_control_record_without_an_event(
    team, member, monkeypatch
):
    """Rereading detects a recreated topic; an unchanged topic must not cause an event."""
    monkeypatch.setattr(control_topics, "COMPARE_EVERY", 0.0)
    events = []
    team.operator_holds(f"{team.topic}:0")
    one = member(control=team.quick, hooks=[events.append])
    one.subscribe([team.topic])
    came(one, 15)
    team.operator_holds(f"{team.topic}:1")
    poll_until(one, lambda: len(one.consumer.holds()) == 2)
    kinds = {type(event) for event in events}
    assert kinds.isdisjoint({ControlTopicReset, ControlUnavailable})


class Calls(LoopCalls):
    """Runs coroutines; a test may replace the outcome of the next read of a control topic."""

    outcome = None

    def start(self, call):
        future = super().start(call)
        if self.outcome is None or call.__name__ != "_turn":
            return future
        future.exception(LIMIT)
        outcome, self.outcome = self.outcome, None
        return outcome


def too_late():
    """Return a future that has timed out, as if the event loop were blocked."""
    future = Future()
    future.set_exception(TimeoutError())
    return future


def cancelled():
    """Return a future that is cancelled, as if by ``wake()``."""
    future = Future()
    future.cancel()
    return future


@pytest.fixture
def calls(loop):
    made = loop.call(Calls)
    yield made
    loop.run(made.end())


@pytest.mark.contract("G1", "G9")
@pytest.mark.usefixtures("patient")
def test_control_topic_records_are_read_again_after_a_read_times_out(team, calls):
    """The event loop may be blocked for longer than the control thread waits."""
    team.operator_holds(f"{team.topic}:0")
    clients = aiokafka_control.control_clients(settings_of(team), calls)
    topic = clients.holds_topic(team.settings.holds_topic)
    topic.begin()
    calls.outcome = too_late()
    with pytest.raises(TimeoutError):
        topic.turn(100)
    topic.close()
    topic.begin()
    assert [one.offset for one in topic.turn(100)] == [0]


@pytest.mark.contract("G1", "G9")
@pytest.mark.usefixtures("patient")
def test_holds_topic_read_returns_the_records_of_a_cancelled_read(team, calls):
    team.operator_holds(f"{team.topic}:0")
    clients = aiokafka_control.control_clients(settings_of(team), calls)
    topic = clients.holds_topic(team.settings.holds_topic)
    topic.begin()
    calls.outcome = cancelled()
    assert [*topic.turn(100)] == []
    assert [one.offset for one in topic.turn(100)] == [0]


@pytest.mark.contract("G5", "G9")
@pytest.mark.embedded_broker
def test_record_of_a_recreated_holds_topic_is_not_read_as_the_next_record(team, calls):
    """Otherwise the holds before it would never be read, and no alarm would report it."""
    name = team.settings.holds_topic
    team.broker.command(lambda cluster: setattr(cluster, "creates_topics", False))
    team.operator_holds(f"{team.topic}:0")
    clients = aiokafka_control.control_clients(settings_of(team), calls)
    topic = clients.holds_topic(name)
    topic.begin()
    poll_control(topic, lambda: topic.is_complete)
    with team.broker.hold("Fetch"):
        team.broker.delete_topic(name)
        team.create(name, topics.HOLDS_SETTINGS)
        team.operator_holds(f"{team.topic}:1", f"{team.topic}:2")
    # A fetch that waited at the broker may be answered before the new topic has records.
    found_out = (UnknownTopicOrPartitionError, OffsetOutOfRangeError)
    with pytest.raises(found_out, match=r"recreated|OffsetOutOfRange"):
        poll_control(topic, lambda: False)
    topic.close()
    (again,) = topic.begin()
    assert (again.applied, again.end) == (1, 2)
    found = poll_control(topic, lambda: topic.is_complete)
    assert [one.offset for one in found] == [0, 1]


@pytest.mark.contract("G5", "G9")
@pytest.mark.embedded_broker
def test_holds_topic_whose_last_record_cannot_be_compared_does_not_begin(team, calls):
    """The topic may have been recreated while the member could not reach the broker."""
    team.operator_holds(f"{team.topic}:0")
    clients = aiokafka_control.control_clients(settings_of(team), calls)
    topic = clients.holds_topic(team.settings.holds_topic)
    topic.begin()
    poll_control(topic, lambda: topic.is_complete)
    topic.close()
    with team.broker.hold("Fetch"), pytest.raises(KafkaTimeoutError):
        topic.begin()
    topic.close()
    assert topic.begin() == ()


@pytest.mark.contract("G5", "G9")
@pytest.mark.embedded_broker
def test_next_record_is_read_if_no_fetch_returns_it_with_the_last_one(
    team, calls, monkeypatch
):
    """A broker's response ends with a segment; after a roll, the next record is alone."""
    monkeypatch.setattr(
        aiokafka_control,
        "UpstreamConsumer",
        partial(aiokafka_control.UpstreamConsumer, max_partition_fetch_bytes=1),
    )
    name = team.settings.holds_topic
    team.operator_holds(f"{team.topic}:0")
    clients = aiokafka_control.control_clients(settings_of(team), calls)
    topic = clients.holds_topic(name)
    topic.begin()
    poll_control(topic, lambda: topic.is_complete)
    for partition in (1, 2):
        team.operator_holds(f"{team.topic}:{partition}")
    found = poll_control(topic, lambda: topic.positions[name, 0] == 3)
    assert [one.offset for one in found] == [1, 2]


def poll_control(topic, is_enough):
    """Read control records until enough; return them."""
    found = []

    def turn():
        found.extend(topic.turn(100))
        return is_enough()

    wait_for(turn, "control records")
    return found


# ---------------------------------------------------------------- pauses of a member


@pytest.fixture(params=["in the loop", "on another thread"])
def called(request, loop):
    """Return a function that makes a call in the loop, or one that makes it on a thread."""
    if request.param == "in the loop":
        yield loop.call
    else:
        with ThreadPoolExecutor(1) as thread:
            yield lambda *call: thread.submit(*call).result()


def test_pause_and_resume_refuse_the_same_arguments_as_aiokafkas_own(
    team, member, called
):
    one = member()
    one.assign(team.partitions)
    for name in ("pause", "resume"):
        call = getattr(one.consumer, name)
        with pytest.raises(IllegalStateError):
            called(call, zero(team), TopicPartition("other", 0))
        with pytest.raises(TypeError):
            called(call, team.topic)
    assert one.consumer.holds() == ()


def test_pause_on_any_thread_holds_until_the_resume(team, reading, called):
    """The pause of aiokafka creates futures, which only the event loop's thread may do."""
    one = reading()
    called(one.consumer.pause, zero(team))
    assert one.consumer.paused() == {zero(team)}
    team.produce(2)
    assert {number for number, _ in came(one, 6)} == {1, 2, 3}
    called(one.consumer.resume, zero(team))
    assert came(one, 2) == [(0, 5), (0, 6)]


def test_resume_leaves_holds_of_other_owners(team, reading, called):
    """In an earlier version aiokafka's fetching task failed, and then ``stop`` failed too."""
    one = reading()
    one.call("pause", zero(team))
    one.consumer.hold(f"{team.topic}:0", owner="db")
    for _ in range(20):
        called(one.consumer.resume, zero(team))
        one.call("pause", zero(team))
    called(one.consumer.resume, zero(team))
    team.produce(2)
    assert {number for number, _ in came(one, 6)} == {1, 2, 3}
    one.consumer.lift(f"{team.topic}:0", owner="db")
    assert came(one, 2) == [(0, 5), (0, 6)]


def test_expired_hold_wakes_a_waiting_call(team, member):
    """The first hold is lifted, and then the second hold expires."""
    one = member()
    one.consumer.hold(team.topic, owner="first")
    one.consumer.hold(team.topic, owner="second", for_=0.5)
    one.subscribe([team.topic])
    one.consumer.lift(team.topic, owner="first")
    assert one.loop.run(one.consumer.getone(), 20)


@pytest.mark.contract("P10", "G9")
def test_lift_on_another_thread_wakes_a_waiting_call(team, member):
    one = member()
    one.consumer.hold(ALL)
    one.subscribe([team.topic])
    asked = asyncio.run_coroutine_threadsafe(one.consumer.getone(), one.loop.loop)
    one.consumer.lift(ALL)
    assert result_of(asked).offset == 0


class HoldingAtTheEnd(AIOKafkaConsumer):
    """A consumer that places a hold after aiokafka has already handed it records."""

    held = None

    def _may_give(self, found):
        if self.held is not None and found:
            self.hold(self.held)
        return super()._may_give(found)


@pytest.mark.contract("P1", "P8", "G9")
def test_records_fetched_before_a_late_hold_are_delivered_first_after_the_lift(
    team, member
):
    """During the hold the records are uncommitted, not busy, and after the position."""
    one = member(kind=HoldingAtTheEnd)
    others_held(team, one)
    one.subscribe([team.topic])
    assert [one.run("getone").offset for _ in range(2)] == [0, 1]
    one.consumer.held = f"{team.topic}:0"
    assert [one.poll(300) for _ in range(2)] == [{}, {}]
    assert one.consumer._member.busy() == frozenset()
    assert one.position(zero(team)) == 2
    one.commit()
    assert one.committed(zero(team)) == 2
    one.consumer.held = None
    one.consumer.lift(f"{team.topic}:0")
    assert came(one, 3) == [(0, 2), (0, 3), (0, 4)]
    one.commit()
    assert one.committed(zero(team)) == 5


def test_getmany_keeps_waiting_after_it_has_put_all_records_back(team, member):
    """After the late hold ``getmany`` still waits for records from other partitions."""
    one = member(kind=HoldingAtTheEnd)
    others_held(team, one)
    one.consumer.held = f"{team.topic}:0"
    one.subscribe([team.topic])
    asked = one.consumer.getmany(timeout_ms=20_000, max_records=2)
    asked = asyncio.run_coroutine_threadsafe(asked, one.loop.loop)
    wait_for(lambda: len(one.consumer.holds()) == 4, "the late hold")
    one.consumer.lift(f"{team.topic}:1", owner="others")
    one.consumer.held = None
    ((tp, records),) = result_of(asked).items()
    assert (tp.partition, [record.offset for record in records]) == (1, [0, 1])


def test_auto_commit_does_not_commit_records_that_were_put_back(team, member):
    """``enable_auto_commit`` commits positions; they must not pass undelivered records."""
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    one = member(kind=HoldingAtTheEnd, **settings)
    others_held(team, one)
    one.subscribe([team.topic])
    one.run("getone")
    one.consumer.held = f"{team.topic}:0"
    one.run("getmany", timeout_ms=300)
    one.close()
    other = member()
    other.start()
    assert other.committed(zero(team)) == 1


@pytest.mark.contract("P6", "P7", "G9")
def test_repeated_manual_assignment_stays_held(team, member):
    """Each call of ``assign`` discards aiokafka's paused flags."""
    one = member()
    one.consumer.hold(f"{team.topic}:0")
    for _ in range(2):
        one.assign(team.partitions)
        one.run("seek_to_beginning")
        assert {number for number, _ in came(one, 15)} == {1, 2, 3}
        paused = one.loop.call(upstream.AIOKafkaConsumer.paused, one.consumer)
        # otherwise records would be fetched and put back endlessly
        assert paused == {zero(team)}
    one.assign(team.partitions[:1])
    one.run("seek_to_beginning")
    assert one.poll(200) == {}
    one.consumer.lift(f"{team.topic}:0")
    assert came(one, 5) == [(0, n) for n in range(5)]


def test_consumer_without_a_group_obeys_holds(team, member):
    """Without a group aiokafka calls no listener, so each call checks the assignment."""
    one = member(group_id=None)
    one.consumer.hold(f"{team.topic}:0")
    one.subscribe([team.topic])
    assert {number for number, _ in came(one, 15)} == {1, 2, 3}
    one.consumer.lift(f"{team.topic}:0")
    assert came(one, 5) == [(0, n) for n in range(5)]


def test_new_subscription_keeps_pauses_and_unsubscribing_ends_them(team, reading):
    one = reading()

    def is_assigned():
        return len(one.owned) == 4

    one.call("pause", zero(team))
    one.subscribe([team.topic])
    poll_until(one, is_assigned)
    assert one.paused() == {zero(team)}
    one.unsubscribe()  # aiokafka refuses a pattern before that
    assert (one.consumer.holds(), one.quiet()) == ((), set())
    one.subscribe(pattern=f"{team.topic}$")
    poll_until(one, is_assigned)
    assert one.paused() == set()


class Noting(ConsumerRebalanceListener):
    """A program's listener: one callback is a function and one a coroutine function."""

    def __init__(self, consumer):
        self.called, self.consumer = [], consumer

    def on_partitions_revoked(self, revoked):
        self.called.append(("revoked", len(revoked)))

    async def on_partitions_assigned(self, assigned):
        self.called.append(("assigned", len(assigned), len(self.consumer.quiet())))


@pytest.mark.contract("P7", "G9")
def test_listener_sees_held_partitions_as_quiet(team, member):
    one = member()
    listener = Noting(one.consumer)
    one.consumer.hold(f"{team.topic}:0")
    one.call("subscribe", [team.topic], listener=listener)
    one.start()
    poll_until(one, lambda: len(listener.called) == 2)
    assert listener.called == [("revoked", 0), ("assigned", 4, 1)]
    with pytest.raises(TypeError, match="ConsumerRebalanceListener"):
        one.call("subscribe", [team.topic], listener=print)


# ---------------------------------------------------------------- start and end


def control_threads():
    names = [one.name for one in threading.enumerate()]
    return sorted(one for one in names if one in {CONTROL, STATUS})


def test_stop_ends_threads_tasks_and_waiting_calls(team, loop):
    """The event-loop fixture detects leftover tasks and unhandled errors."""
    consumer = loop.call(aiokafka, team, team.topic, control=team.quick)
    loop.run(consumer.start())
    consumer.hold(ALL)
    asked = asyncio.run_coroutine_threadsafe(consumer.getone(), loop.loop)
    loop.run(consumer.stop())
    loop.run(consumer.stop())
    with pytest.raises(ConsumerStoppedError):
        result_of(asked)
    assert control_threads() == []


def test_failed_start_leaves_nothing_behind_and_can_be_retried(team, loop):
    """A program may call ``start`` again until a broker responds, or drop the consumer."""
    consumer = loop.call(aiokafka, team, control=team.quick)
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
def test_cancelled_start_stops_its_control_threads_and_a_new_start_creates_others(
    team, loop, again
):
    """For example, ``wait_for(consumer.start(), 1)`` cancels a start that takes too long."""
    consumer = loop.call(aiokafka, team, control=team.quick)
    held = team.broker.hold("DescribeConfigs", client_id="a-control")
    task = loop.call(asyncio.ensure_future, consumer.start())
    held.wait()
    loop.call(task.cancel)
    if again:
        starting = asyncio.run_coroutine_threadsafe(consumer.start(), loop.loop)
    held.release()
    if again:
        result_of(starting)
        assert consumer._ending.done()  # the first start has closed its control clients
        assert control_threads() == [CONTROL, STATUS]
    else:
        wait_for(lambda: control_threads() == [], "the end of its threads")
    loop.run(consumer.stop())
    assert control_threads() == []


def test_start_and_stop_work_while_the_programs_executor_is_busy(team, loop):
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
def test_stop_ends_tasks_and_clients_if_no_broker_responds(team, loop):
    """``stop`` waits no longer for the control topics than for the group."""
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
def test_stop_closes_all_connections_during_the_backoff_of_a_fetch(team, loop, whose):
    """During the backoff aiokafka's ``stop()`` is cancelled and leaves connections open."""
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


def test_no_call_of_a_member_blocks_the_event_loop(team, loop, monkeypatch):
    """The loop's thread never joins other threads, and never waits for its own coroutines."""
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
    assert {thread.name for thread in waiting} >= {CONTROL}
    assert loop.thread not in waiting


def dropped(loop, made):
    """Drop a list's only consumer, collect garbage, and expect aiokafka's warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.clear()
        loop.call(gc.collect)
    assert loop.complaints.pop().startswith("Unclosed AIOKafkaConsumer")


def test_consumer_that_was_never_started_can_be_garbage_collected(team, loop):
    dropped(loop, [loop.call(aiokafka, team, team.topic)])


@pytest.mark.contract("G9")
def test_control_of_a_garbage_collected_member_stops(team, loop):
    """Threads, tasks and clients do not keep the member alive. They send a last report."""
    made = [loop.call(aiokafka, team, team.topic, control=team.quick)]
    loop.run(made[0].start())
    member, calls = made[0]._member, made[0]._calls
    wait_for(lambda: member.is_caught_up, "the holds")
    assert control_threads() == [CONTROL, STATUS]
    left = made[0]._coordinator, made[0]._fetcher, made[0]._client
    dropped(loop, made)
    wait_for(lambda: control_threads() == [], "the end of its threads")
    wait_for(
        lambda: (calls._clients, calls._running) == ({}, set()), "that of its tasks"
    )
    status = run(team, "status", "--group", team.group)
    for one in left:  # aiokafka itself leaves these objects open
        loop.run(one.close())
    assert "stopped" in status.output, status.output


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize("version", ["0.12.0", "0.15.0", "1.0"])
def test_unsupported_version_of_aiokafka_is_refused(loop, monkeypatch, version):
    monkeypatch.setattr(aiokafka_control, "__version__", version)
    refusal = rf"aiokafka {version} .*install"
    with pytest.raises(UnsupportedAiokafkaError, match=refusal):
        loop.call(AIOKafkaConsumer)


def test_members_do_not_import_kafka_python(team):
    """Programs with members on aiokafka may have any version of kafka-python."""
    code = (
        "import asyncio, sys; sys.modules['kafka'] = None\n"
        "from safeconsumer import Control\n"
        "from safeconsumer.clients.aiokafka import AIOKafkaConsumer\n"
        "async def main():\n"
        # Otherwise debug mode would report callbacks that take over 0.1 s on a busy
        # machine.
        "    asyncio.get_running_loop().slow_callback_duration = 3600\n"
        f"    settings = dict(bootstrap_servers={settings_of(team)['bootstrap_servers']!r},"
        f" group_id={team.group!r}, auto_offset_reset='earliest')\n"
        f"    control = Control.prefixed({team.prefix!r})\n"
        f"    async with AIOKafkaConsumer({team.topic!r}, control=control, log=False,"
        " **settings) as consumer:\n"
        "        consumer.hold('orders')\n"
        "        await consumer.getone()\n"
        "asyncio.run(main(), debug=True)\n"
    )
    done = ran_python("-W", "error", "-c", code, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_import_without_aiokafka_names_the_extra_to_install():
    code = "import sys; sys.modules['aiokafka'] = None; import safeconsumer.clients.aiokafka"
    done = ran_python("-c", code)
    assert "pip install 'safeconsumer[aiokafka]'" in done.stderr


class Token(AbstractTokenProvider):
    """A program's token provider."""

    async def token(self):
        return "token"


def test_control_clients_copy_connection_settings_but_no_group_settings(loop):
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
    clients = aiokafka_control.control_clients({**connection, **of_the_group}, calls)
    assert (clients.group_id, clients.client_id) == ("g", "billing")
    wanted = {**connection, "client_id": "billing-control", "request_timeout_ms": 5000}
    assert clients.holds_topic("holds")._admin_base == wanted
