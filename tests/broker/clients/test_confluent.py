"""Members on confluent-kafka: what they deliver while something is held, and after it."""

import gc
import itertools
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from functools import partial
from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from safeconsumer import ALL
from safeconsumer.cli.errors import Status
from safeconsumer.clients import confluent as module
from safeconsumer.clients import control_topics, librdkafka
from safeconsumer.clients.confluent import Consumer
from safeconsumer.clients.librdkafka import LibrdkafkaClients
from safeconsumer.errors import (
    ControlSettingError,
    ControlTopicError,
    HoldSettingError,
    HookTypeError,
    ScopeSyntaxError,
    TargetTypeError,
)
from safeconsumer.events import (
    ControlTopicReset,
    ControlUnavailable,
    GatesChanged,
    RebalanceCompleted,
)
from safeconsumer.group import topics
from tests.harness.group.confluent import (
    NEWER,
    ConfluentMember,
    confluent,
    settings_of,
)
from tests.harness.group.team import run
from tests.harness.metrics.scraping import text_of, values
from tests.harness.waiting import looks, wait_for

pytestmark = pytest.mark.any_broker

EAGER, COOPERATIVE = "range", "cooperative-sticky"
CLASSIC = pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
PROTOCOLS = pytest.mark.parametrize(
    "protocol",
    [EAGER, COOPERATIVE, pytest.param(NEWER, marks=pytest.mark.real_broker)],
)


@pytest.fixture
def member(team):
    """Make members of the team that close at the end."""
    with ExitStack() as closing:

        def made(*names, **more):
            consumer = confluent(team, *names, **more)
            closing.callback(consumer.close)
            return consumer

        yield made


@pytest.fixture
def subscribed(team, member):
    """Make members that have subscribed to the team's topic."""

    def made(**more):
        consumer = member(**more)
        consumer.subscribe([team.topic])
        return consumer

    return made


def taken(consumer, condition, what="records", by=1):
    """Poll until a condition holds; return the partition and offset of what came."""
    came = []
    for _ in looks(partial(condition, came), what):
        found = consumer.consume(by, 0.1) if by > 1 else [consumer.poll(0.1)]
        came.extend(
            (one.partition(), one.offset())
            for one in found
            if one is not None and one.error() is None
        )
    return came


def count(several):
    return lambda came: len(came) >= several


def of(came, partition):
    return [offset for number, offset in came if number == partition]


def is_assigned(team, consumer):
    return lambda _: len(consumer.assignment()) == len(team.partitions)


# ---------------------------------------------------------------- a held group


