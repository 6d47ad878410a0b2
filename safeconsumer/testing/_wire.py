"""
Reads and writes the part of Kafka's wire format that the embedded broker needs.

It knows only formats without tagged fields: the embedded broker announces no newer
version of the requests that it parses.
"""

import struct
from collections.abc import Callable
from typing import TypeVar

from attrs import frozen

_T = TypeVar("_T")
_LENGTH = struct.Struct(">i")


class Reader:
    """Takes values off the front of one message, in Kafka's order."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            msg = f"message ends at byte {len(self._data)}, needed {self._at + count}"
            raise ValueError(msg)
        self._at += count
        return taken

    def int8(self) -> int:
        return int.from_bytes(self._take(1), signed=True)

    def int16(self) -> int:
        return int.from_bytes(self._take(2), signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), signed=True)

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._take(length).decode()

    def string(self) -> str:
        return self.nullable_string() or ""

    def blob(self) -> bytes:
        return self._take(max(self.int32(), 0))

    def array(self, item: Callable[[], _T]) -> list[_T]:
        return [item() for _ in range(self.int32())]


class Writer:
    """Collects values in Kafka's order; every method returns the writer."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def int8(self, value: int) -> "Writer":
        return self._put(value.to_bytes(1, signed=True))

    def int16(self, value: int) -> "Writer":
        return self._put(value.to_bytes(2, signed=True))

    def int32(self, value: int) -> "Writer":
        return self._put(value.to_bytes(4, signed=True))

    def string(self, value: str | None) -> "Writer":
        if value is None:
            return self.int16(-1)
        encoded = value.encode()
        self.int16(len(encoded))
        return self._put(encoded)

    def blob(self, value: bytes) -> "Writer":
        self.int32(len(value))
        return self._put(value)

    def _put(self, part: bytes) -> "Writer":
        self._parts.append(part)
        return self

    def done(self) -> bytes:
        return b"".join(self._parts)


@frozen(kw_only=True)
class Header:
    """The head of one request; ``body_at`` is where its own fields begin."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int

    @classmethod
    def read(cls, message: bytes) -> "Header":
        reader = Reader(message)
        api_key, version = reader.int16(), reader.int16()
        correlation_id, client_id = reader.int32(), reader.nullable_string()
        return cls(
            api_key=api_key,
            version=version,
            correlation_id=correlation_id,
            client_id=client_id,
            body_at=10 + len((client_id or "").encode()),
        )


class Frames:
    """Cuts a byte stream into Kafka's length-prefixed messages, in order."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add what has arrived and return the messages that are complete by now."""
        buffer, complete, at = self._buffer, [], 0
        buffer += data
        while len(buffer) - at >= _LENGTH.size:
            end = at + _LENGTH.size + _LENGTH.unpack_from(buffer, at)[0]
            if len(buffer) < end:
                break
            complete.append(bytes(buffer[at + _LENGTH.size : end]))
            at = end
        del buffer[:at]
        return complete


def framed(message: bytes) -> bytes:
    """Put a message's length in front of it, ready to be sent."""
    return _LENGTH.pack(len(message)) + message
