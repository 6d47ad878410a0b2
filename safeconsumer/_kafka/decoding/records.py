"""
Decodes record batches by compiled code, one at a time, with upstream's results.

Headers, control batches and aborted transactions stay upstream's code. Only
the records inside a batch of format 2 are read by compiled code (``_batches.c``): the
batch is checked as a whole, and records are made as they are taken. If anything is not
as a producer writes it, upstream's decoder reads that batch from its start, so that
records and errors are upstream's (design/decoding.md).
"""

import itertools
import logging
from typing import Any

from kafka.consumer.fetcher import ConsumerRecord, Fetcher
from kafka.errors import CorruptRecordError
from kafka.protocol.consumer import IsolationLevel

from safeconsumer._interrupts import is_of_handler
from safeconsumer._kafka.decoding.checksum import is_whole
from safeconsumer._kafka.decoding.sought import PythonRecords
from safeconsumer._kafka.decoding.uncompressing import Buffer, uncompressed

try:
    from safeconsumer._kafka.decoding import _batches
except ImportError:  # there was no compiler, and choose() offers no CompiledRecords
    _batches = None  # type: ignore[assignment]

log = logging.getLogger(Fetcher.__module__)

# Bytes before the records, https://kafka.apache.org/documentation/#recordbatch.
HEADER = 61

# Kafka 0.11's record format, the first that the compiled decoder reads.
COMPILED_MAGIC = 2

# Offsets and times beyond this could overflow the 64 bits of the compiled decoder.
_FAR = 2**62
_new = tuple.__new__
_STOPPED = "StopIteration raised unpacking messageset"