@pytest.mark.contract("G1", "G2", "G8", "G9")
@PROTOCOLS
def test_a_held_group_delivers_nothing_whoever_joins_and_then_all_of_it(team, protocol):
    """And ``--wait`` ends: each member reports by the id and generation that Kafka has."""
    with ExitStack() as running:
        members = [
            running.enter_context(
                ConfluentMember(team, name, protocol, control=team.quick)
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
        third = ConfluentMember(team, "c", protocol, control=team.quick)
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
@CLASSIC
def test_a_group_that_was_held_before_its_first_member_delivers_nothing(
    team, subscribed, protocol
):
    """The gate of a gained partition opens when the holds are read, not before."""
    team.operator_holds(f"{team.topic}:0")
    consumer = subscribed(protocol=protocol, control=team.quick)
    came = taken(consumer, count(15))
    assert of(came, 0) == []
    assert consumer.quiet() == [TopicPartition(team.topic, 0)]
    (line,) = consumer.explain(f"{team.topic}:0")
    assert "held by operator:alice" in line
    team.operator_lifts(f"{team.topic}:0")
    assert taken(consumer, count(5)) == [(0, n) for n in range(5)]


@pytest.mark.contract("G9", "G10")
def test_a_reset_is_refused_while_a_member_owns_what_it_would_not_move(
    team, subscribed
):
    """It obeys the hold, and its offsets stay where they are."""
    consumer = subscribed(control=team.quick)
    came = taken(consumer, count(20))
    whose = ("--group", team.group, "--owner", "alice")
    told = []

    def ask():
        told.append(
            run(team, "pause", team.topic, *whose, "--reason", "x", "--wait", "30s")
        )
        told.append(run(team, "reset-offsets", team.topic, *whose, "--to", "earliest"))

    thread = threading.Thread(target=ask)
    thread.start()
    while thread.is_alive():
        consumer.poll(0.05)
    held, refused = told
    assert held.exit_code == Status.DONE, held.output
    assert refused.exit_code == Status.FAILED, refused.output
    assert "moves nothing" in refused.output
    run(team, "resume", team.topic, *whose)
    team.produce(1)
    later = taken(consumer, count(4))
    assert not {*came} & {*later}


@pytest.mark.contract("G6", "G9")
def test_an_operator_s_hold_ends_by_the_brokers_time(team, subscribed):
    team.operator_holds(f"{team.topic}:0", for_=1.0)
    consumer = subscribed(control=team.quick)
    assert of(taken(consumer, count(20)), 0) == list(range(5))
    assert consumer.holds() == ()


@pytest.mark.contract("G5")
@pytest.mark.embedded_broker
def test_a_holds_topic_that_is_gone_leaves_its_holds_in_force(team, subscribed):
    told = []
    team.operator_holds(f"{team.topic}:0")
    consumer = subscribed(control=team.quick, hooks=[told.append])
    taken(consumer, count(15))
    team.broker.delete_topic(team.settings.holds_topic)
    team.produce(1)
    came = taken(
        consumer,
        lambda came: (
            len(came) == 3 and any(isinstance(one, ControlUnavailable) for one in told)
        ),
    )
    assert of(came, 0) == []
    assert len(consumer.holds()) == 1


@pytest.mark.contract("G4")
def test_a_holds_topic_whose_last_offset_is_no_record_is_read(team, subscribed):
    """A transaction ends with its marker, of which a consumer hears nothing."""
    team.operator_holds(f"{team.topic}:0")
    servers = settings_of(team)["bootstrap.servers"]
    name = f"t-{team.group}"
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": name}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(team.settings.holds_topic, b"no hold", b"no key", partition=0)
    producer.commit_transaction()
    consumer = subscribed(control=team.quick)
    assert of(taken(consumer, count(15)), 0) == []


@pytest.mark.contract("G5")
@pytest.mark.embedded_broker
def test_a_holds_topic_that_is_made_again_lifts_nothing(team, subscribed, monkeypatch):
    """Neither by what it lacks, nor by offsets that are others' now."""
    monkeypatch.setattr(control_topics, "COMPARE_EVERY", 0.1)  # not 30 s
    told, name = [], team.settings.holds_topic
    team.operator_holds(f"{team.topic}:0")
    consumer = subscribed(control=team.quick, hooks=[told.append])
    taken(consumer, count(15))
    team.broker.delete_topic(name)
    team.create(name, topics.HOLDS_SETTINGS)
    team.operator_holds(f"{team.topic}:1")

    def is_read(_):
        return len(consumer.holds()) == 2

    taken(consumer, is_read, "the new topic's hold")
    (reset,) = [one for one in told if isinstance(one, ControlTopicReset)]
    assert (reset.topic, reset.applied) == (name, 1)
    team.produce(1)
    came = taken(consumer, count(2))
    assert {0, 1}.isdisjoint(number for number, _ in came)


@pytest.mark.contract("G2")
@pytest.mark.embedded_broker
def test_no_end_is_told_of_a_holds_topic_that_is_made_again(team):
    """It may be as long as the one before it: a gate would open by offsets of that."""
    name, came = team.settings.holds_topic, []
    team.operator_holds(f"{team.topic}:0")
    reading = LibrdkafkaClients(settings_of(team)).holds_topic(name)
    with closing(reading):
        reading.begin()
        wait_for(lambda: reading.turn(100) or reading.is_complete, "the hold")
        reading.ask_end(came.append)
        wait_for(lambda: came == [{(name, 0): 1}], "an end")
        team.broker.delete_topic(name)
        team.create(name, topics.HOLDS_SETTINGS)
        team.operator_holds(f"{team.topic}:1")
        reading.ask_end(came.append)
        wait_for(lambda: len(came) == 2, "an answer")
        assert came[1] is None


def test_a_member_is_asked_who_it_is_on_its_own_thread_alone(team, subscribed):
    """confluent-kafka lets one thread into a client at a time: a reporter would starve."""
    asked = set()

    class Noting(Consumer):
        def memberid(self):
            asked.add(threading.get_ident())
            return super().memberid()

        def consumer_group_metadata(self):
            asked.add(threading.get_ident())
            return super().consumer_group_metadata()

        def assignment(self):
            asked.add(threading.get_ident())
            return super().assignment()

    consumer = subscribed(kind=Noting, control=team.quick)
    taken(consumer, count(20))
    team.operator_holds(team.topic)
    asking = ("wait", "quiet", team.topic, "--group", team.group, "--timeout", "60s")
    told = []
    thread = threading.Thread(target=lambda: told.append(run(team, *asking)))
    thread.start()
    while thread.is_alive():
        consumer.poll(0)  # without a rest
    assert told[0].exit_code == 0, told[0].output
    assert asked == {threading.get_ident()}


# ---------------------------------------------------------------- its own pauses


@pytest.mark.contract("P6", "G9")
@CLASSIC
def test_a_pause_lasts_through_rebalances_that_give_its_partition_back(
    team, subscribed, protocol
):
    """In an eager one it is revoked, and assigned anew to the same member."""
    consumer = subscribed(protocol=protocol)
    taken(consumer, count(20))
    consumer.commit(asynchronous=False)
    with ConfluentMember(team, "z", protocol) as other:
        taken(consumer, lambda _: len(other.assignment) == 2)
        kept, given = consumer.assignment()
        consumer.pause([kept, given])
    taken(consumer, is_assigned(team, consumer))
    assert sorted(consumer.quiet()) == sorted([kept, given])
    team.produce(1)
    came = taken(consumer, count(2))
    assert {kept.partition, given.partition}.isdisjoint(number for number, _ in came)
    consumer.resume([kept])
    assert taken(consumer, count(1)) == [(kept.partition, 5)]


@CLASSIC
def test_a_pause_ends_where_a_rebalance_leaves_its_partition_out(
    team, subscribed, protocol
):
    """So a program that resumes only what it owns does not stall; a hold stays."""
    consumer = subscribed(protocol=protocol)
    taken(consumer, count(20))
    consumer.commit(asynchronous=False)
    consumer.pause(consumer.assignment())
    with ConfluentMember(team, "z", protocol) as other:
        taken(consumer, lambda _: len(other.assignment) == 2)
        gone = [tp.partition for tp in other.assignment]
        consumer.hold(f"{team.topic}:{gone[0]}", owner="strict")
    taken(consumer, is_assigned(team, consumer))
    team.produce(1)
    assert taken(consumer, count(1)) == [(gone[1], 5)]
    assert len(consumer.quiet()) == 3


@pytest.mark.contract("P2", "P5", "G9")
def test_holds_have_owners_reasons_and_ends(team, member):
    consumer = member()
    consumer.hold("re:.*", owner="db", reason="migration")
    consumer.hold(ALL, owner="app", for_=3600)
    consumer.subscribe([team.topic])
    taken(consumer, is_assigned(team, consumer))
    assert len(consumer.quiet()) == 4
    first, second = consumer.explain(consumer.assignment()[0])
    assert "re:.* held by db" in first
    assert "because migration" in first
    assert "@all held by app" in second
    assert consumer.poll(0.2) is None
    assert [one.owner for one in consumer.lift(ALL)] == ["db"]
    consumer.lift("re:.*", owner="db")
    assert len(taken(consumer, count(20))) == 20


def test_a_hold_by_name_ends_by_itself(team, member):
    consumer = member()
    consumer.hold(team.topic, for_=0.2)
    consumer.subscribe([team.topic])
    assert len(taken(consumer, count(20))) == 20


@pytest.fixture
def upstream(monkeypatch):
    """Stand between members and librdkafka: ``handed`` is called with what that gave."""
    made = SimpleNamespace(handed=lambda _: None)

    def poll(self, timeout):
        message = confluent_kafka.Consumer.poll(self, timeout)
        if message is not None:
            made.handed([message])
        return message

    def consume(self, most, timeout):
        found = confluent_kafka.Consumer.consume(self, most, timeout)
        if found:
            made.handed(found)
        return found

    monkeypatch.setattr(Consumer, "_upstream_poll", poll)
    monkeypatch.setattr(Consumer, "_upstream_consume", consume)
    return made


def committed(consumer, partition):
    """Commit what is stored, and return the offset of a partition; None: nothing is."""
    try:
        found = consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
            raise
        return None
    offsets = {one.partition: one.offset for one in found if one.offset >= 0}
    return offsets.get(partition)


def alone(team, consumer, *partitions):
    """Subscribe, with holds of all but some partitions, the first if none are named."""
    flowing = partitions or (0,)
    others = [tp.partition for tp in team.partitions if tp.partition not in flowing]
    consumer.hold(*[f"{team.topic}:{n}" for n in others], owner="others")
    consumer.subscribe([team.topic])


ONE = pytest.mark.parametrize(
    "one",
    [lambda it: it.poll(0.1), lambda it: (it.consume(1, 0.1) or [None])[0]],
    ids=["poll", "consume"],
)
BEFORE = pytest.mark.parametrize("before", [0, 2], ids=["at first", "in a row"])


@pytest.mark.contract("P1", "P8", "G9")
@ONE
@BEFORE
def test_what_was_taken_as_a_hold_arrived_is_first_after_it(
    team, member, upstream, before, one
):
    """Neither committed meanwhile, nor counted as given, nor in the position."""
    consumer = member()
    alone(team, consumer)
    assert taken(consumer, count(before)) == [(0, n) for n in range(before)]
    zero = f"{team.topic}:0"
    upstream.handed = lambda _: consumer.hold(zero)
    while consumer.quiet()[:1] != [TopicPartition(team.topic, 0)]:
        assert one(consumer) is None
    upstream.handed = lambda _: None
    assert consumer.consume(10, 0.2) == []
    assert consumer.poll(0) is None
    place = consumer.position([TopicPartition(team.topic, 0)])
    assert [one.offset for one in place] == [before]
    assert committed(consumer, 0) == (before or None)
    consumer.lift(zero)
    rest = [(0, n) for n in range(before, 5)]
    assert taken(consumer, count(len(rest)), by=10) == rest
    assert committed(consumer, 0) == 5


def kept_back(team, consumer, upstream, *partitions):
    """Have all records of partitions kept back, which then flow again."""
    names = {number: f"{team.topic}:{number}" for number in partitions}
    upstream.handed = lambda found: consumer.hold(
        *{names[one.partition()] for one in found}
    )
    alone(team, consumer, *partitions)
    for _ in looks(lambda: len(consumer.quiet()) == 4, "what is kept back"):
        assert consumer.consume(100, 0.1) == []
    upstream.handed = lambda _: None
    consumer.lift(*names.values())


def test_librdkafka_is_polled_while_what_was_kept_back_is_given(
    team, member, upstream, monkeypatch
):
    """It serves rebalances in polls only, and leaves its group without any."""
    consumer = member()
    kept_back(team, consumer, upstream, 0)
    seconds = itertools.count(time.monotonic())
    monkeypatch.setattr(module, "monotonic", partial(next, seconds))
    polled, poll = [], Consumer._upstream_poll
    monkeypatch.setattr(
        Consumer, "_upstream_poll", lambda *args: polled.append(args) or poll(*args)
    )
    assert [consumer.poll().offset() for _ in range(5)] == [*range(5)]
    assert len(polled) == 5


def test_what_was_kept_back_of_partitions_is_given_in_turn(team, member, upstream):
    """Polls meanwhile may bring more of the first one, so that others would wait."""
    consumer = member()
    kept_back(team, consumer, upstream, 0, 1)
    came = [consumer.poll(1) for _ in range(10)]
    assert {one.partition() for one in came[:2]} == {0, 1}
    for number in (0, 1):
        of_it = [one.offset() for one in came if one.partition() == number]
        assert of_it == [*range(5)]


def test_a_seek_drops_what_was_kept_back(team, member, upstream):
    consumer = member()
    alone(team, consumer)
    taken(consumer, count(2))
    upstream.handed = lambda _: consumer.hold(f"{team.topic}:0")
    consumer.poll(0.5)
    upstream.handed = lambda _: None
    consumer.seek(TopicPartition(team.topic, 0, 1))
    consumer.lift(f"{team.topic}:0")
    assert taken(consumer, count(4)) == [(0, n) for n in (1, 2, 3, 4)]


@ONE
def test_what_was_given_is_busy_until_the_next_call(team, member, one):
    consumer = member()
    alone(team, consumer)
    for _ in range(2):
        wait_for(partial(one, consumer), "a record")
    assert set(consumer._member.busy()) == {(team.topic, 0)}
    consumer.hold(f"{team.topic}:0")
    assert set(consumer._member.busy()) == {(team.topic, 0)}
    assert consumer.poll(0) is None
    assert set(consumer._member.busy()) == set()


def test_a_last_report_says_busy_of_nothing(team, member, monkeypatch):
    """A program that closes its consumer has done with the records that it had."""
    consumer, busy = member(control=team.quick), []
    alone(team, consumer)
    taken(consumer, count(2))
    shared = consumer._member
    end = shared.end_control

    def ended():
        end()
        busy.append(set(shared.busy()))

    monkeypatch.setattr(shared, "end_control", ended)
    consumer.close()
    assert busy == [set()]


@ONE
def test_what_is_handed_over_is_busy_before_the_last_look(team, member, upstream, one):
    """So a report says busy, or the hold that it shows is obeyed."""
    said = []

    class Looking:
        """The ledger, which is asked what is settled once more after a fetch."""

        def __init__(self, ledger):
            self._ledger = ledger

        def __getattr__(self, name):
            if name == "settled" and handed:
                said.append(set(consumer._member.busy()))
            return getattr(self._ledger, name)

    consumer, handed = member(), []
    alone(team, consumer)
    taken(consumer, count(2))
    upstream.handed = handed.append
    consumer._in_hand = None  # as if what it has were another's
    consumer._ledger = Looking(consumer._ledger)
    wait_for(partial(one, consumer), "a record")
    assert said[0] == {(team.topic, 0)}


def test_librdkafka_commits_what_was_given_by_itself(team, subscribed):
    consumer = subscribed(auto_commit_interval_ms=100, enable_auto_commit=True)
    taken(consumer, count(20))
    zero = [TopicPartition(team.topic, 0)]

    def is_committed(_):
        return consumer.committed(zero, 5)[0].offset == 5

    taken(consumer, is_committed, "a commit by librdkafka")


def stored(consumer, partition):
    """Commit what is stored and no more, as librdkafka does, and return the offset."""
    with suppress(KafkaException):  # nothing was stored since the last time
        confluent_kafka.Consumer.commit(consumer, asynchronous=False)
    return consumer.committed([partition], 5)[0].offset


@pytest.mark.parametrize("by", [1, 2], ids=["poll", "consume"])
def test_few_records_of_a_burst_come_again_if_the_program_then_stalls(
    team, member, monkeypatch, by
):
    """However many were asked for within a tenth of a second."""
    consumer, burst = member(), 30
    alone(team, consumer)
    taken(consumer, count(5))
    team.produce(burst)
    now = time.monotonic()
    monkeypatch.setattr(module, "monotonic", lambda: now)
    monkeypatch.setattr(module, "_MOST_UNSTORED", 4, raising=False)
    zero, given, unstored = TopicPartition(team.topic, 0), 5, []
    while given < 5 + burst:
        found = consumer.consume(by, -1) if by > 1 else [consumer.poll()]
        given += len(found)
        unstored.append(given - stored(consumer, zero))
    assert max(unstored) < 4


def test_offsets_that_the_program_stores_are_not_replaced(team, member):
    """As in confluent-kafka, where what is given is stored before it can be."""
    consumer = member()
    alone(team, consumer)
    taken(consumer, count(3))
    consumer.store_offsets(offsets=[TopicPartition(team.topic, 0, 1)])
    assert consumer.poll(0.2) is not None
    consumer.store_offsets(offsets=[TopicPartition(team.topic, 0, 2)])
    assert committed(consumer, 0) == 2


def test_a_seek_leaves_what_was_given_before_stored(team, member):
    consumer = member()
    alone(team, consumer)
    taken(consumer, count(3))
    consumer.seek(TopicPartition(team.topic, 0, 0))
    assert committed(consumer, 0) == 3


def test_a_commit_has_what_was_given_just_before(team, member):
    consumer = member()
    alone(team, consumer)
    taken(consumer, count(3))
    assert committed(consumer, 0) == 3


@pytest.mark.parametrize("by", ["subscribe", "assign"])
def test_what_was_given_is_committed_as_the_member_leaves(team, member, by):
    """Of its last calls too, which did not store anything themselves."""
    first = member(enable_auto_commit=True)
    everything = [TopicPartition(*tp) for tp in team.partitions]
    first.subscribe([team.topic]) if by == "subscribe" else first.assign(everything)
    taken(first, count(20))
    first.close()
    found = member().committed(everything, 5)
    assert {one.offset for one in found} == {5}


class LateToForget(Consumer):
    """Librdkafka has the last position of a partition until it fetches for the next one."""

    def __init__(self, *args, **kwargs):
        self.last = None
        super().__init__(*args, **kwargs)


class Late(confluent_kafka.Consumer):
    def position(self, partitions):
        found = super().position(partitions)
        for one in found:
            if one.partition == 0 and one.offset < 0 and self.last is not None:
                one.offset = self.last
        return found


def test_an_assignment_made_again_stores_no_position_of_the_last_one(team, member):
    consumer = member(kind=type("Mine", (LateToForget, Late), {}))
    consumer.assign([TopicPartition(team.topic, n, 0) for n in range(4)])
    taken(consumer, count(20))
    consumer.hold(f"{team.topic}:0")
    consumer.last = 5
    consumer.assign([TopicPartition(team.topic, n, 0) for n in range(4)])
    assert committed(consumer, 0) is None
    taken(consumer, count(15))
    assert committed(consumer, 0) is None
    consumer.lift(f"{team.topic}:0")
    taken(consumer, count(2))
    assert committed(consumer, 0) == 2


@pytest.mark.contract("P6", "P7", "G9")
def test_a_manual_assignment_that_is_made_again_stays_held(team, member):
    """Librdkafka forgets or keeps its paused flags there; nobody trusts them."""
    consumer = member()
    theirs = [TopicPartition(team.topic, n, 0) for n in range(4)]
    consumer.hold(f"{team.topic}:0")
    for _ in range(3):
        consumer.assign(theirs)
        assert of(taken(consumer, count(15)), 0) == []
    consumer.incremental_unassign(theirs[1:])
    consumer.incremental_assign(theirs[1:2])
    assert of(taken(consumer, count(5)), 1) == list(range(5))
    assert consumer.poll(0.2) is None
    consumer.lift(f"{team.topic}:0")
    assert taken(consumer, count(5)) == [(0, n) for n in range(5)]
    consumer.unassign()
    assert consumer.explain(f"{team.topic}:0") == (
        f"{team.topic}:0 is not assigned to this consumer",
    )


@pytest.mark.contract("P10", "G9")
def test_a_poll_never_waits_longer_than_a_lift_may(team, member, monkeypatch):
    """Each wait in librdkafka is at most 100 ms, and the rest is ours."""
    asked = []

    def noting(self, timeout):
        asked.append(timeout)
        return confluent_kafka.Consumer.poll(self, timeout)

    monkeypatch.setattr(Consumer, "_upstream_poll", noting)
    consumer = member()
    consumer.hold(ALL)
    consumer.subscribe([team.topic])
    threading.Timer(0.5, partial(consumer.lift, ALL)).start()
    assert consumer.poll() is not None
    assert max(asked) <= module._STEP == 0.1
    assert consumer.poll(0) is not None


def test_a_number_of_messages_is_confluent_kafkas_to_judge(subscribed):
    """It returns at once if none are asked for."""
    consumer = subscribed()
    assert consumer.consume(0) == []
    for wrong in (-1, 2_000_000):
        with pytest.raises(ValueError, match="num_messages"):
            consumer.consume(wrong)


def test_callbacks_are_the_programs_and_may_assign(team, member):
    """Offsets that ``on_assign`` gives are kept, and what is held is paused all the same."""
    called = []
    consumer = member()

    def on_assign(its, partitions):
        called.append((its, "assign"))
        for one in partitions:
            one.offset = 3
        its.assign(partitions)

    def on_revoke(its, _partitions):
        called.append((its, "revoke"))

    consumer.hold(f"{team.topic}:0")
    consumer.subscribe([team.topic], on_assign=on_assign, on_revoke=on_revoke)
    came = taken(consumer, count(6))
    assert sorted(came) == [(p, n) for p in (1, 2, 3) for n in (3, 4)]
    consumer.unsubscribe()
    taken(consumer, lambda _: len(called) == 2)
    assert called == [(consumer, "assign"), (consumer, "revoke")]
    assert consumer.quiet() == []


def test_a_question_that_fails_leaves_no_client_to_the_collector(monkeypatch):
    """Each one has threads and sockets; a reader asks again while no broker is there."""
    monkeypatch.setattr(librdkafka, "_ASK_SECONDS", 0.1)
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    topic = LibrdkafkaClients(settings).holds_topic("holds")

    def clients():
        return [one for one in gc.get_objects() if isinstance(one, AdminClient)]

    gc.collect()
    gc.disable()
    try:
        before = len(clients())
        with pytest.raises(KafkaException):
            topic.facts()
        assert len(clients()) == before
        with pytest.raises(KafkaException):
            topic.begin()
        topic.close()
        assert len(clients()) == before
    finally:
        gc.enable()


def test_a_member_that_closes_as_it_is_assigned_is_closed(team, member):
    """A poll then says so, as confluent-kafka's; it raised SystemError."""
    one = member()
    one.subscribe([team.topic], on_assign=lambda consumer, _: consumer.close())
    with pytest.raises(RuntimeError, match="closed"):
        taken(one, lambda _: False, "an error")


@pytest.mark.contract("P14", "G9")
def test_hooks_get_the_rebalance_and_the_gates_of_what_is_gained(team, subscribed):
    came = []
    consumer = subscribed(control=team.quick, hooks=[came.append])
    taken(consumer, count(20))
    opened = [one for one in came if isinstance(one, GatesChanged)]
    assert sum(len(one.flowing) for one in opened) == 4
    gained = [len(one.gained) for one in came if isinstance(one, RebalanceCompleted)]
    assert gained == [4]
    assert {one.client_id for one in came} == {"a"}
    assert consumer.hook_failures == {}


@pytest.mark.contract("P14", "G9")
def test_a_collector_shows_what_is_known_of_a_member(team, subscribed):
    """What librdkafka does not tell is left out; after the end the counters stay."""
    consumer = subscribed(control=team.quick)
    began = time.time()
    taken(consumer, count(20))
    consumer.hold(f"{team.topic}:0")
    found = values(consumer)
    unknown = {"parked_bytes", "purged_bytes_total", "deleted_unread_offsets_total"}
    assert found.keys() & {*unknown, "parked_dropped_bytes_total"} == set()
    assert (found["consumer_assigned_partitions"], found["control_ready"]) == (4, 1)
    assert found["consumer_quiet_partitions"] == found['holds{kind="local"}'] == 1
    assert found['partition_moves_total{how="gained"}'] == 4
    assert found["rebalances_total"] >= 1
    assert found["consumer_last_poll_timestamp_seconds"] >= began
    labels = f'client_id="a",group="{team.group}"'
    assert f"safeconsumer_control_gated_partitions{{{labels}}} 0" in text_of(consumer)
    consumer.close()
    after = values(consumer)
    assert "control_ready" not in after
    assert after['hold_changes_total{change="placed",kind="local"}'] == 1


def test_a_member_without_control_has_no_figures_of_control(member):
    found = values(member())
    assert not {name for name in found if name.startswith("control_")}
    assert "consumer_last_poll_timestamp_seconds" not in found


# ---------------------------------------------------------------- refusals, settings


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"control": object()}, ControlSettingError),
        ({"hooks": print}, HookTypeError),
        ({"no.such.setting": 1}, confluent_kafka.KafkaException),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(team, more, error):
    own = {key: more.pop(key) for key in ("control", "hooks") if key in more}
    with pytest.raises(error):
        Consumer({**settings_of(team), **more}, **own)


