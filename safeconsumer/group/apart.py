"""Reads a topic once, with a separate client and a time limit."""

from collections.abc import Mapping
from typing import Any

import kafka.errors as kafka_errors

from safeconsumer.group import clients, whole
from safeconsumer.group.errand import Errand


def records(base: Mapping[str, Any], topic: str, seconds: float) -> list[Any]:
    """
    Return all records of a single-partition topic.

    Args:
        base: how to reach the cluster, with kafka-python's keys.
        topic: the topic's name.
        seconds: it gives up after this time, whatever the broker does.

    Raises:
        KafkaError: it could not be read; KafkaTimeoutError if not within that time.
    """
    errand = Errand(lambda: _read(base, topic))
    try:
        return errand.result(seconds)
    except TimeoutError as error:
        raise kafka_errors.KafkaTimeoutError(*error.args) from error


def _read(base: Mapping[str, Any], topic: str) -> list[Any]:
    consumer = clients.reader(base)
    try:
        return whole.read(consumer, [topic])[0]
    finally:
        consumer.close(autocommit=False, timeout_ms=500)
