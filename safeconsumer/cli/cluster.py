"""Checks, before a command starts, what it requires of the cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka.admin import KafkaAdminClient

from safeconsumer.cli.errors import CommandError
from safeconsumer.cli.statuses import Status
from safeconsumer.group import clients
from safeconsumer.group.described_topics import settings_of
from safeconsumer.group.scopes import suggestion
from safeconsumer.holds.explain import printable

# The errors for a topic that does not exist or has an impossible name.
_MISSING = (
    kafka_errors.InvalidTopicError,
    kafka_errors.UnknownTopicOrPartitionError,
)


def partitions_of(
    base: Mapping[str, Any], topics: Iterable[str]
) -> dict[str, frozenset[int] | None]:
    """
    Return the partitions of topics, None for missing topics, without creating topics.

    Raises:
        CommandError: the broker refuses.
        KafkaError: the broker does not answer.
    """
    with clients.admin(base) as admin:
        return _partitions_of(admin, topics)


def _partitions_of(
    admin: KafkaAdminClient, topics: Iterable[str]
) -> dict[str, frozenset[int] | None]:
    wanted = list(dict.fromkeys(topics))
    described = admin.describe_topics(wanted) if wanted else ()
    return {one["name"]: _partitions(one) for one in described}


def uncompacted(base: Mapping[str, Any], topics: Iterable[str]) -> frozenset[str]:
    """
    Return the topics whose settings show that they are not compacted.

    Raises:
        KafkaError: the broker could not be queried.
    """
    with clients.admin(base) as admin:
        found = settings_of(admin, sorted(topics))
    return frozenset(
        name
        for name, settings in found.items()
        if "compact" not in settings.get("cleanup.policy", "compact")
    )


def existing(
    base: Mapping[str, Any],
    topics: Iterable[str],
    mend: str = "",
    status: Status = Status.FAILED,
) -> dict[str, frozenset[int]]:
    """
    Check that all given topics exist; return their partitions.

    Args:
        base: the kafka-python settings for connecting to the cluster.
        topics: their names.
        mend: advice for a missing topic; without it, the message suggests similar
            names.
        status: the exit status if a topic is missing.

    Raises:
        CommandError: some topics do not exist (the message names them), or the broker
            refuses.
        KafkaError: the broker does not answer.
    """
    with clients.admin(base) as admin:
        found = _partitions_of(admin, topics)
        there = {
            name: numbers for name, numbers in found.items() if numbers is not None
        }
        if len(there) == len(found):
            return there
        missing = [name for name in found if name not in there]
        known = () if mend else admin.list_topics()
    names = printable(", ".join(missing))
    verb = "topic does not exist" if len(missing) == 1 else "topics do not exist"
    meant = "".join(dict.fromkeys(suggestion(name, known) for name in missing))
    mend = meant or f"; {mend or 'create it, or look for a typing error'}"
    message = f"{verb}: {names}{mend}"
    raise CommandError(message, status)


def _partitions(described: Mapping[str, Any]) -> frozenset[int] | None:
    name, code = printable(described["name"]), described["error_code"]
    error = kafka_errors.for_code(code)
    if error in _MISSING:
        return None
    if error is kafka_errors.TopicAuthorizationFailedError:
        message = f"the broker refuses: no permission to describe the topic {name}"
        raise CommandError(message, Status.REFUSED)
    return frozenset(one["partition_index"] for one in described["partitions"])
