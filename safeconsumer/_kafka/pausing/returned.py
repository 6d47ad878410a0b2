"""
Records that were taken already and had to go back.
"""

from collections.abc import Sequence
from typing import Any

from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import OffsetAndMetadata, TopicPartition


class ReturnedRecords:
    """
    Records that were taken from the buffer and put back.

    They have the shape that upstream's fetcher drains; behind them stands the rest of
    the batch they came from.

    Args:
        tp: their partition.
        records: the records, at least one, ready made.
        position: the partition's position before they were taken.
        rest: what is left of the batch, an object of upstream's
            ``PartitionRecords`` or of this class, or None.
    """

    def __init__(
        self,
        tp: TopicPartition,
        records: Sequence[ConsumerRecord],
        position: OffsetAndMetadata,
        fetch_offset: int,
        rest: Any = None,  # noqa: ANN401 - either class, of upstream's shape
    ) -> None:
        self.topic_partition = tp
        self.fetch_offset = fetch_offset
        self.leader_epoch: int = position.leader_epoch
        self.bytes_read = 0
        self._offset: int = position.offset
        self._records = tuple(records)
        self._at = 0
        self._error: Exception | None = None
        self.rest = rest

    def __bool__(self) -> bool:
        return self._at < len(self._records) or bool(self.rest or self._error)

    def __len__(self) -> int:
        return len(self._records) - self._at

    @property
    def next_fetch_offset(self) -> int:
        """
        The position at which the next record counts as next in line.
        """
        if self._at < len(self._records) or self.rest is None:
            return self._offset
        return int(self.rest.next_fetch_offset)

    def records_left(self, total: int | None) -> int | None:
        """
        Return how many records are here; ``total`` is what the whole batch had.
        """
        rest = records_left(self.rest, total)
        return None if rest is None else len(self) + rest

    def take(self, n: int) -> list[ConsumerRecord]:
        """
        Take up to ``n`` records, out of the rest of the batch too.

        Raises:
            Exception: whatever the rest of the batch raises, after the records that
                stand before it.
        """
        if self._error is not None:
            raise self._error
        taken = list(self._records[self._at : self._at + n])
        self._at += len(taken)
        if len(taken) < n and self.rest:
            self._take_rest(taken, n - len(taken))
        if taken:
            self._offset = taken[-1].offset + 1
            self.leader_epoch = taken[-1].leader_epoch
        return taken

    def _take_rest(self, taken: list[ConsumerRecord], n: int) -> None:
        try:
            taken.extend(self.rest.take(n))
        except Exception as error:
            if not taken:
                raise
            self._error = error

    def unread(self) -> tuple[ConsumerRecord, ...]:
        """
        Return the records that are here, without the rest of the batch.
        """
        return self._records[self._at :]

    def drain(self) -> None:
        """
        Throw everything away.
        """
        self._at, self._error = len(self._records), None
        if self.rest is not None:
            self.rest.drain()


def records_left(part: Any, total: int | None) -> int | None:  # noqa: ANN401 - either class, or None
    """
    Return how many records a half-read batch still has; None if that is not known.
    """
    if not part:
        return 0
    if isinstance(part, ReturnedRecords):
        return part.records_left(total)
    return None if total is None else max(0, total - int(part.records_read))