STORE = "enable.auto.offset.store"


@pytest.mark.parametrize("value", ["yes", "on", " true", "", 2, None], ids=repr)
def test_a_wrong_setting_for_stored_offsets_is_refused_as_by_confluent(team, value):
    """Nothing would ever be committed otherwise."""
    settings = {**settings_of(team), STORE: value}
    with pytest.raises(KafkaException, match=STORE):
        confluent_kafka.Consumer(settings)
    with pytest.raises(KafkaException, match=STORE):
        Consumer(settings)


@pytest.mark.parametrize("value", [True, "T", 1, False, "f", 0, "0"], ids=repr)
def test_each_word_for_stored_offsets_is_taken_as_by_confluent(team, value):
    settings = {**settings_of(team), STORE: value}
    confluent_kafka.Consumer(settings).close()
    with closing(Consumer(settings, log=False)) as consumer:
        assert consumer._stores is (str(value).lower() in {"true", "t", "1"})


def test_settings_for_clients_of_kafka_python_are_refused(team):
    control = team.with_settings(client_configs={"fetch_max_wait_ms": 50})
    with pytest.raises(ControlSettingError, match="own client's settings"):
        Consumer(settings_of(team), control=control)


def test_a_topic_that_would_lose_holds_is_refused(team):
    control = team.with_settings(holds_topic=team.settings.status_topic + "x")
    team.create(control.holds_topic, {"cleanup.policy": "delete"})
    threads = set(threading.enumerate())
    with pytest.raises(ControlTopicError, match=r"cleanup\.policy=delete"):
        confluent(team, control=control)
    assert set(threading.enumerate()) == threads


