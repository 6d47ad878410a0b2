"""Defines the settings of control topics, and checks them at the broker."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import kafka.errors as kafka_errors
from attrs import frozen
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group import report_wire, wire
from safeconsumer.group.settings import Control

# Milliseconds; a member that was away for a day should still read tombstones.
_LEAST_KEPT_MS = 24 * 3600 * 1000
# Bytes: the longest record that is ever written, and what a batch adds.
_LEAST_BYTES = wire.MAX_VALUE_BYTES + wire.MAX_KEY_BYTES + 1024
_LEAST_STATUS_BYTES = report_wire.MAX_REPORT_BYTES + wire.MAX_KEY_BYTES + 1024

_DAY_MS = 24 * 3600 * 1000
# The holds topic is the journal of what operators did.
HISTORY_DAYS = 30

# One partition gives one order and one end offset. Holds expire by the broker's time.
# No record of the last 30 days is compacted away; of what is older, each hold's last
# record stays, so that a start reads the month and that. Kafka's own maximum, no limit,
# is set because a broker's may be shorter, which Kafka refuses beside the minimum.
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
_REFUSED = kafka_errors.TopicAuthorizationFailedError.errno

# Settings for state that is not durable: it is written again every few seconds.
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
    The facts about one topic.

    Attributes:
        name: the topic.
        partitions: how many it has; 0 if it does not exist, or is not known.
        settings: names and values; None if the broker does not give them to us.
        is_hidden: whether the right to describe it is lacking; then it is not known
            whether it exists.
    """

    name: str
    partitions: int
    settings: Mapping[str, str] | None
    is_hidden: bool = False


def require(admin: KafkaAdminClient, name: str) -> None:
    """
    Check that a topic exists, and that this principal may read it.

    Raises:
        UnknownTopicOrPartitionError: it is missing; the message says what to do.
        TopicAuthorizationFailedError: it may not be read; the message says what to do.
    """
    (described,) = admin.describe_topics([name])
    _check_readable(described)


def readable(
    admin: KafkaAdminClient, settings: Control
) -> tuple[dict[str, object], list[Exception]]:
    """
    Return which of the holds topic and the status topic may be read, with their ids.

    Returns:
        The topics, and why others are not among them.

    Raises:
        KafkaError: the broker could not be asked.
    """
    found: dict[str, object] = {}
    troubles: list[Exception] = []
    described = {one["name"]: one for one in admin.describe_topics([*settings.topics])}
    for name in settings.topics:
        try:
            _check_readable(described[name])
        except kafka_errors.UnknownTopicOrPartitionError as error:
            troubles.append(ControlTopicError(*error.args))
        except kafka_errors.TopicAuthorizationFailedError as error:
            troubles.append(error)
        else:
            found[name] = described[name].get("topic_id")
    if settings.status_topic is None:
        troubles.append(ControlTopicError("there is no status topic, by the settings"))
    return found, troubles


def _check_readable(described: Mapping[str, Any]) -> None:
    name = described["name"]
    if not _may_read(described):
        message = f"no right to read {name}: {ACLS}"
        raise kafka_errors.TopicAuthorizationFailedError(message)
    if not described["partitions"]:
        raise kafka_errors.UnknownTopicOrPartitionError(absent(name))


def _may_read(described: Mapping[str, Any]) -> bool:
    # A principal that may only write a topic sees it, and each fetch would be refused.
    # Brokers before 2.3 do not report what a principal may do.
    told = described.get("authorized_operations")
    return described["error_code"] != _REFUSED and (not told or "READ" in told)


def ask(admin: KafkaAdminClient, names: Iterable[str]) -> tuple[Facts, ...]:
    """
    Ask the broker about topics.

    Raises:
        KafkaError: the broker could not be asked.
    """
    names = tuple(names)
    told = admin.describe_topics(list(names))
    described = {
        one["name"]: len(one["partitions"]) for one in told if not one["error_code"]
    }
    hidden = {one["name"] for one in told if one["error_code"] == _REFUSED}
    there = [name for name in names if described.get(name)]
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in there]
    answer = admin.describe_configs(resources, config_filter="all") if resources else {}
    settings = answer.get("topic", {})
    return tuple(
        Facts(
            name,
            described.get(name, 0),
            _values(settings.get(name)),
            is_hidden=name in hidden,
        )
        for name in names
    )


def retention(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, float | None]:
    """
    Return after how many seconds topics delete records; None: never because of age.

    Topics for which the broker gives no answer are left out, and those that delete by
    size alone: when they do nobody knows.

    Raises:
        KafkaError: the broker could not be asked.
    """
    return {
        name: _kept_for(settings)
        for name, settings in settings_of(admin, names).items()
        if re.fullmatch(r"-?\d+", settings.get("retention.ms", ""))
        and not (_kept_for(settings) is None and _is_cut(settings))
    }


