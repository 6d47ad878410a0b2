"""
Decodes record batches by compiled code, one at a time, with upstream's results.

Headers, checksums, control batches and aborted transactions stay upstream's code. Only
the records inside a batch of format 2 are read by the compiled decoder. If it finds a
fault in a batch, upstream's decoder reads that batch from its start, so that records
and errors are upstream's. One kind of forged batch is detected neither by its header
nor by the decoder (design/0010): sums beyond 64 bits wrap around, as in Kafka's own
client.
"""

import itertools
from collections.abc import Callable
from typing import Any, ClassVar

from kafka.consumer.fetcher import ConsumerRecord, Fetcher
from kafka.errors import CorruptRecordError
from kafka.protocol.consumer import IsolationLevel

from safeconsumer._kafka.decoding.collector import (
    AT_ONCE,
    UNKNOWN_SIZE,
    uncollected,
)
from safeconsumer._kafka.decoding.record_sizes import record_bytes
from safeconsumer._kafka.decoding.sought import FromFetchOffset

# Takes one of upstream's batches of format 2; returns its records, and the batch from
# HEADER on with the records uncompressed.
Decoder = Callable[[Any], tuple[list[Any], bytes]]

# Bytes before the records, https://kafka.apache.org/documentation/#recordbatch.
HEADER = 61

# Kafka 0.11's record format, the first that the compiled decoder reads.
COMPILED_MAGIC = 2

# Offsets and times beyond this could overflow the 64 bits of the compiled decoder.
_FAR = 2**62
_new = tuple.__new__
_STOPPED = "StopIteration raised unpacking messageset"


