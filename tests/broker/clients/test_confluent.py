"""Members on confluent-kafka; ``test_members`` has the tests of both clients."""

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
    """Make members of the team that close at the end."""
    with ExitStack() as closing:

        def made(**more):
            consumer = confluent(team, **more)
            closing.callback(consumer.close)
            return consumer

        yield made


def taken(consumer, count, by=1):
    """Poll until this many records have come; return their partitions and offsets."""
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


def test_the_identity_of_a_member_is_asked_on_its_own_thread_alone(
    team, member, monkeypatch
):
    """confluent-kafka lets one thread into a client at a time: a reporter would starve."""
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
        consumer.poll(0)  # polls without a pause
    assert ended[0].exit_code == 0, ended[0].output
    assert asked == {threading.get_ident()}


# ---------------------------------------------------------------- its own pauses


@pytest.fixture
def upstream(monkeypatch):
    """Call ``handed`` with the messages that librdkafka hands over to members."""
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
    """Commit the stored offsets; return that of a partition, or None."""
    try:
        found = consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
            raise
        return None
    offsets = {one.partition: one.offset for one in found if one.offset >= 0}
    return offsets.get(partition)


def alone(team, consumer, *partitions):
    """Subscribe, with holds of all partitions but some, by default the first."""
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
def test_records_that_were_taken_as_a_hold_arrived_come_first_after_it(
    team, member, upstream, before, one
):
    """Meanwhile they are neither committed, nor in hand, nor before the position."""
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


def kept_back(team, consumer, upstream, *partitions):
    """Keep back all records of partitions; then lift the holds."""
    names = {number: f"{team.topic}:{number}" for number in partitions}
    upstream.handed = lambda found: consumer.hold(
        *{names[one.partition()] for one in found}
    )
    alone(team, consumer, *partitions)
    for _ in repeat_until(
        lambda: len(consumer.quiet()) == 4, "records that are kept back"
    ):
        assert consumer.consume(100, 0.1) == []
    upstream.handed = lambda _: None
    consumer.lift(*names.values())


def test_librdkafka_is_polled_while_kept_records_are_given(
    team, member, upstream, monkeypatch
):
    """Librdkafka serves rebalances in polls only, and leaves its group without them."""
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


def test_kept_records_of_several_partitions_are_given_in_turn(team, member, upstream):
    """Polls meanwhile may bring more of the first one, so that others would wait."""
    consumer = member()
    kept_back(team, consumer, upstream, 0, 1)
    came = [consumer.poll(1) for _ in range(10)]
    assert {one.partition() for one in came[:2]} == {0, 1}
    for number in (0, 1):
        of_it = [one.offset() for one in came if one.partition() == number]
        assert of_it == [*range(5)]


@pytest.mark.contract("G9")
def test_end_of_a_partition_comes_behind_its_records(team, member):
    """A program that stops there has handled what is committed."""
    consumer = member(**{"enable.partition.eof": True})
    alone(team, consumer)
    found = consumer.consume(6, 30)
    codes = [one.error() and one.error().code() for one in found]
    assert codes == [*[None] * 5, confluent_kafka.KafkaError._PARTITION_EOF]
    assert committed(consumer, 0) == 5


def test_a_seek_drops_kept_records(team, member, upstream):
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
def test_a_given_record_is_busy_until_the_next_call(team, member, one):
    consumer = member()
    alone(team, consumer)
    for _ in range(2):
        wait_for(partial(one, consumer), "a record")
    assert set(consumer._member.busy()) == {(team.topic, 0)}
    consumer.hold(f"{team.topic}:0")
    assert set(consumer._member.busy()) == {(team.topic, 0)}
    assert consumer.poll(0) is None
    assert set(consumer._member.busy()) == set()


def test_no_partition_is_busy_in_the_last_report(team, member, monkeypatch):
    """A program that closes its consumer has done with the records that it had."""
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
def test_a_record_is_busy_before_the_last_check_of_its_hold(
    team, member, upstream, one
):
    """So a report says busy, or the hold that it shows is obeyed."""
    busy = []

    class Looking:
        """A ledger that acts when its quiet set is read again after a fetch."""

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


def test_librdkafka_commits_given_records_by_itself(team, member):
    consumer = member(auto_commit_interval_ms=100, enable_auto_commit=True)
    consumer.subscribe([team.topic])
    taken(consumer, 20)
    zero = [TopicPartition(team.topic, 0)]

    def is_committed(_):
        return consumer.committed(zero, 5)[0].offset == 5

    polled(consumer, is_committed)


