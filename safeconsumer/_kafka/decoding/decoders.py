"""
Chooses the decoder of record batches, and checks that the compiled one works.
"""

import io
import logging
import threading
from functools import cache
from importlib.metadata import version
from typing import Any

from attrs import frozen
from kafka import codec as codecs
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from safeconsumer._kafka.decoding.records import (
    HEADER,
    CompiledRecords,
    Decoder,
)
from safeconsumer._kafka.decoding.sought import PythonRecords
from safeconsumer.errors import DecoderSettingError, MissingExtraError

log = logging.getLogger("safeconsumer")
_logged: set[str] = set()

CHOICES = ("auto", "python", "compiled")

# The low byte of a batch's attributes, and the codec in it.
_CODEC_AT, _CODEC_MASK = 22, 0x07
# With a malformed length the compiled decoder reads up to two varints, 20 bytes, past
# the end before it notices.
_PADDING = bytes(32)


@frozen
class DecoderChoice:
    """
    The decoder in use.

    Attributes:
        name: ``python`` or ``compiled``.
        detail: the version of the compiled decoder, or why it is not used.
        records: the class that takes the place of upstream's ``PartitionRecords``.
    """

    name: str
    detail: str
    records: type


def choose(wanted: str) -> DecoderChoice:
    """
    Choose a decoder; ``auto`` takes the compiled one where it is installed and works.

    Raises:
        DecoderSettingError: ``wanted`` is not one of ``CHOICES``.
        MissingExtraError: the compiled decoder is wanted and is not installed.
    """
    if wanted not in CHOICES:
        message = f"decoder must be one of {', '.join(CHOICES)}, not {wanted!r}"
        raise DecoderSettingError(message)
    if wanted == "python":
        return DecoderChoice("python", "as requested", PythonRecords)
    try:
        return _compiled()
    except Exception as error:
        if wanted == "compiled":
            message = (
                f"the compiled decoder cannot be used ({error}): "
                "pip install 'safeconsumer[fast]'"
            )
            raise MissingExtraError(message) from error
        return DecoderChoice("python", str(error), PythonRecords)


def log_once(choice: DecoderChoice) -> None:
    """
    Log which decoder is in use, once for each decoder in this process.
    """
    if choice.name not in _logged:
        _logged.add(choice.name)
        log.info("record batches: %s decoder (%s)", choice.name, choice.detail)


@cache
def _compiled() -> DecoderChoice:
    decode = _load()
    _check_agreement(decode)
    records = type(
        "AiokafkaRecords", (CompiledRecords,), {"decode": staticmethod(decode)}
    )
    return DecoderChoice("compiled", f"aiokafka {version('aiokafka')}", records)


def _load() -> Decoder:
    from aiokafka import codec  # noqa: PLC0415 - an extra, and slow to import
    from aiokafka.record.default_records import (  # noqa: PLC0415 - an extra, too
        DefaultRecordBatch,
        _DefaultRecordBatchPy,
    )

    if DefaultRecordBatch is _DefaultRecordBatchPy:
        message = "aiokafka runs without its compiled extension"
        raise ImportError(message)
    # Upstream's codecs where their libraries are installed: they are as fast, and data
    # that only one library reads (several frames, say) is treated as upstream does.
    decoders = {
        1: _gzip_decode,
        2: (codecs if codecs.has_snappy() else codec).snappy_decode,
        3: (codecs if codecs.has_lz4() else codec).lz4_decode,
        4: _Zstd().decode if codecs.has_zstd() else codec.zstd_decode,
    }

    def decode(batch: Any) -> tuple[list[Any], bytes]:  # noqa: ANN401 - upstream's class
        buffer = batch._buffer
        head, section = bytearray(buffer[:HEADER]), memoryview(buffer)[HEADER:]
        compressed = head[_CODEC_AT] & _CODEC_MASK
        if compressed:
            section = decoders[compressed](section.tobytes())
            head[_CODEC_AT] &= ~_CODEC_MASK
        whole = b"".join((head, section, _PADDING))
        return list(DefaultRecordBatch(memoryview(whole)[: -len(_PADDING)])), whole

    return decode


class _Zstd(threading.local):
    # It reads as upstream does, but with one decompressor per thread: upstream makes a
    # new one for each batch, which takes longer than decoding a small batch.

    def __init__(self) -> None:
        self._decompressor = codecs.zstd.ZstdDecompressor()

    def decode(self, data: bytes) -> bytes:
        source = io.BytesIO(data)
        with self._decompressor.stream_reader(source, read_across_frames=True) as read:
            return bytes(read.read())


def _gzip_decode(data: bytes) -> bytes:
    if not codecs.has_gzip():  # checked each time, as upstream does
        message = "upstream raises an error for this"
        raise RuntimeError(message)
    return bytes(codecs.gzip_decode(data))


def _check_agreement(decode: Decoder) -> None:
    # An unknown version of aiokafka may decode differently: a sample batch shows it.
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1024)
    builder.append(0, 1, b"key", b"value", [("header", b"1"), ("none", None)])
    builder.append(1, 2, None, None, [])
    sample = bytes(builder.build())
    raw, _ = decode(MemoryRecords(sample).next_batch())
    names = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    for ours, theirs in zip(raw, MemoryRecords(sample).next_batch(), strict=True):
        for name in names:
            if getattr(ours, name) != getattr(theirs, name):
                message = f"aiokafka {version('aiokafka')} decodes {name} differently"
                raise ImportError(message)
