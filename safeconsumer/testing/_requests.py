"""Reads requests into the entries of the embedded broker's log."""

from attrs import frozen

from safeconsumer.testing import _apis
from safeconsumer.testing._wire import Header, Reader

# Fetch 12 is the first tagged one; only unpinned clients use it.
_FETCH_READABLE = 11


@frozen(kw_only=True)
class Request:
    """
    One request that a broker handled.

    ``at`` is ``time.monotonic()`` in seconds; ``partitions`` are those a Fetch asked
    for, as ``(topic, partition)`` (empty for other requests).
    """

    at: float
    api: str
    version: int
    broker_id: int
    client_id: str | None
    partitions: tuple[tuple[str, int], ...] = ()

    @classmethod
    def read(
        cls, header: Header, message: bytes, *, broker_id: int, at: float
    ) -> "Request":
        """Make the log's entry for a message."""
        return cls(
            at=at,
            api=_apis.api_name(header.api_key),
            version=header.version,
            broker_id=broker_id,
            client_id=header.client_id,
            partitions=_fetched(header, message),
        )


def _fetched(header: Header, message: bytes) -> tuple[tuple[str, int], ...]:
    version = header.version
    if header.api_key != _apis.API_KEYS["Fetch"] or version > _FETCH_READABLE:
        return ()
    reader = Reader(message, header.body_at)
    reader.int32(), reader.int32(), reader.int32()  # replica, max wait, min bytes
    if version >= 3:  # noqa: PLR2004  version 3 added max bytes
        reader.int32()
    if version >= 4:  # noqa: PLR2004  version 4 added the isolation level
        reader.int8()
    if version >= 7:  # noqa: PLR2004  version 7 added the fetch session
        reader.int32(), reader.int32()
    topics = reader.array(
        lambda: (reader.string(), reader.array(lambda: _partition(version, reader)))
    )
    return tuple((topic, number) for topic, numbers in topics for number in numbers)


def _partition(version: int, reader: Reader) -> int:
    number = reader.int32()
    if version >= 9:  # noqa: PLR2004  version 9 added the leader's epoch
        reader.int32()
    reader.int64()
    if version >= 5:  # noqa: PLR2004  version 5 added the log's start
        reader.int64()
    reader.int32()
    return number


def expects_answer(header: Header, message: bytes) -> bool:
    """Whether the broker answers at all: a Produce with ``acks=0`` gets nothing."""
    if header.api_key != _apis.API_KEYS["Produce"]:
        return True
    reader = Reader(message, header.body_at)
    if header.version >= 9:  # noqa: PLR2004  tagged: both strings shorter than 128
        _skip_tags_and_id(reader)
    elif header.version >= 3:  # noqa: PLR2004  version 3 added the transaction's id
        reader.nullable_string()
    return reader.int16() != 0


def _skip_tags_and_id(reader: Reader) -> None:
    reader.int8()  # the header's tags: none
    for _ in range(max(reader.int8() - 1, 0)):
        reader.int8()


def coordinator_named(header: Header, answer: bytes) -> int | None:
    """Return the broker that a FindCoordinator's answer names; None for an error."""
    reader = Reader(answer)
    if header.version >= 1:
        reader.int32()
    error = reader.int16()
    if header.version >= 1:
        reader.nullable_string()
    return None if error else reader.int32()
