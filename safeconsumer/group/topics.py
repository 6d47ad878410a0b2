"""Defines the settings for control topics, and checks the settings that a broker reports."""

from collections.abc import Mapping

from attrs import frozen

from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group import report_wire, wire

_DAY_MS = 24 * 3600 * 1000
# A member that was offline for a day should still find the tombstones.
_LEAST_KEPT_MS = _DAY_MS
# Bytes: the longest record that is ever written, plus the overhead of a batch.
_LEAST_BYTES = wire.MAX_VALUE_BYTES + wire.MAX_KEY_BYTES + 1024
_LEAST_STATUS_BYTES = report_wire.MAX_REPORT_BYTES + wire.MAX_KEY_BYTES + 1024

# The number of days for which the holds topic keeps a complete history.
HISTORY_DAYS = 30

# The topic has one partition, so that its records have one order and one end offset.
# LogAppendTime is set because holds expire by the broker's time. Kafka keeps all records
# from the last 30 days, and of the older ones only the latest of each hold. A starting
# member reads all of these. The maximum compaction lag is set to Kafka's default, which
# is no limit: the broker's own maximum may be shorter than the minimum here, and Kafka
# would refuse such settings.
HOLDS_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(7 * _DAY_MS),
    "max.message.bytes": str(1024 * 1024),
    "max.compaction.lag.ms": str(2**63 - 1),
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.1",
    "min.compaction.lag.ms": str(HISTORY_DAYS * _DAY_MS),
    "segment.ms": str(_DAY_MS),
    "unclean.leader.election.enable": "false",
}
ACLS = "safeconsumer control acls prints the ACLs that are needed"

# Reports need not be durable, because members write them again every few seconds.
STATUS_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact,delete",
    "max.message.bytes": str(1024 * 1024),
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.1",
    "retention.ms": str(3600 * 1000),
    "segment.ms": str(600 * 1000),
}


@frozen
class Facts:
    """
    A topic as the broker describes it.

    Attributes:
        name: the topic.
        partitions: the number of partitions; 0 if the topic does not exist, or if that
            is unknown.
        settings: the topic's settings by name; None if this principal may not see them.
        is_hidden: whether this principal may not describe the topic, so that its
            existence is unknown.
    """

    name: str
    partitions: int
    settings: Mapping[str, str] | None
    is_hidden: bool = False


def absent(name: str) -> str:
    """Return a sentence saying that a control topic does not exist, with advice."""
    return f"no topic {name}: run safeconsumer control init"


def require_fit(facts: Facts) -> None:
    """
    Check that a topic is fit to keep holds, as far as its settings are known.

    Raises:
        ControlTopicError: the topic is unfit; the message gives advice.
    """
    if wrong := faults(facts):
        raise ControlTopicError("; ".join(wrong))


def faults(facts: Facts) -> tuple[str, ...]:
    """Return why a topic is unfit to keep holds, with advice; () if it is fit."""
    if fault := _not_one(facts, absent(facts.name)):
        return (fault,)
    policy = (facts.settings or {}).get("cleanup.policy", "compact")
    if policy != "compact":
        fault = (
            f"{facts.name} has cleanup.policy={policy}: holds would be deleted with "
            "time; set cleanup.policy=compact (safeconsumer control init does)"
        )
        return (fault,)
    return ()


def _not_one(facts: Facts, absent: str) -> str:
    if facts.is_hidden:
        return f"no right to describe {facts.name}: {ACLS}"
    if not facts.partitions:
        return absent
    if facts.partitions == 1:
        return ""
    return (
        f"{facts.name} has {facts.partitions} partitions and must have 1: delete it and "
        "run safeconsumer control init, or choose other names"
    )


def advice(facts: Facts) -> tuple[str, ...]:
    """Return recommendations for a topic that is fit, each as a sentence."""
    if facts.settings is None:
        return (unknown_settings(facts),)
    what = "holds expire by the clock of the host that placed them"
    found = [*_untimed(facts, what)]
    if facts.settings.get("unclean.leader.election.enable") == "true":
        found.append(
            f"{facts.name}: unclean.leader.election.enable=true may lose "
            "acknowledged holds"
        )
    return tuple(found)


def unknown_settings(facts: Facts) -> str:
    """Return a sentence saying that a topic's settings are unknown."""
    return f"{facts.name}: settings unknown, no right to DescribeConfigs on it"


def shortcomings(facts: Facts) -> tuple[str, ...]:
    """Return a sentence for each setting that an operator must change."""
    obeying = (
        "a member that cannot read for so long continues to obey holds that were lifted "
        "in the meantime"
    )
    return (
        *_below(facts, "delete.retention.ms", _LEAST_KEPT_MS, obeying),
        *_below(
            facts,
            "max.message.bytes",
            _LEAST_BYTES,
            "holds that are longer cannot be written",
        ),
    )


def forgotten(facts: Facts) -> tuple[str, ...]:
    """Return why a topic's history may be shorter than 30 days; () if it is not."""
    least = HISTORY_DAYS * _DAY_MS
    what = f"records of past holds may be deleted before {HISTORY_DAYS} days are over"
    return _below(facts, "min.compaction.lag.ms", least, what)


def status_faults(facts: Facts) -> tuple[str, ...]:
    """Return why a topic is unfit to keep members' reports; () if it is fit."""
    unseen = f"{facts.name} does not exist: which members obey is unknown"
    if fault := _not_one(facts, unseen):
        return (fault,)
    what = "longer reports cannot be written"
    return (
        *_untimed(facts, "the broker's time is unknown, to members too"),
        *_below(facts, "max.message.bytes", _LEAST_STATUS_BYTES, what),
    )


def _untimed(facts: Facts, what: str) -> tuple[str, ...]:
    """Return a sentence if the topic is known to keep its producers' timestamps."""
    kind = "message.timestamp.type"
    if (facts.settings or {}).get(kind, "LogAppendTime") == "LogAppendTime":
        return ()
    return (f"{facts.name}: {kind} is not LogAppendTime, so {what}",)


def _below(facts: Facts, name: str, least: int, what: str) -> tuple[str, ...]:
    """Return a sentence if a setting is known and is below the minimum."""
    value = (facts.settings or {}).get(name, "")
    if not value.lstrip("-").isdigit() or int(value) >= least:
        return ()
    return (f"{facts.name}: {name}={value}: {what}",)
