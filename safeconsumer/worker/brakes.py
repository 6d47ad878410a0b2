"""Places the holds that enforce a worker's limits, and computes the next poll's size."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from kafka.structs import TopicPartition

from safeconsumer.errors.base import JournalError
from safeconsumer.holds.hold import WORKER
from safeconsumer.holds.view import covers
from safeconsumer.worker import watermarks
from safeconsumer.worker.client import ConsumerClient
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.kept import KeptRecords
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.records import AnyRecord
from safeconsumer.worker.settings import Limits

BACKPRESSURE = f"{WORKER}backpressure"
RETRY = f"{WORKER}retry"
DRAIN = f"{WORKER}drain"
FLOOR = f"{WORKER}floor"
OWNERS = (BACKPRESSURE, RETRY, DRAIN, FLOOR)

Holding = tuple[str, TopicPartition | None]


# Seconds for which a partition is not fetched after some of its records were given
# back.
_GAVE_BACK_SECONDS = 5.0


class Brakes:
    """
    Derives a worker's holds from the kept records on each turn. Polling thread only.

    The consumer's ledger, not this class, remembers which holds were placed.

    Attributes:
        work: decides about the results of the records.
        pause_seconds: the total seconds for which holds of each owner were in force.
        refetched: the number of records that were given back, to be fetched again.
    """

    work: Decisions

    def __init__(
        self,
        client: ConsumerClient,
        kept: KeptRecords,
        limits: Limits,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._group = client.membership
        self._kept = kept
        self._limits = limits
        self._clock = clock
        self._marks = watermarks.marks(limits)
        self._share: watermarks.Marks | None = None
        self._throttled: set[TopicPartition] = set()
        self._gave_back: dict[Epoch, float] = {}
        self._is_throttled = False
        self._average = 1.0
        self._wanted: frozenset[Holding] = frozenset()
        self._kept_out: frozenset[TopicPartition | None] = frozenset()
        # the partitions that were owned when holds were last placed
        self._placed_in: Mapping[TopicPartition, object] = {}
        self._counted_at = clock()
        self._lifted_at: float | None = None
        self.pause_seconds = dict.fromkeys(OWNERS, 0.0)
        self.refetched = 0
        kept.when_low = self._when_low

    # ------------------------------------------------------------ holding

    def place(
        self,
        *,
        is_draining: bool,
        floorless: Iterable[TopicPartition] = (),
    ) -> None:
        """
        Place and lift holds as the kept records require.

        Args:
            is_draining: whether all partitions must be held.
            floorless: partitions without a committed offset from which their records
                can be read again; these records must not be handed out yet.
        """
        self._count()
        self._is_throttled = self._is_full()
        wanted: dict[Holding, str] = {}
        if self._is_throttled:
            wanted[BACKPRESSURE, None] = "the worker's limits are reached"
        for tp, owner in self._over_share():
            wanted[owner, tp] = "the partition's share of the limits is reached"
        for tp in floorless:
            wanted[FLOOR, tp] = "its first offset is not committed yet"
        if is_draining:
            wanted[DRAIN, None] = "waits for running work"
        self._placed_in = self._group.owned()
        self._client.hold(OWNERS, wanted)
        self._wanted = frozenset(wanted)
        self._kept_out = frozenset(tp for _, tp in wanted)
        self._kept.low = self._marks.low if self._is_throttled else None

    def release(self) -> None:
        """Lift all holds that this object has placed, because the worker ends."""
        self._count()
        self._kept.low = None
        self._wanted, self._kept_out = frozenset(), frozenset()
        self._client.hold(OWNERS, {})

    def _count(self) -> None:
        now, lifted = self._clock(), self._lifted_at
        for owner in {owner for owner, _ in self._wanted}:
            is_lifted = owner == BACKPRESSURE and not self._throttled
            until = lifted if is_lifted and lifted is not None else now
            self.pause_seconds[owner] += max(0.0, until - self._counted_at)
        self._counted_at, self._lifted_at = now, None

    def _is_full(self) -> bool:
        load = self._kept.load
        if self._is_throttled and not self._is_starving():
            return self._marks.is_throttled(load, was=True)
        # A poll that may return only a few records is not worth its cost.
        much = min(self._most(), self._credit(self._marks.low))
        return self._credit(load) < max(1, much // 4)

    def _is_starving(self) -> bool:
        # Returns whether some partition has no record to work on, although no holds
        # except the worker's own cover it.
        view = self._group.ledger.peek()
        return any(
            tp not in self._throttled
            and not covers(view, tp)
            and self.work.is_starving(self._kept.epochs.get(tp))
            for tp in self._group.owned()
        )

    def _over_share(self) -> Iterator[tuple[TopicPartition, str]]:
        owned = self._group.owned()
        share = watermarks.share(self._limits, len(owned), self._sharing_count())
        self._share = share
        if share is None:
            self._throttled.clear()
            return
        # A partition whose records were given back is not fetched for a while, if none
        # of its remaining records can be worked on. Otherwise a record larger than the
        # partition's share would be fetched and given back on every turn.
        self._gave_back = {
            one: until
            for one, until in self._gave_back.items()
            if self._clock() < until and one.records and self.work.is_starving(one)
        }
        is_little = not share.is_throttled(self._kept.load, was=False)
        if not self._throttled and not self._gave_back and is_little:
            return  # the records of all partitions together are less than one share
        throttled = set()
        for tp, epoch in self._kept.epochs.items():
            load = watermarks.Load(epoch.records, epoch.bytes)
            is_over = share.is_throttled(load, was=tp in self._throttled)
            if tp in owned and (is_over or epoch in self._gave_back):
                throttled.add(tp)
                yield tp, RETRY if epoch.failed else BACKPRESSURE
        self._throttled = throttled

    def make_room(self) -> None:
        """
        Drop the queued records that exceed a partition's share, if there is no room.

        Records are dropped only if some partition has no record to work on. Only
        records that no handler has begun are dropped, and they are fetched again.
        """
        share = self._share
        if not self._is_throttled or share is None or not self._is_starving():
            return
        for tp, ownership in self._group.owned().items():
            epoch = self._kept.epochs.get(tp)
            if epoch is None or epoch.ownership is not ownership or not epoch.records:
                continue
            if epoch.has_lost_floor:  # the epoch's records cannot be fetched again
                continue
            if not self._client.reads_on(tp, epoch.progress.next_offset):
                continue  # going back would undo a seek of the program
            if epoch.is_held or self.work.is_starving(epoch):
                before = epoch.records
                offset = self._kept.give_back(
                    epoch, share.high, self.work.retried_at_once
                )
                if offset is not None:
                    self.refetched += before - epoch.records
                    self._gave_back[epoch] = self._clock() + _GAVE_BACK_SECONDS
                    self._client.go_back(tp, offset)

    def _sharing_count(self) -> int:
        # Counts the partitions that are known to have records in memory or on the
        # broker; a held partition counts only if it has records in memory.
        epochs, view = self._kept.epochs, self._group.ledger.peek()
        here = {tp for tp, epoch in tuple(epochs.items()) if epoch.records}
        there = {tp for tp in self._group.lagging() if not covers(view, tp)}
        return len(here | there)

    def _when_low(self) -> None:
        # The thread that finished a record calls this method, and lifting the hold
        # wakes a waiting poll. If the journal cannot be written, the next turn lifts
        # the hold or raises the error. Raised here, the error would end a thread that
        # runs handlers.
        self._lifted_at = self._clock()
        with suppress(JournalError):
            self._client.lift_all(BACKPRESSURE)

    # ------------------------------------------------------------ room

    def room(self) -> int:
        """
        Return how many records the next poll may return.

        While everything is held, the number is computed for the load ``Marks.low``,
        because the hold is lifted at that load, possibly during the poll.
        """
        load = self._marks.low if self._is_throttled else self._kept.load
        return max(1, min(self._credit(load), self._most()))

    def _most(self) -> int:
        # All records of a poll may come from one partition, so a poll returns no more
        # than one partition's share. With many partitions this would make polls tiny,
        # so a poll may always return a 64th of Limits.records.
        if self._share is None:
            return self._client.most
        least = self._limits.records // 64
        return min(self._client.most, max(self._share.high.records, least))

    def fitting(self, records: list[AnyRecord]) -> list[AnyRecord]:
        """Return the first of the given records, as many as may be kept now."""
        free = max(0, self._limits.records - self._kept.records)
        return records if len(records) <= free else records[:free]

    def note_sizes(self, sizes: Sequence[int]) -> None:
        """Update the average record size with the sizes, in bytes, of a poll's records."""
        mean = sum(sizes) / len(sizes)
        self._average += 0.2 * (mean - self._average)
        self._average = max(self._average, mean)

    def _credit(self, load: watermarks.Load) -> int:
        return watermarks.credit(self._limits, load, self._average, self._client.most)

    # ------------------------------------------------------------ queries

    @property
    def is_on(self) -> bool:
        """Whether any partition is held because of the limits."""
        return self._is_throttled or bool(self._throttled)

    def may_come(self, tp: TopicPartition) -> bool:
        """
        Return whether the last turn left a partition open for more records.

        Any thread may call this.
        """
        kept_out = self._kept_out
        return None not in kept_out and tp not in kept_out

    def stalled_since(self) -> float | None:
        """
        Return the time since which no record was completed, if the limits are reached.

        Any thread may call this.

        The result is None if there is room, or if holds other than the worker's cover
        all records.
        """
        epochs = tuple(self._kept.epochs.values()) if self._is_throttled else ()
        moved = [one.moved_at for one in epochs if one.records and not one.is_held]
        return max(moved, default=None)

    def is_held(self, owner: str) -> bool:
        """Return whether the last turn placed a hold of this owner."""
        return any(holding[0] == owner for holding in self._wanted)

    def holds_back(self, tp: TopicPartition, ownership: object) -> bool:
        """
        Return whether a hold that enforces the limits still covers the partition.

        A hold of a single partition ends with the ownership in which it was placed, and
        a poll may have replaced that ownership with a new one.
        """
        if (BACKPRESSURE, None) in self._wanted and self._kept.low is not None:
            return True
        return self._placed_in.get(tp) is ownership and any(
            (owner, tp) in self._wanted for owner in (BACKPRESSURE, RETRY)
        )
