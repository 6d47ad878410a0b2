"""Writes the details of a dead letter to its headers, and reads them back."""

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from safeconsumer.worker.handlers import Failure
from safeconsumer.worker.tracebacks import message, shortened, stack

PREFIX = "dead-letter-"
NULL_HEADERS = f"{PREFIX}null-headers"
NULL_VALUE = f"{PREFIX}null-value"
# The header of a record that was sent back to its topic; it has the letter's position.
REPLAYED_FROM = f"{PREFIX}replayed-from"

_TOPIC = f"{PREFIX}topic"
# The maximum number of digits of a Java long, Kafka's type for offsets and timestamps.
_MAX_DIGITS = 19

Headers = Sequence[tuple[str, bytes | None]]


def letter_parts(
    record: Any,  # noqa: ANN401 - upstream's
    failure: Failure,
    group: str,
) -> tuple[bytes | None, list[tuple[str, bytes]]]:
    """Return the value and headers of a failed record's letter."""
    value, headers = _without_nulls(record)
    headers += [
        (f"{PREFIX}{name}", text.encode("utf-8", "replace"))
        for name, text in _failure_headers(record, failure, group).items()
    ]
    return value, headers


def _without_nulls(
    record: Any,  # noqa: ANN401 - upstream's
) -> tuple[bytes | None, list[tuple[str, bytes]]]:
    # Kafka allows null header values, and records with neither key nor value;
    # kafka-python's producer (3.0.12) refuses both.
    value, headers_before = record.value, record.headers or ()
    headers = [(name, b"" if one is None else one) for name, one in headers_before]
    null = [name for name, one in headers_before if one is None]
    if null:
        names = shortened(",".join(null), 256)
        headers.append((NULL_HEADERS, names.encode()))
    if value is None and record.key is None:
        value = b""
        headers.append((NULL_VALUE, b"true"))
    return value, headers


def _failure_headers(record: Any, failure: Failure, group: str) -> dict[str, str]:  # noqa: ANN401 - upstream's record
    error = failure.error
    kind = type(error)
    texts = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "group": group,
        "attempts": str(failure.attempts),
        "exception": shortened(f"{kind.__module__}.{kind.__qualname__}", 256),
        "message": message(error),
    }
    if failure.is_brief:
        return {**texts, "message": shortened(texts["message"], 128)}
    return {**texts, "stack": stack(error)}


@frozen(kw_only=True)
class Letter:
    """
    A record of a dead-letter topic, with the values of its headers.

    Attributes:
        record: the record, with key and value as bytes.
        why: the reason why the record is not a letter; "" if it is one. The attributes
            below have values only for letters.
        topic: the topic in which the record failed.
        partition: the partition in which the record failed.
        offset: the offset of the failed record in that partition.
        timestamp: the timestamp of the failed record, in milliseconds; None if the
            letter lacks one.
        group: the consumer group in which the record failed.
        attempts: the number of attempts, counted like ``Context.attempt``.
        exception: the class of the last exception, with its module.
        message: the message of the last exception.
        stack: the last frames of the exception's traceback; None if the letter would
            otherwise have been too large.
        key: the key of the failed record.
        value: the value of the failed record.
        headers: the headers of the failed record, with empty values in place of null.
        null_headers: the names of the headers that were null, separated by commas, and
            shortened if too long; empty if no header was null.
    """

    record: Any
    why: str = ""
    topic: str = ""
    partition: int = -1
    offset: int = -1
    timestamp: int | None = None
    group: str | None = None
    attempts: int | None = None
    exception: str | None = None
    message: str | None = None
    stack: str | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    null_headers: str = ""

    @property
    def name(self) -> str:
        """The position of the letter itself, such as ``orders.dlq:0@17``."""
        return f"{self.record.topic}:{self.record.partition}@{self.record.offset}"

    @property
    def place(self) -> str:
        """The position of the failed record, such as ``orders:3@1207``."""
        return f"{self.topic}:{self.partition}@{self.offset}"


def letter_of(record: Any) -> Letter:  # noqa: ANN401 - upstream's record
    """
    Return the letter in a record of a dead-letter topic, with key and value as bytes.

    The letter's headers come after the headers of the failed record. The failed record
    may itself have been a letter, so the last header of each name is used.
    """
    headers: Headers = tuple(record.headers or ())
    begin = _begin(headers)
    texts = {
        name.removeprefix(PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in headers[begin:]
        if name.startswith(PREFIX)
    }
    partition, offset = _number(texts, "partition"), _number(texts, "offset")
    if "topic" not in texts:
        return _no_letter(record, f"the record has no header {_TOPIC}")
    if partition is None or offset is None:
        name = "partition" if partition is None else "offset"
        why = f"its header {PREFIX}{name} is missing or not a number"
        return _no_letter(record, why)
    return Letter(
        record=record,
        topic=texts["topic"],
        partition=partition,
        offset=offset,
        timestamp=_number(texts, "timestamp"),
        group=texts.get("group"),
        attempts=_number(texts, "attempts"),
        exception=texts.get("exception"),
        message=texts.get("message"),
        stack=texts.get("stack"),
        key=record.key,
        value=None if "null-value" in texts else record.value,
        headers=tuple(headers[:begin]),
        null_headers=texts.get("null-headers", ""),
    )


def _no_letter(record: Any, why: str) -> Letter:  # noqa: ANN401 - upstream's record
    headers = tuple(record.headers or ())
    return Letter(
        record=record, why=why, key=record.key, value=record.value, headers=headers
    )


def _begin(headers: Headers) -> int:
    # Returns the index of the letter's first header, or the number of headers if the
    # record is not a letter.
    names = [name for name, _ in headers]
    if _TOPIC not in names:
        return len(names)
    begin = len(names) - 1 - names[::-1].index(_TOPIC)
    while begin and names[begin - 1] in (NULL_HEADERS, NULL_VALUE):
        begin -= 1
    return begin


def _number(texts: dict[str, str], name: str) -> int | None:
    text = texts.get(name, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None
