"""Reads single-partition topics once, from some offset to their present end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from safeconsumer.group.fold import NO_TIME_MS, Written

READ_TIMEOUT = 30.0
# For brokers that cannot look up times: more records than the reports of some seconds.
_LAST_RECORDS = 20_000


def read(
    consumer: KafkaConsumer, names: Sequence[str], since: float | None = None
) -> tuple[list[Any], dict[str, int]]:
    """
    Return all records of the topics, or those of about the last seconds, and the ends.

    Raises:
        KafkaError: a topic could not be read, or not in 30 s.
    """
    partitions = [TopicPartition(name, 0) for name in names]
    consumer.assign(partitions)
    timeout_ms = READ_TIMEOUT * 1000
    firsts = consumer.beginning_offsets(partitions, timeout_ms=timeout_ms)
    ends = consumer.end_offsets(partitions, timeout_ms=timeout_ms)
    if since is not None:
        firsts = firsts_since(consumer, since, firsts, ends)
    for tp, first in firsts.items():
        consumer.seek(tp, first)
    records = list(_to_the_end(consumer, ends))
    return records, {tp.topic: end for tp, end in ends.items()}


def read_part(consumer: KafkaConsumer, name: str, first: int, end: int) -> list[Any]:
    """
    Return the records of a topic from one offset to below another.

    Raises:
        KafkaError: it could not be read, or not in 30 s.
    """
    if first >= end:
        return []
    partition = TopicPartition(name, 0)
    consumer.assign([partition])
    consumer.seek(partition, first)
    found = _to_the_end(consumer, {partition: end})
    return [one for one in found if one.offset < end]


def written(record: Any) -> Written:  # noqa: ANN401 - kafka-python is untyped
    """Return the parts of a control topic's record that are used."""
    at_ms = NO_TIME_MS if record.timestamp is None else record.timestamp
    return Written(record.key, record.value, record.offset, at_ms)


def time_of(record: Any) -> float | None:  # noqa: ANN401 - kafka-python is untyped
    """Return a record's time in seconds since the epoch; None if it has none."""
    at_ms = record.timestamp
    return None if at_ms is None or at_ms < 0 else at_ms / 1000


def next_time(consumer: KafkaConsumer, name: str, timeout: float) -> float | None:
    """
    Wait for the next record with a time; return that, or None after so many seconds.

    Raises:
        KafkaError: the topic could not be read.
    """
    partition = TopicPartition(name, 0)
    consumer.assign([partition])
    ends = consumer.end_offsets([partition], timeout_ms=READ_TIMEOUT * 1000)
    consumer.seek(partition, ends[partition])
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        for records in consumer.poll(left * 1000).values():
            times = [at for one in records if (at := time_of(one)) is not None]
            if times:
                return times[-1]
    return None


def firsts_since(
    consumer: KafkaConsumer,
    seconds: float,
    firsts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offsets from which to read the records of about the last seconds."""
    at_ms = int((time.time() - 2 * seconds) * 1000)
    try:
        found = consumer.offsets_for_times(dict.fromkeys(firsts, at_ms))
    except (KafkaError, ValueError):  # a broker that cannot look up times
        found = {}
    return {
        tp: one.offset
        if (one := found.get(tp)) is not None and one.offset >= 0
        else max(first, ends[tp] - _LAST_RECORDS)
        for tp, first in firsts.items()
    }


def _to_the_end(
    consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]
) -> Iterator[Any]:
    deadline = time.monotonic() + READ_TIMEOUT
    while any(consumer.position(tp) < end for tp, end in ends.items()):
        if time.monotonic() > deadline:
            message = f"the control topics could not be read in {READ_TIMEOUT:.0f} s"
            raise KafkaError(message)
        for records in consumer.poll(100).values():
            yield from records
