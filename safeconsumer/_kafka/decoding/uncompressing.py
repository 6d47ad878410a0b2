"""Uncompresses the records of a batch, with kafka-python's results and its libraries."""

import io
import threading
from collections.abc import Callable
from typing import Any

from kafka import codec as codecs

Buffer = bytes | bytearray | memoryview


def uncompressed(batch: Any, start: int) -> Buffer:  # noqa: ANN401 - upstream's class
    """
    Return what stands in a batch from ``start`` on, uncompressed.

    Raises:
        Exception: it cannot be done; kafka-python's own way raises the right error.
    """
    section = memoryview(batch._buffer)[start:]
    codec = batch.compression_type
    if not codec:
        return section
    batch._assert_has_codec(codec)
    return _BY_CODEC[codec](section)


def _gzip(section: memoryview) -> Buffer:
    return bytes(codecs.gzip_decode(section))


def _snappy(section: memoryview) -> Buffer:
    return bytes(codecs.snappy_decode(section.tobytes()))


def _lz4(section: memoryview) -> Buffer:
    return bytes(codecs.lz4_decode(section.tobytes()))


# Bytes of a decompressor. One has 3 MB for what producers write by default, and 9 MB
# for the highest usual level.
_MOST_KEPT = 16 * 1024 * 1024


class _Zstd(threading.local):
    # It reads as upstream does, but with one decompressor per thread: upstream makes a
    # new one for each batch, which takes longer than decoding a small batch.

    def __init__(self) -> None:
        self._decompressor = codecs.zstd.ZstdDecompressor()

    def decode(self, data: Buffer) -> bytes:
        source, decompressor = io.BytesIO(data), self._decompressor
        try:
            with decompressor.stream_reader(source, read_across_frames=True) as read:
                return bytes(read.read())
        finally:
            # It keeps the largest window that it has seen, which the producer chose.
            if decompressor.memory_size() > _MOST_KEPT:
                self._decompressor = codecs.zstd.ZstdDecompressor()


_BY_CODEC: dict[int, Callable[[memoryview], Buffer]] = {
    1: _gzip,
    2: _snappy,
    3: _lz4,
}
if codecs.has_zstd():
    _BY_CODEC[4] = _Zstd().decode
