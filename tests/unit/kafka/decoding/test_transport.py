"""Our transport receives the same responses as upstream's over real sockets."""

import logging
import random
import socket
import ssl
import struct
import threading
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import pytest
import trustme
from attrs import frozen
from kafka import KafkaConsumer
from kafka.errors import CorrelationIdError, KafkaConnectionError
from kafka.metrics import Metrics
from kafka.net import manager
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol import parser

from safeconsumer import SafeConsumer
from safeconsumer._kafka.decoding.receiving import (
    ReceivingManager,
    ReceivingTransport,
    adopt_manager,
)
from safeconsumer._kafka.network import (
    HAS_BACKENDS,
    KafkaSSLTransport,
    KafkaTCPTransport,
    NetworkSelector,
)
from safeconsumer.testing import EmbeddedBroker
from tests.harness.kafka.offline import offline
from tests.harness.waiting import wait_for
from tests.unit.kafka.decoding.answers import (
    fetch,
    heartbeat,
    requests_of,
    written,
)

pytestmark = pytest.mark.skipif(
    HAS_BACKENDS, reason="kafka-python 3.1 makes its connections by itself"
)

_HOST = "broker.test"
_RESETS = struct.pack("ii", 1, 0)


@frozen
class Line:
    """A live connection that its own IO thread drives."""

    net: Any  # its event loop
    connection: Any  # upstream's; the transport is upstream's or ours
    far: Any  # the broker's end of the connection

    def ask(self, *requests, then=b"", end=False):
        """Send requests, and return the futures of their responses."""

        async def send():
            futures = [self.connection.send_request(one) for one in requests]
            if then:
                self.far.sendall(then)
            if end:
                self.far.close()
            return [futures]  # in a list, because the loop would await a future

        (futures,) = self.net.run(send)
        return list(futures)

    def outcomes(self, futures):
        """Wait for each response; return it as text, or the class of its error."""
        return [self._outcome(future) for future in futures]

    def _outcome(self, future):
        done = threading.Event()
        future.add_both(lambda _: done.set())
        wait_for(done.is_set, "an answer")
        return type(future.exception) if future.exception else str(future.value)

    def reset(self):
        """Close the broker's end of the connection with a reset."""
        self.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        self.far.close()


@contextmanager
def line(*, is_ours, tls, metrics=None):
    """Open a connection and close it."""
    near, far = _pair()
    # With the default, a task that takes 0.1 s on a busy machine causes a warning.
    net = NetworkSelector(slow_task_threshold_secs=0)
    connection = KafkaConnection(
        net, metrics=metrics, receive_message_max_bytes=100_000_000
    )
    accepted = [far]
    plain, encrypted = (
        ReceivingManager.transports
        if is_ours
        else (KafkaTCPTransport, KafkaSSLTransport)
    )
    if tls:
        authority, certificate = _authority()
        accepting = threading.Thread(target=_accept, args=(certificate, accepted))
        accepting.start()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
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


def _accept(certificate, accepted):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    accepted.append(context.wrap_socket(accepted[-1], server_side=True))


@cache
def _authority():
    """Create the certificate authority and the broker's certificate once, as this is slow."""
    made = trustme.CA()
    return made, made.issue_cert(_HOST)


tls = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])

MIXED = (
    heartbeat(1),
    fetch(2, bytes(range(256)) * 2_000, b"x" * 10),
    fetch(3, b"small"),
    fetch(4, bytes(70_000)),
    heartbeat(5),
)
PAIR = fetch(1, bytes(100_000)), heartbeat(2)


def in_pieces(one, seed):
    """Write all responses in pieces of random sizes."""
    futures = one.ask(*requests_of(MIXED))
    chance, left = random.Random(seed), written(MIXED)  # noqa: S311 - nothing is secret
    while left:
        size = chance.choice([1, 3, 100, 16_384, 65_536, 65_537, 1_000_000])
        one.far.sendall(left[:size])
        left = left[size:]
    return one.outcomes(futures)


def cut(one, size, end="close"):
    """Write the first response and a part of the second, and close the connection."""
    futures = one.ask(*requests_of(MIXED[:3]))
    one.far.sendall(MIXED[0].answer)
    first = one.outcomes(futures[:1])
    one.far.sendall(MIXED[1].answer[:size])
    one.reset() if end == "reset" else one.far.close()
    return [*map(type, first), *one.outcomes(futures[1:])]


def another_number(one):
    futures = one.ask(heartbeat(1).request, then=heartbeat(9).answer)
    return one.outcomes(futures)