class CompiledRecords(PythonRecords):
    """
    Replaces upstream's ``PartitionRecords``: the same arguments and results.

    ``take`` makes records out of one batch, from where it stopped; the next batch is
    uncompressed when that one is used up.
    """

    def __init__(
        self,
        fetch_offset: int,
        tp: Any,  # noqa: ANN401 - upstream's types, here and below
        records: Any,  # noqa: ANN401
        key_deserializer: Any = None,  # noqa: ANN401
        value_deserializer: Any = None,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> None:
        # Upstream makes a generator here that is never started. If it is there, it
        # means "not drained yet".
        super().__init__(
            fetch_offset, tp, records, key_deserializer, value_deserializer, **options
        )
        self._batches = records
        self._keys, self._values = key_deserializer, value_deserializer
        self._batch: Any = None
        self._data: Buffer = b""  # the current batch's records, uncompressed
        self._at = self._left = 0  # where the next one begins; how many there are
        self._fallback: Any = None
        self._skipping = True
        self._failed = False

    def take(self, n: int | None = None) -> list[ConsumerRecord]:
        """
        Take up to ``n`` records.

        If one has an error, first those before it, then the error.
        """
        self._maybe_raise_next_inline_exception()
        taken: list[ConsumerRecord] = []
        error = self._try_to_fill(taken, n)
        if error is not None and not taken:
            raise error
        self._next_inline_exception = error
        return taken

    def _try_to_fill(
        self, taken: list[ConsumerRecord], n: int | None
    ) -> Exception | None:
        try:
            self._fill(taken, n)
        except StopIteration as stop:
            self._failed = True
            log.exception(_STOPPED)  # upstream's words, too
            error = RuntimeError(_STOPPED)
            error.__context__ = stop  # it tells which line of a deserializer
            return error
        except Exception as error:  # noqa: BLE001 - take() raises it
            self._failed = True
            return error
        except BaseException:
            self._failed = True
            raise
        return None

    def drain(self) -> None:
        """Throw the rest away, and report what was read to upstream's metrics."""
        self._close_batch()
        self._fallback = self._batches = self._batch = None
        super().drain()

    def _fill(self, taken: list[ConsumerRecord], n: int | None) -> None:
        # After an error nothing more comes, as from a generator.
        while not self._failed and (n is None or len(taken) < n):
            if not self._read_on(taken, None if n is None else n - len(taken)):
                return

    def _read_on(self, taken: list[ConsumerRecord], left: int | None) -> bool:
        # Read the current batch, else the next one; False if there is no more.
        is_read = not self._left and self._fallback is None
        if is_read and (self.record_iterator is None or not self._open_next()):
            return False
        if self._left:
            self._take_compiled(taken, left)
        elif self._fallback is not None:
            self._take_fallback(taken, left)
        return True

    # ------------------------------------------------------------ batches

    def _open_next(self) -> bool:
        self._close_batch()
        batch = self._batches.next_batch()
        if batch is None:
            self._end()
            return False
        self._batch = batch
        if self.check_crcs and not is_whole(batch):
            message = (
                f"Record batch for partition {self.topic_partition} at offset "
                f"{batch.base_offset} failed crc check"
            )
            raise CorruptRecordError(message)
        if batch.magic == COMPILED_MAGIC:
            self.leader_epoch = batch.leader_epoch
            if not self._is_delivered(batch):
                self.next_fetch_offset = batch.next_offset
                return True
        self._open(batch)
        return True

    def _end(self) -> None:
        if self._batch is not None and self._batch.magic == COMPILED_MAGIC:
            # the tail of the last batch may have been compacted away
            self.next_fetch_offset = self._batch.next_offset
        self.drain()

    def _is_delivered(self, batch: Any) -> bool:  # noqa: ANN401 - upstream's class
        # Upstream's order: an abort marker ends what its producer had aborted.
        if (
            self.isolation_level == IsolationLevel.READ_COMMITTED
            and batch.has_producer_id()
        ):
            self._consume_aborted_transactions_up_to(batch.last_offset)
            if self._contains_abort_marker(batch):
                self.aborted_producer_ids.discard(batch.producer_id)
            elif self._is_batch_aborted(batch):
                return False
        return not batch.is_control_batch

    def _open(self, batch: Any) -> None:  # noqa: ANN401 - upstream's class
        if batch.magic == COMPILED_MAGIC and _fits(batch):
            try:
                data, count = uncompressed(batch, HEADER), max(0, batch.records_count)
                _batches.check(data, 0, count)
            except Exception as error:
                if is_of_handler(error):
                    raise
                # Upstream's decoder raises the right error.
            else:
                self._data, self._at, self._left = data, 0, count
                batch._buffer = b""  # upstream's decoder is not needed: data is enough
                return
        # Upstream's generator, for this batch alone. It keeps its state on this object.
        records = self._unpack_records(
            self.topic_partition, _OneBatch(batch), self._keys, self._values
        )
        self._fallback = (
            itertools.dropwhile(self._maybe_skip_record, records)
            if self._skipping
            else records
        )

    def _close_batch(self) -> None:
        self._data, self._at, self._left = b"", 0, 0

    # ------------------------------------------------------------ records

    def _take_compiled(self, taken: list[ConsumerRecord], limit: int | None) -> None:
        if self._skipping:
            self._skip()
        if not self._left:
            return
        if self._deserializes():
            self._take_deserialized(taken, limit)
            return
        records, size, end = self._read(self._left if limit is None else limit)
        taken.extend(records)
        self._note_read(len(records), size, end, records[-1].offset)

    def _take_deserialized(
        self, taken: list[ConsumerRecord], limit: int | None
    ) -> None:
        # One by one: a deserializer may raise, and those before it have been read.
        for _ in range(self._left if limit is None else min(self._left, limit)):
            if not self._left:
                return  # the deserializer had the rest thrown away: it closed us, say
            (record,), size, end = self._read(1)
            taken.append(self._deserialized(record))
            self._note_read(1, size, end, record.offset)

    def _read(self, count: int) -> tuple[list[ConsumerRecord], int, int]:
        batch = self._batch
        topic, partition = self.topic_partition
        append_time = batch.max_timestamp if batch.timestamp_type else None
        return _batches.read(
            self._data,
            self._at,
            min(count, self._left),
            ConsumerRecord,
            topic,
            partition,
            self.leader_epoch,
            batch.base_offset,
            batch.first_timestamp,
            append_time,
        )

    def _skip(self) -> None:
        # A batch comes whole, also if the fetch began in its middle. The records before
        # the fetch offset are not deserialized: a seek may have gone past one that
        # cannot be.
        first = self._batch.base_offset
        count, size, end, last = _batches.pass_over(
            self._data, self._at, self._left, self.fetch_offset - first
        )
        self._skipping = count == self._left
        if count:
            self._note_read(count, size, end, first + last)

    def _note_read(self, count: int, size: int, end: int, last: int) -> None:
        self._left = max(0, self._left - count)
        self._at = end
        self.records_read += count
        self.bytes_read += size
        self.next_fetch_offset = last + 1

    def _deserializes(self) -> bool:
        return self._keys is not None or self._values is not None

    def _deserialized(self, record: ConsumerRecord) -> ConsumerRecord:
        topic = self.topic_partition.topic
        headers = [*record.headers]  # of the collector, as what refers to it may be
        key = self._deserialize(self._keys, topic, headers, record.key)
        value = self._deserialize(self._values, topic, headers, record.value)
        # Their size is measured after the deserializers, which may have changed them.
        size = _header_bytes(headers) if headers else -1
        fields = (*record[:6], key, value, headers, *record[9:-1], size)
        return _new(ConsumerRecord, fields)

    def _take_fallback(self, taken: list[ConsumerRecord], limit: int | None) -> None:
        before = len(taken)
        try:
            taken.extend(itertools.islice(self._fallback, limit))
        except _BatchIsReadError:
            self._fallback = None
        if len(taken) > before:
            self._skipping = False


class _BatchIsReadError(Exception):
    """Ends upstream's generator before it sees this batch as the last of its answer."""


class _OneBatch:
    """A source of exactly one batch, for upstream's decoder."""

    def __init__(self, batch: Any) -> None:  # noqa: ANN401 - upstream's class
        self._batch = batch

    def next_batch(self) -> Any:  # noqa: ANN401 - upstream's class
        """Return the batch at the first call, and raise at later ones."""
        batch, self._batch = self._batch, None
        if batch is None:
            raise _BatchIsReadError
        return batch


def _fits(batch: Any) -> bool:  # noqa: ANN401 - upstream's class
    # Python's numbers are unbounded, so upstream's sums never wrap around. Only the
    # header is checked: checking every record would cost a tenth of the decoding time.
    return bool(
        0 <= batch.base_offset < _FAR
        and -_FAR < batch.first_timestamp < _FAR
        and batch.max_timestamp < _FAR
    )


def _header_bytes(headers: list[tuple[str, bytes | None]]) -> int:
    return sum(
        len(key.encode("utf-8")) + (0 if value is None else len(value))
        for key, value in headers
    )