def stored(consumer, partition):
    """Commit the stored offsets alone, as librdkafka does; return that of a partition."""
    with suppress(KafkaException):  # no offset was stored since the last call
        confluent_kafka.Consumer.commit(consumer, asynchronous=False)
    return consumer.committed([partition], 5)[0].offset


@pytest.mark.parametrize("by", [1, 2], ids=["poll", "consume"])
def test_few_records_of_a_burst_come_again_if_the_program_then_stalls(
    team, member, monkeypatch, by
):
    """The number of records requested within a tenth of a second does not matter."""
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
def test_a_commit_has_the_records_given_before_or_offsets_of_the_program(
    team, member, call, offset
):
    """confluent-kafka does so, too: it stores the offset of a record when it returns it."""
    consumer = member()
    alone(team, consumer)
    taken(consumer, 3)
    call(team, consumer)
    assert committed(consumer, 0) == offset


@pytest.mark.parametrize("by", ["subscribe", "assign"])
def test_given_records_are_committed_as_the_member_leaves(team, member, by):
    """So are the records of its last calls, which stored no offset themselves."""
    first = member(enable_auto_commit=True)
    everything = [TopicPartition(*tp) for tp in team.partitions]
    first.subscribe([team.topic]) if by == "subscribe" else first.assign(everything)
    taken(first, 20)
    first.close()
    found = member().committed(everything, 5)
    assert {one.offset for one in found} == {5}


class Late(confluent_kafka.Consumer):
    """Plays a librdkafka that keeps a partition's last position until it fetches again."""

    last = None

    def position(self, partitions):
        found = super().position(partitions)
        for one in found:
            if one.partition == 0 and one.offset < 0 and self.last is not None:
                one.offset = self.last
        return found


def test_a_repeated_assignment_stores_no_position_of_the_last_one(team, member):
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
def test_a_repeated_manual_assignment_stays_held(team, member):
    """Librdkafka may forget its paused flags at an assignment, or keep them."""
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
def test_a_poll_never_waits_longer_than_a_lift_may(team, member, monkeypatch):
    """Each wait in librdkafka takes at most 100 ms."""
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


def test_callbacks_of_the_program_may_assign(team, member):
    """Offsets that ``on_assign`` gives are kept; held partitions are paused all the same."""
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


def test_failed_request_leaves_no_client_to_the_collector(monkeypatch):
    """Each client has threads and sockets; a reader asks again while no broker answers."""
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
def test_holds_in_front_of_an_unreadable_control_record_are_obeyed(team, monkeypatch):
    """The error ends the next turn, and the reader begins behind those holds."""
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


def test_a_member_that_closes_as_it_is_assigned_is_closed(team, member):
    """A poll then raises the same error as confluent-kafka's; earlier, SystemError."""
    one = member()
    one.subscribe([team.topic], on_assign=lambda consumer, _: consumer.close())
    with pytest.raises(RuntimeError, match="closed"):
        polled(one, lambda _: False)


def test_a_member_without_control_has_no_figures_of_control(member):
    found = values(member())
    assert not {name for name in found if name.startswith("control_")}
    assert "consumer_last_poll_timestamp_seconds" not in found


# ---------------------------------------------------------------- refusals, settings


STORE = "enable.auto.offset.store"


@pytest.mark.parametrize("value", ["yes", "on", " true", "", 2, None], ids=repr)
def test_a_wrong_setting_for_stored_offsets_is_refused_as_by_confluent(team, value):
    """Otherwise no offset would ever be committed."""
    settings = {**settings_of(team), STORE: value}
    with pytest.raises(KafkaException, match=STORE):
        confluent_kafka.Consumer(settings)
    with pytest.raises(KafkaException, match=STORE):
        Consumer(settings)


@pytest.mark.parametrize("value", [True, "T", 1, False, "f", 0, "0"], ids=repr)
def test_each_spelling_of_the_setting_for_stored_offsets_is_accepted(team, value):
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
    """confluent-kafka does so, too; earlier, the first poll of a join raised."""
    both = [confluent_kafka.Consumer(settings_of(team)), confluent(team)]
    with closing(both[0]), closing(both[1]):
        for one in both:
            with pytest.raises(TypeError, match=f"{name} expects a callable"):
                one.subscribe([team.topic], **{name: wrong})


def test_members_need_no_kafka_python(team):
    """Members on confluent-kafka work with any installed version of kafka-python."""
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


def test_control_clients_have_the_members_connection_and_nothing_of_its_group():
    """Unknown settings of librdkafka, which may belong to logins, are copied."""
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
def test_a_member_that_is_dropped_without_close_ends_its_control(team):
    """Its threads do not keep it alive, and end with a last report; its clients end, too."""
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
