"""Tests the embedded broker with waiting clients, injected errors and many partitions."""

import threading

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaTimeoutError, NotLeaderForPartitionError

from safeconsumer import SafeConsumer
from safeconsumer.testing import Ghost, PollTimeoutError
from safeconsumer.testing.existing import ExistingCluster
from tests.harness.polling import poll_all_until, read
from tests.harness.processes import ran_python
from tests.harness.producing import produce


def test_clients_of_the_test_kit_do_not_create_topics(broker, clients):
    """A late metadata request must not create a deleted topic again."""
    consumer = clients.consumer(KafkaConsumer, "deleted")
    consumer.poll(200)
    producer = clients.producer(max_block_ms=500)
    with pytest.raises(KafkaTimeoutError):
        producer.send("deleted-too", b"x")

    with ExistingCluster(broker.bootstrap).admin() as admin:
        assert admin.list_topics() == []


def test_stopped_broker_leaves_no_socket_open():
    """Resource warnings are errors in the process, and the process prints nothing."""
    program = (
        "import gc\n"
        "from safeconsumer.testing import EmbeddedBroker\n"
        "from socket import create_connection\n"
        "with EmbeddedBroker(brokers=2) as broker:\n"
        "    host, port = broker.bootstrap.split(',')[0].split(':')\n"
        "    client = create_connection((host, int(port)), timeout=5)\n"
        # This ApiVersions request, version 0, opens connections on both sides of the
        # broker's front end.
        "    client.sendall(bytes.fromhex('0000000b001200000000000100 0161'))\n"
        "    assert client.recv(100)\n"
        "client.close()\n"
        "gc.collect()\n"
    )
    done = ran_python("-W", "error::ResourceWarning", "-c", program)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "error", ["NOT_LEADER_FOR_PARTITION", 6, NotLeaderForPartitionError, "DISCONNECT"]
)
def test_client_survives_injected_errors(broker, clients, error):
    """Two Fetch requests fail, so the client must send at least three to get the records."""
    topic = clients.topic(partitions=1)
    produce(clients.producer(), topic, 3)
    broker.fail("Fetch", error, times=2)
    assert len(read(clients.consumer(KafkaConsumer, topic), 3)) == 3
    assert len(broker.requests("Fetch")) >= 3


def test_producer_without_a_response_is_closed_at_the_end_of_the_test(broker, clients):
    """The producer's thread used to keep running and take a third of a core."""
    topic, before = clients.topic(partitions=1), set(threading.enumerate())
    producer = clients.producer()
    produce(producer, topic, 1)
    broker.freeze()
    producer.send(topic, b"no answer")
    clients.close()
    assert set(threading.enumerate()) <= before


def test_ghost_member_without_a_partition_raises(broker, clients):
    """With more members than partitions, the ghost gets no partition; the error says so."""
    name = clients.topic(partitions=1)
    # The assignor gives the only partition to the member whose name comes first.
    member = clients.consumer(KafkaConsumer, name, group="g", client_id="a")
    poll_all_until(member, member.assignment)
    stranger = clients.consumer(KafkaConsumer, group="g", client_id="b")
    ghost = Ghost(stranger, [name], [member], 8.0)
    with pytest.raises(PollTimeoutError, match="the ghost member to get a partition"):
        ghost.join()
    assert len(broker.members("g")) == 2  # the ghost has joined, but has no partition


def test_member_can_pause_ten_thousand_partitions(broker, clients):
    """The consumer does not fetch the paused topic; after the resume it gets every record."""
    count, some = 10_000, range(0, 10_000, 500)
    broker.create_topic("t", count)
    consumer = clients.consumer(SafeConsumer, "t", group="g", session_timeout_ms=60_000)
    poll_all_until(consumer, lambda: len(consumer.assignment()) == count)
    consumer.pause("t")
    consumer.poll(1000)  # waits for responses to earlier Fetch requests
    broker.clear_requests()
    for partition in some:
        broker.command(lambda cluster, number=partition: cluster.append("t", number, 2))
    assert consumer.poll(1000) == {}
    assert broker.requests("Fetch") == ()
    assert len(consumer.paused()) == count
    consumer.resume("t")
    came = sorted((one.partition, one.offset) for one in read(consumer, 2 * len(some)))
    assert came == [(partition, offset) for partition in some for offset in (0, 1)]
