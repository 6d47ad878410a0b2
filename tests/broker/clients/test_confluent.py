"""Tests members on confluent-kafka only; ``test_members`` tests both clients."""

import gc
import itertools
import threading
import time
from contextlib import ExitStack, closing, suppress
from functools import partial, partialmethod
from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from safeconsumer import ALL
from safeconsumer.clients import confluent as module
from safeconsumer.clients import librdkafka
from safeconsumer.clients.confluent import Consumer
from safeconsumer.clients.control_topics import TopicLostError
from tests.harness.group.confluent import confluent, settings_of
from tests.harness.group.team import run
from tests.harness.metrics.scraping import values
from tests.harness.processes import ran_python
from tests.harness.waiting import repeat_until, wait_for

pytestmark = pytest.mark.any_broker


@pytest.fixture
def member(team):
    """Return a factory for members of the team; close the members at the end."""
    with ExitStack() as closing:

        def made(**more):
            consumer = confluent(team, **more)
            closing.callback(consumer.close)
            return consumer

        yield made


def taken(consumer, count, by=1):
    """Poll until this many records have arrived; return their partitions and offsets."""
    return polled(consumer, lambda came: len(came) >= count, by)


def polled(consumer, condition, by=1):
    """Poll until a condition on the records holds; return their partitions and offsets."""
    came = []
    for _ in repeat_until(partial(condition, came), "records"):
        found = consumer.consume(by, 0.1) if by > 1 else [consumer.poll(0.1)]
        came.extend(
            (one.partition(), one.offset())
            for one in found
            if one is not None and one.error() is None
        )
    return came


def of(came, partition):
    return [offset for number, offset in came if number == partition]


def test_only_the_polling_thread_calls_the_member(team, member, monkeypatch):
    """Only one thread at a time can call librdkafka, so a reporter's thread would starve."""
    asked = set()

    def noted(name, self):
        asked.add(threading.get_ident())
        return getattr(confluent_kafka.Consumer, name)(self)

    for name in ("memberid", "consumer_group_metadata", "assignment"):
        call = partialmethod(partial(noted, name))
        monkeypatch.setattr(Consumer, name, call, raising=False)
    consumer = member(control=team.quick)
    consumer.subscribe([team.topic])
    taken(consumer, 20)
    team.operator_holds(team.topic)
    asking = ("wait", "quiet", team.topic, "--group", team.group, "--timeout", "60s")
    ended = []
    thread = threading.Thread(target=lambda: ended.append(run(team, *asking)))
    thread.start()
    while thread.is_alive():
        consumer.poll(0)  # polls again immediately
    assert ended[0].exit_code == 0, ended[0].output
    assert asked == {threading.get_ident()}


# ---------------------------------------------------------------- its own pauses


@pytest.fixture
def upstream(monkeypatch):
    """Call ``handed`` with all messages that librdkafka returns to members."""
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
    """Commit the stored offsets; return a partition's committed offset, or None."""
    try:
        found = consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
            raise
        return None
    offsets = {one.partition: one.offset for one in found if one.offset >= 0}
    return offsets.get(partition)


def alone(team, consumer, *partitions):
    """Hold all partitions except these (by default all but the first), and subscribe."""
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
def test_records_fetched_before_a_late_hold_are_delivered_first_after_the_lift(
    team, member, upstream, before, one
):
    """During the hold the position stays before the records, and they are not committed."""
    consumer = member()
    alone(team, consumer)
    assert taken(consumer, before) == [(0, n) for n in range(before)]
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
    assert taken(consumer, len(rest), by=10) == rest
    assert committed(consumer, 0) == 5


@pytest.mark.parametrize(
    "one",
    [lambda it: it.poll(0), lambda it: (it.consume(1, 0) or [None])[0]],
    ids=["poll", "consume"],
)
def test_hold_placed_during_a_fast_call_keeps_the_fetched_record(
    team, member, upstream, monkeypatch, one
):
    """While the clock stands still, each call after the first takes the fast path."""
    consumer = member()
    alone(team, consumer)
    taken(consumer, 2)
    monkeypatch.setattr(module, "monotonic", partial(float, time.monotonic()))
    for _ in repeat_until(lambda: one(consumer) is not None, "a record"):
        pass
    handed = []
    # A hold with an expiry sets ``ledger.settled`` to None, so the fast call can detect
    # the change only by comparing objects, not partitions.
    upstream.handed = lambda found: (
        handed.extend(found),
        consumer.hold(team.topic, for_=3600),
    )
    for _ in repeat_until(lambda: handed, "a record during the fast call"):
        assert one(consumer) is None
    assert [one.offset() for one in handed] == [3]


