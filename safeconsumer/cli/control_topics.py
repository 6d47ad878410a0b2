"""Reads the control topics for an audit, with plain clients and the audit's decoder."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from safeconsumer.audit.control import (
    GROUP,
    OPERATOR,
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
from safeconsumer.cli.errors import Status
from safeconsumer.group import clients
from safeconsumer.group.board import ControlRecord


def read_control(base: Mapping[str, Any], names: Sequence[str]) -> Control:
    """
    Read the control topics from their beginning to their present end.

    Args:
        base: how to reach the broker.
        names: the operators' topic and the group's.

    Raises:
        CommandError: a topic is missing, or the broker stopped answering.
        KafkaError: the topics cannot be read.
    """
    mend = "run safeconsumer control init, or give --topic-prefix"
    existing(base, names, mend, Status.REFUSED)
    with clients.admin(base) as admin:
        types, cluster = _timestamp_types(admin, names), cluster_id(admin)
    consumer = KafkaConsumer(
        **{"bootstrap_timeout_ms": clients.BOOTSTRAP_MS, **base},
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",  # to go on elsewhere would pass over records
        allow_auto_create_topics=False,
    )
    try:
        found, since = _read(consumer, names)
    finally:
        consumer.close(autocommit=False)
    topics = [Topic(name, types[name], since[name]) for name in names]
    return control_of(topics, found, cluster=cluster, until=math.inf)


def cluster_id(admin: Any) -> str | None:  # noqa: ANN401 - kafka-python is untyped
    """
    Return the id of the cluster that an admin client is connected to.

    Raises:
        KafkaError: the broker could not be asked.
    """
    found: str | None = admin.describe_cluster()["cluster_id"]
    return found


def history_since(
    records: Iterable[ControlRecord],
    ends: Mapping[str, int],
    sources: Mapping[str, str],
) -> dict[str, float]:
    """
    Return since when what an operator read of the control topics is complete.

    Args:
        records: all records of all groups, also those that cannot be read.
        ends: the offset behind the last record, by topic.
        sources: the name of each topic, by ``operator`` and ``group``.

    Returns:
        Seconds since the epoch, by ``operator`` and ``group``.
    """
    places: dict[str, list[Place]] = {source: [] for source in sources}
    for past in records:
        one = past.written
        at = max(0, one.at_ms) / 1000
        places[past.source].append(place_of(one.offset, one.key, one.value, at))
    now = time.time()
    return {
        source: complete_since(places[source], ends[name], now) if name in ends else now
        for source, name in sources.items()
    }


def _timestamp_types(admin: Any, names: Sequence[str]) -> dict[str, str | None]:  # noqa: ANN401 - kafka-python is untyped
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    told = admin.describe_configs(asked, config_filter="all").get("topic", {})
    # Without the right to describe them there are no settings.
    settings = {name: told.get(name) or {} for name in names}
    return {
        name: str(one["message.timestamp.type"]["value"])
        if "message.timestamp.type" in one
        else None
        for name, one in settings.items()
    }


def _read(
    consumer: Any,  # noqa: ANN401 - kafka-python is untyped
    names: Sequence[str],
) -> tuple[list[Record], dict[str, float]]:
    # Returns the records, and since when each topic is complete.
    sources = dict(zip(names, (OPERATOR, GROUP), strict=True))
    tps = [TopicPartition(name, 0) for name in names]
    consumer.assign(tps)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(tps)
    found: list[Record] = []
    places: dict[str, list[Place]] = {name: [] for name in names}
    for tp, several in records.read(consumer, ends):
        for one in several:
            at = (one.timestamp or 0) / 1000
            places[tp.topic].append(place_of(one.offset, one.key, one.value, at))
            record = decode(sources[tp.topic], one.key, one.value, at)
            if record is not None:
                found.append(record)
    now = time.time()
    since = {tp.topic: complete_since(places[tp.topic], ends[tp], now) for tp in tps}
    return found, since
