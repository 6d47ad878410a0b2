"""Writes records and returns once the broker has acknowledged them all."""

from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

from tests.harness.waiting import LIMIT, retried

_FLUSH = 5.0
"""The seconds of one flush; waits for a core are measured between two flushes."""


def write(producer, records, limit=LIMIT):
    """
    Write records, given as arguments for ``send``; return their metadata in order.

    The records of a partition form one batch if they fit into one, because the producer
    sends nothing before the last record is queued.
    """
    config = producer._accumulator.config
    before = config["linger_ms"]
    config["linger_ms"] = 60_000
    try:
        sent = [producer.send(**one) for one in records]
        retried(lambda: producer.flush(_FLUSH), KafkaTimeoutError, limit=limit)
    finally:
        config["linger_ms"] = before
    return [one.get(limit) for one in sent]


def numbered(topic, *counts):
    """Yield this many records for each partition; their values count up from 0."""
    for partition, count in enumerate(counts):
        for number in range(count):
            yield {"topic": topic, "partition": partition, "value": b"%d" % number}


def produce(producer, topic, *counts, limit=LIMIT):
    """Write :func:`numbered` records; the first count is for partition 0, and so on."""
    write(producer, numbered(topic, *counts), limit)


def filled(clients, partitions=2, records=20):
    """Create a topic with this many records in each partition; return the topic's name."""
    topic = clients.topic(partitions)
    producer = KafkaProducer(**clients._broker.client_config)
    produce(producer, topic, *[records] * partitions)
    producer.close()
    return topic
