"""
Polling until something is so, with a bound.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from kafka import TopicPartition

LIMIT = 30.0


def poll_until(
    consumer: Any,  # noqa: ANN401 - stock or ours
    condition: Callable[[], bool],
    *,
    got: dict[TopicPartition, list[int]] | None = None,
    limit: float = LIMIT,
) -> dict[TopicPartition, list[int]]:
    """
    Poll until the condition holds, and return the offsets that came, by partition.

    With ``got`` they are added to what had come before.
    """
    got = {} if got is None else got
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit} s; came: {got}"
        collect(got, consumer.poll(100))
    return got


def collect(
    got: dict[TopicPartition, list[int]],
    polled: dict[TopicPartition, Iterable[Any]],
) -> None:
    """
    Add the offsets of what a ``poll`` returned.
    """
    for tp, records in polled.items():
        got.setdefault(tp, []).extend(record.offset for record in records)


def produce(make_producer: Callable[..., Any], topic: str, *counts: int) -> None:
    """
    Write some records to each partition, and wait until all are acknowledged.
    """
    producer = make_producer()
    sent = [
        producer.send(topic, partition=partition, value=b"%d" % number)
        for partition, count in enumerate(counts)
        for number in range(count)
    ]
    producer.flush(LIMIT)
    for future in sent:
        future.get(LIMIT)
