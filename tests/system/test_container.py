"""Tests the test kit's fixtures and a pause with a broker from testcontainers."""

import gc

import pytest

from safeconsumer import SafeConsumer
from safeconsumer.testing import poll_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.any_broker,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:testcontainers.kafka is deprecated"),
    pytest.mark.filterwarnings("ignore:unclosed <socket.socket"),  # testcontainers'
]


@pytest.fixture(scope="module")
def kafka_broker():
    """Yield the container that docs/how-to/test-your-code.md shows; pull a missing image."""
    from docker.errors import DockerException  # noqa: PLC0415 - half a second
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415
    from testcontainers.kafka import KafkaContainer  # noqa: PLC0415

    try:
        DockerClient().client.ping()
    except DockerException as error:
        pytest.skip(f"no Docker engine answers: {error}")
    with KafkaContainer() as container:
        yield container
    gc.collect()  # sockets that the container left open do not fail the test


def test_pause_survives_a_rebalance(
    kafka_topic, make_consumer, make_producer, force_rebalance
):
    topic = kafka_topic(partitions=2)
    consumer = make_consumer(SafeConsumer, topic, group="billing")
    poll_until(consumer, lambda: len(consumer.assignment()) == 2)
    consumer.pause(*consumer.assignment())
    producer = make_producer()
    for partition in (0, 1):
        producer.send(topic, b"order", partition=partition).get(30)
    leaked = force_rebalance("billing", topic, consumer)
    leaked += consumer.poll(timeout_ms=1000).values()
    assert not leaked
    tps = consumer.assignment()
    consumer.resume(*tps)
    came = poll_until(consumer, lambda: sum(map(consumer.position, tps)) == 2)
    assert [record.value for record in came] == [b"order", b"order"]
