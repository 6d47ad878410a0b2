"""Decodes requests and encodes answers with kafka-python's message classes."""

import inspect
import io
import struct
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from typing import Any

from attrs import define, frozen
from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.api_message import ApiMessage

from safeconsumer.testing import _codes

Fields = Mapping[str, Any]

_HEAD = struct.Struct(">hhi")
_SHORT = struct.Struct(">h")
_ANSWERED = struct.Struct(">ii")  # an answer's length and its correlation id
_API_VERSIONS = 18

# The newest supported versions, where these are not kafka-python's newest. Later
# versions are for brokers only, are for transactions as of KIP-890, or identify topics
# only by id.
_NEWEST = {
    "Produce": 11,
    "Fetch": 17,
    "OffsetCommit": 9,
    "OffsetFetch": 9,
    "InitProducerId": 5,
    "AddPartitionsToTxn": 3,
    "EndTxn": 4,
    "TxnOffsetCommit": 4,
}
# Requests whose errors are per topic or partition, although their answers also have one
# error field.
_OF_PARTS = {"Fetch", "Metadata"}
# Versions that are older than kafka-python's oldest, but that librdkafka expects
# (KAFKA-18659).
_OLDEST = {"Produce": 0}


def _messages(*, is_request: bool) -> dict[int, Any]:
    modules = (admin, consumer, metadata, producer)
    found: list[Any] = [one for module in modules for one in vars(module).values()]
    kinds: list[Any] = [
        one for one in found if inspect.isclass(one) and one is not ApiMessage
    ]
    return {
        kind.API_KEY: kind
        for kind in kinds
        if issubclass(kind, ApiMessage) and kind.is_request() == is_request
    }


_REQUESTS = _messages(is_request=True)
_RESPONSES = _messages(is_request=False)
API_KEYS: dict[str, int] = {
    kind.name.removesuffix("Request"): key for key, kind in _REQUESTS.items()
}


def api_key(api: str) -> int:
    """
    Return the API key of a request such as ``"Fetch"``.

    Raises:
        ValueError: Kafka has no such request; the message lists all known requests.
    """
    try:
        return API_KEYS[api]
    except KeyError:
        msg = f"unknown request {api!r}, known are: {', '.join(sorted(API_KEYS))}"
        raise ValueError(msg) from None


def versions(api: str) -> tuple[int, int]:
    """Return the oldest and the newest version of a request that the brokers support."""
    oldest, newest = _REQUESTS[api_key(api)].valid_versions
    return _OLDEST.get(api, oldest), _NEWEST.get(api, newest)


def has_own_error(api: str, version: int) -> bool:
    """Return whether the answer has a single error field for the whole request."""
    if api in _OF_PARTS:
        return False
    fields = _RESPONSES[API_KEYS[api]].fields
    return "error_code" in fields and bool(fields["error_code"].for_version_q(version))


class UnreadableError(Exception):
    """A message is not a known request, so the broker closes the connection."""


@frozen(kw_only=True)
class Message:
    """A request; ``body`` is None for an unknown version of ApiVersions."""

    api: str
    version: int
    correlation_id: int
    client_id: str | None
    body: Any

    @classmethod
    def read(cls, data: bytes) -> "Message":
        """
        Decode a request, without the length that precedes it.

        Raises:
            UnreadableError: the request cannot be decoded, or has an unknown version.
        """
        try:
            key, version, correlation_id = _HEAD.unpack_from(data)
            kind = _REQUESTS[key]
            is_flexible = kind.flexible_version_q(version)
            client_id, start = _header(data, is_flexible=is_flexible)
            api = kind.name.removesuffix("Request")
            body = None
            if kind.valid_versions[0] <= version <= versions(api)[1]:
                body = kind.decode(memoryview(data)[start:], version=version)
            elif key != _API_VERSIONS:
                raise UnreadableError(api, version)
        except (LookupError, ValueError, TypeError, struct.error) as error:
            raise UnreadableError(data[:100]) from error
        return cls(
            api=api,
            version=version,
            correlation_id=correlation_id,
            client_id=client_id,
            body=body,
        )

    @property
    def wants_answer(self) -> bool:
        """Whether the client waits for an answer, unlike a Produce with ``acks=0``."""
        return self.body is None or bool(self.body.expect_response())

    def answer(self, fields: Fields) -> bytes:
        """Return the bytes of an answer with these fields, preceded by their length."""
        key = API_KEYS[self.api]
        kind = _RESPONSES[key]
        # An ApiVersions request with an unknown version is answered in the oldest
        # version.
        version = 0 if self.body is None else self.version
        if key == _API_VERSIONS:
            tags, body = b"", _api_versions(kind, version, **fields)
        else:
            tags = b"\0" if kind.flexible_version_q(version) else b""
            body = _encoded(kind, version, fields)
        size = _ANSWERED.size - 4 + len(tags) + len(body)
        return _ANSWERED.pack(size, self.correlation_id) + tags + body