def hold_back(team, consumer, upstream, *partitions):
    """Make the member hold back all records from these partitions; then lift the holds."""
    names = {number: f"{team.topic}:{number}" for number in partitions}
    upstream.handed = lambda found: consumer.hold(
        *{names[one.partition()] for one in found}
    )
    alone(team, consumer, *partitions)
    for _ in repeat_until(
        lambda: len(consumer.quiet()) == 4, "records that are held back"
    ):
        assert consumer.consume(100, 0.1) == []
    upstream.handed = lambda _: None
    consumer.lift(*names.values())


def test_poll_that_returns_a_held_back_record_also_polls_librdkafka(
    team, member, upstream, monkeypatch
):
    """Only polls let librdkafka handle rebalances; without polls it leaves the group."""
    consumer = member()
    hold_back(team, consumer, upstream, 0)
    seconds = itertools.count(time.monotonic())
    monkeypatch.setattr(module, "monotonic", partial(next, seconds))
    polled, poll = [], Consumer._upstream_poll
    monkeypatch.setattr(
        Consumer, "_upstream_poll", lambda *args: polled.append(args) or poll(*args)
    )
    assert [consumer.poll().offset() for _ in range(5)] == [*range(5)]
    assert len(polled) == 5


def test_held_back_records_of_several_partitions_are_returned_in_turn(
    team, member, upstream
):
    """Records of one partition must not delay the held-back records of another."""
    consumer = member()
    hold_back(team, consumer, upstream, 0, 1)
    came = [consumer.poll(1) for _ in range(10)]
    assert {one.partition() for one in came[:2]} == {0, 1}
    for number in (0, 1):
        of_it = [one.offset() for one in came if one.partition() == number]
        assert of_it == [*range(5)]


@pytest.mark.contract("G9")
def test_partition_eof_is_returned_after_the_records(team, member):
    """A program that stops at the EOF has by then handled all records that are committed."""
    consumer = member(**{"enable.partition.eof": True})
    alone(team, consumer)
    found = consumer.consume(6, 30)
    codes = [one.error() and one.error().code() for one in found]
    assert codes == [*[None] * 5, confluent_kafka.KafkaError._PARTITION_EOF]
    assert committed(consumer, 0) == 5


def test_seek_drops_held_back_records(team, member, upstream):
    consumer = member()
    alone(team, consumer)
    taken(consumer, 2)
    upstream.handed = lambda _: consumer.hold(f"{team.topic}:0")
    consumer.poll(0.5)
    upstream.handed = lambda _: None
    consumer.seek(TopicPartition(team.topic, 0, 1))
    consumer.lift(f"{team.topic}:0")
    assert taken(consumer, 4) == [(0, n) for n in (1, 2, 3, 4)]


@ONE
def test_partition_of_a_returned_record_is_busy_until_the_next_call(team, member, one):
    consumer = member()
    alone(team, consumer)
    for _ in range(2):
        wait_for(partial(one, consumer), "a record")
    assert set(consumer._member.busy()) == {(team.topic, 0)}
    consumer.hold(f"{team.topic}:0")
    assert set(consumer._member.busy()) == {(team.topic, 0)}
    assert consumer.poll(0) is None
    assert set(consumer._member.busy()) == set()


def test_last_report_has_no_busy_partition(team, member, monkeypatch):
    """A program that closes its consumer does not process records any more."""
    consumer, busy = member(control=team.quick), []
    alone(team, consumer)
    taken(consumer, 2)
    shared = consumer._member
    end = shared.end_control

    def ended():
        end()
        busy.append(set(shared.busy()))

    monkeypatch.setattr(shared, "end_control", ended)
    consumer.close()
    assert busy == [set()]


