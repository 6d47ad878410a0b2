"""
Decodes batches with upstream's decoder, but skips records below the fetch offset.

A broker sends whole batches, even if the fetch starts inside a batch. Upstream
deserializes the records before the position, too, before it discards them. A seek past
a record that cannot be deserialized would therefore not help.
"""

from collections.abc import Iterator
from typing import Any

from kafka.consumer.fetcher import Fetcher

from safeconsumer._kafka.decoding.deserializing import deserialized


class PythonRecords(Fetcher.PartitionRecords):
    """
    A ``PartitionRecords`` that deserializes only from the fetch offset on.

    Attributes:
        is_transactional: whether a transactional batch was read.
    """

    is_transactional = False

    _deserialize = staticmethod(deserialized)

    def _unpack_records(
        self,
        tp: Any,  # noqa: ANN401 - upstream's types, here and below
        records: Any,  # noqa: ANN401
        key_deserializer: Any,  # noqa: ANN401
        value_deserializer: Any,  # noqa: ANN401
    ) -> Iterator[Any]:
        is_deserialized = key_deserializer is not None or value_deserializer is not None
        batches = _Batches(records, self, is_deserialized=is_deserialized)
        unpacked: Iterator[Any]
        unpacked = super()._unpack_records(
            tp, batches, key_deserializer, value_deserializer
        )
        return unpacked


class _Batches:
    # Yields batches to upstream's decoder.

    def __init__(self, batches: Any, part: Any, *, is_deserialized: bool) -> None:  # noqa: ANN401 - upstream's
        self._batches, self._part = batches, part
        self._is_deserialized = is_deserialized

    def next_batch(self) -> Any:  # noqa: ANN401 - upstream's class
        batch = self._batches.next_batch()
        # Batches of older formats lack this attribute, and are never transactional.
        if getattr(batch, "is_transactional", False):
            self._part.is_transactional = True
        if batch is None or not self._is_deserialized:
            return batch
        return FromFetchOffset(batch, self._part)


class FromFetchOffset:
    """
    Wraps one of upstream's batches, and leaves out records below the fetch offset.

    The records below that offset count as read, as in upstream.

    Args:
        batch: the batch.
        part: upstream's ``PartitionRecords`` object that reads the batch.
    """

    def __init__(self, batch: Any, part: Any) -> None:  # noqa: ANN401 - upstream's
        self._batch, self._part = batch, part

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a batch
        return getattr(self._batch, name)

    def __next__(self) -> Any:  # noqa: ANN401 - upstream looks into markers so
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        part = self._part
        records = iter(self._batch)
        for record in records:
            if record.offset >= part.fetch_offset:
                yield record
                yield from records
                return
            part.records_read += 1
            part.bytes_read += record.size_in_bytes
            part.next_fetch_offset = record.offset + 1
