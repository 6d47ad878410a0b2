"""
Tests that kafka-python still has the defects for which this package has workarounds.

The pages in design/ list these defects. For each defect a test shows that the stock
client has it. If such a test fails, upstream has repaired the defect; the workaround
and the defect's row in the table can then be removed. Most of these tests
are in ``tests/sim``: our consumer must pass them, and the stock client must fail them
(``stock_fails``). This module has the remaining tests.
"""

import gc
import logging
import socket

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest

from tests.harness.kafka.broken import KINDS
from tests.harness.kafka.unclosed import WAYS, of_our_connections, resource_warnings
from tests.harness.processes import ran_python
from tests.sim.playing import simulated
from tests.sim.reading import Reader

pytestmark = pytest.mark.nightly

_STOCK = """
import os, signal, sys
from kafka import KafkaConsumer, TopicPartition
from tests.harness.kafka.fetches import answer, assigned
from tests.harness.kafka.offline import offline
from tests.harness.kafka.broken import KINDS, Picky
broken, error = KINDS[int(sys.argv[1])].values
tp = TopicPartition("orders", 0)
with offline(KafkaConsumer, value_deserializer=Picky()) as consumer:
    assigned(consumer, tp)
    consumer.seek(tp, 2)
    answer(consumer, tp, 2, broken)
    try:
        consumer.poll(0)
    except error:
        print("raised", flush=True)

    def spins(*_):
        print("spins", flush=True)
        os._exit(0)

    # The limit is in CPU time, of which a poll that does not wait uses a hundredth.
    signal.signal(signal.SIGVTALRM, spins)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.3)
    consumer.poll(0)
    print("returned", flush=True)
"""


@pytest.mark.timeout(180)  # the process needs time to start, and stops its own loop
@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_stock_poll_after_an_unreadable_batch_never_returns(kind):
    """The poll keeps iterating over a batch although the batch's generator has raised."""
    done = ran_python("-W", "ignore", "-c", _STOCK, kind, timeout=150)
    assert (done.stdout, done.stderr) == ("raised\nspins\n", "")


@pytest.fixture
def logged(caplog):
    with caplog.at_level(logging.DEBUG, logger="kafka"):
        yield caplog


def test_stock_clients_log_passwords(logged):
    """Upstream logs every request that it sends, and the settings of its admin clients."""
    secret = "guess-71d2ba90"  # noqa: S105 - the test searches for this text
    parser = KafkaProtocol(client_id="me")
    login = b"member\0member\0" + secret.encode()
    parser.send_request(SaslAuthenticateRequest(version=2, auth_bytes=login))
    parser.send_bytes()
    with pytest.raises(KafkaError):
        KafkaAdminClient(
            bootstrap_servers="127.0.0.1:1",
            bootstrap_timeout_ms=10,
            sasl_plain_password=secret,
        )
    names = {one.name for one in logged.records if secret in one.getMessage()}
    assert names == {"kafka.admin.client", "kafka.protocol.parser"}


@of_our_connections
@pytest.mark.parametrize("way", WAYS)
def test_stock_client_leaves_a_socket_to_the_garbage_collector(way):
    """The client is closed while it connects, during the handshake, or with unsent bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server, resource_warnings() as found:
        way(KafkaNetClient, server)
        gc.collect()
    assert [one.category for one in found] == [ResourceWarning]


@simulated(seeds=1)
def test_stock_client_requests_topic_creation_even_if_that_is_disabled(lab):
    """The request ignores the setting ``allow_auto_create_topics=False``."""
    asked = []
    lab.cluster.on_request = lambda entry, message: (
        asked.append(message.body.allow_auto_topic_creation)
        if entry.api == "Metadata"
        else None
    )
    Reader(lab, KafkaConsumer, "none", allow_auto_create_topics=False).poll(5)
    assert asked
    assert all(asked)
