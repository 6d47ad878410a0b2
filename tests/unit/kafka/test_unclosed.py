"""A client leaves no socket open, and no thread if its constructor raises."""

import gc
import select
import socket
import ssl
import threading
import time
import warnings
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.net.compat import KafkaNetClient

from safeconsumer import SafeConsumer
from safeconsumer._kafka.decoding.receiving import adopt_manager
from safeconsumer._kafka.fixes.unclosed import ClosingClient, ClosingManager
from safeconsumer._kafka.network import HAS_BACKENDS
from safeconsumer.group import clients

_BOUND = 10_000.0
# The default context would read the machine's certificates each time.
_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


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


def made(kind, server, protocol):
    return kind(
        bootstrap_servers=[f"127.0.0.1:{server.getsockname()[1]}"],
        security_protocol=protocol,
        ssl_context=_CONTEXT,
    )


def connecting(client):
    """Return the future of a transport to the client's broker."""
    (broker,) = client.cluster.bootstrap_brokers()
    until = time.monotonic() + _BOUND
    build = client._manager._build_transport
    return client._net.call_soon_with_future(build, broker, until)


@contextmanager
def resource_warnings():
    """Collect warnings about sockets that were not closed; the collector does not run."""
    gc.collect()
    gc.disable()
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", ResourceWarning)
            yield found
    finally:
        gc.enable()


def fail_in_the_handshake(kind, server):
    client = made(kind, server, "SSL")
    transport = connecting(client)
    client._net.poll(0)
    far, _ = server.accept()
    with far:
        far.sendall(b"this is no handshake")
        client._net.poll(future=transport)
        client.close()
    assert isinstance(transport.exception, KafkaConnectionError)


def close_while_it_connects(kind, server):
    """Take no more connections, and close the client."""
    server.listen(0)
    with socket.create_connection(server.getsockname()):  # all that it holds
        client = made(kind, server, "PLAINTEXT")
        transport = connecting(client)
        client._net.poll(0)
        client._net.poll(0)
        client.close()
    assert not transport.succeeded()


def close_in_the_handshake(kind, server):
    """Send no answer, and close the client."""
    client = made(kind, server, "SSL")
    transport = connecting(client)
    client._net.poll(0)
    far, _ = server.accept()
    with far:
        while not select.select([far], [], [], 0)[0]:
            client._net.poll(0)
        client.close()
    assert not transport.succeeded()


def close_unsent(kind, server):
    """Close a connection right after a request, and its client at once."""
    client = made(kind, server, "PLAINTEXT")
    transport = connecting(client)
    client._net.poll(future=transport)
    transport.value.write(b"unsent")
    transport.value.close()
    client.close()


of_our_connections = pytest.mark.skipif(
    HAS_BACKENDS, reason="kafka-python 3.1 makes its connections by itself"
)

WAYS = [
    close_while_it_connects,
    fail_in_the_handshake,
    close_in_the_handshake,
    close_unsent,
]


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
def test_the_socket_of_a_refused_connection_is_closed_at_once(
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
    """The first choice and an untried broker may both be away."""
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
def test_a_client_whose_constructor_raises_leaves_no_thread(refusing, make):
    before = set(threading.enumerate())
    with pytest.raises(KafkaError):
        make({"bootstrap_servers": refusing, "bootstrap_timeout_ms": 100})
    assert set(threading.enumerate()) <= before
