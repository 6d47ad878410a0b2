"""Tests the embedded broker's commands and faults, and clients under faults."""

import struct
from contextlib import closing
from socket import create_connection
from types import SimpleNamespace

import pytest
from kafka import KafkaConsumer, TopicPartition

from safeconsumer.testing import BrokerCommandError, Clients, EmbeddedBroker, fixtures
from tests.harness.polling import read
from tests.harness.producing import produce


@pytest.fixture
def broker():
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def clients(broker):
    with closing(Clients(broker)) as made:
        yield made


def address(broker):
    host, port = broker.bootstrap.split(",")[0].split(":")
    return host, int(port)


def test_several_brokers_share_the_partitions():
    with EmbeddedBroker(brokers=3) as broker, closing(Clients(broker)) as clients:
        topic = clients.topic(partitions=3)
        produce(clients.producer(), topic, 1, 1, 1)
        read(clients.consumer(KafkaConsumer, topic), 3)
        assert {r.broker_id for r in broker.requests("Fetch")} == {1, 2, 3}


def test_stopped_broker_refuses_connections():
    broker = EmbeddedBroker().start()
    where = address(broker)
    create_connection(where).close()
    broker.stop()
    broker.stop()
    with pytest.raises(ConnectionRefusedError):
        create_connection(where)


def test_restarted_broker_is_empty():
    broker = EmbeddedBroker()
    for _ in range(2):
        with broker, closing(Clients(broker)):
            # The call would raise an error if the topic still existed.
            broker.create_topic("again", partitions=2)


def test_command_to_a_stopped_broker_is_refused():
    with pytest.raises(BrokerCommandError, match=r"start\(\) it first"):
        EmbeddedBroker().create_topic("orders")


def test_existing_topic_is_not_recreated(broker):
    broker.create_topic("orders")
    with pytest.raises(BrokerCommandError, match="already exists"):
        broker.create_topic("orders")


@pytest.mark.parametrize(
    ("name", "partitions"),
    [("a b", 1), ("", 1), (5, 1), ("t", 0), ("t", -1), ("t", "2"), ("t", None)],
)
def test_topic_that_kafka_would_refuse_is_refused(broker, name, partitions):
    with pytest.raises(BrokerCommandError, match=r"topic name|1 or more"):
        broker.create_topic(name, partitions)


def test_topics_can_get_more_partitions_and_be_deleted(broker, clients):
    broker.create_topic("orders", 1)
    broker.add_partitions("orders", 3)
    consumer = clients.consumer(KafkaConsumer)
    assert consumer.partitions_for_topic("orders") == {0, 1, 2}
    with pytest.raises(BrokerCommandError, match="currently has 3"):
        broker.add_partitions("orders", 3)
    broker.delete_topic("orders")
    with pytest.raises(BrokerCommandError, match="no topic orders"):
        broker.delete_topic("orders")
    broker.create_topic("orders", 1)


def test_request_log_has_the_client_and_the_partitions_of_a_fetch(broker, clients):
    """The logged partitions do not include a paused partition."""
    topic = clients.topic(partitions=2)
    produce(clients.producer(), topic, 1, 1)
    consumer = clients.consumer(KafkaConsumer, client_id="one")
    paused, running = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.assign([paused, running])
    consumer.pause(paused)
    read(consumer, 1)
    fetches = broker.requests("Fetch")
    assert {fetch.client_id for fetch in fetches} == {"one"}
    assert {fetch.partitions for fetch in fetches} == {(running,)}
    broker.clear_requests()
    assert broker.requests("Produce") == ()


@pytest.mark.parametrize(
    ("api", "error", "named"),
    [("Fecth", "NOT_COORDINATOR", "Fecth"), ("Fetch", "NO_SUCH", "NO_SUCH")],
)
def test_misspelt_fault_is_refused(broker, api, error, named):
    with pytest.raises(ValueError, match=named):
        broker.fail(api, error)


def test_held_response_can_be_released_after_a_restart():
    """The connection of the response is closed by then."""
    ask = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # ApiVersions
    with EmbeddedBroker() as broker:
        hold = broker.hold("ApiVersions")
        host, port = broker.bootstrap.split(":")
        with create_connection((host, int(port))) as client:
            client.sendall(ask + ask)
            hold.wait()
            broker.stop()
        broker.start()
        hold.release()
        assert broker.requests() == ()


@pytest.mark.parametrize("fault", ["down", "freeze", "hold", "fail", "both"])
def test_heal_ends_every_fault(broker, clients, fault):
    topic = clients.topic(partitions=1)
    produce(clients.producer(), topic, 1)
    broken(broker, fault)
    broker.heal()
    read(clients.consumer(KafkaConsumer, topic, group="g"), 1)


def broken(broker, fault):
    if fault in {"down", "both"}:
        broker.down()
    if fault in {"freeze", "both"}:
        broker.freeze()
    if fault == "hold":
        broker.hold("JoinGroup")
    if fault == "fail":
        broker.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=1_000_000)


def end_test(broker, failure):
    """Call the plugin's hook as pytest does after a test, and return the report."""
    item = SimpleNamespace(funcargs={"kafka_broker": broker})
    hook = fixtures.pytest_runtest_makereport(item, SimpleNamespace(excinfo=failure))
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(SimpleNamespace(skipped=False))
    return ended.value.value


@pytest.mark.parametrize("failure", [None, AssertionError()], ids=["passed", "failed"])
def test_broker_is_healed_only_after_a_failed_test(monkeypatch, failure):
    broker, healed = EmbeddedBroker(), []
    monkeypatch.setattr(broker, "heal", lambda: healed.append(broker))
    end_test(broker, failure)
    assert healed == ([] if failure is None else [broker])


def test_report_of_a_failed_test_is_returned_even_if_the_test_stopped_the_broker():
    """An error in the plugin's hook would hide the test's failure behind an INTERNALERROR."""
    with EmbeddedBroker() as broker:
        pass
    assert end_test(broker, AssertionError()) == SimpleNamespace(skipped=False)
