"""
Decodes record batches by compiled code, one at a time, with upstream's results.

Batches of format 2 are read by compiled code (``_batches.c``): each is checked as a
whole, and records are made as they are taken. If anything is not as a producer or a
broker writes it, upstream's decoder reads the answer on from the start of that batch,
so that records and errors are upstream's (design/decoding.md).
"""

import itertools
import logging
from typing import Any, NamedTuple

from kafka.consumer.fetcher import ConsumerRecord, Fetcher
from kafka.protocol.consumer import IsolationLevel

from safeconsumer._interrupts import is_of_handler
from safeconsumer._kafka.decoding.sought import PythonRecords
from safeconsumer._kafka.decoding.uncompressing import Buffer, uncompressed

try:
    from safeconsumer._kafka.decoding import _batches
except ImportError:  # there was no compiler, and choose() offers no CompiledRecords
    _batches = None  # type: ignore[assignment]

log = logging.getLogger(Fetcher.__module__)

# Bytes before the records, https://kafka.apache.org/documentation/#recordbatch.
HEADER = 61

_new = tuple.__new__
_STOPPED = "StopIteration raised unpacking messageset"


class Header(NamedTuple):
    """What is to be known of a batch; upstream's names, where it has one."""

    end: int  # where the next batch begins in the answer
    base_offset: int
    next_offset: int
    leader_epoch: int
    first_timestamp: int
    append_time: int | None  # the time of all its records, if the broker has set it
    producer_id: int  # negative: it has none
    compression_type: int
    is_transactional: bool
    is_control_batch: bool
    is_abort_marker: bool
    records_count: int


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
        # Upstream makes its generator here. If it is there, that means "not drained
        # yet"; it is started where upstream is to read the rest.
        super().__init__(
            fetch_offset, tp, records, key_deserializer, value_deserializer, **options
        )
        self._batches = records
        self._keys, self._values = key_deserializer, value_deserializer
        self._header: Header | None = None  # the current batch's, or the last one's
        self._data: Buffer = b""  # the current batch's records, uncompressed
        self._at = self._left = 0  # where the next one begins; how many there are
        self._skipping = True
        self._rest_is_upstreams = False
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
        self._data, self._left, self._batches = b"", 0, None
        super().drain()

    def _fill(self, taken: list[ConsumerRecord], n: int | None) -> None:
        # After an error nothing more comes, as from a generator.
        while not self._failed and (n is None or len(taken) < n):
            if not self._read_on(taken, None if n is None else n - len(taken)):
                return

    def _read_on(self, taken: list[ConsumerRecord], left: int | None) -> bool:
        # Read the current batch, else open the next one; False if there is no more.
        if self._left:
            self._take_compiled(taken, left)
        elif self.record_iterator is None:
            return False
        elif self._rest_is_upstreams:
            taken.extend(itertools.islice(self.record_iterator, left))
        else:
            self._open_next()
        return True

    # ------------------------------------------------------------ batches

    def _open_next(self) -> None:
        at = 0 if self._header is None else self._header.end
        self._data = b""  # at most one batch is open
        found = _batches.header(self._batches._buffer, at, self.check_crcs)
        if found is None:
            self._leave_the_rest(at)
            return
        self._header = header = _new(Header, found)
        self.leader_epoch = header.leader_epoch
        self.is_transactional |= header.is_transactional
        if not self._is_delivered(header):
            self.next_fetch_offset = header.next_offset
        elif not self._open(at, header):
            self._leave_the_rest(at)

    def _leave_the_rest(self, at: int) -> None:
        # Upstream's generator reads on from there, also where nothing is left.
        batches = self._batches
        batches._pos = at
        batches._cache_next()
        if self._header is not None and not batches.has_next():
            # the tail of the last batch may have been compacted away
            self.next_fetch_offset = self._header.next_offset
        self._rest_is_upstreams = True

    def _is_delivered(self, header: Header) -> bool:
        # Upstream's order: an abort marker ends what its producer had aborted.
        if (
            self.isolation_level == IsolationLevel.READ_COMMITTED
            and header.producer_id >= 0
        ):
            self._consume_aborted_transactions_up_to(header.next_offset - 1)
            if header.is_abort_marker:
                self.aborted_producer_ids.discard(header.producer_id)
            elif self._is_batch_aborted(header):
                return False
        return not header.is_control_batch

    def _open(self, at: int, header: Header) -> bool:
        section = memoryview(self._batches._buffer)[at + HEADER : header.end]
        count = header.records_count
        try:
            data = uncompressed(section, header.compression_type)
            _batches.check(data, 0, count)
        except Exception as error:
            if is_of_handler(error):
                raise
            return False  # upstream's decoder raises the right error
        self._data, self._at, self._left = data, 0, count
        return True

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
        header: Any = self._header
        topic, partition = self.topic_partition
        return _batches.read(
            self._data,
            self._at,
            min(count, self._left),
            ConsumerRecord,
            topic,
            partition,
            self.leader_epoch,
            header.base_offset,
            header.first_timestamp,
            header.append_time,
        )

    def _skip(self) -> None:
        # A batch comes whole, also if the fetch began in its middle. The records before
        # the fetch offset are not deserialized: a seek may have gone past one that
        # cannot be.
        first: int = self._header.base_offset  # type: ignore[union-attr]  # a batch is open
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

    def _maybe_skip_record(self, record: Any) -> bool:  # noqa: ANN401 - upstream's class
        # Upstream's generator is asked for the rest, where the first may have come.
        return self._skipping and bool(super()._maybe_skip_record(record))


def _header_bytes(headers: list[tuple[str, bytes | None]]) -> int:
    return sum(
        len(key.encode("utf-8")) + (0 if value is None else len(value))
        for key, value in headers
    )