def _header(data: bytes, *, is_flexible: bool) -> tuple[str | None, int]:
    """
    Return the client id from a request's header, and the position after the header.

    kafka-python's decoder takes ten times as long, so it is used only for headers with
    tagged fields.
    """
    (size,) = _SHORT.unpack_from(data, _HEAD.size)
    start = _HEAD.size + _SHORT.size
    end = start + max(0, size)
    if end > len(data) or (is_flexible and data[end]):
        stream = io.BytesIO(data)
        header = RequestHeader.decode(stream, flexible=is_flexible)
        return header.client_id, stream.tell()
    client_id = None if size < 0 else data[start:end].decode()
    return client_id, end + is_flexible


@lru_cache(maxsize=20)
def _api_versions(kind: Any, version: int, **fields: Any) -> bytes:  # noqa: ANN401
    """Return the answer to ApiVersions, which is long and the same for all connections."""
    return _encoded(kind, version, fields)


def _encoded(kind: Any, version: int, fields: Fields) -> bytes:  # noqa: ANN401  not typed
    """Encode an answer from nested dictionaries; elements of arrays may be tuples."""
    values = _values(_parts(kind), fields)
    return bytes(kind(**values, version=version).encode())


def _values(parts: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """
    Return the values for an answer, or for a part of an answer.

    The error message is left out if the answer has no field for it.
    """
    values = {}
    for name, value in fields.items():
        if name == "error_message" and name not in parts:
            continue
        make = parts[name]
        values[name] = value if make is None or value is None else make(value)
    return values


@cache
def _parts(kind: Any) -> dict[str, Callable[[Any], Any] | None]:  # noqa: ANN401
    """Return, by field, the function that creates its part or parts, or None."""
    return {name: _part_of(field) for name, field in kind.fields.items()}


def _part_of(field: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401  not typed
    if field.is_struct_array():
        make = _part(field.data_class)
        return lambda several: [make(one) for one in several]
    return _part(field.data_class) if field.is_struct() else None


def _part(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401  not typed
    """
    Return a function that creates an answer's parts, with defaults for missing fields.

    kafka-python's own classes check and set every field, which takes most of the time.
    """
    parts = _parts(kind)
    plain = type(kind.__name__, (), {n: one.default for n, one in kind.fields.items()})

    def make(fields: Any) -> Any:  # noqa: ANN401  not typed
        if isinstance(fields, tuple):
            return fields
        part = plain()
        part.__dict__.update(_values(parts, fields))
        return part

    return make


@frozen
class _Lists:
    """The field names in a request or answer that has topics and partitions."""

    topics: str
    topic: str
    partitions: str
    partition: str
    error: str


_NUMBERS = ("partition_index", "partition", "index")
_ERRORS = ("error_code", "partition_error_code")


@cache
def _lists(kind: Any, version: int) -> _Lists:  # noqa: ANN401  not typed
    topics = _list_in(kind, version)
    partitions = _list_in(topics.data_class, version)
    known = partitions.data_class.fields if partitions.is_struct_array() else ()
    return _Lists(
        topics=topics.name,
        topic="topic" if "topic" in topics.data_class.fields else "name",
        partitions=partitions.name,
        partition=next((one for one in _NUMBERS if one in known), ""),
        error=next((one for one in _ERRORS if one in known), ""),
    )


def _list_in(kind: Any, version: int) -> Any:  # noqa: ANN401  not typed
    fields = kind.fields.values()
    return next(
        one
        for one in fields
        if (one.is_array() or one.is_struct_array()) and one.for_version_q(version)
    )


@define(kw_only=True, eq=False)
class Exchange:
    """
    A request that a broker is processing, with a method to answer it once.

    Attributes:
        message: the request.
        node: the number of the broker that received the request.
        origin: the origin of the connection.
        error: the error code that a fault injects into the request; 0 for none.
    """

    message: Message
    node: int
    origin: object
    error: int = 0
    _send: Callable[[Fields], None]

    @property
    def body(self) -> Any:  # noqa: ANN401  kafka-python is untyped
        """The fields of the request."""
        return self.message.body

    @property
    def version(self) -> int:
        """The version of the request."""
        return self.message.version

    def reply(self, **fields: Any) -> None:  # noqa: ANN401  an answer's fields
        """Send the answer with these fields."""
        self._send(fields)

    def outcome(self, work: Callable[[], Fields | None]) -> dict[str, Any]:
        """Process a part of the request; return its answer fields, or an error's fields."""
        try:
            _codes.check(self.error)
            return {"error_code": _codes.NONE, **(work() or {})}
        except _codes.RefusedError as error:
            return {"error_code": error.code, "error_message": str(error)}

    def reply_by_partition(self, answer: Callable[[str, Any], Fields | None]) -> None:
        """Send an answer with the result or the error of ``answer()`` for each partition."""
        key, version = API_KEYS[self.message.api], self.version
        asked = _lists(_REQUESTS[key], version)
        given = _lists(_RESPONSES[key], version)
        topics = []
        for topic in getattr(self.body, asked.topics):
            name, partitions = getattr(topic, asked.topic), []
            for one in getattr(topic, asked.partitions):
                fields = self.outcome(partial(answer, name, one))
                fields[given.error] = fields.pop("error_code")
                number = getattr(one, asked.partition) if asked.partition else one
                partitions.append({given.partition: number, **fields})
            topics.append({given.topic: name, given.partitions: partitions})
        self.reply(**{given.topics: topics})
