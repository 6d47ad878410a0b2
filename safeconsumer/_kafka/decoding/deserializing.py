"""
Calls an application's deserializers, of both forms that kafka-python knows.

kafka-python warns of those that it will not take for ever. Its warnings go by the place
that they point at: Python hides a DeprecationWarning outside of ``__main__``, and people
filter by module. So they point where they do with kafka-python's own consumer.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from kafka.consumer import fetcher
from kafka.serializer import Deserializer, DeserializeWrapper

KEYS = ("key_deserializer", "value_deserializer")


def wrapped_functions(settings: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return what kafka-python makes of functions that are given as deserializers.

    It warns of each at the line that calls the constructor of the consumer; here that
    is the caller of the caller.
    """
    found = {}
    for key in KEYS:
        given = settings[key]
        if given is not None and not isinstance(given, Deserializer):
            message = f"{key} does not implement kafka.serializer.Deserializer"
            warnings.warn(message, category=DeprecationWarning, stacklevel=3)
            found[key] = DeserializeWrapper(given)
    return found


def deserialized(reader: Any, topic: str, headers: list[Any], data: Any) -> Any:  # noqa: ANN401 - whatever it reads
    """
    Return what a deserializer makes of a key or a value; None as one leaves it as it is.

    Raises:
        Exception: what the deserializer raised.
    """
    if reader is None:
        return data
    try:
        return reader.deserialize(topic, headers, data)
    except TypeError as error:
        trace = error.__traceback__
        first = error.with_traceback(trace and trace.tb_next)  # without this frame
    return deserialized_again(reader, topic, data, first)


def deserialized_again(reader: Any, topic: str, data: Any, first: TypeError) -> Any:  # noqa: ANN401 - as above
    """
    Return what a deserializer makes of data that may want no headers.

    As kafka-python, a deserializer that takes no headers is called without them. It
    tells by a ``TypeError``, which may as well be about the data: kafka-python raises
    that of the second call then, "missing 1 required positional argument".

    Args:
        reader: the deserializer.
        topic: the record's.
        data: the key or the value.
        first: what the deserializer raised when it was given headers as well.

    Raises:
        Exception: what the deserializer raised. Of two ``TypeError`` it is the one that
            came from further inside.
    """
    try:
        value = reader.deserialize(topic, data)
    except TypeError as second:
        is_deeper = _depth(second) - 1 > _depth(first)  # this frame is not the first's
        raise (second if is_deeper else first) from None
    warnings.warn_explicit(
        "deserializer does not implement deserialize(topic, headers, data)",
        category=DeprecationWarning,
        filename=fetcher.__file__,
        lineno=fetcher.Fetcher.PartitionRecords._deserialize.__code__.co_firstlineno,
        module=fetcher.__name__,
        registry=vars(fetcher).setdefault("__warningregistry__", {}),
    )
    return value


def _depth(error: BaseException) -> int:
    depth, at = 0, error.__traceback__
    while at is not None:
        depth, at = depth + 1, at.tb_next
    return depth
