"""A client closes its sockets, and stops its thread even if its constructor raises."""

import gc
import socket
import threading
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.net.compat import KafkaNetClient

from safeconsumer import SafeConsumer
from safeconsumer._kafka.decoding.receiving import adopt_manager
from safeconsumer._kafka.fixes.unclosed import ClosingClient, ClosingManager
from safeconsumer.group import clients
from tests.harness.kafka.unclosed import (
    WAYS,
    connecting,
    of_our_connections,
    resource_warnings,
)


def receiving(**configs):
    client = KafkaNetClient(**configs)
    adopt_manager(client._manager)
    return client


KINDS = {"ours": receiving, "control": ClosingClient}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@of_our_connections
@pytest.mark.parametrize("way", WAYS)
def test_every_socket_is_closed(kind, server, way):
    with resource_warnings() as found:
        way(kind, server)
        gc.collect()
    assert found == []


@pytest.fixture
def refusing():
    """Return the address of a port without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@of_our_connections
def test_socket_of_a_refused_connection_is_closed_immediately(
    kind, refusing, monkeypatch
):
    sockets = []

    class Noted(socket.socket):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            sockets.append(self)

    client = kind(bootstrap_servers=[refusing])
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Noted)
        futures = [connecting(client) for _ in range(3)]
        for one in futures:
            client._net.poll(future=one)
    numbers = [one.fileno() for one in sockets]
    client.close()
    assert all(isinstance(one.exception, KafkaConnectionError) for one in futures)
    assert numbers == [-1, -1, -1]


def test_second_choice_prefers_a_connected_broker():
    """An untried broker may be unavailable, just like the first choice."""
    manager = ClosingManager.__new__(ClosingManager)
    brokers = [SimpleNamespace(node_id=number) for number in (1, 2, 3)]
    manager.cluster = SimpleNamespace(brokers=lambda: brokers)
    manager._conns = {3: object()}
    assert [manager._another_node(one) for one in (1, 3)] == [3, 1]
    manager._conns = {}
    assert manager._another_node(1) == 2


MADE = {
    "SafeConsumer": lambda base: SafeConsumer("orders", group_id="g", **base),
    "reader": clients.reader,
    "producer": lambda base: clients.producer(base, 1.0),
    "admin": clients.admin,
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_client_whose_constructor_fails_does_not_leave_a_thread_running(refusing, make):
    before = set(threading.enumerate())
    with pytest.raises(KafkaError):
        make({"bootstrap_servers": refusing, "bootstrap_timeout_ms": 100})
    assert set(threading.enumerate()) <= before
