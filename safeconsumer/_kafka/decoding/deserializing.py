"""
Calls a program's deserializers, in each of the two forms that kafka-python accepts.

kafka-python warns about deprecated forms. The source line of a warning matters: Python
hides a DeprecationWarning outside ``__main__``, and users filter warnings by module.
Therefore the warnings of this module name the same line as those of kafka-python's own
consumer.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from kafka.consumer import fetcher
from kafka.serializer import Deserializer, DeserializeWrapper

KEYS = ("key_deserializer", "value_deserializer")


def wrapped_functions(settings: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return kafka-python's wrappers for functions that were passed as deserializers.

    Each wrapper causes a warning that names the line that called the consumer's
    constructor, two callers up from this function.
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
        # leaves this frame out of the traceback
        first = error.with_traceback(trace and trace.tb_next)
    return deserialized_again(reader, topic, data, first)


def deserialized_again(reader: Any, topic: str, data: Any, first: TypeError) -> Any:  # noqa: ANN401 - as above
    """
    Call a deserializer again, without headers, after it has raised an error.

    As in kafka-python, a call that raised a ``TypeError`` is followed by a second call
    without headers. If the first error was about the data, kafka-python raises the
    error of the second call, "missing 1 required positional argument".

    Args:
        reader: the deserializer.
        topic: the topic of the record.
        data: the key or the value.
        first: the error of the call with headers.

    Raises:
        Exception: the deserializer's exception; if both calls raised a ``TypeError``,
            the one with the deeper traceback.
    """
    try:
        value = reader.deserialize(topic, data)
    except TypeError as second:
        # this frame is not in the first error's traceback
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
