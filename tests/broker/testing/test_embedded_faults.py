import threading
from contextlib import closing, suppress
from socket import create_connection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError, NotLeaderForPartitionError

from safeconsumer.testing import Clients, EmbeddedBroker, poll_until
from tests import conftest
from tests.harness.polling import read
from tests.harness.producing import produce
from tests.harness.waiting import wait_for

TIMEOUT = 20.0


@pytest.mark.parametrize(
    "error", ["NOT_LEADER_FOR_PARTITION", 6, NotLeaderForPartitionError]
)
def test_an_injected_error_is_met_and_survived(
    broker: EmbeddedBroker, clients: Clients, error: object
) -> None:
    """Two Fetches fail, so at least three are sent until the records come."""
    topic = clients.topic(partitions=1)
    produce(clients.producer(), topic, 3)
    broker.fail("Fetch", error, times=2)
    assert len(read(clients.consumer(KafkaConsumer, topic), 3)) == 3
    assert len(broker.requests("Fetch")) >= 3


def test_an_error_of_the_group_is_met_and_survived(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """Requests which the kit answers itself fail as well: here three joins more."""
    topic = clients.topic(partitions=1)
    broker.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=3)
    consumer = clients.consumer(KafkaConsumer, topic, group="g")
    poll_until([consumer], consumer.assignment)
    assert len(broker.requests("JoinGroup")) >= 5


def test_a_commit_is_refused_once(broker: EmbeddedBroker, clients: Clients) -> None:
    """A commit that fails retriably is sent again and then stored."""
    topic = clients.topic(partitions=1)
    produce(clients.producer(), topic, 1)
    consumer = clients.consumer(KafkaConsumer, topic, group="g")
    read(consumer, 1)
    broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS")
    consumer.commit()
    assert consumer.committed(TopicPartition(topic, 0)) == 1
    assert len(broker.requests("OffsetCommit")) == 2


