"""Each leader receives a Fetch, or each poll raises the error that prevents it."""

import gc
import logging
import math
import threading

import pytest
from kafka import TopicPartition
from kafka.errors import SaslAuthenticationFailedError
from kafka.protocol.metadata import MetadataResponse

from safeconsumer import SafeConsumer
from safeconsumer._kafka.network import NetworkSelector
from safeconsumer.testing import EmbeddedBroker
from tests.harness.kafka.fetches import assigned
from tests.harness.waiting import end_of, wait_for

A = TopicPartition("orders", 0)
Broker = MetadataResponse.MetadataResponseBroker
Partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition


@pytest.fixture
def consumer(safe):
    """Return a consumer of one partition with broker 2 as its leader."""
    made = safe()
    assigned(made, A)
    partition = Partition(partition_index=0, leader_id=2)
    made._cluster._partitions["orders"] = {0: partition}
    return made


def learn(consumer):
    """Add broker 2 to the metadata."""
    broker = Broker(node_id=2, host="localhost", port=1)
    consumer._cluster._brokers[2] = broker


@pytest.mark.contract("P10")
def test_each_poll_raises_while_a_broker_rejects_the_credentials(consumer, monkeypatch):
    """kafka-python 3.0.12 raises one error, and afterwards never returns a record."""
    manager = consumer._fetcher._manager

    def refuse(*_, **__):
        message = "wrong password"
        raise SaslAuthenticationFailedError(message)

    learn(consumer)
    monkeypatch.setattr(manager, "send", refuse)
    for _ in range(3):
        with pytest.raises(SaslAuthenticationFailedError, match="wrong password"):
            consumer.poll(0)
    assert consumer._fetcher._nodes_with_pending_fetch_requests == set()


@pytest.mark.contract("P10")
def test_leader_receives_a_fetch_once_metadata_contains_the_leader(
    consumer, monkeypatch
):
    """
    kafka-python 3.0.12 never sends a Fetch to this leader again.

    1. Metadata is read while broker 2 is still starting.
    2. The old leader's response names broker 2 as the new leader (KIP-951).
    3. Metadata contains broker 2.
    """
    fetcher, asked_for = consumer._fetcher, list[str]()
    monkeypatch.setattr(
        consumer._cluster, "request_update", lambda: asked_for.append("metadata")
    )
    assert fetcher._create_fetch_requests() == {}
    assert consumer.poll(0) == {}
    assert asked_for
    learn(consumer)
    assert list(fetcher._create_fetch_requests()) == [2]


def _crashed(call):
    """Crash a consumer's network loop during a call, and return the call's error."""
    raised = []
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        consumer = SafeConsumer(**broker.client_config, group_id=None)
        consumer.assign([TopicPartition("t", 0)])
        consumer.poll(500)

        def poll():
            try:
                call(consumer)
            except BaseException as error:  # noqa: BLE001 - the test reads it
                raised.append(type(error))

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        wait_for(lambda: consumer._net._pending_waiters, "a poll that waits")

        def fails(*_):  # as if its file descriptor had been closed
            raise OSError(9, "Bad file descriptor")

        loop = consumer._net._io_thread
        consumer._net._selector.select = fails
        consumer._net.wakeup()
        end_of(thread)
        end_of(loop)
    return raised


# The stopped loop's unraisable errors occur and are ignored in this test, not the next.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "call",
    [lambda it: it.poll(math.inf), lambda it: it.poll(20_000), next],
    ids=["poll-inf", "poll-20s", "iteration"],
)
def test_poll_raises_the_error_that_stopped_the_loop(call, monkeypatch):
    # pytest keeps logged and raised errors after the test, and their tracebacks keep
    # the sockets open.
    monkeypatch.setattr(logging.getLogger(NetworkSelector.__module__), "disabled", True)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    assert _crashed(call) == [OSError]
    gc.collect()
