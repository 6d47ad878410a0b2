"""Closes clients while they connect, and collects the warnings about unclosed sockets."""

import gc
import select
import socket
import ssl
import time
import warnings
from contextlib import contextmanager

import pytest
from kafka.errors import KafkaConnectionError

from safeconsumer._kafka.network import HAS_BACKENDS

_BOUND = 10_000.0
# The clients share this context, because the default context would load the machine's
# certificates for each client.
_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def made(kind, server, protocol):
    return kind(
        bootstrap_servers=[f"127.0.0.1:{server.getsockname()[1]}"],
        security_protocol=protocol,
        ssl_context=_CONTEXT,
    )


def connecting(client):
    """Start to connect a client to its broker; return the future for the transport."""
    (broker,) = client.cluster.bootstrap_brokers()
    until = time.monotonic() + _BOUND
    build = client._manager._build_transport
    return client._net.call_soon_with_future(build, broker, until)


@contextmanager
def resource_warnings():
    """Collect warnings about unclosed sockets, with garbage collection disabled."""
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
    """Close a client while the server accepts no connection."""
    server.listen(0)
    with socket.create_connection(server.getsockname()):  # fills the queue
        client = made(kind, server, "PLAINTEXT")
        transport = connecting(client)
        client._net.poll(0)
        client._net.poll(0)
        client.close()
    assert not transport.succeeded()


def close_in_the_handshake(kind, server):
    """Close a client while the server does not answer the TLS handshake."""
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
    """Close a connection that has not sent its request yet, and then its client."""
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
