"""Only this consumer receives so."""

from kafka import KafkaConsumer
from kafka.net import manager
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol import parser

from safeconsumer import SafeConsumer
from safeconsumer._kafka.decoding import receiving
from safeconsumer.testing import EmbeddedBroker
from tests.harness.kafka.offline import offline


def test_only_our_consumers():
    """A stock one beside it keeps upstream's classes, and the modules do."""
    names = (manager.KafkaTCPTransport, manager.KafkaSSLTransport, parser.KafkaProtocol)
    with offline(SafeConsumer) as ours, offline(KafkaConsumer) as stock:
        assert type(ours._manager) is receiving.ReceivingManager
        assert type(stock._manager) is KafkaConnectionManager
    assert [kind.__module__ for kind in names] == [
        "kafka.net.transport",
        "kafka.net.transport",
        "kafka.protocol.parser",
    ]


def test_every_connection_of_a_live_consumer():
    """Those that records, metadata and the group's coordinator come by."""
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 2)
        consumer = SafeConsumer("t", group_id="g", **broker.client_config)
        try:
            while not consumer.assignment():
                consumer.poll(100)
            kinds = {
                type(connection.transport)
                for connection in consumer._manager._conns.values()
            }
        finally:
            consumer.close()
    assert kinds == {receiving.ReceivingTransport}


def test_a_client_of_the_users_own_is_left_alone():
    """What it does on a connection is its own matter."""

    class Theirs(KafkaConnectionManager):
        pass

    with offline(KafkaConsumer) as stock:
        stock._manager.__class__ = Theirs
        receiving.adopt_manager(stock._manager)
        assert type(stock._manager) is Theirs
