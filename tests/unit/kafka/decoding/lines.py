"""Upstream's connections over loopback, with or without TLS, and their other side."""

import socket
import ssl
import struct
import threading
from contextlib import contextmanager
from typing import Any

import trustme
from attrs import frozen
from kafka.net.connection import KafkaConnection
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from safeconsumer._kafka.decoding.receiving import ReceivingManager

_BOUND = 20.0
_HOST = "broker.test"
_RESETS = struct.pack("ii", 1, 0)


@frozen
class Line:
    """A live connection, driven by an IO thread of its own."""

    net: Any  # its event loop
    connection: Any  # upstream's; the transport is upstream's or ours
    far: Any  # what the broker would write to

    def ask(self, *requests, then=b"", end=False):
        """Send requests; return the futures of their answers."""

        async def send():
            futures = [self.connection.send_request(one) for one in requests]
            if then:
                self.far.sendall(then)
            if end:
                self.far.close()
            return [futures]  # no future itself, which would be waited for

        (futures,) = self.net.run(send)
        return list(futures)

    def send(self, *chunks):
        """Write to the connection from the other side, and wait until it is written."""
        for chunk in chunks:
            self.far.sendall(chunk)

    def outcomes(self, futures):
        """Wait for answers: their text, or the kinds of errors they ended with."""
        return [self._outcome(future) for future in futures]

    def _outcome(self, future):
        done = threading.Event()
        future.add_both(lambda _: done.set())
        assert done.wait(_BOUND), "no answer"
        return type(future.exception) if future.exception else str(future.value)

    def reset(self):
        """End the connection as a broken one ends."""
        self.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        self.far.close()


@contextmanager
def line(*, is_ours, tls, metrics=None):
    """Open a connection and close it."""
    near, far = _pair()
    # Otherwise a step that took 0.1 s, on a busy machine, is a warning.
    net = NetworkSelector(slow_task_threshold_secs=0)
    connection = KafkaConnection(
        net, metrics=metrics, receive_message_max_bytes=100_000_000
    )
    authority = trustme.CA()
    accepted = [far]
    plain, encrypted = (
        ReceivingManager.transports
        if is_ours
        else (KafkaTCPTransport, KafkaSSLTransport)
    )
    if tls:
        accepting = threading.Thread(target=_accept, args=(authority, accepted))
        accepting.start()
        context = ssl.create_default_context()
        authority.configure_trust(context)
        transport = encrypted(net, near, _HOST, ssl_context=context)
    else:
        transport = plain(net, near, _HOST)

    async def begin():
        await transport.handshake()
        connection.connection_made(transport)
        connection._init_complete()

    net.start()
    try:
        net.run(begin)
        if tls:
            accepting.join()
        yield Line(net, connection, accepted[-1])
    finally:
        net.run(connection.close)
        net.close()
        accepted[-1].close()


def _pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        near.settimeout(0)
        far, _ = server.accept()
    return near, far


def _accept(authority, accepted):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(_HOST).configure_cert(context)
    accepted.append(context.wrap_socket(accepted[-1], server_side=True))
