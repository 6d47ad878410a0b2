"""Tests that the simulated cluster and Apache Kafka behave alike."""

import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.protocol.api_header import ResponseClassRegistry

from tests.harness.testing.asking import Client
from tests.harness.testing.requests import QUESTIONS, Place
from tests.sim.parity.playing import real_facts, simulated_facts
from tests.sim.parity.stages import CLIENTS, cases

_BESIDE = 6  # scenarios that run concurrently; most of them wait


@pytest.mark.contract("P13")
@pytest.mark.real_broker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", CLIENTS, ids=["ours", "stock"])
def test_scenarios_have_the_same_facts_on_apache_kafka(kafka_broker, kind):
    played = [(name, kind, protocol) for name, protocol in cases()]
    with ThreadPoolExecutor(_BESIDE) as pool:
        real = pool.map(lambda case: real_facts(kafka_broker, *case), played)
        simulated = [simulated_facts(*case) for case in played]
        triples = list(zip(cases(), simulated, real, strict=True))
    different = [
        f"{'-'.join(case)}: simulated {simulated}, Kafka {real}"
        for case, simulated, real in triples
        if simulated != real
    ]
    assert not different, "\n".join(different)


class Connection(Client):
    """A client that sends its requests to a real broker over a socket."""

    def __init__(self, bootstrap):
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)

    def ask(self, request, version):
        """Send a request; wait for the response and return the response."""
        request.API_VERSION = version
        request.with_header(correlation_id=1, client_id="test")
        self._socket.sendall(bytes(request.encode(header=True, framed=True)))
        with self._socket.makefile("rb", buffering=0) as incoming:
            (size,) = struct.unpack(">i", _read(incoming, 4))
            data = _read(incoming, size)
        kind = ResponseClassRegistry.get_response_class(request.header)
        return kind.decode(data, header=True)

    def close(self):
        self._socket.close()


def _read(incoming, size):
    found = b""
    while len(found) < size:
        more = incoming.read(size - len(found))
        assert more, "the broker closed the connection"
        found += more
    return found


@pytest.mark.real_broker
@pytest.mark.timeout(300)
def test_apache_kafka_gives_the_expected_responses(kafka_broker):
    """``tests/unit/testing/test_cluster.py`` sends the same requests to the test kit."""
    admin = KafkaAdminClient(**kafka_broker.client_config)
    connection = Connection(kafka_broker.bootstrap)
    place = Place(
        connection,
        create=lambda name, count: admin.create_topics([NewTopic(name, count, 1)]),
        settle=lambda: time.sleep(0.1),
        delete_before=lambda topic, offset: admin.delete_records(
            {TopicPartition(topic, 0): offset}
        ),
    )
    answers = {one.__name__: one(place) for one in QUESTIONS}
    admin.close()
    connection.close()
    assert answers == {one.__name__: answer for one, answer in QUESTIONS.items()}
