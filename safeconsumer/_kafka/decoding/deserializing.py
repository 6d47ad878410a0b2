"""Calls an application's deserializers, of both forms that kafka-python knows."""

import warnings
from typing import Any


def deserialized(reader: Any, topic: str, headers: list[Any], data: Any) -> Any:  # noqa: ANN401 - whatever it reads
    """
    Return what a deserializer makes of a key or a value; None as one leaves it as it is.

    As kafka-python, a deserializer that takes no headers is called without them. It
    tells by a ``TypeError``, which may as well be about the data: kafka-python raises
    that of the second call then, "missing 1 required positional argument".

    Raises:
        Exception: what the deserializer raised. Of two ``TypeError`` it is the one that
            came from further inside.
    """
    if reader is None:
        return data
    try:
        return reader.deserialize(topic, headers, data)
    except TypeError as error:
        first = error
    try:
        value = reader.deserialize(topic, data)
    except TypeError as second:
        raise max(first, second, key=_depth) from None
    warnings.warn(
        "deserializer does not implement deserialize(topic, headers, data)",
        category=DeprecationWarning,
        stacklevel=2,
    )
    return value


def _depth(error: BaseException) -> int:
    depth, at = 0, error.__traceback__
    while at is not None:
        depth, at = depth + 1, at.tb_next
    return depth
