"""Pauses, memberships and clients survive faults of brokers, connections and clocks."""

import threading
from types import SimpleNamespace

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from safeconsumer import SafeConsumer
from safeconsumer._kafka.network import HAS_BACKENDS
from safeconsumer._kafka.of_group.producers import PatientClient
from safeconsumer.group import clients
from safeconsumer.testing import Clients, PollTimeoutError, poll_until
from tests.sim.playing import simulated
from tests.sim.reading import Reader, stock_fails
from tests.sim.world import World


def two_members(lab, records):
    """Start two members that share six partitions, and let them read all records."""
    lab.topic("t", 6, records=records)
    a, b = (lab.member(SafeConsumer, "t", name=n, fetch_max_wait_ms=5000) for n in "ab")
    a.owns(3)
    b.owns(3)
    lab.until(lambda: read(a, b) == 6 * records)
    return a, b


def read(*members):
    """Return the number of records that these members have received."""
    return sum(len(one.records) for one in members)


def reach(lab, offset, *members):
    """Wait until each partition's owner has reached the given offset."""

    def has_come(number):
        tp = lab.partitions("t")[number]
        owners = [one for one in members if tp in one.consumer.assignment()]
        return any(one.consumer.position(tp) == offset for one in owners)

    lab.until(lambda: all(has_come(number) for number in range(6)))


@pytest.mark.contract("P11")
@stock_fails("it looks up a missing coordinator without a backoff")
@simulated(seeds=1, nightly=2, nodes=3)
def test_missing_coordinator_is_looked_up_at_a_bounded_rate(lab, kind):
    """P11: the member sends at most ten lookups a second until a coordinator exists."""
    lab.topic("t", 3, records=20)
    a = lab.member(kind, "t")
    a.owns(3)
    lab.until(lambda: len(a.records) == 60)
    a.consumer.pause(*a.consumer.assignment())
    lab.sleep(1)
    asked, turns = len(lab.history()), lab.world.turns
    lab.cluster.down(lab.coordinator(), failover=3.0)
    lab.sleep(3)
    rate = lab.kinds(asked).count("FindCoordinator") / 3
    assert rate <= 10, f"FindCoordinator: {rate:.0f} a second"
    assert (lab.world.turns - turns) / 3 < 150
    lab.sleep(60)
    assert lab.members() == 1


@pytest.mark.contract("P6", "P8")
@pytest.mark.parametrize("is_frozen", [True, False], ids=["frozen", "out of reach"])
@simulated(seeds=1, nightly=2, nodes=3)
def test_unresponsive_leader_does_not_end_a_membership(lab, is_frozen):
    """P8: reading continues from the other leaders, and later from all leaders."""
    a, b = two_members(lab, records=5)
    away = next(n for n in (1, 2, 3) if n != lab.coordinator())
    if is_frozen:  # a frozen broker accepts connections and answers nothing
        lab.cluster.freeze(away)
    else:
        lab.network.isolate(a.process, f"broker-{away}")
    generation = lab.generation()
    for tp in lab.partitions("t"):
        lab.append(tp, 5, first=5)
    lab.sleep(60)
    assert lab.generation() == generation
    assert 30 <= read(a, b) < 60
    if is_frozen:
        lab.cluster.unfreeze(away)
    else:
        lab.network.heal(a.process, f"broker-{away}")
    reach(lab, 10, a, b)
    for tp in lab.partitions("t"):
        assert a.values(tp) + b.values(tp) == list(range(10))


@pytest.mark.contract("P6", "P8")
@simulated(seeds=1, nightly=2, nodes=3)
def test_member_cut_off_from_its_coordinator_keeps_its_strict_hold(lab):
    """P6: the member is evicted and joins again."""
    a, b = two_members(lab, records=5)
    a.consumer.pause("t", owner="ops")
    coordinator = f"broker-{lab.coordinator()}"
    lab.network.isolate(a.process, coordinator)
    b.owns(6)
    lab.network.heal(a.process, coordinator)
    a.owns(3)
    b.owns(3)
    before = len(a.records)
    for tp in lab.partitions("t"):
        lab.append(tp, 5, first=5)
    lab.sleep(60)
    assert len(a.records) == before
    a.consumer.resume("t", owner="ops")
    reach(lab, 10, a, b)


@pytest.mark.contract("P6")
def test_step_of_the_wall_clock_does_not_affect_a_membership(lab):
    """P6: sessions and poll intervals follow the monotonic clock."""
    (tp,) = lab.topic("t", 1, records=5)
    a = lab.member(SafeConsumer, "t")
    lab.until(lambda: len(a.records) == 5)
    generation = lab.generation()
    for seconds in (86_400, -2 * 86_400, 86_400):
        lab.step_clock(a.process, seconds)
        lab.sleep(30)
    assert lab.generation() == generation
    lab.append(tp, 1, first=5)
    lab.until(lambda: len(a.records) == 6)


# ------------------------------------------------------------ the only broker

