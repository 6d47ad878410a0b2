"""
Decodes record batches with compiled code, with the same results as upstream.

Compiled code (``records.c``) reads batches of format 2. It checks each batch as a
whole, and creates records when they are requested. If a batch differs from what
producers or brokers write, upstream's decoder reads the response from the start of that
batch, so that records and errors are the same as upstream's (design/decoding.md).
"""

import itertools
import logging
import sys
from typing import Any

from kafka.consumer.fetcher import ConsumerRecord, Fetcher
from kafka.protocol.consumer import IsolationLevel

from safeconsumer._interrupts import is_from_handler
from safeconsumer._kafka.decoding.deserializing import deserialized_again
from safeconsumer._kafka.decoding.python_records import PythonRecords
from safeconsumer._kafka.decoding.uncompressing import Buffer, uncompressed

try:
    from safeconsumer._kafka.decoding import _batches
except ImportError:  # built without a compiler; choose() then offers no CompiledRecords
    _batches = None  # type: ignore[assignment]

log = logging.getLogger(Fetcher.__module__)

_STOPPED = "StopIteration raised unpacking messageset"
# The maximum number of records per call of compiled code. Signal handlers and other
# threads must wait for such a call, which takes one or two milliseconds.
_AT_ONCE = 10_000


class CompiledRecords(PythonRecords):
    """
    Replaces upstream's ``PartitionRecords``, with the same arguments and results.

    ``take`` creates records from as many batches as necessary, and the next call
    continues after the last record. A batch is decompressed only when the earlier ones
    have been read.
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
        # Upstream's constructor creates a generator, whose existence means "not drained
        # yet". It is used only if upstream has to read the rest.
        super().__init__(
            fetch_offset, tp, records, key_deserializer, value_deserializer, **options
        )
        self._batches = records
        # None if upstream's generator reads the rest, or if nothing is left to read.
        self._reader: _batches.Reader | None = _batches.Reader(
            records._buffer,
            ConsumerRecord,
            tp.topic,
            tp.partition,
            fetch_offset,
            self.check_crcs,
            self._is_aborted if self._has_aborted() else None,
            _uncompressed,
            key_deserializer,
            value_deserializer,
            deserialized_again,
            _header_bytes,
        )
        self._failed = False

    def take(self, n: int | None = None) -> list[ConsumerRecord]:
        """
        Take up to ``n`` records.

        If a record has an error, the call returns the records before that record, and
        the next call raises the error. If no records precede it, this call raises the
        error.
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
            self._fill(taken, sys.maxsize if n is None else n)
        except StopIteration as stop:
            self._failed = True
            log.exception(_STOPPED)  # upstream's text, too
            error = RuntimeError(_STOPPED)
            # so that the traceback shows the line in the deserializer
            error.__context__ = stop
            return error
        except Exception as error:  # noqa: BLE001 - take() raises it
            self._failed = True
            return error
        except BaseException:
            self._failed = True
            raise
        return None

    def _fill(self, taken: list[ConsumerRecord], n: int) -> None:
        # After an error there are no more records, as with a generator.
        while len(taken) < n and self._reader is not None and not self._failed:
            self._read(self._reader, taken, min(n - len(taken), _AT_ONCE))
        if len(taken) < n and self.record_iterator is not None and not self._failed:
            taken.extend(itertools.islice(self.record_iterator, n - len(taken)))

    def _read(
        self, reader: "_batches.Reader", taken: list[ConsumerRecord], most: int
    ) -> None:
        try:
            is_for_upstream = reader.take(taken, most)
        finally:
            self._note_read(reader)
        if is_for_upstream:
            self._leave_the_rest(reader)

    def _note_read(self, reader: "_batches.Reader") -> None:
        self.next_fetch_offset = reader.next_fetch_offset
        self.leader_epoch = reader.leader_epoch
        self.records_read = reader.records_read
        self.bytes_read = reader.bytes_read
        self.is_transactional = reader.is_transactional

    def _leave_the_rest(self, reader: "_batches.Reader") -> None:
        # Makes upstream's generator continue at the reader's batch, or at the end if no
        # batch is left.
        batches = self._batches
        batches._pos = reader.batch
        batches._cache_next()
        if reader.behind >= 0 and not batches.has_next():
            # the last records of the last batch may have been compacted
            self.next_fetch_offset = reader.behind
        self._is_skipping = reader.is_skipping
        self._reader = None

    def drain(self) -> None:
        reader, self._reader, self._batches = self._reader, None, None
        if reader is not None:
            reader.close()
            self._note_read(reader)  # a deserializer may call drain() during a read
        super().drain()

    def _has_aborted(self) -> bool:
        is_committed = self.isolation_level == IsolationLevel.READ_COMMITTED
        return is_committed and bool(self.aborted_transactions)

    def _is_aborted(
        self,
        producer: int,
        last_offset: int,
        is_transactional: int,
        is_abort_marker: int,
    ) -> bool:
        # As in upstream, an abort marker ends the aborted transaction of its producer.
        self._consume_aborted_transactions_up_to(last_offset)
        if is_abort_marker:
            self.aborted_producer_ids.discard(producer)
        return bool(is_transactional) and producer in self.aborted_producer_ids

    def _maybe_skip_record(self, record: Any) -> bool:  # noqa: ANN401 - upstream's class
        # Upstream's generator may have to read the rest of a batch whose first records
        # were returned already.
        return self._is_skipping and bool(super()._maybe_skip_record(record))


def _uncompressed(data: Buffer, begin: int, end: int, codec: int) -> Buffer | None:
    # If the result is None, upstream's decoder raises the right error.
    try:
        return uncompressed(memoryview(data)[begin:end], codec)
    except Exception as error:
        if is_from_handler(error):
            raise
        return None


def _header_bytes(headers: list[tuple[str, bytes | None]]) -> int:
    return sum(
        len(key.encode("utf-8")) + (0 if value is None else len(value))
        for key, value in headers
    )