class CompiledRecords(Fetcher.PartitionRecords):
    """
    Replaces upstream's ``PartitionRecords``: the same arguments and results.

    ``take`` cuts records out of one decoded batch; the next batch is decoded when that
    one is used up, so at most one more than upstream's is in memory.
    """

    decode: ClassVar[Any]  # a Decoder; as an attribute it would be called a method

    bytes_taken: int
    """
    How many bytes of uncompressed batches the records taken so far had, about; 0 with
    deserializers. Records read by upstream's decoder count as ``UNKNOWN_SIZE``.
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
        self._chunk: list[Any] = []
        self._plain = b""
        self._at = 0
        self.bytes_taken = 0
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
        except StopIteration:
            self._failed = True
            return RuntimeError(_STOPPED)  # upstream's words, too
        except Exception as error:  # noqa: BLE001 - take() raises it
            self._failed = True
            return error
        except BaseException:
            self._failed = True
            raise
        return None

    def drain(self) -> None:
        """
        Throw the rest away, and report what was read to upstream's metrics.
        """
        self._close_chunk()
        self._fallback = None
        super().drain()

    def _fill(self, taken: list[ConsumerRecord], n: int | None) -> None:
        # After an error nothing more comes, as from a generator.
        while not self._failed and (n is None or len(taken) < n):
            left = None if n is None else n - len(taken)
            if self._deserializes():
                is_more = self._read_on(taken, left)
            else:
                is_more = uncollected(self._read_batches, taken, left)
            if not is_more:
                return

    def _read_batches(self, taken: list[ConsumerRecord], left: int | None) -> bool:
        # So many at once that the collector, which may run in between, rarely does.
        end = len(taken) + (AT_ONCE if left is None else min(left, AT_ONCE))
        while (room := end - len(taken)) > 0:
            if not self._read_on(taken, room):
                return False
        return True

    def _read_on(self, taken: list[ConsumerRecord], left: int | None) -> bool:
        # Read the current batch, else the next one; False if there is no more.
        is_read = self._at >= len(self._chunk) and self._fallback is None
        if is_read and (self.record_iterator is None or not self._open_next()):
            return False
        if self._at < len(self._chunk):
            self._take_decoded(taken, left)
        elif self._fallback is not None:
            self._take_fallback(taken, left)
        return True

    # ------------------------------------------------------------ batches

    def _open_next(self) -> bool:
        self._close_chunk()
        batch = self._batches.next_batch()
        if batch is None:
            self._end()
            return False
        self._batch = batch
        if self.check_crcs and not batch.validate_crc():
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
                self._chunk, self._plain = uncollected(self.decode, batch)
            except Exception:  # noqa: BLE001 - upstream's decoder raises the right error
                self._chunk = []
            else:
                return
        # Upstream's generator, for this batch alone. It keeps its state on this object.
        if self._deserializes():
            batch = FromFetchOffset(batch, self)
        records = self._unpack_records(
            self.topic_partition, _OneBatch(batch), self._keys, self._values
        )
        self._fallback = (
            itertools.dropwhile(self._maybe_skip_record, records)
            if self._skipping
            else records
        )

    def _close_chunk(self) -> None:
        if self._at:
            self.bytes_read += (
                record_bytes(self._plain, self._at, HEADER)
                if self.metric_aggregator
                else len(self._plain)  # here only "more than nothing" matters
            )
        self._chunk, self._plain, self._at = [], b"", 0

    # ------------------------------------------------------------ records

    def _take_decoded(self, taken: list[ConsumerRecord], limit: int | None) -> None:
        if self._skipping:
            self._skip()
        end = len(self._chunk) if limit is None else self._at + limit
        raw = self._chunk[self._at : end]
        if not raw:
            return
        finished = self._finished(raw)
        if not self._deserializes():
            self.bytes_taken += len(self._plain) * len(raw) // len(self._chunk)
            taken.extend(finished)
            self._note_read(len(raw))
            return
        for record in finished:
            taken.append(self._deserialized(record))
            self._note_read(1)

    def _skip(self) -> None:
        # A batch comes whole, also if the fetch began in its middle. The records before
        # the fetch offset are not deserialized: a seek may have gone past one that
        # cannot be.
        count = 0
        for record in itertools.islice(self._chunk, self._at, None):
            if record.offset >= self.fetch_offset:
                self._skipping = False
                break
            count += 1
        if count:
            self._note_read(count)

    def _note_read(self, count: int) -> None:
        self._at += count
        self.records_read += count
        self.next_fetch_offset = self._chunk[self._at - 1].offset + 1

    def _deserializes(self) -> bool:
        return self._keys is not None or self._values is not None

    def _finished(self, raw: list[Any]) -> list[ConsumerRecord]:
        return uncollected(self._tuples, raw)

    def _tuples(self, raw: list[Any]) -> list[ConsumerRecord]:
        topic, partition = self.topic_partition
        epoch, kind = self.leader_epoch, self._batch.timestamp_type
        # tuple.__new__ is what the named tuple's own __new__ calls, without the frame
        return [
            _new(
                ConsumerRecord,
                (
                    topic,
                    partition,
                    epoch,
                    one.offset,
                    one.timestamp,
                    kind,
                    (key := one.key),
                    (value := one.value),
                    (headers := one.headers),
                    None,
                    -1 if key is None else len(key),
                    -1 if value is None else len(value),
                    _header_bytes(headers) if headers else -1,
                ),
            )
            for one in raw
        ]

    def _deserialized(self, record: ConsumerRecord) -> ConsumerRecord:
        topic = self.topic_partition.topic
        headers = record.headers
        key = self._deserialize(self._keys, topic, headers, record.key)
        value = self._deserialize(self._values, topic, headers, record.value)
        # Their size is measured after the deserializers, which may have changed them.
        size = _header_bytes(headers) if headers else -1
        return _new(ConsumerRecord, (*record[:6], key, value, *record[8:-1], size))

    def _take_fallback(self, taken: list[ConsumerRecord], limit: int | None) -> None:
        before = len(taken)
        self.bytes_taken += UNKNOWN_SIZE
        try:
            taken.extend(itertools.islice(self._fallback, limit))
        except _BatchIsReadError:
            self._fallback = None
        if len(taken) > before:
            self._skipping = False


class _BatchIsReadError(Exception):
    """
    Ends upstream's generator before it sees this batch as the last of its answer.
    """


class _OneBatch:
    """
    A source of exactly one batch, for upstream's decoder.
    """

    def __init__(self, batch: Any) -> None:  # noqa: ANN401 - upstream's class
        self._batch = batch

    def next_batch(self) -> Any:  # noqa: ANN401 - upstream's class
        """
        Return the batch at the first call, and raise at later ones.
        """
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
