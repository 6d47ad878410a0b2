"""Reads the control topics for an audit, with plain clients and the audit's decoder."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from safeconsumer._kafka.fixes.unmade import made
from safeconsumer.audit.control import (
    GROUP,
    OPERATOR,
    Control,
    Record,
    Topic,
    control_of,
    decode,
)
from safeconsumer.cli import records
from safeconsumer.cli.cluster import existing
from safeconsumer.cli.errors import Status
from safeconsumer.group.clients import BOOTSTRAP_MS


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
    admin = made(KafkaAdminClient, **base)
    try:
        topics = _topics(admin, names, time.time())
    finally:
        admin.close()
    consumer = KafkaConsumer(
        **{"bootstrap_timeout_ms": BOOTSTRAP_MS, **base},
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",  # to go on elsewhere would pass over records
        allow_auto_create_topics=False,
    )
    try:
        return control_of(topics, list(_records(consumer, names)))
    finally:
        consumer.close(autocommit=False)


def _topics(admin: Any, names: Sequence[str], now: float) -> list[Topic]:  # noqa: ANN401 - kafka-python is untyped
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    told = admin.describe_configs(asked, config_filter="all").get("topic", {})
    found: list[Topic] = []
    for name in names:
        settings = told.get(name) or {}  # empty without the right to describe them
        values = {key: str(one["value"]) for key, one in settings.items()}
        lag = values.get("min.compaction.lag.ms")
        since = None if lag is None else now - int(lag) / 1000
        found.append(Topic(name, values.get("message.timestamp.type"), since))
    return found


def _records(consumer: Any, names: Sequence[str]) -> Iterator[Record]:  # noqa: ANN401 - kafka-python is untyped
    sources = dict(zip(names, (OPERATOR, GROUP), strict=True))
    tps = [TopicPartition(name, 0) for name in names]
    firsts, ends = consumer.beginning_offsets(tps), consumer.end_offsets(tps)
    for tp, several in records.read(consumer, firsts, ends):
        for one in several:
            at = (one.timestamp or 0) / 1000
            found = decode(sources[tp.topic], one.key, one.value, at)
            if found is not None:
                yield found
