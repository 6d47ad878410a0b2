"""Remembers the last batches of idempotent producers, so that no batch is written twice."""

from collections import deque
from collections.abc import Iterator

from attrs import define, field, frozen

from safeconsumer.testing import _codes
from safeconsumer.testing._batches import Batch

# How many of a producer's last batches Kafka remembers to detect duplicates.
_REMEMBERED = 5


@frozen
class _Written:
    """A batch's first and last sequence number, and its first offset."""

    first: int
    last: int
    base: int


@define
class _Producer:
    epoch: int
    recent: deque[_Written] = field(factory=lambda: deque(maxlen=_REMEMBERED))
    # the first offset of the producer's open transaction in this log
    open_since: int | None = None


class Producers:
    """The producers that have written to a log, by their ids."""

    def __init__(self) -> None:
        self._known: dict[int, _Producer] = {}

    def open_since(self) -> Iterator[int]:
        """Return the first offsets of the open transactions."""
        return (
            one.open_since for one in self._known.values() if one.open_since is not None
        )

    def is_open(self, producer_id: int) -> bool:
        """Return whether a producer has an open transaction in this log."""
        known = self._known.get(producer_id)
        return known is not None and known.open_since is not None

    def written(self, batch: Batch) -> int | None:
        """Return the offset of a batch that was written before; None for a new batch."""
        known = self._known.get(batch.header.producer_id)
        if known is None or known.epoch != batch.header.producer_epoch:
            return None
        mine = (batch.header.base_sequence, batch.header.last_sequence)
        for one in known.recent:
            if (one.first, one.last) == mine:
                return one.base
        return None

    def problem(self, batch: Batch) -> int:
        """Return the error code for a batch that is out of sequence; 0 if it is valid."""
        header = batch.header
        known = self._known.get(header.producer_id)
        if header.producer_id < 0 or known is None:
            return _codes.NONE
        if header.producer_epoch < known.epoch:
            return _codes.INVALID_PRODUCER_EPOCH
        is_same = header.producer_epoch == known.epoch and known.recent
        wanted = (known.recent[-1].last + 1) % 2**31 if is_same else 0
        is_next = header.base_sequence == wanted
        return _codes.NONE if is_next else _codes.OUT_OF_ORDER_SEQUENCE_NUMBER

    def note(self, batch: Batch) -> None:
        """Remember a written batch."""
        header = batch.header
        if header.producer_id < 0 or header.is_control_batch:
            return
        known = self._at_epoch(header.producer_id, header.producer_epoch)
        known.recent.append(
            _Written(header.base_sequence, header.last_sequence, batch.base)
        )
        if header.is_transactional and known.open_since is None:
            known.open_since = batch.base

    def restore(self, batch: Batch) -> None:
        """Remember a batch that is left in a truncated log; it may end a transaction."""
        header = batch.header
        if header.is_control_batch:
            self.end_transaction(header.producer_id, header.producer_epoch)
        else:
            self.note(batch)

    def is_last(self, batch: Batch) -> bool:
        """Return whether a batch is its producer's last batch."""
        known = self._known.get(batch.header.producer_id)
        if known is None or not known.recent:
            return False
        return known.recent[-1].base == batch.base

    def end_transaction(self, producer_id: int, epoch: int) -> int | None:
        """Close a producer's transaction; return its first offset in this log, or None."""
        known = self._at_epoch(producer_id, epoch)
        first, known.open_since = known.open_since, None
        return first

    def _at_epoch(self, producer_id: int, epoch: int) -> _Producer:
        known = self._known.setdefault(producer_id, _Producer(epoch))
        if epoch > known.epoch:
            known.epoch = epoch
            known.recent.clear()
        return known