def test_a_connection_is_cut_instead_of_an_answer(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """DISCONNECT closes the connection; the client comes back and reads on."""
    topic = clients.topic(partitions=1)
    produce(clients.producer(), topic, 1)
    broker.fail("Fetch", "DISCONNECT", times=2)
    assert len(read(clients.consumer(KafkaConsumer, topic), 1)) == 1
    assert len(broker.requests("Fetch")) >= 3


@pytest.mark.parametrize(
    ("api", "error", "named"),
    [("Fecth", "NOT_COORDINATOR", "Fecth"), ("Fetch", "NO_SUCH", "NO_SUCH")],
)
def test_a_misspelt_fault_is_refused(
    broker: EmbeddedBroker, api: str, error: str, named: str
) -> None:
    """Nothing is injected silently into nowhere."""
    with pytest.raises(ValueError, match=named):
        broker.fail(api, error)


def test_a_broker_goes_down_and_comes_up(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """Down, it refuses connections; up, the same clients read what it still has."""
    topic = clients.topic(partitions=1)
    producer = clients.producer(enable_idempotence=False)
    produce(producer, topic, 1)
    consumer = clients.consumer(KafkaConsumer, topic)
    read(consumer, 1)
    host, port = broker.bootstrap.split(":")
    broker.down()
    with pytest.raises(ConnectionRefusedError):
        create_connection((host, int(port)), timeout=5)
    broker.up()
    produce(producer, topic, 1)
    assert [record.offset for record in read(consumer, 1)] == [1]


def test_one_broker_of_three_goes_down() -> None:
    """Only the broker that was named is out of reach."""
    with EmbeddedBroker(brokers=3) as broker:
        addresses = [a.split(":") for a in broker.bootstrap.split(",")]
        broker.down(2)
        for number, (host, port) in enumerate(addresses, start=1):
            if number == 2:
                with pytest.raises(ConnectionRefusedError):
                    create_connection((host, int(port)), timeout=5)
            else:
                create_connection((host, int(port)), timeout=5).close()
        with pytest.raises(ValueError, match="no broker 4"):
            broker.down(4)


def test_a_frozen_broker_is_silent_and_then_goes_on(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """Frozen, it acknowledges nothing; what was sent meanwhile is taken up afterwards."""
    topic = clients.topic(partitions=1)
    producer = clients.producer(enable_idempotence=False)
    produce(producer, topic, 1)
    before = len(broker.requests("Produce"))
    broker.freeze()
    waiting = producer.send(topic, b"during", partition=0)
    with pytest.raises(KafkaTimeoutError):
        waiting.get(0.5)
    assert len(broker.requests("Produce")) == before
    broker.unfreeze()
    assert waiting.get(TIMEOUT).offset == 1


def test_an_answer_is_held_back_until_released(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """While the answer is kept nothing is delivered; after the release it is."""
    topic = clients.topic(partitions=1)
    consumer = clients.consumer(KafkaConsumer, topic, client_id="held")
    with broker.hold("Fetch", client_id="held") as hold:
        produce(clients.producer(), topic, 1)
        waiter = threading.Thread(target=hold.wait)
        waiter.start()
        records = poll_until([consumer], lambda: hold.count)
        waiter.join(TIMEOUT)
        assert not waiter.is_alive()
        assert records == []
    assert len(read(consumer, 1)) == 1


def test_a_hold_is_for_one_client_only(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """Others get their answers, and waiting for what does not come ends in an error."""
    topic = clients.topic(partitions=1)
    produce(clients.producer(), topic, 1)
    with broker.hold("Fetch", client_id="somebody else") as hold:
        assert len(read(clients.consumer(KafkaConsumer, topic), 1)) == 1
        with pytest.raises(TimeoutError, match="0 of 1 answers to Fetch"):
            hold.wait(1, timeout=0.01)


def test_faults_can_be_cleared(broker: EmbeddedBroker, clients: Clients) -> None:
    """After clear_faults() no error that was left over is met."""
    topic = clients.topic(partitions=1)
    broker.fail("Fetch", "DISCONNECT", times=1000)
    broker.fail("Fetch", "NOT_LEADER_FOR_PARTITION", times=1000)
    broker.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=1000)
    broker.clear_faults()
    produce(clients.producer(), topic, 1)
    read(clients.consumer(KafkaConsumer, topic, group="g"), 1)
    # An id, a join, and perhaps another when the topic's metadata has come.
    assert len(broker.requests("JoinGroup")) < 10


@pytest.mark.parametrize("fault", ["down", "freeze", "hold", "fail", "both"])
def test_every_fault_can_be_ended_at_once(
    broker: EmbeddedBroker, clients: Clients, fault: str
) -> None:
    """After heal() a consumer joins and reads as if nothing had been the matter."""
    topic = clients.topic(partitions=1)
    produce(clients.producer(), topic, 1)
    broken(broker, fault)
    broker.heal()
    read(clients.consumer(KafkaConsumer, topic, group="g"), 1)


def broken(broker: EmbeddedBroker, fault: str) -> None:
    if fault in {"down", "both"}:
        broker.down()
    if fault in {"freeze", "both"}:
        broker.freeze()
    if fault == "hold":
        broker.hold("JoinGroup")
    if fault == "fail":
        broker.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=1_000_000)


@pytest.mark.parametrize("has_failed", [True, False])
def test_a_test_that_fails_leaves_no_fault_to_the_next(
    broker: EmbeddedBroker, *, has_failed: bool
) -> None:
    """One that failed between down() and up() let 24 others fail behind it."""
    broker.down()
    reported(broker, has_failed=has_failed)
    assert is_up(broker) == has_failed
    broker.heal()


def test_a_test_that_fails_may_have_stopped_the_broker() -> None:
    """Healing it raised, and pytest ended with an INTERNALERROR instead of the failure."""
    with EmbeddedBroker() as broker:
        pass
    reported(broker, has_failed=True)


def reported(broker: EmbeddedBroker, *, has_failed: bool) -> None:
    """Do what is done when a test has ended that used a broker."""
    item = SimpleNamespace(funcargs={"kafka_broker": broker})
    call = SimpleNamespace(excinfo=AssertionError() if has_failed else None)
    report: Any = SimpleNamespace(skipped=False)
    hook = conftest.pytest_runtest_makereport(cast("Any", item), cast("Any", call))
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(report)
    assert ended.value.value is report


def is_up(broker: EmbeddedBroker) -> bool:
    host, port = broker.bootstrap.split(":")
    with suppress(ConnectionRefusedError):
        create_connection((host, int(port)), timeout=5).close()
        return True
    return False


def test_a_partition_moves_to_another_leader() -> None:
    """After move_leader the same consumer fetches from the other broker."""
    with EmbeddedBroker(brokers=2) as broker, closing(Clients(broker)) as clients:
        topic = clients.topic(partitions=1)
        broker.move_leader(topic, 0, 1)
        producer = clients.producer(enable_idempotence=False)
        produce(producer, topic, 1)
        consumer = clients.consumer(KafkaConsumer, topic)
        read(consumer, 1)
        broker.move_leader(topic, 0, 2)
        broker.clear_requests()
        produce(producer, topic, 1)
        read(consumer, 1)
        assert 2 in {fetch.broker_id for fetch in broker.requests("Fetch")}


def test_answers_take_the_time_that_was_set(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """With a round trip of an hour an acknowledgement does not come before a later one's."""
    topic = clients.topic(partitions=1)
    slow, quick = clients.producer(), clients.producer()
    for one in (slow, quick):
        produce(one, topic, 1)
    broker.set_rtt(3600.0)
    broker.clear_requests()
    waiting = slow.send(topic, b"slow", partition=0)
    wait_for(lambda: broker.requests("Produce"), "the request")
    broker.set_rtt(0.0)
    quick.send(topic, b"quick", partition=0).get(TIMEOUT)
    assert not waiting.is_done


def test_a_producer_that_has_no_answer_ends_with_the_test(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """Its thread went on and took a third of a core, and the end of the test failed."""
    topic, before = clients.topic(partitions=1), set(threading.enumerate())
    producer = clients.producer()
    produce(producer, topic, 1)
    broker.freeze()
    producer.send(topic, b"no answer")
    clients.close()
    assert set(threading.enumerate()) <= before