@ONE
def test_partition_counts_as_busy_before_the_last_check_for_a_hold(
    team, member, upstream, one
):
    """So the member either obeys a new hold, or reports the partition as busy."""
    busy = []

    class Looking:
        """A ledger that records the busy partitions at each check for holds after a fetch."""

        def __init__(self, ledger):
            self._ledger = ledger

        def __getattr__(self, name):
            if name == "settled" and handed:
                busy.append(set(consumer._member.busy()))
            return getattr(self._ledger, name)

    consumer, handed = member(), []
    alone(team, consumer)
    taken(consumer, 2)
    upstream.handed = handed.append
    consumer._in_hand = None  # as if another call had returned the records
    consumer._ledger = Looking(consumer._ledger)
    wait_for(partial(one, consumer), "a record")
    assert busy[0] == {(team.topic, 0)}


def test_auto_commit_commits_returned_records(team, member):
    consumer = member(auto_commit_interval_ms=100, enable_auto_commit=True)
    consumer.subscribe([team.topic])
    taken(consumer, 20)
    zero = [TopicPartition(team.topic, 0)]

    def is_committed(_):
        return consumer.committed(zero, 5)[0].offset == 5

    polled(consumer, is_committed)


def stored(consumer, partition):
    """Commit only the stored offsets, as librdkafka does; return a partition's offset."""
    with suppress(KafkaException):  # no offset was stored since the last call
        confluent_kafka.Consumer.commit(consumer, asynchronous=False)
    return consumer.committed([partition], 5)[0].offset


@pytest.mark.parametrize("by", [1, 2], ids=["poll", "consume"])
def test_program_that_stalls_during_a_burst_leaves_few_records_uncommitted(
    team, member, monkeypatch, by
):
    """The limit also applies to a burst of records within a tenth of a second."""
    consumer, burst = member(), 30
    alone(team, consumer)
    taken(consumer, 5)
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


def store_twice(team, consumer):
    consumer.store_offsets(offsets=[TopicPartition(team.topic, 0, 1)])
    assert consumer.poll(0.2) is not None
    consumer.store_offsets(offsets=[TopicPartition(team.topic, 0, 2)])


def seek_back(team, consumer):
    consumer.seek(TopicPartition(team.topic, 0, 0))


@pytest.mark.parametrize(
    ("call", "offset"),
    [(lambda *_: None, 3), (seek_back, 3), (store_twice, 2)],
    ids=["nothing else", "a seek", "the program's own offsets"],
)
def test_commit_covers_returned_records_or_the_programs_own_offsets(
    team, member, call, offset
):
    """Like ours, confluent-kafka's consumer stores the offset of each record it returns."""
    consumer = member()
    alone(team, consumer)
    taken(consumer, 3)
    call(team, consumer)
    assert committed(consumer, 0) == offset


@pytest.mark.parametrize("by", ["subscribe", "assign"])
def test_returned_records_are_committed_when_the_member_leaves(team, member, by):
    """The commit includes records from the last calls, whose offsets are not stored yet."""
    first = member(enable_auto_commit=True)
    everything = [TopicPartition(*tp) for tp in team.partitions]
    first.subscribe([team.topic]) if by == "subscribe" else first.assign(everything)
    taken(first, 20)
    first.close()
    found = member().committed(everything, 5)
    assert {one.offset for one in found} == {5}


class Late(confluent_kafka.Consumer):
    """A consumer that keeps an old position until a fetch, like some librdkafka versions."""

    last = None

    def position(self, partitions):
        found = super().position(partitions)
        for one in found:
            if one.partition == 0 and one.offset < 0 and self.last is not None:
                one.offset = self.last
        return found


def test_repeated_assignment_does_not_store_positions_of_the_previous_one(team, member):
    consumer = member(kind=type("Mine", (Consumer, Late), {}))
    consumer.assign([TopicPartition(team.topic, n, 0) for n in range(4)])
    taken(consumer, 20)
    consumer.hold(f"{team.topic}:0")
    consumer.last = 5
    consumer.assign([TopicPartition(team.topic, n, 0) for n in range(4)])
    assert committed(consumer, 0) is None
    taken(consumer, 15)
    assert committed(consumer, 0) is None
    consumer.lift(f"{team.topic}:0")
    taken(consumer, 2)
    assert committed(consumer, 0) == 2


