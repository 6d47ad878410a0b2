"""
Calls a program's deserializers, in both forms that kafka-python accepts.

kafka-python warns about deprecated forms. Python's filters depend on the source line of
a warning, because a DeprecationWarning outside ``__main__`` is hidden, and users filter
by module. Therefore warnings name the same line as with kafka-python's own consumer.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from kafka.consumer import fetcher
from kafka.serializer import Deserializer, DeserializeWrapper

KEYS = ("key_deserializer", "value_deserializer")


def wrapped_functions(settings: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return kafka-python's wrappers for functions that are given as deserializers.

    Each wrapper causes a warning at the line that calls the consumer's constructor, two
    callers up from this function.
    """
    found = {}
    for key in KEYS:
        given = settings[key]
        if given is not None and not isinstance(given, Deserializer):
            message = f"{key} does not implement kafka.serializer.Deserializer"
            warnings.warn(message, category=DeprecationWarning, stacklevel=3)
            found[key] = DeserializeWrapper(given)
    return found


def deserialized(reader: Any, topic: str, headers: list[Any], data: Any) -> Any:  # noqa: ANN401 - any value that it reads
    """
    Return the deserialized key or value; without a deserializer the bytes are returned.

    Raises:
        Exception: the deserializer's exception.
    """
    if reader is None:
        return data
    try:
        return reader.deserialize(topic, headers, data)
    except TypeError as error:
        trace = error.__traceback__
        # the traceback without this frame
        first = error.with_traceback(trace and trace.tb_next)
    return deserialized_again(reader, topic, data, first)


def deserialized_again(reader: Any, topic: str, data: Any, first: TypeError) -> Any:  # noqa: ANN401 - as above
    """
    Deserialize with a deserializer that may not accept headers.

    As in kafka-python, a second call without headers follows a ``TypeError``. That
    error may also be about the data, in which case kafka-python raises the error of the
    second call, "missing 1 required positional argument".

    Args:
        reader: the deserializer.
        topic: the topic of the record.
        data: the key or the value.
        first: the error of the call with headers.

    Raises:
        Exception: the deserializer's exception; of two ``TypeError`` the one with the
            deeper traceback.
    """
    try:
        value = reader.deserialize(topic, data)
    except TypeError as second:
        # the first error's traceback does not have this frame
        is_deeper = _depth(second) - 1 > _depth(first)
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