@pytest.mark.parametrize(
    ("target", "error"),
    [("or:ders:x", ScopeSyntaxError), (7, TargetTypeError), ("*", ScopeSyntaxError)],
)
@pytest.mark.contract("P4", "G9")
def test_a_bad_target_changes_nothing(team, member, target, error):
    consumer = member()
    with pytest.raises(error):
        consumer.hold(team.topic, target)
    assert consumer.holds() == ()
    with pytest.raises(HoldSettingError):
        consumer.explain(team.topic)
    with pytest.raises(HoldSettingError):
        consumer.hold(team.topic, owner="operator:alice")


@pytest.mark.parametrize("call", ["pause", "resume"])
@pytest.mark.parametrize(
    "wrong",
    ["orders", ["orders"], [("orders", 0)], None, 5],
    ids=["text", "topic", "pair", "none", "number"],
)
@pytest.mark.contract("P4", "G9")
def test_pause_and_resume_take_partitions_only_as_those_of_confluent(team, call, wrong):
    """A text was taken for the topics of its letters, and paused nothing."""
    both = [confluent_kafka.Consumer(settings_of(team)), confluent(team)]
    with closing(both[0]), closing(both[1]):
        for one in both:
            with pytest.raises(TypeError):
                getattr(one, call)(wrong)
        assert both[1].holds() == ()


