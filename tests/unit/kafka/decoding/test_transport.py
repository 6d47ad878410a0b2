"""Our transport receives what upstream's does, over real sockets, and only for us."""

import logging
import random
import socket
import ssl
import struct
import threading
from contextlib import contextmanager
from functools import cache
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
from tests.unit.kafka.decoding.answers import fetch, heartbeat

pytestmark = pytest.mark.skipif(
    HAS_BACKENDS, reason="kafka-python 3.1 makes its connections by itself"
)

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
    """Make an authority, and a certificate of it for the broker: once, they take long."""
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


def _requests(exchanges):
    return [one.request for one in exchanges]


def _pieces(data, seed):
    chance = random.Random(seed)  # noqa: S311 - no secret
    at = 0
    while at < len(data):
        size = chance.choice([1, 3, 100, 16_384, 65_536, 65_537, 1_000_000])
        yield data[at : at + size]
        at += size


def _alike(got, *, tls):
    """Return what our transport got; fail if upstream's gets something else."""
    outcomes = []
    for is_ours in (False, True):
        with line(is_ours=is_ours, tls=tls) as one:
            outcomes.append(got(one))
    assert outcomes[0] == outcomes[1]
    return outcomes[1]


@tls
@pytest.mark.parametrize("seed", range(3))
def test_answers_in_pieces(seed, *, tls):
    """Whatever is written together, the answers are upstream's."""
    written = b"".join(one.answer for one in MIXED)

    def got(one):
        futures = one.ask(*_requests(MIXED))
        one.send(*_pieces(written, seed))
        return one.outcomes(futures)

    assert all(isinstance(one, str) for one in _alike(got, tls=tls))


@tls
def test_the_rest_of_a_record(*, tls):
    """A record of TLS that ends one answer and holds the next: no selector tells of it."""
    pair = fetch(1, bytes(100_000)), heartbeat(2)
    with line(is_ours=True, tls=tls) as one:
        futures = one.ask(
            *_requests(pair), then=b"".join(answer.answer for answer in pair)
        )
        assert all(isinstance(told, str) for told in one.outcomes(futures))


def _cut(one, cut, end):
    """Answer the first request, end in the middle of the second answer; return what came."""
    futures = one.ask(*_requests(MIXED[:3]))
    one.send(MIXED[0].answer)
    first = one.outcomes(futures[:1])
    one.send(MIXED[1].answer[:cut])
    end()
    return [*map(type, first), *one.outcomes(futures[1:])]


@tls
@pytest.mark.parametrize("cut", [2, 9, 100_000])
def test_an_end_in_the_middle(cut, *, tls):
    """Of a length, a small answer or a large one: what was asked fails as upstream's does."""
    came = _alike(lambda one: _cut(one, cut, one.far.close), tls=tls)
    assert came == [str, KafkaConnectionError, KafkaConnectionError]


@tls
def test_a_broken_connection(*, tls):
    """A reset in the middle of an answer; upstream's transport does not close its socket."""
    with line(is_ours=True, tls=tls) as one:
        came = _cut(one, 100_000, one.reset)
    assert came == [str, KafkaConnectionError, KafkaConnectionError]


@tls
def test_an_answer_right_before_the_end(*, tls):
    """Both are there at the first look: the answer counts, and then the end."""
    with line(is_ours=True, tls=tls) as one:
        futures = one.ask(
            heartbeat(1).request,
            heartbeat(2).request,
            then=heartbeat(1).answer,
            end=True,
        )
        answered, lost = one.outcomes(futures)
    assert isinstance(answered, str)
    assert lost is KafkaConnectionError


@tls
def test_an_answer_to_nothing(*, tls):
    """A wrong number closes the connection, with upstream's error."""

    def got(one):
        futures = one.ask(heartbeat(1).request, then=heartbeat(9).answer)
        return one.outcomes(futures)

    assert _alike(got, tls=tls) == [CorrelationIdError]


@tls
def test_closed_by_an_answer(caplog, *, tls):
    """Who gets an answer may close the connection, with more of it to be read."""
    pair = fetch(1, bytes(100_000)), heartbeat(2)
    with line(is_ours=True, tls=tls) as one:
        asked = one.ask(*_requests(pair))
        asked[0].add_callback(lambda _: one.connection.close())
        one.send(b"".join(answer.answer for answer in pair))
        told = one.outcomes(asked)
    assert isinstance(told[0], str)
    assert told[1] is not None
    assert not [one for one in caplog.records if one.levelno > logging.INFO]


@tls
def test_bytes_are_counted(*, tls):
    """Upstream's metric of incoming bytes, and the time of the last one."""
    metrics = Metrics()
    with line(is_ours=True, tls=tls, metrics=metrics) as one:
        before = one.connection.transport.last_read
        futures = one.ask(*_requests(MIXED))
        one.send(b"".join(answer.answer for answer in MIXED))
        one.outcomes(futures)
        assert one.connection.transport.last_read > before
        rate = next(
            value.value()
            for name, value in metrics.metrics.items()
            if name.name == "incoming-byte-rate"
        )
    assert rate > 0
    metrics.close()


def test_only_our_consumers():
    """A stock one beside it keeps upstream's classes, and the modules do."""
    names = (manager.KafkaTCPTransport, manager.KafkaSSLTransport, parser.KafkaProtocol)
    with offline(SafeConsumer) as ours, offline(KafkaConsumer) as stock:
        assert type(ours._manager) is ReceivingManager
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
    assert kinds == {ReceivingTransport}


def test_a_client_of_the_users_own_is_left_alone():
    """What it does on a connection is its own matter."""

    class Theirs(KafkaConnectionManager):
        pass

    with offline(KafkaConsumer) as stock:
        stock._manager.__class__ = Theirs
        adopt_manager(stock._manager)
        assert type(stock._manager) is Theirs
