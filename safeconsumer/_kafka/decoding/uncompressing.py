"""Decompresses a batch's records, with the same libraries and results as kafka-python."""

import gzip
import struct
import threading
from collections.abc import Callable

from kafka import codec as codecs
from kafka.record.default_records import DefaultRecordBase

Buffer = bytes | bytearray | memoryview

_assert_has_codec = DefaultRecordBase()._assert_has_codec


def uncompressed(section: memoryview, codec: int) -> Buffer:
    """
    Return a batch's decompressed records; the codec is given as Kafka's number.

    Raises:
        Exception: the data is damaged; kafka-python's decoder then raises the right error.
    """
    if not codec:
        return section
    _assert_has_codec(codec)
    return _BY_CODEC[codec](section)


_SIZE = struct.Struct(">i")
_BLOCKS_OF_SNAPPY = b"\x82SNAPPY\0"  # the start of a stream from Java's snappy
_HEADER_OF_SNAPPY = 16


def _snappy(section: memoryview) -> Buffer:
    blocks, at = [], _HEADER_OF_SNAPPY
    if len(section) <= at or section[: len(_BLOCKS_OF_SNAPPY)] != _BLOCKS_OF_SNAPPY:
        return bytes(codecs.snappy.decompress(section))
    while at < len(section):
        (size,) = _SIZE.unpack_from(section, at)
        at += _SIZE.size
        if size < 0:
            raise ValueError(size)
        blocks.append(codecs.snappy.decompress(section[at : at + size]))
        at += size
    return b"".join(blocks)


def _lz4(section: memoryview) -> Buffer:
    return bytes(codecs.lz4_decode(section))


# The size in bytes above which a thread drops its decompressor. A decompressor keeps 3
# MB after batches from producers with default settings, and 9 MB after batches with the
# highest usual compression level.
_MAX_KEPT_BYTES = 16 * 1024 * 1024


class _Zstd(threading.local):
    # Decompresses like upstream, but with one decompressor per thread. Upstream creates
    # one for each batch, which takes longer than decoding a small batch.

    def __init__(self) -> None:
        self._decompressor = codecs.zstd.ZstdDecompressor()

    def decode(self, data: Buffer) -> bytes:
        decompressor = self._decompressor
        try:
            stream = decompressor.decompressobj(read_across_frames=True)
            return bytes(stream.decompress(data))
        finally:
            # A decompressor keeps the memory of its largest window so far, whose size a
            # producer chose.
            if decompressor.memory_size() > _MAX_KEPT_BYTES:
                self._decompressor = codecs.zstd.ZstdDecompressor()


_BY_CODEC: dict[int, Callable[[memoryview], Buffer]] = {
    1: gzip.decompress,
    2: _snappy,
    3: _lz4,
}
if codecs.has_zstd():
    _BY_CODEC[4] = _Zstd().decode
