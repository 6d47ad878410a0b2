"""
What the tests of the kit have in common.
"""

import time
from collections.abc import Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

TIMEOUT = 20.0


def produce(producer: KafkaProducer, topic: str, partitions: int, each: int) -> None:
    """
    Put ``each`` records into every partition; their values count from 0.
    """
    for number in range(each):
        for partition in range(partitions):
            producer.send(topic, b"%d" % number, partition=partition)
    producer.flush(TIMEOUT)


def read(consumer: KafkaConsumer, count: int) -> list[Any]:
    """
    Poll until so many records have come, and return them.
    """
    records: list[Any] = []
    deadline = time.monotonic() + TIMEOUT
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        for batch in consumer.poll(500).values():
            records.extend(batch)
    return records


def is_shared_out(
    consumers: Sequence[KafkaConsumer], topic: str, partitions: int
) -> bool:
    """
    Whether each partition has exactly one owner and each consumer owns some.
    """
    owned = [partition for consumer in consumers for partition in consumer.assignment()]
    expected = sorted(TopicPartition(topic, number) for number in range(partitions))
    return all(c.assignment() for c in consumers) and sorted(owned) == expected
