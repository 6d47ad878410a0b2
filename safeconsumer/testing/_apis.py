"""Lists the names and numbers of Kafka's requests and errors that the kit uses."""

import inspect
from typing import Any

API_KEYS = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "LeaveGroup": 13,
    "SyncGroup": 14,
    "DescribeGroups": 15,
    "ListGroups": 16,
    "ApiVersions": 18,
    "InitProducerId": 22,
    "OffsetForLeaderEpoch": 23,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
    "DescribeAcls": 29,
    "DescribeConfigs": 32,
}
API_NAMES = {key: name for name, key in API_KEYS.items()}

# The group requests stay below their tagged forms, so that the kit's coordinator
# can read them; ApiVersions 3 is where the mock's answer becomes malformed.
NEWEST_VERSIONS = {
    "OffsetCommit": 7,
    "OffsetFetch": 5,
    "FindCoordinator": 2,
    "JoinGroup": 5,
    "Heartbeat": 3,
    "LeaveGroup": 3,
    "SyncGroup": 3,
    "ApiVersions": 2,
}

# Requests that the kit answers, or may refuse, instead of the mock.
ANSWERED_HERE = frozenset(
    API_KEYS[name]
    for name in (
        "OffsetCommit",
        "JoinGroup",
        "Heartbeat",
        "LeaveGroup",
        "SyncGroup",
        "DescribeAcls",
        "DescribeConfigs",
    )
)

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
UNSUPPORTED_VERSION = 35
SECURITY_DISABLED = 54
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82


def api_key(api: str) -> int:
    """
    Return the number of a request such as ``"Fetch"``.

    Raises:
        ValueError: no such request; the message lists the known ones.

    """
    try:
        return API_KEYS[api]
    except KeyError:
        msg = f"unknown request {api!r}, known are: {', '.join(API_KEYS)}"
        raise ValueError(msg) from None


def api_name(key: int) -> str:
    """Return the name of a request's number, or the number as text."""
    return API_NAMES.get(key, str(key))


def error_code(error: object) -> int:
    """
    Return an error's code, given as code, as kafka-python's class, or by its name.

    Raises:
        ValueError: no broker sends such an error.

    """
    if isinstance(error, int):
        return error
    code = getattr(error, "errno", None)
    if isinstance(code, int):
        return code
    codes = _codes_by_name()
    try:
        return codes[str(error)]
    except KeyError:
        msg = f"unknown error {error!r}; give a name like NOT_COORDINATOR or a code"
        raise ValueError(msg) from None


def _codes_by_name() -> dict[str, int]:
    from kafka import errors  # noqa: PLC0415  loading kafka takes 0.2 s: when needed

    classes: list[Any] = [
        member for _, member in inspect.getmembers(errors, inspect.isclass)
    ]
    return {
        member.message: member.errno
        for member in classes
        if isinstance(getattr(member, "errno", None), int)
        and isinstance(getattr(member, "message", None), str)
    }
