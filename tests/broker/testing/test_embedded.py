import subprocess
import sys
from contextlib import closing
from socket import create_connection
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

from safeconsumer.testing import (
    BrokerCommandError,
    Clients,
    EmbeddedBroker,
)
from safeconsumer.testing.existing import ExistingCluster
from tests.harness.polling import read
from tests.harness.producing import produce


def address(broker: EmbeddedBroker) -> tuple[str, int]:
    host, port = broker.bootstrap.split(",")[0].split(":")
    return host, int(port)


def test_the_clients_create_no_topics(broker: EmbeddedBroker, clients: Clients) -> None:
    """A request for metadata that comes late must not bring a deleted topic back."""
    consumer = clients.consumer(KafkaConsumer, "deleted")
    consumer.poll(200)
    producer = clients.producer(max_block_ms=500)
    with pytest.raises(KafkaTimeoutError):
        producer.send("deleted-too", b"x")

    with ExistingCluster(broker.bootstrap).admin() as admin:
        assert admin.list_topics() == []


def test_several_brokers_share_the_partitions() -> None:
    """Each broker of a cluster leads partitions and is talked to."""
    with EmbeddedBroker(brokers=3) as broker, closing(Clients(broker)) as clients:
        topic = clients.topic(partitions=3)
        produce(clients.producer(), topic, 1, 1, 1)
        read(clients.consumer(KafkaConsumer, topic), 3)
        assert {r.broker_id for r in broker.requests("Fetch")} == {1, 2, 3}


def test_a_stopped_broker_refuses_connections() -> None:
    """After stop() nobody listens any more, and a second stop() does nothing."""
    broker = EmbeddedBroker().start()
    where = address(broker)
    create_connection(where, timeout=5).close()
    broker.stop()
    broker.stop()
    with pytest.raises(ConnectionRefusedError):
        create_connection(where, timeout=5)


def test_a_broker_starts_again_empty() -> None:
    """start() after stop() is a new cluster without the old topics."""
    broker = EmbeddedBroker()
    for _ in range(2):
        with broker, closing(Clients(broker)):
            broker.create_topic("again", partitions=2)  # refused if it were there


def test_nothing_is_left_open() -> None:
    """A process in which resource warnings are errors ends in silence."""
    program = (
        "import gc\n"
        "from safeconsumer.testing import EmbeddedBroker\n"
        "from socket import create_connection\n"
        "with EmbeddedBroker(brokers=2) as broker:\n"
        "    host, port = broker.bootstrap.split(',')[0].split(':')\n"
        "    client = create_connection((host, int(port)), timeout=5)\n"
        # An ApiVersions, version 0, so that both sides of the front are open.
        "    client.sendall(bytes.fromhex('0000000b001200000000000100 0161'))\n"
        "    assert client.recv(100)\n"
        "client.close()\n"
        "gc.collect()\n"
    )
    options = ("-W", "error::ResourceWarning", "-c", program)
    done = subprocess.run(  # noqa: S603  our own command line
        [sys.executable, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_broker_that_does_not_run_says_so() -> None:
    """Every command of a stopped broker is an error that names the cure."""
    with pytest.raises(BrokerCommandError, match=r"start\(\) it first"):
        EmbeddedBroker().create_topic("orders")


def test_a_topic_that_exists_is_not_created_again(broker: EmbeddedBroker) -> None:
    """The cluster's refusal is passed on with the command."""
    broker.create_topic("orders")
    with pytest.raises(BrokerCommandError, match="already exists"):
        broker.create_topic("orders")


@pytest.mark.parametrize(
    ("name", "partitions"),
    [("a b", 1), ("", 1), (5, 1), ("t", 0), ("t", -1), ("t", "2"), ("t", None)],
)
def test_a_topic_that_kafka_would_refuse(
    broker: EmbeddedBroker,
    name: Any,  # noqa: ANN401 - mistakes
    partitions: Any,  # noqa: ANN401 - mistakes
) -> None:
    """Nothing is made of it, and the error says what a topic must be."""
    with pytest.raises(BrokerCommandError, match=r"topic name|1 or more"):
        broker.create_topic(name, partitions)


def test_topics_grow_and_go(broker: EmbeddedBroker, clients: Clients) -> None:
    """A topic gets partitions and loses everything; what cannot be is an error."""
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


def test_the_log_names_what_a_fetch_asked_for(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """A Fetch is logged with client and partitions: a paused one is not asked for."""
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
