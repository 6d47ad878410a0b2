"""A real broker in a container: it starts, it freezes, it is killed and comes back."""

import time
from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError

from tests.system.containers.outages import Outage

pytestmark = pytest.mark.container_broker

TIMEOUT = 60.0


def produce(producer: KafkaProducer, topic: str, values: list[bytes]) -> None:
    """Send and return when all are acknowledged."""
    futures = [producer.send(topic, value, partition=0) for value in values]
    for future in futures:
        future.get(TIMEOUT)


def read(consumer: KafkaConsumer, count: int) -> list[bytes]:
    """Poll until so many values have come, or the time is over."""
    values: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT
    while len(values) < count and time.monotonic() < deadline:
        for records in consumer.poll(200).values():
            values.extend(record.value for record in records)
    return values


def test_a_record_goes_through(
    kafka_topic: Callable[..., str],
    make_consumer: Callable[..., KafkaConsumer],
    producer: KafkaProducer,
) -> None:
    """The broker in the container takes a record and hands it out."""
    topic = kafka_topic()
    produce(producer, topic, [b"one"])
    assert read(make_consumer(KafkaConsumer, topic), 1) == [b"one"]


def test_a_frozen_broker_acknowledges_nothing_until_it_goes_on(
    kafka_topic: Callable[..., str],
    make_consumer: Callable[..., KafkaConsumer],
    producer: KafkaProducer,
    freeze: Outage,
) -> None:
    """While the container is paused a record waits; afterwards it arrives, once."""
    topic = kafka_topic()
    produce(producer, topic, [b"before"])
    with freeze.lasting():
        waiting = producer.send(topic, b"during", partition=0)
        with pytest.raises(KafkaTimeoutError):
            waiting.get(2)
        assert not waiting.is_done
    waiting.get(TIMEOUT)
    values = read(make_consumer(KafkaConsumer, topic), 2)
    assert values == [b"before", b"during"]


def test_a_killed_broker_keeps_records_and_commits(
    kafka_topic: Callable[..., str],
    make_consumer: Callable[..., KafkaConsumer],
    producer: KafkaProducer,
    kill: Outage,
) -> None:
    """After kill -9 and a restart the records and the committed offset are still there."""
    topic = kafka_topic(partitions=1)
    group = f"group-{topic}"
    produce(producer, topic, [b"one", b"two", b"three"])
    consumer = make_consumer(KafkaConsumer, topic, group=group, max_poll_records=1)
    assert read(consumer, 1) == [b"one"]
    consumer.commit()
    consumer.close(autocommit=False)
    with kill.lasting():
        pass
    successor = make_consumer(KafkaConsumer, topic, group=group)
    assert successor.committed(TopicPartition(topic, 0)) == 1
    produce(producer, topic, [b"four"])
    assert read(successor, 3) == [b"two", b"three", b"four"]


def test_a_consumer_lives_through_the_death_of_its_broker(
    kafka_topic: Callable[..., str],
    make_consumer: Callable[..., KafkaConsumer],
    producer: KafkaProducer,
    kill: Outage,
) -> None:
    """The same consumer reads on, where it was, when its broker has come back."""
    topic = kafka_topic(partitions=1)
    produce(producer, topic, [b"one"])
    consumer = make_consumer(KafkaConsumer, topic, group=f"group-{topic}")
    assert read(consumer, 1) == [b"one"]
    with kill.lasting():
        pass
    produce(producer, topic, [b"two"])
    assert read(consumer, 1) == [b"two"]
