"""Closing a consumer whose listener raises."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError

from safeconsumer import SafeConsumer
from tests.harness.listening import Listener
from tests.harness.polling import poll_until

pytestmark = pytest.mark.any_broker


def test_a_listener_that_raises_leaves_nothing_open(
    kafka_topic: Callable[..., str], make_consumer: Callable[..., Any]
) -> None:
    """kafka-python leaves a thread and four sockets each time; the error is raised on."""

    def fail(partitions: set[TopicPartition]) -> None:
        if partitions:
            message = "no"
            raise ValueError(message)

    topic = kafka_topic(partitions=2)
    consumer = make_consumer(SafeConsumer, group=f"g-{topic}")
    consumer.subscribe([topic], listener=Listener(revoked=fail))
    poll_until(consumer, consumer.assignment)
    thread, manager = consumer._net._io_thread, consumer._manager
    connections = list(manager._conns.values())
    assert connections
    before = set(threading.enumerate())
    with pytest.raises(KafkaError) as raised:
        consumer.close()
    assert isinstance(raised.value.__cause__, ValueError)
    assert not thread.is_alive()
    assert set(threading.enumerate()) < before
    assert not any(one.connected for one in connections)
    assert consumer.holds() == ()
    consumer.close()
