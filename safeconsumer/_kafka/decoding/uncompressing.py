"""Decompresses the records of a batch with kafka-python's libraries and results."""

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
    Return the decompressed records of a batch, given the number of its codec.

    Raises:
        Exception: the data is damaged; kafka-python's decoder then raises the right error.
    """
    if not codec:
        return section
    _assert_has_codec(codec)
    return _BY_CODEC[codec](section)


_SIZE = struct.Struct(">i")
_BLOCKS_OF_SNAPPY = b"\x82SNAPPY\0"  # a stream of Java's snappy begins with these bytes
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


# The bytes above which a thread drops its decompressor. A decompressor takes 3 MB after
# batches of default producers, and 9 MB after those of the highest usual level.
_MAX_KEPT_BYTES = 16 * 1024 * 1024


class _Zstd(threading.local):
    # Decompresses like upstream, but with one decompressor per thread. Upstream makes a
    # new one for each batch, which takes longer than decoding a small batch.

    def __init__(self) -> None:
        self._decompressor = codecs.zstd.ZstdDecompressor()

    def decode(self, data: Buffer) -> bytes:
        decompressor = self._decompressor
        try:
            stream = decompressor.decompressobj(read_across_frames=True)
            return bytes(stream.decompress(data))
        finally:
            # A decompressor keeps its largest window, whose size a producer chose.
            if decompressor.memory_size() > _MAX_KEPT_BYTES:
                self._decompressor = codecs.zstd.ZstdDecompressor()


_BY_CODEC: dict[int, Callable[[memoryview], Buffer]] = {
    1: gzip.decompress,
    2: _snappy,
    3: _lz4,
}
if codecs.has_zstd():
    _BY_CODEC[4] = _Zstd().decode
