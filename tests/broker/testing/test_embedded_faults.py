import struct
import threading
from socket import create_connection
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.errors import NotLeaderForPartitionError

from safeconsumer.testing import Clients, EmbeddedBroker, fixtures
from tests.harness.polling import read
from tests.harness.producing import produce

TIMEOUT = 20.0


@pytest.mark.parametrize(
    "error", ["NOT_LEADER_FOR_PARTITION", 6, NotLeaderForPartitionError, "DISCONNECT"]
)
def test_an_injected_error_is_met_and_survived(
    broker: EmbeddedBroker, clients: Clients, error: object
) -> None:
    """Two Fetches fail, so at least three are sent until the records come."""
    topic = clients.topic(partitions=1)
    produce(clients.producer(), topic, 3)
    broker.fail("Fetch", error, times=2)
    assert len(read(clients.consumer(KafkaConsumer, topic), 3)) == 3
    assert len(broker.requests("Fetch")) >= 3


@pytest.mark.parametrize(
    ("api", "error", "named"),
    [("Fecth", "NOT_COORDINATOR", "Fecth"), ("Fetch", "NO_SUCH", "NO_SUCH")],
)
def test_a_misspelt_fault_is_refused(
    broker: EmbeddedBroker, api: str, error: str, named: str
) -> None:
    """Nothing is injected silently into nowhere."""
    with pytest.raises(ValueError, match=named):
        broker.fail(api, error)


def test_an_answer_is_released_after_its_broker_was_started_anew() -> None:
    """Its connection has gone, and what came by it; going on with that raised."""
    ask = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # ApiVersions
    with EmbeddedBroker() as broker:
        hold = broker.hold("ApiVersions")
        host, port = broker.bootstrap.split(":")
        with create_connection((host, int(port)), timeout=TIMEOUT) as client:
            client.sendall(ask + ask)
            hold.wait()
            broker.stop()
        broker.start()
        hold.release()
        assert broker.requests() == ()


@pytest.mark.parametrize("fault", ["down", "freeze", "hold", "fail", "both"])
def test_every_fault_can_be_ended_at_once(
    broker: EmbeddedBroker, clients: Clients, fault: str
) -> None:
    """After heal() a consumer joins and reads as if nothing had been the matter."""
    topic = clients.topic(partitions=1)
    produce(clients.producer(), topic, 1)
    broken(broker, fault)
    broker.heal()
    read(clients.consumer(KafkaConsumer, topic, group="g"), 1)


def broken(broker: EmbeddedBroker, fault: str) -> None:
    if fault in {"down", "both"}:
        broker.down()
    if fault in {"freeze", "both"}:
        broker.freeze()
    if fault == "hold":
        broker.hold("JoinGroup")
    if fault == "fail":
        broker.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", times=1_000_000)


def test_a_test_that_fails_may_have_stopped_the_broker() -> None:
    """Healing it raised, and pytest ended with an INTERNALERROR instead of the failure."""
    with EmbeddedBroker() as broker:
        item: Any = SimpleNamespace(funcargs={"kafka_broker": broker})
    failed: Any = SimpleNamespace(excinfo=AssertionError())
    report: Any = SimpleNamespace(skipped=False)
    hook: Any = fixtures.pytest_runtest_makereport(item, failed)
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(report)
    assert ended.value.value is report


def test_a_producer_that_has_no_answer_ends_with_the_test(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """Its thread went on and took a third of a core, and the end of the test failed."""
    topic, before = clients.topic(partitions=1), set(threading.enumerate())
    producer = clients.producer()
    produce(producer, topic, 1)
    broker.freeze()
    producer.send(topic, b"no answer")
    clients.close()
    assert set(threading.enumerate()) <= before
