"""Queries brokers about topics: do they exist, may we read them, their settings."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group.settings import Control
from safeconsumer.group.topics import ACLS, Facts, absent

_REFUSED = kafka_errors.TopicAuthorizationFailedError.errno


def require_readable(admin: KafkaAdminClient, name: str) -> None:
    """
    Check that a topic exists, and that this principal may read it.

    Raises:
        UnknownTopicOrPartitionError: the topic is missing; the message gives advice.
        TopicAuthorizationFailedError: the principal may not read the topic; the message
            gives advice.
    """
    (described,) = admin.describe_topics([name])
    _check_readable(described)


def readable(
    admin: KafkaAdminClient, settings: Control
) -> tuple[dict[str, object], list[Exception]]:
    """
    Return the ids of those control topics that exist and may be read.

    Returns:
        The ids by topic name, and an error for each topic that cannot be read.

    Raises:
        KafkaError: the broker could not be queried.
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
        troubles.append(ControlTopicError("the settings name no status topic"))
    return found, troubles


def _check_readable(described: Mapping[str, Any]) -> None:
    # A principal that may only write to a topic sees the topic in metadata, but brokers
    # refuse its fetches. Brokers before 2.3 do not report which operations a principal
    # may perform.
    name, allowed = described["name"], described.get("authorized_operations")
    if described["error_code"] == _REFUSED or (allowed and "READ" not in allowed):
        message = f"no right to read {name}: {ACLS}"
        raise kafka_errors.TopicAuthorizationFailedError(message)
    if not described["partitions"]:
        raise kafka_errors.UnknownTopicOrPartitionError(absent(name))


def describe(admin: KafkaAdminClient, names: Iterable[str]) -> tuple[Facts, ...]:
    """
    Return the broker's description of each topic.

    Raises:
        KafkaError: the broker could not be queried.
    """
    names = tuple(names)
    answers = admin.describe_topics(list(names))
    described = {
        one["name"]: len(one["partitions"]) for one in answers if not one["error_code"]
    }
    hidden = {one["name"] for one in answers if one["error_code"] == _REFUSED}
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
    Return, by topic, the seconds until records are deleted by age; None for never.

    The result omits topics that the broker did not describe, and topics that delete
    records only by size, because their retention time is unknown.

    Raises:
        KafkaError: the broker could not be queried.
    """
    return {
        name: _kept_for(settings)
        for name, settings in settings_of(admin, names).items()
        if re.fullmatch(r"-?\d+", settings.get("retention.ms", ""))
        and not (_kept_for(settings) is None and _is_cut(settings))
    }


def settings_of(
    admin: KafkaAdminClient, names: Iterable[str]
) -> dict[str, Mapping[str, str]]:
    """
    Return the settings of topics; empty if this principal may not see any.

    Raises:
        KafkaError: the broker could not be queried.
    """
    try:
        found = describe(admin, names)
    except (
        kafka_errors.AuthorizationError,
        kafka_errors.UnsupportedVersionError,  # the broker does not know this request
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
    # kafka-python returns empty settings if the broker answers "not authorized".
    if not configs:
        return None
    return {name: str(one["value"]) for name, one in configs.items()}
