"""Handles record batches in Kafka's format, as brokers do."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import field, frozen
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from safeconsumer._kafka.decoding.checksum import SUMMED, crc32c
from safeconsumer.testing import _codes
from safeconsumer.testing._codes import RefusedError

_HEADER = DefaultRecordBatch.HEADER_STRUCT
_APPEND_TIME = DefaultRecordBatch.TIMESTAMP_TYPE_MASK
_CONTROL = DefaultRecordBatch.CONTROL_MASK
# Where a header has the last offset (relative to the first) and the latest timestamp.
_LAST_DELTA, _MAX_TIMESTAMP = 23, 35
_MAGIC = 2
_ANY_SIZE = 2**31 - 1


@frozen
class Batch:
    """
    An immutable batch of records.

    Attributes:
        data: the bytes of the batch.
        header: the header of the batch, parsed by kafka-python.
    """

    data: bytes
    header: Any = field(init=False)

    @header.default
    def _read_header(self) -> Any:  # noqa: ANN401  kafka-python is untyped
        return DefaultRecordBatch(self.data[: _HEADER.size])

    @property
    def base(self) -> int:
        """The offset of the batch's first record before any compaction."""
        return int(self.header.base_offset)

    @property
    def end(self) -> int:
        """The offset after the batch's last record."""
        return int(self.header.next_offset)

    def check(self) -> None:
        """
        Check a batch from a producer.

        Raises:
            RefusedError: the batch is damaged, or has an unsupported version.
        """
        is_whole = self.header.size_in_bytes == len(self.data)
        crc = crc32c(self.data, SUMMED)
        if self.header.magic != _MAGIC or not is_whole or self.header.crc != crc:
            raise RefusedError(_codes.CORRUPT_MESSAGE)

    def records(self) -> Iterator[Any]:
        """Read the records of the batch."""
        return iter(DefaultRecordBatch(self.data))

    def placed(self, base: int, epoch: int, append_time: int | None) -> "Batch":
        """Return the batch with an offset, a leader epoch and, if given, an append time."""
        data = bytearray(self.data)
        # The checksum does not cover the offset and the leader epoch.
        struct.pack_into(">q", data, 0, base)
        struct.pack_into(">i", data, 12, epoch)
        if append_time is None:
            return Batch(bytes(data))
        struct.pack_into(">q", data, _MAX_TIMESTAMP, append_time)
        return _signed(data, self.header.attributes | _APPEND_TIME)

    def before(self, offset: int) -> "Batch":
        """Return the batch with only the records below ``offset``, so that it ends there."""
        kept = self.with_only([one for one in self.records() if one.offset < offset])
        data = bytearray(kept.data)
        struct.pack_into(">i", data, _LAST_DELTA, offset - 1 - self.base)
        return _signed(data, kept.header.attributes)

    def with_only(self, records: Sequence[Any]) -> "Batch":
        """Return the batch with only these records; the offsets of the others become gaps."""
        header = self.header
        builder = _builder(codec=header.compression_type)
        for one in records:
            delta = one.offset - self.base
            builder.append(delta, one.timestamp, one.key, one.value, one.headers)
        data = bytearray(builder.build())
        codec = DefaultRecordBatch(data).compression_type
        struct.pack_into(">q", data, 0, self.base)
        # The producer, the sequence numbers and the last offset stay unchanged.
        for begin, end in ((12, 16), (_LAST_DELTA, 27), (_MAX_TIMESTAMP, 57)):
            data[begin:end] = self.data[begin:end]
        return _signed(data, header.attributes & ~0x07 | codec)


def _signed(data: bytearray, attributes: int) -> Batch:
    struct.pack_into(">h", data, SUMMED, attributes)
    struct.pack_into(">I", data, SUMMED - 4, crc32c(data, SUMMED))
    return Batch(bytes(data))


def split(data: bytes) -> list[Batch]:
    """
    Split the data that a producer sent for a partition into batches.

    Raises:
        RefusedError: a batch is damaged, or no batch was sent.
    """
    found: list[Batch] = []
    while data:
        if len(data) < _HEADER.size:
            raise RefusedError(_codes.CORRUPT_MESSAGE)
        size = DefaultRecordBatch(data[: _HEADER.size]).size_in_bytes
        if size < _HEADER.size:
            raise RefusedError(_codes.CORRUPT_MESSAGE)
        found.append(Batch(data[:size]))
        found[-1].check()
        data = data[size:]
    if not found:
        raise RefusedError(_codes.CORRUPT_MESSAGE)
    return found


@frozen(kw_only=True)
class NewRecord:
    """A record for :meth:`Cluster.append`; ``timestamp`` is in ms, or None for now."""

    value: bytes | None = b""
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp: int | None = None


def of_records(records: Iterable[NewRecord], now: int) -> Batch:
    """Create a batch of records, as a non-idempotent producer does."""
    builder = _builder()
    for number, one in enumerate(records):
        at = now if one.timestamp is None else one.timestamp
        builder.append(number, at, one.key, one.value, list(one.headers))
    return Batch(bytes(builder.build()))


def of_transaction_end(
    producer_id: int, epoch: int, now: int, *, is_committed: bool
) -> Batch:
    """Create the control batch that ends a transaction."""
    builder = _builder(producer_id=producer_id, producer_epoch=epoch)
    key, value = struct.pack(">hh", 0, is_committed), struct.pack(">hi", 0, 0)
    builder.append(0, now, key, value, [])
    data = bytearray(builder.build())
    return _signed(data, DefaultRecordBatch(data).attributes | _CONTROL)


def _builder(*, codec: int = 0, producer_id: int = -1, producer_epoch: int = -1) -> Any:  # noqa: ANN401  kafka-python is untyped
    return DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=codec,
        is_transactional=producer_id >= 0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        batch_size=_ANY_SIZE,
    )
