"""Makes record batches of any format, compacted or transactional, as brokers store them."""

import struct

from attrs import evolve, frozen
from kafka import codec as codecs
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.util import calc_crc32, calc_crc32c

PACKERS = {
    1: codecs.gzip_encode,
    2: codecs.snappy_encode,
    3: codecs.lz4_encode,
    4: codecs.zstd_encode,
}
_ROOM = 2**30

# The offsets of fields in a batch of format 2 and in a message of format 0 and 1.
_HEADER = 61
_LEGACY_CRC, _LEGACY_MAGIC = 12, 16
_TRANSACTIONAL, _CONTROL, _LOG_APPEND = 0x10, 0x20, 0x08
ABORT, COMMIT = 0, 1


@frozen
class Row:
    """A record; compaction has removed the ``gap`` offsets before the record."""

    timestamp: int = 1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    gap: int = 0


@frozen(kw_only=True)
class Frame:
    """The header of a batch; compaction has removed the batch's last ``tail`` offsets."""

    magic: int = 2
    codec: int = 0
    epoch: int = -1
    producer: int = -1
    transactional: bool = False
    control: bool = False
    log_append: bool = False
    tail: int = 0


def many(rows, count):
    """Repeat rows up to ``count``, each with a slightly different value."""
    return [
        evolve(row, value=None if row.value is None else row.value + b"%d" % number)
        for number in range(count)
        for row in (rows[number % len(rows)],)
    ]


def written(first, rows, frame, spoil=bytes):
    """
    Return a batch that starts at offset ``first``, and the offset after the batch.

    ``spoil`` modifies the encoded records before they are compressed.
    """
    if frame.magic < 2:
        return _legacy(first, rows, frame)
    builder = DefaultRecordBatchBuilder(
        2, 0, frame.transactional, frame.producer, 0, 0, _ROOM
    )
    at = 0
    for row in rows:
        at += row.gap
        builder.append(at, row.timestamp, row.key, row.value, list(row.headers))
        at += 1
    data = bytearray(builder.build())
    after = at + frame.tail
    struct.pack_into(">q", data, 0, first)
    struct.pack_into(">i", data, 12, frame.epoch)
    struct.pack_into(">h", data, 21, _attributes(frame))
    struct.pack_into(">i", data, 23, after - 1)
    records = spoil(data[_HEADER:])
    data[_HEADER:] = PACKERS[frame.codec](records) if frame.codec else records
    return bytes(sealed(data)), first + after


def marker(first, kind, producer, epoch=0):
    """Return the control batch that ends a transaction."""
    frame = Frame(producer=producer, transactional=True, control=True, epoch=epoch)
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    return written(first, [Row(key=key, value=value)], frame)


def sealed(data):
    """Return a batch of format 2 with the correct length and checksum."""
    data = bytearray(data)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, calc_crc32c(memoryview(data)[21:]))
    return data


def legacy_sealed(data):
    """Return a message of format 0 or 1 with the correct length and checksum."""
    data = bytearray(data)
    struct.pack_into(">i", data, 8, len(data) - 12)
    crc = calc_crc32(memoryview(data)[_LEGACY_MAGIC:])
    struct.pack_into(">I", data, _LEGACY_CRC, crc)
    return data


def _attributes(frame):
    return (
        frame.codec
        | (_TRANSACTIONAL if frame.transactional else 0)
        | (_CONTROL if frame.control else 0)
        | (_LOG_APPEND if frame.log_append else 0)
    )


def _legacy(first, rows, frame):
    offsets, at = [], first
    for row in rows:
        offsets.append(at := at + row.gap)
        at += 1
    if not frame.codec:
        each = zip(rows, offsets, strict=True)
        return b"".join(_message(row, offset, frame) for row, offset in each), at
    builder = LegacyRecordBatchBuilder(frame.magic, frame.codec, _ROOM)
    # in format 1, inner offsets are relative, and the wrapper has the last record's offset
    base = offsets[0] if frame.magic else 0
    for row, offset in zip(rows, offsets, strict=True):
        builder.append(offset - base, row.timestamp, row.key, row.value)
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, offsets[-1])
    if frame.magic and frame.log_append:
        data[17] |= _LOG_APPEND
        struct.pack_into(">q", data, 18, 12345)
    return bytes(legacy_sealed(data)), at


def _message(row, offset, frame):
    builder = LegacyRecordBatchBuilder(frame.magic, 0, _ROOM)
    builder.append(offset, row.timestamp, row.key, row.value)
    return bytes(builder.build())