@pytest.mark.contract("P6", "P7", "G9")
def test_repeated_manual_assignment_stays_held(team, member):
    """When partitions are assigned, librdkafka may reset or keep its paused flags."""
    consumer = member()
    theirs = [TopicPartition(team.topic, n, 0) for n in range(4)]
    consumer.hold(f"{team.topic}:0")
    for _ in range(3):
        consumer.assign(theirs)
        assert of(taken(consumer, 15), 0) == []
    consumer.incremental_unassign(theirs[1:])
    consumer.incremental_assign(theirs[1:2])
    assert of(taken(consumer, 5), 1) == list(range(5))
    assert consumer.poll(0.2) is None
    consumer.lift(f"{team.topic}:0")
    assert taken(consumer, 5) == [(0, n) for n in range(5)]
    consumer.unassign()
    assert consumer.explain(f"{team.topic}:0") == (
        f"{team.topic}:0 is not assigned to this consumer",
    )


@pytest.mark.contract("P10", "G9")
def test_each_wait_in_librdkafka_is_short_enough_for_a_lift(team, member, monkeypatch):
    """Even a poll without a timeout calls librdkafka with timeouts of at most 100 ms."""
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


def test_consume_refuses_the_same_numbers_as_confluent_kafka(team, member):
    consumer = member()
    consumer.subscribe([team.topic])
    assert consumer.consume(0) == []
    for wrong in (-1, 2_000_000):
        with pytest.raises(ValueError, match="num_messages"):
            consumer.consume(wrong)


def test_on_assign_callback_may_assign_partitions_itself(team, member):
    """The offsets that the program's ``on_assign`` sets stay; held partitions are paused."""
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
    came = taken(consumer, 6)
    assert sorted(came) == [(p, n) for p in (1, 2, 3) for n in (3, 4)]
    consumer.unsubscribe()
    polled(consumer, lambda _: len(called) == 2)
    assert called == [(consumer, "assign"), (consumer, "revoke")]
    assert consumer.quiet() == []


def test_failed_request_for_control_topics_leaves_no_client_open(monkeypatch):
    """A reader retries until a broker responds, and each client has threads and sockets."""
    monkeypatch.setattr(librdkafka, "_ASK_SECONDS", 0.1)
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    topic = librdkafka.control_clients(settings).holds_topic("holds")
    gc.collect()
    gc.disable()
    try:
        before = len(clients_of(AdminClient))
        with pytest.raises(KafkaException):
            topic.facts()
        assert len(clients_of(AdminClient)) == before
        with pytest.raises(KafkaException):
            topic.begin()
        topic.close()
        assert len(clients_of(AdminClient)) == before
    finally:
        gc.enable()


@pytest.mark.usefixtures("patient")
def test_holds_before_an_unreadable_control_record_are_obeyed(team, monkeypatch):
    """Only the next call of ``turn`` raises; the reader then continues after those holds."""
    team.operator_holds(f"{team.topic}:0", f"{team.topic}:1")
    error = KafkaError(KafkaError._BAD_MSG)
    unreadable = SimpleNamespace(error=lambda: error, offset=lambda: 1)
    topic = librdkafka.control_clients(settings_of(team)).holds_topic(
        team.settings.holds_topic
    )
    topic.begin()
    monkeypatch.setattr(topic._consumer, "consume", lambda *_: [unreadable])
    assert [one.offset for one in topic.turn(100)] == [0]
    with pytest.raises(TopicLostError, match="cannot be read further"):
        topic.turn(100)
    assert topic.positions == {(team.settings.holds_topic, 0): 1}
    topic.close()


def test_member_that_closes_itself_in_on_assign_is_closed(team, member):
    """A poll then raises the same error as confluent-kafka's; it once raised SystemError."""
    one = member()
    one.subscribe([team.topic], on_assign=lambda consumer, _: consumer.close())
    with pytest.raises(RuntimeError, match="closed"):
        polled(one, lambda _: False)


