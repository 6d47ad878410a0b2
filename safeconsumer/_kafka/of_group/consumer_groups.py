"""
Describes groups of KIP-848, in which the broker assigns partitions.

kafka-python 3.0.12 has no such request. The schema files next to this module are
Kafka's own ``ConsumerGroupDescribeRequest.json`` and
``ConsumerGroupDescribeResponse.json``, without comments.
"""

from collections.abc import Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.api_message import ApiMessage


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__package__):  # type: ignore[call-arg] # its metaclass is untyped
    """Kafka's request with the API key 69, which brokers support since Kafka 3.7."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__package__):  # type: ignore[call-arg] # as above
    """The response to ``ConsumerGroupDescribeRequest``."""


def describe_consumer_groups(
    admin: Any,  # noqa: ANN401 - kafka-python is untyped
    groups: Sequence[str],
    coordinator: int,
) -> dict[str, dict[str, Any]]:
    """
    Return descriptions of groups, as the admin client's ``describe_groups`` does.

    Each member also has its ``member_epoch``. The result leaves out names for which no
    group with this protocol exists.

    Raises:
        UnsupportedVersionError: the broker does not support the request.
        KafkaError: the broker does not respond.
    """
    answer = admin._manager.run(_asked, admin, groups, coordinator)
    return {
        one.group_id: {
            "group_state": one.group_state,
            "members": [_member(member) for member in one.members],
            "error": _error_text(one),
        }
        for one in answer.groups
        if one.error_code != kafka_errors.GroupIdNotFoundError.errno
    }


async def _asked(admin: Any, groups: Sequence[str], coordinator: int) -> Any:  # noqa: ANN401 - as above
    request = ConsumerGroupDescribeRequest(
        group_ids=list(groups), include_authorized_operations=False
    )
    return await admin._manager.send(request, node_id=coordinator)


def _member(one: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    assigned = [
        {"topic": several.topic_name, "partitions": several.partitions}
        for several in one.assignment.topic_partitions
    ]
    return {
        "member_id": one.member_id,
        "member_epoch": one.member_epoch,
        "client_id": one.client_id,
        "client_host": one.client_host,
        "member_assignment": {"assigned_partitions": assigned},
    }


def _error_text(one: Any) -> str | None:  # noqa: ANN401 - as above
    # Returns the value as text, like upstream's descriptions of other groups.
    if not one.error_code:
        return None
    return str(kafka_errors.for_code(one.error_code)(one.error_message or ""))
