"""Decides which offsets a batch may read, without Spark, a clock or Kafka."""

from collections.abc import Iterable, Mapping

from attrs import field, frozen

from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import Holds
from safeconsumer.spark.offsets import Offsets

Held = Mapping[TopicPartition, tuple[Hold, ...]]


@frozen(kw_only=True)
class KnownHolds:
    """
    The holds that a stream knows at a given time.

    Attributes:
        states: each source's holds; a partition that any hold covers is held.
        troubles: the reasons why sources of holds could not be read; if there are any,
            everything is held.
    """

    states: tuple[Holds, ...] = ()
    troubles: tuple[str, ...] = ()

    def covering(self, tp: TopicPartition) -> tuple[Hold, ...]:
        """Return the holds that cover the partition."""
        return tuple(hold for state in self.states for hold in state.covering(tp))

    def held(self, partitions: Iterable[TopicPartition]) -> Held:
        """Return which of these partitions are held, each with the holds that cover it."""
        everything = bool(self.troubles)
        found = {tp: self.covering(tp) for tp in sorted(partitions)}
        return {tp: holds for tp, holds in found.items() if everything or holds}


@frozen(kw_only=True)
class Plan:
    """
    One batch.

    Attributes:
        start: the offsets at which the batch starts.
        latest: the current end offsets of the partitions.
        held: the held partitions, each with its holds.
        skips: for each partition with a skip, held or not, the offset at which reading
            continues.
    """

    start: Offsets
    latest: Offsets
    held: Held = field(factory=dict)
    skips: Offsets = field(factory=dict)

    def starts_for_limiter(self) -> dict[TopicPartition, int]:
        """Return starts for a limiter that gives held and skipped partitions no share."""
        without_share = {*self.held, *self.skips}
        ends = {tp: self.latest[tp] for tp in without_share if tp in self.latest}
        return {**self.start, **ends}

    def adjusted_end(self, end: Offsets) -> dict[TopicPartition, int]:
        """
        Return ``end``, but with every held partition ending at its start.

        A new held partition starts at 0, so that all its records are read after the
        hold is lifted. If a partition was truncated or recreated, and now ends before
        the batch starts, the batch ends at the partition's end, because the official
        source refuses a batch that ends after the existing records. :meth:`losses`
        reports this case as a loss. If a partition was missing during one plan, and the query
        continued because of ``failOnDataLoss=false``, the partition starts at 0 like a
        new one when it is back, because it may have been recreated. A partition with a
        skip ends at the skip's target.
        """
        kept = {tp: self._kept(tp) for tp in self.held if tp in end}
        skipped = {tp: to for tp, to in self.skips.items() if tp in end}
        return {**end, **kept, **skipped}

    def _kept(self, tp: TopicPartition) -> int:
        start = self.start.get(tp, 0)
        return min(start, self.latest.get(tp, start))

    def lags(self) -> dict[TopicPartition, int]:
        """Return the number of unread offsets of each held partition."""
        return {
            tp: max(0, self.latest[tp] - self.next_of(tp))
            for tp in self.held
            if tp in self.latest
        }

    def next_of(self, tp: TopicPartition) -> int:
        """Return the next offset that will be read from a held partition."""
        return self.skips.get(tp, self.start.get(tp, 0))

    def losses(self) -> dict[TopicPartition, str]:
        """
        Return the held partitions whose next record was deleted, each with the reason.

        The official source checks only the offsets that a batch reads, so it would not
        notice such a loss until the hold is lifted.
        """
        lost = {}
        for tp in set(self.held).difference(self.skips):
            start, latest = self.start.get(tp, 0), self.latest.get(tp)
            if latest is None:
                lost[tp] = f"it is deleted; offset {start} was to be read next"
            elif latest < start:
                lost[tp] = (
                    f"it ends at offset {latest}, before {start}, which was to be read "
                    "next: it was recreated, or truncated"
                )
        return lost