LOST = [str, KafkaConnectionError, KafkaConnectionError]


@tls
@pytest.mark.parametrize(
    ("came", "expected"),
    [
        *[pytest.param(partial(in_pieces, seed=n), None, id=f"{n}") for n in range(3)],
        *[pytest.param(partial(cut, size=n), LOST, id=f"{n}") for n in (2, 9, 100_000)],
        pytest.param(another_number, [CorrelationIdError], id="another-number"),
    ],
)
def test_responses_and_errors_equal_upstreams(came, expected, *, tls):
    """Responses arrive in pieces, truncated, or with a wrong correlation id."""
    outcomes = []
    for is_ours in (False, True):
        with line(is_ours=is_ours, tls=tls) as one:
            outcomes.append(came(one))
    assert outcomes[0] == outcomes[1]
    if expected is None:
        assert all(isinstance(one, str) for one in outcomes[1])
    else:
        assert outcomes[1] == expected


@tls
def test_reset_inside_a_response_fails_its_request(*, tls):
    """Upstream's transport does not close its socket after a reset."""
    with line(is_ours=True, tls=tls) as one:
        assert cut(one, 100_000, "reset") == LOST


@tls
def test_rest_of_a_tls_record_is_read(*, tls):
    """No selector reports a second response that arrived in the same TLS record."""
    with line(is_ours=True, tls=tls) as one:
        futures = one.ask(*requests_of(PAIR), then=written(PAIR))
        assert all(isinstance(answer, str) for answer in one.outcomes(futures))


@tls
def test_response_right_before_the_end_of_a_connection_is_read(*, tls):
    """The transport's first read finds both the response and the end of the stream."""
    with line(is_ours=True, tls=tls) as one:
        asked = heartbeat(1).request, heartbeat(2).request
        futures = one.ask(*asked, then=heartbeat(1).answer, end=True)
        answered, lost = one.outcomes(futures)
    assert isinstance(answered, str)
    assert lost is KafkaConnectionError


@tls
def test_callback_of_a_response_may_close_the_connection(caplog, *, tls):
    """More bytes remain to be read when the callback closes the connection."""
    with line(is_ours=True, tls=tls) as one:
        asked = one.ask(*requests_of(PAIR))
        asked[0].add_callback(lambda _: one.connection.close())
        one.far.sendall(written(PAIR))
        first, second = one.outcomes(asked)
    assert isinstance(first, str)
    assert second is not None
    assert not [one for one in caplog.records if one.levelno > logging.INFO]


def test_received_bytes_are_counted():
    """The metric counts the bytes, and the transport records the time of the last read."""
    metrics = Metrics()
    with line(is_ours=True, tls=False, metrics=metrics) as one:
        before = one.connection.transport.last_read
        futures = one.ask(*requests_of(MIXED))
        one.far.sendall(written(MIXED))
        one.outcomes(futures)
        assert one.connection.transport.last_read > before
        rate = next(
            value.value()
            for name, value in metrics.metrics.items()
            if name.name == "incoming-byte-rate"
        )
    assert rate > 0
    metrics.close()


def test_only_our_consumers_use_our_transports():
    """Stock consumers, kafka-python's modules and other clients use upstream's transports."""

    class Theirs(KafkaConnectionManager):
        pass

    names = (manager.KafkaTCPTransport, manager.KafkaSSLTransport, parser.KafkaProtocol)
    with offline(SafeConsumer) as ours, offline(KafkaConsumer) as stock:
        assert type(ours._manager) is ReceivingManager
        assert type(stock._manager) is KafkaConnectionManager
        stock._manager.__class__ = Theirs
        adopt_manager(stock._manager)
        assert type(stock._manager) is Theirs
    assert [kind.__module__ for kind in names] == [
        "kafka.net.transport",
        "kafka.net.transport",
        "kafka.protocol.parser",
    ]


def test_every_connection_of_a_live_consumer_has_our_transport():
    """
    The consumer opens connections for records, metadata and the group coordinator.

    The IO thread may open a connection before the constructor installs our manager,
    because that thread is already refreshing metadata.
    """
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 2)
        consumer = SafeConsumer("t", group_id="g", **broker.client_config)
        connections = consumer._manager._conns
        early = [*connections.values()]
        try:
            while not consumer.assignment():
                consumer.poll(100)
            kinds = {
                type(connection.transport)
                for connection in connections.values()
                if connection not in early
            }
        finally:
            consumer.close()
    assert kinds == {ReceivingTransport}
