"""Record batches as they are on disk: what brokers read of them and write into them."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import evolve, frozen
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

_HEADER = DefaultRecordBatch.HEADER_STRUCT
_AFTER_LENGTH = DefaultRecordBatch.AFTER_LEN_OFFSET
_AFTER_CRC = DefaultRecordBatch.ATTRIBUTES_OFFSET
_MAGIC = 2
_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x08, 0x10, 0x20
_ANY_SIZE = 2**31 - 1


class CorruptBatchError(Exception):
    """What a producer sent are no record batches of version 2."""


@frozen
class Header:
    """What stands at the beginning of a batch, in this order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int


@frozen
class Batch:
    """One batch; its bytes are never changed, a changed one is another batch."""

    header: Header
    data: bytes

    @classmethod
    def read(cls, data: bytes) -> "Batch":
        """
        Read one batch, and nothing behind it.

        Raises:
            CorruptBatchError: it is no batch, or of another version.

        """
        try:
            batch = cls(Header(*_HEADER.unpack_from(data)), data)
        except struct.error as error:
            raise CorruptBatchError from error
        header = batch.header
        if header.magic != _MAGIC or header.length + _AFTER_LENGTH != len(data):
            raise CorruptBatchError
        if header.crc != calc_crc32c(data[_AFTER_CRC:]):
            raise CorruptBatchError
        return batch

    @property
    def base(self) -> int:
        """The offset of its first record, or where that was before compaction."""
        return self.header.base_offset

    @property
    def end(self) -> int:
        """The offset behind its last record."""
        return self.header.base_offset + self.header.last_delta + 1

    @property
    def last_sequence(self) -> int:
        """The number that an idempotent producer gave to its last record."""
        return (self.header.base_sequence + self.header.last_delta) % 2**31

    @property
    def is_transactional(self) -> bool:
        """Whether it counts only when its transaction has been committed."""
        return bool(self.header.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it is the end of a transaction and not a producer's records."""
        return bool(self.header.attributes & _CONTROL)

    def records(self) -> Iterator[Any]:
        """Read its records."""
        return iter(DefaultRecordBatch(self.data))

    def placed(self, base: int, epoch: int, append_time: int | None) -> "Batch":
        """Give it its place in a log, and the log's time if that is what counts."""
        header = evolve(self.header, base_offset=base, leader_epoch=epoch)
        if append_time is None:  # neither of them is in the checksum
            head = struct.pack(">qii", base, header.length, epoch)
            return Batch(header, head + self.data[len(head) :])
        attributes = header.attributes | _APPEND_TIME
        return self._rewritten(
            evolve(header, attributes=attributes, max_timestamp=append_time)
        )

    def with_only(self, records: Sequence[Any]) -> "Batch":
        """Keep these of its records where they are: the offsets of others become gaps."""
        header = self.header
        builder = _builder(codec=header.attributes & 0x07)
        for one in records:
            builder.append(
                one.offset - self.base, one.timestamp, one.key, one.value, one.headers
            )
        built = bytes(builder.build())
        new = Header(*_HEADER.unpack_from(built))
        kept = evolve(
            header,
            length=new.length,
            attributes=header.attributes & ~0x07 | new.attributes & 0x07,
            first_timestamp=new.first_timestamp,
            count=len(records),
        )
        return Batch(kept, built)._rewritten(kept)  # noqa: SLF001  its own class

    def _rewritten(self, header: Header) -> "Batch":
        data = bytearray(self.data)
        fields = [getattr(header, name) for name in _FIELDS]
        _HEADER.pack_into(data, 0, *fields)
        crc = calc_crc32c(bytes(data[_AFTER_CRC:]))
        struct.pack_into(">I", data, _AFTER_CRC - 4, crc)
        return Batch(evolve(header, crc=crc), bytes(data))


_FIELDS = tuple(field.name for field in Header.__attrs_attrs__)


def split(data: bytes) -> list[Batch]:
    """
    Read all batches that a producer sent for a partition.

    Raises:
        CorruptBatchError: they cannot be read, or there is none.

    """
    found, at = [], 0
    while at < len(data):
        if len(data) - at < _AFTER_LENGTH:
            raise CorruptBatchError
        (length,) = struct.unpack_from(">i", data, at + 8)
        end = at + _AFTER_LENGTH + length
        found.append(Batch.read(bytes(data[at:end])))
        at = end
    if not found:
        raise CorruptBatchError
    return found


@frozen(kw_only=True)
class NewRecord:
    """A record that a test puts into a log; ``timestamp`` in milliseconds, None for now."""

    value: bytes | None = b""
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp: int | None = None


def of_records(records: Iterable[NewRecord], now: int) -> Batch:
    """Make a batch of records, as a producer does that is not idempotent."""
    builder = _builder()
    for number, one in enumerate(records):
        at = now if one.timestamp is None else one.timestamp
        builder.append(number, at, one.key, one.value, list(one.headers))
    return Batch.read(bytes(builder.build()))


def of_transaction_end(
    producer_id: int, epoch: int, now: int, *, is_committed: bool
) -> Batch:
    """Make the batch that tells readers how a transaction has ended."""
    builder = _builder(producer_id=producer_id, producer_epoch=epoch)
    key, value = struct.pack(">hh", 0, is_committed), struct.pack(">hi", 0, 0)
    builder.append(0, now, key, value, [])
    batch = Batch.read(bytes(builder.build()))
    header = evolve(batch.header, attributes=batch.header.attributes | _CONTROL)
    return batch._rewritten(header)  # noqa: SLF001  its own module


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