def timed_by_broker(admin: KafkaAdminClient, names: Iterable[str]) -> set[str]:
    """
    Return the topics whose records have the broker's times, as far as it tells.

    Raises:
        KafkaError: the broker could not be asked.
    """
    return {
        name
        for name, settings in settings_of(admin, names).items()
        if settings.get("message.timestamp.type") == "LogAppendTime"
    }


def settings_of(
    admin: KafkaAdminClient, names: Iterable[str]
) -> dict[str, Mapping[str, str]]:
    """
    Return the settings of topics; empty where the broker does not give them to us.

    Raises:
        KafkaError: the broker could not be asked.
    """
    try:
        found = ask(admin, names)
    except (
        kafka_errors.AuthorizationError,
        kafka_errors.UnsupportedVersionError,  # a broker without this request
    ):
        return {}
    return {one.name: one.settings or {} for one in found}


def _is_cut(settings: Mapping[str, str]) -> bool:
    size = settings.get("retention.bytes", "-1")
    return "delete" in settings.get("cleanup.policy", "delete") and size != "-1"


def _kept_for(settings: Mapping[str, str]) -> float | None:
    kept_ms = int(settings["retention.ms"])
    is_kept = kept_ms < 0 or "delete" not in settings.get("cleanup.policy", "delete")
    return None if is_kept else kept_ms / 1000


def _values(configs: Mapping[str, Mapping[str, str]] | None) -> dict[str, str] | None:
    # kafka-python turns an answer of "not authorized" into no settings at all.
    if not configs:
        return None
    return {name: str(one["value"]) for name, one in configs.items()}


def absent(name: str) -> str:
    """Return the sentence that a control topic does not exist, with what to do."""
    return f"no topic {name}: run safeconsumer control init"


def require_fit(facts: Facts) -> None:
    """
    Check that a topic is fit to keep holds, as far as can be found out.

    Raises:
        ControlTopicError: it is not; the message says what to do.
    """
    if wrong := faults(facts):
        raise ControlTopicError("; ".join(wrong))


def faults(facts: Facts) -> tuple[str, ...]:
    """Return why a topic is unfit to keep holds, each with what to do; () if it is fit."""
    if facts.is_hidden:
        return (_hidden(facts),)
    if not facts.partitions:
        return (absent(facts.name),)
    if facts.partitions != 1:
        return (_too_many(facts),)
    policy = (facts.settings or {}).get("cleanup.policy", "compact")
    if policy != "compact":
        fault = (
            f"{facts.name} has cleanup.policy={policy}: holds would be deleted with "
            "time; set cleanup.policy=compact (safeconsumer control init does)"
        )
        return (fault,)
    return ()


def _hidden(facts: Facts) -> str:
    return f"no right to describe {facts.name}: {ACLS}"


def _too_many(facts: Facts) -> str:
    return (
        f"{facts.name} has {facts.partitions} partitions and must have 1: delete it and "
        "run safeconsumer control init, or choose other names"
    )


def advice(facts: Facts) -> tuple[str, ...]:
    """Return what should be changed on a topic that is fit, each as a sentence."""
    if facts.settings is None:
        return (unknown_settings(facts),)
    said = []
    if facts.settings.get("message.timestamp.type") != "LogAppendTime":
        said.append(
            f"{facts.name}: message.timestamp.type is not LogAppendTime, so holds "
            "expire by the clock of the host that placed them"
        )
    if facts.settings.get("unclean.leader.election.enable") == "true":
        said.append(
            f"{facts.name}: unclean.leader.election.enable=true may lose "
            "acknowledged holds"
        )
    return tuple(said)


def unknown_settings(facts: Facts) -> str:
    """Say that the settings of a topic are not known."""
    return f"{facts.name}: settings unknown, no right to DescribeConfigs on it"


def shortcomings(facts: Facts) -> tuple[str, ...]:
    """Return what an operator must change on a topic that is fit, each as a sentence."""
    obeying = (
        "a member that cannot read for so long goes on obeying holds that were lifted "
        "meanwhile"
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
    """Return why the history of a topic is shorter than 30 days; () if it is not."""
    least = HISTORY_DAYS * _DAY_MS
    what = (
        f"what was held and lifted may be forgotten before {HISTORY_DAYS} days are over"
    )
    return _below(facts, "min.compaction.lag.ms", least, what)


def status_faults(facts: Facts) -> tuple[str, ...]:
    """Return why a topic could not keep reports for a while; () if it can."""
    if facts.is_hidden:
        return (_hidden(facts),)
    if not facts.partitions:
        return (f"{facts.name} does not exist: it is unknown who obeys",)
    if facts.partitions != 1:
        return (_too_many(facts),)
    what = "longer reports cannot be written"
    return _below(facts, "max.message.bytes", _LEAST_STATUS_BYTES, what)


def _below(facts: Facts, name: str, least: int, what: str) -> tuple[str, ...]:
    """Return a sentence if a setting is known and below a number."""
    value = (facts.settings or {}).get(name, "")
    if not value.lstrip("-").isdigit() or int(value) >= least:
        return ()
    return (f"{facts.name}: {name}={value}: {what}",)
