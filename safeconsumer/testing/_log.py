"""Models the log of a partition, with its batches, offsets and leader."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from math import inf
from typing import Any

from attrs import frozen

from safeconsumer.testing import _codes
from safeconsumer.testing._batches import Batch, of_transaction_end
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._leader_epochs import LeaderEpochs
from safeconsumer.testing._producers import Producers


@frozen
class Aborted:
    """An aborted transaction; readers drop its records from ``first`` to ``last``."""

    producer_id: int
    first: int
    last: int


class Log:
    """
    The log of a partition, from offset ``start`` up to, but not including, ``end``.

    Only one thread may use it.
    """

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.epochs = LeaderEpochs()
        self.start = 0
        self.batches: list[Batch] = []
        self.producers = Producers()
        self.aborted: list[Aborted] = []
        self.end = 0
        # when tombstones are removed, in milliseconds, by the base offset of their
        # batch
        self._horizons: dict[int, int] = {}

    @property
    def epoch(self) -> int:
        """The epoch of the log's current leader."""
        return self.epochs.latest

    @property
    def stable_end(self) -> int:
        """The last stable offset, at which readers of committed records stop."""
        return max(self.start, min(self.producers.open_since(), default=self.end))

    def append(self, batch: Batch, append_time: int | None = None) -> int:
        """Append a batch that was checked; return the offset of its first record."""
        placed = batch.placed(self.end, self.epoch, append_time)
        self.batches.append(placed)
        self.producers.note(placed)
        self.end = placed.end
        return placed.base

    def end_transaction(
        self, producer_id: int, epoch: int, now: int, *, is_committed: bool
    ) -> None:
        """Write the end of a transaction; if it was aborted, remember that for readers."""
        first = self.producers.end_transaction(producer_id, epoch)
        batch = of_transaction_end(producer_id, epoch, now, is_committed=is_committed)
        last = self.append(batch)
        if first is not None and not is_committed:
            self.aborted.append(Aborted(producer_id, first, last))

    def read(self, offset: int, room: int, end: int, *, at_least_one: bool) -> bytes:
        """
        Return at most ``room`` bytes, from the batch that contains ``offset`` up to ``end``.

        As in a broker's answer, the last batch may be cut off. If the first batch is
        larger than ``room``, it is returned whole with ``at_least_one``, and not at all
        without it.
        """
        found = bytearray()
        for batch in self._since(offset):
            if not found and len(batch.data) > room:
                room = len(batch.data) if at_least_one else 0
            if batch.base >= end or len(found) >= room:
                break
            found += batch.data
        return bytes(found[:room])

    def aborted_since(self, offset: int) -> list[Aborted]:
        """Return the aborted transactions that end at or after ``offset``."""
        return [one for one in self.aborted if one.last >= offset]

    def first_since(self, timestamp: int) -> tuple[int, int, int]:
        """Return offset, time and epoch of the first record since a time, or -1 for each."""
        for batch in self._since(self.start):
            if batch.header.max_timestamp < timestamp:
                continue
            for record in batch.records():
                if record.timestamp >= timestamp and record.offset >= self.start:
                    return record.offset, record.timestamp, batch.header.leader_epoch
        return -1, -1, -1

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the last epoch up to ``epoch``, and the offset at which its records end."""
        return self.epochs.end_of(epoch, self.end)

    def diverging(self, offset: int, epoch: int) -> tuple[int, int] | None:
        """
        Return where this log and a reader's diverge before the reader's offset, or None.

        Args:
            offset: the offset that the reader requests.
            epoch: the leader epoch of the last record that the reader has read.

        Raises:
            RefusedError: the log never had that epoch, or no longer has that offset.
        """
        found, end = self.end_of_epoch(epoch)
        if found < 0 or offset < self.start:
            raise RefusedError(_codes.OFFSET_OUT_OF_RANGE)
        return (found, end) if found < epoch or end < offset else None

    def lead(self, node: int) -> None:
        """Change the leader to a broker that has all records."""
        self.leader = node
        self.epochs.begin(self.end)

    def truncate(self, offset: int, node: int) -> None:
        """Change the leader to a broker that lacks the records from ``offset`` on."""
        offset = max(self.start, min(offset, self.end))
        self.batches = [
            one if one.end <= offset else one.before(offset)
            for one in self.batches
            if one.base < offset
        ]
        self.aborted = [one for one in self.aborted if one.last < offset]
        self.producers = Producers()
        for batch in self.batches:
            self.producers.restore(batch)
        self.end = offset
        self.lead(node)

    # Retention and compaction

    def delete_before(self, offset: int) -> None:
        """Delete the records below ``offset``, as DeleteRecords and retention do."""
        self.start = max(self.start, min(offset, self.end))
        self.epochs.delete_before(self.start)
        self.batches = list(self._since(self.start))
        self.aborted = [one for one in self.aborted if one.last >= self.start]

    def expire(self, oldest: int) -> None:
        """Delete batches from the start of the log while all their records are too old."""
        for batch in tuple(self.batches):
            if batch.header.max_timestamp >= oldest:
                break
            self.delete_before(batch.end)

    def compact(self, oldest_active: float, now: int, tombstones_ms: int) -> None:
        """
        Keep only the last record of each key, in batches older than ``oldest_active``.

        The offsets of records stay the same. As in Kafka, tombstones are removed
        ``tombstones_ms`` after the first compaction that finds them, whatever their
        timestamps are, and aborted records are removed immediately. The last record of
        the log stays, so that readers reach the end of the log. The last batch and each
        producer's last batch stay even if they are empty.
        """
        cleanable = list(
            takewhile(
                lambda one: one.header.max_timestamp < oldest_active, self._settled()
            )
        )
        end = cleanable[-1].end if cleanable else self.start
        gone = set(self._undone(cleanable))
        newest = {
            record.key: record.offset
            for record in _records(cleanable)
            if record.offset not in gone
        }
        cleaned = [self._cleaned(one, newest, now) for one in cleanable]
        kept = [
            one
            for one in cleaned
            if one.header.records_count or one.end == end or self.producers.is_last(one)
        ]
        self._horizons = {
            one.base: self._horizons.get(one.base, now + tombstones_ms) for one in kept
        }
        self.batches = kept + self.batches[len(cleanable) :]
        self.aborted = [one for one in self.aborted if one.last >= end]

    def _cleaned(self, batch: Batch, newest: Mapping[bytes, int], now: int) -> Batch:
        """Return a batch with only the records that compaction keeps."""
        if batch.header.is_control_batch:
            return batch
        is_late = self._horizons.get(batch.base, inf) <= now
        records = list(batch.records())
        kept = [
            one
            for one in records
            if one.offset == self.end - 1
            or (
                newest.get(one.key) == one.offset
                and not (is_late and one.value is None)
            )
        ]
        return batch if len(kept) == len(records) else batch.with_only(kept)

    def _settled(self) -> Iterator[Batch]:
        """Return the batches up to the last stable offset."""
        return (one for one in self.batches if one.end <= self.stable_end)

    def _undone(self, batches: Iterable[Batch]) -> Iterator[int]:
        """Return the offsets of the aborted records in these batches."""
        for batch in batches:
            for one in self.aborted:
                is_its = batch.header.producer_id == one.producer_id
                if is_its and one.first <= batch.base < one.last:
                    yield from range(batch.base, batch.end)

    def _since(self, offset: int) -> Iterator[Batch]:
        first = bisect_right(self.batches, offset, key=lambda one: one.end)
        return (self.batches[n] for n in range(first, len(self.batches)))


def _records(batches: Iterable[Batch]) -> Iterator[Any]:
    return (
        record
        for batch in batches
        if not batch.header.is_control_batch
        for record in batch.records()
    )
