"""Checks at the cluster what a command needs before it begins."""

from collections.abc import Iterable, Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka.admin import KafkaAdminClient

from safeconsumer._kafka.fixes.unmade import made
from safeconsumer.cli.errors import CommandError, Status
from safeconsumer.cli.saying import printable
from safeconsumer.group.topics import ask

# A name that no topic can have: asking for it returns no topic.
_MISSING = (
    kafka_errors.InvalidTopicError,
    kafka_errors.UnknownTopicOrPartitionError,
)


def partitions_of(
    base: Mapping[str, Any], topics: Iterable[str]
) -> dict[str, frozenset[int] | None]:
    """
    Return the partitions of topics; None for one that does not exist. It creates none.

    Raises:
        CommandError: the broker refuses.
        KafkaError: the broker does not answer.
    """
    wanted = list(dict.fromkeys(topics))
    admin = made(KafkaAdminClient, **base)
    try:
        described = admin.describe_topics(wanted) if wanted else ()
    finally:
        admin.close()
    return {one["name"]: _partitions(one) for one in described}


def uncompacted(base: Mapping[str, Any], topics: Iterable[str]) -> frozenset[str]:
    """
    Return those topics whose settings say that they are not compacted.

    Raises:
        KafkaError: the broker could not be asked.
    """
    admin = made(KafkaAdminClient, **base)
    try:
        found = ask(admin, sorted(topics))
    except (
        kafka_errors.AuthorizationError,
        kafka_errors.UnsupportedVersionError,  # a broker without this request
    ):
        return frozenset()
    finally:
        admin.close()
    policies = {one.name: (one.settings or {}).get("cleanup.policy") for one in found}
    return frozenset(
        name
        for name, policy in policies.items()
        if policy is not None and "compact" not in policy
    )


def existing(
    base: Mapping[str, Any],
    topics: Iterable[str],
    mend: str = "create it, or look for a typing error",
    status: Status = Status.FAILED,
) -> None:
    """
    Check that all of the topics exist; if not, ``mend`` says what to do.

    Raises:
        CommandError: the message has the names of those that do not; or the broker
        refuses.
        KafkaError: the broker does not answer.
    """
    found = partitions_of(base, topics)
    missing = [name for name, partitions in found.items() if partitions is None]
    if missing:
        names = printable(", ".join(missing))
        verb = "topic does not exist" if len(missing) == 1 else "topics do not exist"
        message = f"{verb}: {names}; {mend}"
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
