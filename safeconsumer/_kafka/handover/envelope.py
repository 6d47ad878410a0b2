"""
Encodes marks behind an assignor's user data: ``inner || payload || trailer``.

Readers that decode from the front ignore what follows; the envelope is found from the
end. Decoders never raise: data that does not match is not an envelope.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum

from attrs import frozen

from safeconsumer.holds.merge import Register
from safeconsumer.holds.scope import MAX_TOPIC_LENGTH, TopicPartition

VERSION = 1

MAGIC = b"SAFECONS"
# payload length, CRC-32 of payload and header, version, direction, flags, reserved
_HEADER = struct.Struct(">IIBBHI")
TRAILER_BYTES = _HEADER.size + len(MAGIC)
_ZLIB = 1

# A group's metadata is one record, of 1 MB at most, which has every member's data
# twice. A group that exceeds it can never rebalance again.
MAX_PAYLOAD_BYTES = 256 * 1024
_MAX_INFLATION = 8
MAX_TOPICS = 50_000
MAX_RANGES = 200_000
MAX_PARTITIONS = 250_000

Marks = Mapping[TopicPartition, Register]
"""For each partition whether it is paused, stamped with the generation of the mark."""


class Direction(IntEnum):
    """Says who wrote it. Some leaders send a member's own subscription back to it."""

    SUBSCRIPTION = 1
    ASSIGNMENT = 2


@frozen
class Envelope:
    """The content of an envelope that was read."""

    direction: int
    marks: Marks


def wrap(inner: bytes, marks: Marks, direction: Direction) -> bytes:
    """
    Return user data with the marks behind it; unchanged if there are no marks.

    It is also unchanged if the marks are too many: a group that cannot rebalance is
    worse.
    """
    if not marks or len(marks) > MAX_PARTITIONS:
        return inner
    payload = _payload(marks)
    packed = zlib.compress(payload, 6)
    flags = 0
    if len(packed) < len(payload) <= _MAX_INFLATION * len(packed):
        payload, flags = packed, _ZLIB
    if len(payload) > MAX_PAYLOAD_BYTES:
        return inner
    bare = _HEADER.pack(len(payload), 0, VERSION, direction, flags, 0)
    check = zlib.crc32(bare, zlib.crc32(payload))
    header = _HEADER.pack(len(payload), check, VERSION, direction, flags, 0)
    return inner + payload + header + MAGIC


def unwrap(data: bytes) -> tuple[bytes, Envelope | None]:
    """Take an envelope off; the rest is the inner assignor's data. Never raises."""
    if len(data) < TRAILER_BYTES or not data.endswith(MAGIC):
        return data, None
    at = len(data) - TRAILER_BYTES
    length, check, version, direction, flags, more = _HEADER.unpack_from(data, at)
    if length > min(at, MAX_PAYLOAD_BYTES):
        return data, None
    payload, inner = data[at - length : at], data[: at - length]
    bare = _HEADER.pack(length, 0, version, direction, flags, more)
    if zlib.crc32(bare, zlib.crc32(payload)) != check:
        return data, None
    # From here on it is one of our envelopes, of any version, and not the inner data.
    if version != VERSION or flags & ~_ZLIB:
        return inner, None
    if flags & _ZLIB:
        payload = _inflated(payload)
    marks = _marks(payload)
    return inner, None if marks is None else Envelope(direction, marks)


# ---------------------------------------------------------------- writing


def _payload(marks: Marks) -> bytes:
    sections: dict[tuple[bool, int], dict[str, list[int]]] = {}
    for (topic, number), one in sorted(marks.items()):
        topics = sections.setdefault((one.is_held, one.stamp[0]), {})
        topics.setdefault(topic, []).append(number)
    out = bytearray(_varint(len(sections)))
    for (is_held, generation), topics in sections.items():
        out += _varint(int(is_held)) + _varint(generation) + _varint(len(topics))
        for topic, numbers in topics.items():
            name = topic.encode()
            out += _varint(len(name)) + name
            ranges = list(_ranges(numbers))
            out += _varint(len(ranges))
            last = 0
            for first, count in ranges:
                out += _varint(first - last) + _varint(count)
                last = first + count
    return bytes(out)


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    first, count = -1, 0
    for number in numbers:
        if count and number == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = number, 1
    if count:
        yield first, count


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits in a byte
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# ---------------------------------------------------------------- reading


class _BadError(Exception):
    """The bytes are not a payload."""


class _Cursor:
    """Reads numbers and names from the front, and never beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, most: int = 2**31 - 1) -> int:
        number = shift = 0
        while True:
            if self._at >= len(self._data) or shift > 28:  # noqa: PLR2004 - 32 bits
                raise _BadError
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte <= 0x7F:  # noqa: PLR2004 - the last one
                break
            shift += 7
        if number > most:
            raise _BadError
        return number

    def name(self) -> str:
        length = self.number(MAX_TOPIC_LENGTH)
        raw = self._data[self._at : self._at + length]
        self._at += length
        try:
            name = raw.decode()
        except UnicodeDecodeError as error:
            raise _BadError from error
        if not name or len(raw) < length:
            raise _BadError
        return name

    def is_at_end(self) -> bool:
        return self._at == len(self._data)


def _inflated(payload: bytes) -> bytes:
    limit = min(_MAX_INFLATION * len(payload), _MAX_INFLATION * MAX_PAYLOAD_BYTES)
    machine = zlib.decompressobj()
    try:
        whole = machine.decompress(payload, limit)
    except zlib.error:
        return b""
    return whole if machine.eof and not machine.unused_data else b""


def _marks(payload: bytes) -> Marks | None:
    marks: dict[TopicPartition, Register] = {}
    cursor, seen = _Cursor(payload), 0
    try:
        for _ in range(cursor.number(MAX_TOPICS)):
            is_held, generation = cursor.number(1) == 1, cursor.number()
            for _ in range(cursor.number(MAX_TOPICS)):
                topic, last = cursor.name(), 0
                ranges = cursor.number(MAX_RANGES)
                seen += ranges
                for _ in range(ranges):
                    first = last + cursor.number()
                    count = cursor.number(MAX_PARTITIONS)
                    last = first + count
                    if len(marks) + count > MAX_PARTITIONS or last > 2**31:
                        return None
                    register = Register((generation, 0), is_held)
                    for number in range(first, last):
                        known = marks.get((topic, number))
                        if known is None or known < register:
                            marks[topic, number] = register
                if seen > MAX_RANGES:
                    return None
    except _BadError:
        return None
    return marks if cursor.is_at_end() else None
