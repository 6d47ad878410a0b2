"""
Looks up the coordinators of groups, and requests committed offsets from them.

A broker's response covers many groups, each with its own error code. kafka-python
3.0.12 raises the first error, and loses the results of all other groups. If a failed
request were repeated with each half of its groups, a coordinator that is not ready
would get twice as many requests as there are groups.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kafka.errors import KafkaError, for_code
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

# Since these versions, FindCoordinator and OffsetFetch return a result for each group.
_SEVERAL_KEYS = 4
_SEVERAL_GROUPS = 8


def coordinators(
    admin: Any,  # noqa: ANN401 - kafka-python is untyped
    groups: Sequence[str],
) -> tuple[dict[str, int], dict[str, Exception]]:
    """
    Return each group's coordinator, and an error for each group without one.

    Raises:
        KafkaError: no broker responds.
    """
    found: dict[str, int] = {}
    refused: dict[str, Exception] = {}
    known = admin._manager.cluster
    kind = CoordinatorType.GROUP
    unknown = [one for one in groups if known.get_coordinator(one, kind) is None]
    answers = admin._manager.run(_found, admin, unknown) if unknown else ()
    for name, answer in answers:
        try:
            known.add_coordinator(answer, kind, name, synthesize_node_id=False)
        except KafkaError as error:
            refused[name] = error
    for name in groups:
        node = known.get_coordinator(name, kind)
        if node is not None:
            found[name] = node
    return found, refused


def committed_offsets(
    admin: Any,  # noqa: ANN401 - as above
    node: int,
    groups: Sequence[str],
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """
    Return the committed offsets of each group, and an error for each refused group.

    The offsets have the form of the admin client's ``list_group_offsets``.

    Args:
        admin: the client.
        node: the broker that coordinates these groups.
        groups: the names of the groups.

    Raises:
        KafkaError: the broker does not respond.
    """
    found: dict[str, Any] = {}
    refused: dict[str, Exception] = {}
    for name, answer in admin._manager.run(_committed, admin, node, groups):
        if answer.error_code:
            refused[name] = for_code(answer.error_code)()
            continue
        try:
            found[name] = admin._parse_group_offsets(answer)
        except KafkaError as error:
            refused[name] = error
    return found, refused


def forget(admin: Any, groups: Iterable[str]) -> None:  # noqa: ANN401 - as above
    """
    Make the client look up the coordinators of groups again.

    kafka-python 3.0.12 caches the first result, and would query a former coordinator
    until the client is closed.
    """
    known = admin._manager.cluster._coordinators
    for group in groups:
        known.pop((CoordinatorType.GROUP, group), None)


async def _found(admin: Any, groups: Sequence[str]) -> list[tuple[str, Any]]:  # noqa: ANN401 - as above
    kind, send = CoordinatorType.GROUP.value, admin._manager.send
    version = admin._manager.broker_version_data.api_version(FindCoordinatorRequest)
    if version >= _SEVERAL_KEYS:
        request = FindCoordinatorRequest(
            key_type=kind, coordinator_keys=groups, min_version=_SEVERAL_KEYS
        )
        return [(one.key, one) for one in (await send(request)).coordinators]
    found = []
    for name in groups:
        request = FindCoordinatorRequest(
            key=name, key_type=kind, max_version=_SEVERAL_KEYS - 1
        )
        found.append((name, await send(request)))
    return found


async def _committed(
    admin: Any,  # noqa: ANN401 - as above
    node: int,
    groups: Sequence[str],
) -> list[tuple[str, Any]]:
    # An older broker gets a separate request for each group.
    found: list[tuple[str, Any]] = []
    for name, request in admin._list_group_offsets_requests(dict.fromkeys(groups)):
        answer = await admin._manager.send(request, node_id=node)
        if answer.API_VERSION >= _SEVERAL_GROUPS:
            found += [(one.group_id, one) for one in answer.groups]
        else:
            found.append((name, answer))
    return found
