"""Parses and writes offsets in the format of Spark's Kafka source: ``{"orders":{"0":5}}``."""

import json
from collections.abc import Iterable, Mapping

from safeconsumer.group import report_wire
from safeconsumer.group.partitions import numbers_text
from safeconsumer.holds.scope import TopicPartition, partition_text

Offsets = Mapping[TopicPartition, int]


def parse(text: str) -> dict[TopicPartition, int]:
    """
    Parse the source's JSON.

    Raises:
        ValueError: the text is not such JSON.
    """
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


def render(offsets: Offsets) -> str:
    """Return the source's JSON in a fixed order, so that equal offsets give equal texts."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(document, separators=(",", ":"))


def named(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions in human-readable form: ``orders:0-3,7 returns:1``."""
    return " ".join(
        partition_text(topic, numbers_text(several))
        for topic, several in report_wire.ranges(partitions).items()
    )
