"""Lists the error codes that the test kit's broker uses, and finds codes by name."""

import inspect
from typing import Any

NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
MESSAGE_TOO_LARGE = 10
NOT_COORDINATOR = 16
INVALID_TOPIC = 17
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
CONCURRENT_TRANSACTIONS = 51
SECURITY_DISABLED = 54
OPERATION_NOT_ATTEMPTED = 55
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82
INVALID_RECORD = 87
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
UNKNOWN_TOPIC_ID = 100


class RefusedError(Exception):
    """A request, or part of a request, is refused with Kafka's error ``code``."""

    def __init__(self, code: int, why: str = "") -> None:
        super().__init__(why)
        self.code = code


def check(code: int, why: str = "") -> None:
    """
    Raise an error for a code other than 0.

    Raises:
        RefusedError: the code is not 0.
    """
    if code:
        raise RefusedError(code, why)


def error_code(error: object) -> int:
    """
    Return the code of an error that is given as a code, a name or a kafka-python class.

    Raises:
        ValueError: Kafka has no such error.
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
    from kafka import errors  # noqa: PLC0415  slow import

    classes: list[Any] = [
        member for _, member in inspect.getmembers(errors, inspect.isclass)
    ]
    return {
        member.message: member.errno
        for member in classes
        if isinstance(getattr(member, "errno", None), int)
        and isinstance(getattr(member, "message", None), str)
    }
