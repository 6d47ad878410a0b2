"""
Tests that both decoders read the same records from a real broker (P15).

The tests compare all fields of the records and the final positions.
"""

import pytest
from kafka import KafkaConsumer, TopicPartition

from safeconsumer import SafeConsumer
from tests.harness.waiting import repeat_until

pytestmark = pytest.mark.any_broker

LIMIT = 30.0
HEADERS = [("trace", b"\x00\xff"), ("nöthing", b""), ("", b"x" * 200)]


def _read(make, kind, topic, **config):
    consumer = make(kind, **config)
    parts = [TopicPartition(topic, 0)]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends = consumer.end_offsets(parts)
    records = []

    def is_read():
        return all(consumer.position(tp) >= ends[tp] for tp in parts)

    for _ in repeat_until(is_read, f"the ends: {ends}", seen=lambda: len(records)):
        for taken in consumer.poll(100).values():
            records.extend(taken)
    return {
        "records": [[(type(one), one) for one in record] for record in records],
        "offsets": [record.offset for record in records],
        "positions": [consumer.position(tp) for tp in parts],
    }


def _alike(make, topic, **config):
    stock = _read(make, KafkaConsumer, topic, **config)
    ours = _read(make, SafeConsumer, topic, decoder="compiled", **config)
    assert ours == stock
    return stock


@pytest.mark.contract("P15")
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_both_decoders_read_the_same_records_of_every_codec(
    make_consumer, make_producer, kafka_topic, codec
):
    """The records have nulls, headers, various sizes, and old and new timestamps."""
    topic = kafka_topic(partitions=1)
    producer = make_producer(compression_type=codec, linger_ms=50)
    for number in range(200):
        producer.send(
            topic,
            partition=0,
            key=None if number % 3 else b"key-%d" % number,
            value=None if number % 21 == 0 else b"v" * (number * number % 9000),
            headers=HEADERS[: number % 4],
            timestamp_ms=(0, 1, 1_700_000_000_000, None)[number % 4],
        )
    producer.flush(LIMIT)
    for max_records in (150, 7):
        stock = _alike(make_consumer, topic, max_poll_records=max_records)
        assert stock["offsets"] == [*range(200)]