@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_lost"])
@pytest.mark.parametrize("wrong", [5, ""])
def test_a_callback_that_cannot_be_called_is_refused_at_once(team, name, wrong):
    """As by confluent-kafka; the first poll of a join raised instead."""
    both = [confluent_kafka.Consumer(settings_of(team)), confluent(team)]
    with closing(both[0]), closing(both[1]):
        for one in both:
            with pytest.raises(TypeError, match=f"{name} expects a callable"):
                one.subscribe([team.topic], **{name: wrong})


def test_it_needs_no_kafka_python(team):
    """Whichever version is installed is not in the way of members on confluent-kafka."""
    code = (
        "import sys; sys.modules['kafka'] = None\n"
        "from safeconsumer import Control\n"
        "from safeconsumer.clients.confluent import Consumer\n"
        f"control = Control.prefixed({team.prefix!r})\n"
        f"consumer = Consumer({settings_of(team)!r}, control=control, log=False)\n"
        f"consumer.hold('orders'); consumer.subscribe([{team.topic!r}])\n"
        "while consumer.poll(1) is None: pass\n"
        "consumer.close()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)  # noqa: S603 - our own code


class Token:
    """Stands in for a login that a callback brings."""

    def __call__(self, _):
        return "token", 4_000_000_000.0


def test_control_clients_have_the_members_connection_and_nothing_of_its_group():
    """What librdkafka may add to logins is copied, as it is not known to be the group's."""
    token = Token()
    connection = {
        "bootstrap.servers": "b:9092",
        "https.ca.location": "/ca",
        "oauth_cb": token,
        "sasl.mechanisms": "OAUTHBEARER",
        "security.protocol": "SASL_SSL",
        "ssl.key.pem": "key",
        "ssl.some.new.setting": "x",
    }
    of_the_group = {
        "auto.offset.reset": "earliest",
        "client.id": "billing",
        "enable.auto.commit": True,
        "error_cb": print,
        "fetch.min.bytes": 100_000,
        "group.id": "g",
        "group.instance.id": "i",
        "group.protocol": "consumer",
        "max.poll.interval.ms": 1,
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 1,
        "stats_cb": print,
    }
    clients = LibrdkafkaClients({**connection, **of_the_group})
    assert (clients.group_id, clients.client_id) == ("g", "billing")
    assert clients._base == {**connection, "client.id": "billing-control"}


def control_threads():
    names = {"safeconsumer-control", "safeconsumer-status"}
    return [one for one in threading.enumerate() if one.name in names]


def clients_of(kind):
    return [one for one in gc.get_objects() if isinstance(one, kind)]


@pytest.mark.contract("G9")
def test_a_member_that_is_dropped_without_close_ends_its_control(team):
    """Its threads do not keep it, and end with a last report; their clients go, too."""
    kinds = (AdminClient, confluent_kafka.Consumer, confluent_kafka.Producer)
    gc.collect()
    before, threads = len(clients_of(kinds)), control_threads()
    consumer = confluent(team, control=team.quick)
    consumer.subscribe([team.topic])
    taken(consumer, count(20))
    assert len(control_threads()) == len(threads) + 2
    del consumer
    gc.collect()
    wait_for(lambda: control_threads() == threads, "the end of its threads")
    gc.collect()
    assert len(clients_of(kinds)) == before
    status = run(team, "status", "--group", team.group)
    assert "stopped" in status.output, status.output
