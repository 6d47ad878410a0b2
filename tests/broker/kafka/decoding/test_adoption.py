"""Only this consumer receives so; and only where upstream is as we know it."""

import logging
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer
from kafka.net import manager, transport
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol import parser

from safeconsumer import SafeConsumer
from safeconsumer._kafka import compat
from safeconsumer._kafka.decoding import receiving
from safeconsumer.testing import EmbeddedBroker
from tests.harness.kafka.offline import offline


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    receiving._problems.cache_clear()
    yield
    receiving._problems.cache_clear()


def test_the_installed_kafka_python_is_known() -> None:
    """Else all of this is switched off and nobody sees it."""
    assert list(compat.receiving_problems()) == []


def test_only_our_consumers() -> None:
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


def test_every_connection_of_a_live_consumer() -> None:
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


def test_a_client_of_the_users_own_is_left_alone() -> None:
    """What it does on a connection is its own matter."""

    class Theirs(KafkaConnectionManager):
        pass

    with offline(KafkaConsumer) as stock:
        stock._manager.__class__ = Theirs
        receiving.adopt_manager(stock._manager)
        assert type(stock._manager) is Theirs
        own = type("Own", (transport.KafkaTCPTransport,), {})(None, None)
        receiving.adopt_transport(own)
        assert type(own).__name__ == "Own"


def test_an_unknown_upstream_receives_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once; the consumer works."""
    caplog.set_level(logging.INFO, logger="safeconsumer")
    monkeypatch.delattr(parser.KafkaProtocol, "_process_response")
    for _ in range(2):
        with offline(SafeConsumer) as consumer:
            assert type(consumer._manager) is KafkaConnectionManager
    lines = [line for line in caplog.messages if "receiving" in line]
    assert lines == [
        "receiving as kafka-python does: KafkaProtocol._process_response is gone"
    ]


def test_a_missing_attribute_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods alone do not tell."""

    class Other:
        def __init__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(transport.KafkaTCPTransport, "__init__", Other.__init__)
    assert "KafkaTCPTransport has no _sock" in list(compat.receiving_problems())


def test_another_constructor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be looked at is not known."""

    def other(self: object, *, net: object) -> None: ...

    monkeypatch.setattr(transport.KafkaTCPTransport, "__init__", other)
    assert "positional" in " ".join(compat.receiving_problems())