both_clients = pytest.mark.parametrize("kind", [SafeConsumer, KafkaConsumer])


def three_read(lab, kind):
    """Return a reader that has fetched 20 records, and read and committed three."""
    lab.topic("t", 1, records=20)
    reader = Reader(lab, kind, "t")
    reader.take(3)
    reader.consumer.commit()
    return reader


@pytest.mark.contract("P8", "P10")
@both_clients
def test_member_without_a_coordinator_delivers_nothing_and_loses_nothing(lab, kind):
    """The member may have lost its partitions; kafka-python does the same."""
    reader = three_read(lab, kind)
    (tp,) = lab.partitions("t")
    reader.consumer.pause(tp)
    lab.cluster.down(1, failover=None)
    reader.is_silent(seconds=4)  # a heartbeat finds no coordinator
    reader.consumer.resume(tp)
    reader.is_silent(seconds=5)
    assert reader.consumer.position(tp) == 3
    lab.cluster.up(1)
    reader.reads(tp, range(3, 20))


@pytest.mark.contract("P8")
@pytest.mark.parametrize("is_killed", [False, True])
def test_commit_in_flight_counts_if_it_is_acknowledged(lab, *, is_killed):
    reader = three_read(lab, SafeConsumer)
    (tp,) = lab.partitions("t")
    reader.take(7)
    lab.cluster.freeze(1)
    reader.consumer.pause(tp)
    answers = []
    reader.consumer.commit_async(callback=lambda _, answer: answers.append(answer))
    with pytest.raises(KafkaTimeoutError):
        reader.consumer.commit(timeout_ms=500)
    reader.is_silent(seconds=2)
    assert answers == []
    if is_killed:
        lab.cluster.down(1, failover=None)
    lab.cluster.unfreeze(1)
    lab.cluster.up(1)
    reader.until(lambda: answers)
    if isinstance(answers[0], Exception):
        reader.consumer.commit()
    assert reader.consumer.position(tp) == 10
    reader.consumer.close(autocommit=False)
    Reader(lab, SafeConsumer, "t").reads(tp, range(10, 20))


# ------------------------------------------------------------ a silent broker and producers

SECONDS = 3.0


def for_control(lab):
    """Create the producer that writes holds and reports."""
    return clients.producer(lab.settings(), 10.0)


def for_letters(lab):
    """Create the producer that resends dead letters, without transactions or idempotence."""
    options = {"acks": "all", "kafka_client": PatientClient}
    return KafkaProducer(**lab.connection, **options)


def stock(lab):
    return KafkaProducer(**lab.connection, max_in_flight_requests_per_connection=1)


of_the_client = pytest.mark.xfail(
    HAS_BACKENDS,
    strict=True,
    reason="kafka-python 3.1 passes its manager ms in one place, seconds in another",
)


@pytest.mark.parametrize(
    ("make", "is_patient"),
    [
        pytest.param(for_control, True, marks=of_the_client),
        pytest.param(for_letters, True, marks=of_the_client),
        (stock, False),
    ],
)
def test_producer_does_not_spin_while_its_broker_is_silent(lab, make, *, is_patient):
    """kafka-python's producer uses a fifth of a core or more."""
    lab.topic("t")
    producer = make(lab)
    producer.send("t", value=b"0", partition=0).get(10)
    lab.cluster.fail("Produce", is_cut=True, count=1)
    silent = lab.cluster.fail("ApiVersions", is_held=True)
    second = producer.send("t", value=b"1", partition=0)
    lab.until(lambda: silent.kept, what="it has a connection again, and no answer")
    if second.is_done:  # the producer sends each record once
        with pytest.raises(KafkaError):
            second.get(1)
        second = producer.send("t", value=b"2", partition=0)
    began = lab.world.turns
    lab.sleep(SECONDS)
    turns = lab.world.turns - began
    assert not second.is_done
    silent.end()
    second.get(10)
    producer.close()
    # Our producer checks its broker twenty times a second; kafka-python's, 800 times.
    assert (turns <= 40 * SECONDS) == is_patient, turns


# ------------------------------------------------------------ the test kit's clients


def test_client_that_finds_no_broker_leaves_no_thread(lab):
    """Each failed test used to leave a thread for the rest of the session."""
    nowhere = {**lab.connection, "bootstrap_servers": "nowhere:9092"}
    clients = Clients(SimpleNamespace(client_config=nowhere, group_config={}))
    with pytest.raises(KafkaTimeoutError):
        clients.consumer(KafkaConsumer, "orders")
    assert lab.running() == []


def test_poll_until_raises_if_a_poll_hangs():
    """A listener that never returned used to block the test until pytest was killed."""
    begun = []

    def poll(_):
        begun.append(True)
        threading.Event().wait()

    with pytest.raises(
        PollTimeoutError, match="of 1 of the consumers has not returned"
    ):
        World().run(lambda: poll_until(SimpleNamespace(poll=poll), lambda: begun))
