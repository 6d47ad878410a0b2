"""Lists topic and broker configs, with Kafka's defaults."""

from collections.abc import Mapping

# Kafka's defaults.
TOPIC_DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
BROKER_SETTINGS: Mapping[str, str] = {
    "auto.create.topics.enable": "true",
    "group.max.session.timeout.ms": "1800000",
    "group.min.session.timeout.ms": "1",
    "num.partitions": "1",
    "transaction.max.timeout.ms": "900000",
}
_NUMBERS = {
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.ms",
}
_CHOICES = {
    "cleanup.policy": {"delete", "compact", "compact,delete", "delete,compact"},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}
TOPIC, BROKER = 2, 4  # Kafka's resource types
GIVEN, DEFAULT, STATIC = 1, 5, 4  # Kafka's codes of a config's source


def problem(settings: Mapping[str, str | None]) -> str | None:
    """Return why a topic cannot have these settings, or None if it can."""
    for name, value in settings.items():
        if name not in TOPIC_DEFAULTS:
            return f"Unknown topic config name: {name}"
        is_bad = value is None or value not in _CHOICES.get(name, {value})
        if is_bad or (name in _NUMBERS and not _is_number(str(value))):
            return f"Invalid value {value} for configuration {name}"
    return None


def _is_number(value: str) -> bool:
    return value.removeprefix("-").isdecimal()
