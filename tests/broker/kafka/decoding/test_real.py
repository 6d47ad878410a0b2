"""
What a broker has stored is read alike by stock and by ours (P15).

Records are compared field by field, positions at the end as well.
"""

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer import SafeConsumer
from tests.harness.waiting import looks

pytestmark = pytest.mark.any_broker

LIMIT = 30.0
COMPACTED_WITHIN = 60.0
HEADERS = [("trace", b"\x00\xff"), ("nöthing", b""), ("", b"x" * 200)]

Make = Callable[..., Any]


def _read(make: Make, kind: type, topic: str, **config: object) -> dict[str, Any]:
    consumer = make(kind, **config)
    parts = [TopicPartition(topic, 0)]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends = consumer.end_offsets(parts)
    records: list[Any] = []

    def is_read() -> bool:
        return all(consumer.position(tp) >= ends[tp] for tp in parts)

    for _ in looks(is_read, f"the ends: {ends}", seen=lambda: len(records)):
        for taken in consumer.poll(100).values():
            records.extend(taken)
    return {
        "records": [[(type(one), one) for one in record] for record in records],
        "offsets": [record.offset for record in records],
        "positions": [consumer.position(tp) for tp in parts],
    }


def _alike(make: Make, topic: str, **config: object) -> dict[str, Any]:
    stock = _read(make, KafkaConsumer, topic, **config)
    ours = _read(make, SafeConsumer, topic, decoder="compiled", **config)
    assert ours == stock
    return stock


@pytest.mark.contract("P15")
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(
    make_consumer: Make, make_producer: Make, kafka_topic: Make, codec: str | None
) -> None:
    """Nulls, headers, sizes from nothing to many kilobytes, times of every age."""
    topic = kafka_topic(partitions=1)
    producer = make_producer(compression_type=codec, linger_ms=50)
    for number in range(600):
        producer.send(
            topic,
            partition=0,
            key=None if number % 3 else b"key-%d" % number,
            value=None if number % 21 == 0 else b"v" * (number * number % 9000),
            headers=HEADERS[: number % 4],
            timestamp_ms=(0, 1, 1_700_000_000_000, None)[number % 4],
        )
    producer.flush(LIMIT)
    for max_records in (500, 7):
        stock = _alike(make_consumer, topic, max_poll_records=max_records)
        assert stock["offsets"] == [*range(600)]


@pytest.mark.timeout(COMPACTED_WITHIN + 4 * LIMIT)
def test_a_compacted_topic(
    kafka_broker: Any,  # noqa: ANN401 - any kind of broker
    make_consumer: Make,
    make_producer: Make,
) -> None:
    """With holes in the middle of batches, and batches whose tail is gone."""
    topic = _compacting(kafka_broker)
    producer = make_producer(compression_type="zstd", linger_ms=50)
    deadline = time.monotonic() + COMPACTED_WITHIN
    holes = False
    while not holes:
        assert time.monotonic() < deadline, "the broker has compacted nothing"
        for number in range(200):  # some keys stay, most are written again
            key = b"%d" % (number if number % 3 else uuid4().int)
            producer.send(topic, partition=0, key=key, value=b"v", headers=HEADERS)
        producer.flush(LIMIT)
        stock = _read(make_consumer, KafkaConsumer, topic)
        holes = stock["positions"][0] - len(stock["offsets"]) > 100
    assert stock["offsets"] == sorted(set(stock["offsets"]))
    for max_records in (500, 3):
        _alike_at_rest(make_consumer, topic, max_poll_records=max_records)


def _alike_at_rest(make: Make, topic: str, **config: object) -> None:
    # The cleaner works on; what counts is read while it has changed nothing.
    deadline = time.monotonic() + LIMIT
    before: object = None
    stock = _read(make, KafkaConsumer, topic, **config)
    while before != stock:
        assert time.monotonic() < deadline, "the topic changes all the time"
        before = stock
        ours = _read(make, SafeConsumer, topic, decoder="compiled", **config)
        stock = _read(make, KafkaConsumer, topic, **config)
    assert ours == stock


def _compacting(broker: Any) -> str:  # noqa: ANN401 - any kind of broker
    topic = f"compacted-{uuid4().hex[:12]}"
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": "500",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
        "max.compaction.lag.ms": "1000",
    }
    wanted = {"num_partitions": 1, "replication_factor": -1, "configs": configs}
    with closing(KafkaAdminClient(**broker.client_config)) as admin:
        admin.create_topics({topic: wanted}, wait_for_metadata=True)
    return topic
