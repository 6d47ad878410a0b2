"""Reads the holds topic for an audit, with the audit's own decoder."""

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from kafka import TopicPartition

from safeconsumer.audit.control import (
    Control,
    Place,
    Record,
    Topic,
    complete_since,
    control_of,
    decode,
    place_of,
)
from safeconsumer.cli import records
from safeconsumer.cli.cluster import existing
from safeconsumer.cli.statuses import Status
from safeconsumer.group import clients
from safeconsumer.group.described_topics import settings_of
from safeconsumer.group.fold import RawRecord


def read_control(base: Mapping[str, Any], name: str) -> Control:
    """
    Read the holds topic from its start to its current end.

    Args:
        base: kafka-python's settings of the connection.
        name: the holds topic.

    Raises:
        CommandError: the topic is missing, or the broker stopped answering.
        KafkaError: the topic cannot be read.
    """
    mend = "run safeconsumer control init, or give --topic-prefix"
    existing(base, [name], mend, Status.REFUSED)
    with clients.admin(base) as admin:
        # The result is empty if this user may not read the topic's settings.
        settings = settings_of(admin, [name]).get(name, {})
        cluster = cluster_id(admin)
    with clients.reader(base) as consumer:
        found, since = _read(consumer, name)
    topic = Topic(name, settings.get("message.timestamp.type"), since)
    return control_of([topic], found, cluster=cluster, until=math.inf)


def cluster_id(admin: Any) -> str | None:  # noqa: ANN401 - kafka-python is untyped
    """
    Return the id of the cluster that an admin client is connected to.

    Raises:
        KafkaError: the broker could not be queried.
    """
    found: str | None = admin.describe_cluster()["cluster_id"]
    return found


def history_since(several: Iterable[RawRecord], end: int | None) -> float:
    """
    Return the time from which an operator's records from the holds topic are complete.

    Args:
        several: all records, of all groups, including unreadable ones.
        end: the topic's end offset; None if the topic was not read.

    Returns:
        The time in seconds since the epoch.
    """
    places = [
        place_of(one.offset, one.key, one.value, max(0, one.at_ms) / 1000)
        for one in several
    ]
    now = time.time()
    return now if end is None else complete_since(places, end, now)


def _read(
    consumer: Any,  # noqa: ANN401 - kafka-python is untyped
    name: str,
) -> tuple[list[Record], float]:
    # Returns the records, and the time from which the topic is complete.
    tp = TopicPartition(name, 0)
    consumer.assign([tp])
    consumer.seek_to_beginning()
    ends = consumer.end_offsets([tp])
    found: list[Record] = []
    places: list[Place] = []
    for _, several in records.read(consumer, ends):
        for one in several:
            at = (one.timestamp or 0) / 1000
            places.append(place_of(one.offset, one.key, one.value, at))
            record = decode(one.key, one.value, at)
            if record is not None:
                found.append(record)
    return found, complete_since(places, ends[tp], time.time())