def test_member_without_control_has_no_control_metrics(member):
    found = values(member())
    assert not {name for name in found if name.startswith("control_")}
    assert "consumer_last_poll_timestamp_seconds" not in found


# ---------------------------------------------------------------- refusals, settings


STORE = "enable.auto.offset.store"


@pytest.mark.parametrize("value", ["yes", "on", " true", "", 2, None], ids=repr)
def test_invalid_offset_store_setting_is_refused_as_by_confluent_kafka(team, value):
    """If the member accepted an invalid value, it would never commit any offset."""
    settings = {**settings_of(team), STORE: value}
    with pytest.raises(KafkaException, match=STORE):
        confluent_kafka.Consumer(settings)
    with pytest.raises(KafkaException, match=STORE):
        Consumer(settings)


@pytest.mark.parametrize("value", [True, "T", 1, False, "f", 0, "0"], ids=repr)
def test_each_spelling_of_the_offset_store_setting_is_accepted(team, value):
    settings = {**settings_of(team), STORE: value}
    confluent_kafka.Consumer(settings).close()
    with closing(Consumer(settings, log=False)) as consumer:
        assert consumer._stores is (str(value).lower() in {"true", "t", "1"})


@pytest.mark.parametrize("call", ["pause", "resume"])
@pytest.mark.parametrize(
    "wrong",
    ["orders", ["orders"], [("orders", 0)], None, 5],
    ids=["text", "topic", "pair", "none", "number"],
)
@pytest.mark.contract("P4", "G9")
def test_pause_and_resume_accept_only_partitions_as_in_confluent_kafka(
    team, call, wrong
):
    """Earlier versions took each letter of a string for a topic and paused no partition."""
    both = [confluent_kafka.Consumer(settings_of(team)), confluent(team)]
    with closing(both[0]), closing(both[1]):
        for one in both:
            with pytest.raises(TypeError):
                getattr(one, call)(wrong)
        assert both[1].holds() == ()


@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_lost"])
@pytest.mark.parametrize("wrong", [5, ""])
def test_uncallable_callback_is_refused_by_subscribe(team, name, wrong):
    """confluent-kafka does the same. Our member used to raise only in the first poll."""
    both = [confluent_kafka.Consumer(settings_of(team)), confluent(team)]
    with closing(both[0]), closing(both[1]):
        for one in both:
            with pytest.raises(TypeError, match=f"{name} expects a callable"):
                one.subscribe([team.topic], **{name: wrong})


def test_members_do_not_import_kafka_python(team):
    """Programs with members on confluent-kafka may have any version of kafka-python."""
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
    done = ran_python("-c", code, timeout=120)
    assert done.returncode == 0, done.stderr


def test_control_clients_copy_connection_settings_but_no_group_settings():
    """Unknown settings of librdkafka are copied, because authentication may need them."""
    connection = {
        "bootstrap.servers": "b:9092",
        "https.ca.location": "/ca",
        "oauth_cb": lambda _: ("token", 4_000_000_000.0),
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
    clients = librdkafka.control_clients({**connection, **of_the_group})
    assert (clients.group_id, clients.client_id) == ("g", "billing")
    wanted = {**connection, "client.id": "billing-control"}
    assert clients.holds_topic("holds")._base == wanted


def control_threads():
    names = {"safeconsumer-control", "safeconsumer-status"}
    return [one for one in threading.enumerate() if one.name in names]


def clients_of(kind):
    return [one for one in gc.get_objects() if isinstance(one, kind)]


@pytest.mark.contract("G9")
def test_control_of_a_member_dropped_without_close_stops(team):
    """The control threads do not keep the member alive. They send a last report."""
    kinds = (AdminClient, confluent_kafka.Consumer, confluent_kafka.Producer)
    gc.collect()
    before, threads = len(clients_of(kinds)), control_threads()
    consumer = confluent(team, control=team.quick)
    consumer.subscribe([team.topic])
    taken(consumer, 20)
    assert len(control_threads()) == len(threads) + 2
    del consumer
    gc.collect()
    wait_for(lambda: control_threads() == threads, "the end of its threads")
    gc.collect()
    assert len(clients_of(kinds)) == before
    status = run(team, "status", "--group", team.group)
    assert "stopped" in status.output, status.output
