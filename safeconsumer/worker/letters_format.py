"""
How a dead letter is written into the headers of its record, and read out of them.
"""

from collections.abc import Collection, Sequence
from typing import Any

from attrs import frozen

PREFIX = "dead-letter-"
NULL_HEADERS = f"{PREFIX}null-headers"
NULL_VALUE = f"{PREFIX}null-value"
# Of a record that was sent back to its topic: which letter it was.
REPLAYED_FROM = f"{PREFIX}replayed-from"

_TOPIC = f"{PREFIX}topic"
_WHERE = ("partition", "offset")
# Of a long, in which Kafka keeps offsets and milliseconds.
_MAX_DIGITS = 19

Headers = Sequence[tuple[str, bytes | None]]

# What W3C names for tracing.
_TRACE = frozenset({"traceparent", "tracestate", "baggage"})


class OneTrace(list[tuple[str, bytes | None]]):
    """
    Headers that have a trace once, also if the producer adds its own.

    OpenTelemetry's instrumentor of kafka-python (0.66b1) appends to what ``send`` is
    given; of two with one name some readers take the first, and others the last.

    Args:
        headers: as they are to be sent.
        replaces: names of which the one that is added counts. Of W3C's others the one
            that is here counts: it says where the record came from, and a producer
            that nobody called in that context does not know that.
    """

    def __init__(self, headers: Headers, replaces: Collection[str] = ()) -> None:
        super().__init__(headers)
        self._replaces = replaces

    def append(self, header: tuple[str, bytes | None]) -> None:
        """
        Add one, if it is no second one for tracing; it may take the other's place.
        """
        name = header[0]
        names = [one for one, _ in self]
        if name not in names or not (name in self._replaces or name in _TRACE):
            super().append(header)
        elif name in self._replaces:
            self[names.index(name)] = header


class NotALetterError(ValueError):
    """
    A record in a topic of dead letters is none; the message says what it lacks.
    """


@frozen(kw_only=True)
class StoredLetter:
    """
    A dead letter as it stands in its topic.

    Attributes:
        topic: in which the record failed.
        partition: there.
        offset: there.
        timestamp: of the record, in milliseconds; None if that is not told.
        group: whose worker gave it up.
        attempts: of the record, as ``Context.attempt`` counts them.
        exception: the class of what it raised last, with its module.
        message: what that said.
        stack: its last frames; None in a letter that had to be brief.
        key: the record's.
        value: the record's.
        headers: the record's own; one that was null is empty here.
        null_headers: names of those that were null, by commas, cut; empty if none was.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    group: str | None
    attempts: int | None
    exception: str | None
    message: str | None
    stack: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    null_headers: str

    @property
    def place(self) -> str:
        """
        Where the record failed, such as ``orders:3@1207``.
        """
        return f"{self.topic}:{self.partition}@{self.offset}"


def letter_of(record: Any) -> StoredLetter:  # noqa: ANN401 - upstream's record
    """
    Read a record of a topic of dead letters, its key and value as bytes.

    What a letter says stands behind the headers of the record it is about, which may
    have been a letter, too: the last ones count.

    Raises:
        NotALetterError: it is none.
    """
    headers: Headers = tuple(record.headers or ())
    begin = _begin(headers)
    said = {
        name.removeprefix(PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in headers[begin:]
        if name.startswith(PREFIX)
    }
    where = [_number(said, name) for name in _WHERE]
    return StoredLetter(
        topic=said["topic"],
        partition=where[0],
        offset=where[1],
        timestamp=_optional(said, "timestamp"),
        group=said.get("group"),
        attempts=_optional(said, "attempts"),
        exception=said.get("exception"),
        message=said.get("message"),
        stack=said.get("stack"),
        key=record.key,
        value=None if "null-value" in said else record.value,
        headers=tuple(headers[:begin]),
        null_headers=said.get("null-headers", ""),
    )


def _begin(headers: Headers) -> int:
    names = [name for name, _ in headers]
    if _TOPIC not in names:
        message = f"it has no header {_TOPIC}"
        raise NotALetterError(message)
    begin = len(names) - 1 - names[::-1].index(_TOPIC)
    while begin and names[begin - 1] in (NULL_HEADERS, NULL_VALUE):
        begin -= 1
    return begin


def _number(said: dict[str, str], name: str) -> int:
    found = _optional(said, name)
    if found is None:
        message = f"its header {PREFIX}{name} is missing, or no number"
        raise NotALetterError(message)
    return found


def _optional(said: dict[str, str], name: str) -> int | None:
    text = said.get(name, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None
