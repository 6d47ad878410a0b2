"""
Fetches that belong to one ownership of their partition, and die with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka.consumer.fetcher import CompletedFetch, Fetcher
from kafka.structs import TopicPartition

from safeconsumer import events
from safeconsumer._kafka.pausing.returned import records_left
from safeconsumer._kafka.pausing.stamps import StampedOffsets, count_records, epoch_of
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.holds.ownership import Ownership

# Whose data was thrown away, how many records (None: unknown), how many bytes.
_Purged = tuple[TopicPartition, int | None, int]


class OwnedFetcher(Fetcher):
    """
    Stamps each fetch with the ownership epoch it is made in, and purges the others.

    Thread rules: purging on the polling thread, ``_create_fetch_requests`` on the IO
    thread.
    """

    def __init__(
        self, client: object, subscriptions: object, **configs: object
    ) -> None:
        super().__init__(client, subscriptions, **configs)
        self.prepare()

    def prepare(self) -> None:
        """
        Make what this class needs beyond upstream's attributes.
        """
        ours = isinstance(self._subscriptions, LedgerSubscription)
        self._ours: LedgerSubscription | None = self._subscriptions if ours else None
        self._purged_for: Ownership | None = None
        self._next_partition_records: Any  # upstream's, and its class or ours
        self._next_in_line_exception_metadata: Any  # upstream's
        # of the batch each partition's buffered records came in: bytes, records
        self._sizes: dict[TopicPartition, tuple[int, int | None]] = {}
        # of what is parked, oldest first: bytes
        self._parked: dict[TopicPartition, int] = {}

    def _epochs(self) -> Mapping[TopicPartition, int]:
        return {} if self._ours is None else self._ours.ledger.ownership().epochs

    def _is_stale(self, tp: TopicPartition, offset: int) -> bool:
        epoch = epoch_of(offset)
        return epoch is not None and epoch != self._epochs().get(tp)

    def _create_fetch_requests(self) -> dict[int, tuple[object, dict[Any, int]]]:
        # Epochs first: what is gained while the request is built is not in it.
        epochs = self._epochs()
        requests: dict[int, tuple[object, dict[Any, int]]]
        requests = super()._create_fetch_requests()
        if self._ours is None:
            return requests
        return {
            node: (request, StampedOffsets(offsets, epochs))
            for node, (request, offsets) in requests.items()
        }

    def _purge(self) -> None:
        """
        Throw away what belongs to an ownership that has ended.
        """
        if self._ours is None:
            return
        ownership = self._ours.ledger.ownership()
        if ownership is self._purged_for:
            return
        self._purged_for = ownership
        self._tell_purged([*self._purged_parts(), *self._purged_completions()])
        for tp in self._sizes.keys() - ownership.epochs.keys():
            del self._sizes[tp]
        pending = self._next_in_line_exception_metadata
        if pending is not None and pending.partition not in ownership.epochs:
            self._next_in_line_exception_metadata = None

    def _purged_parts(self) -> "Iterator[_Purged]":
        slot = self._next_partition_records
        if slot and self._is_stale(slot.topic_partition, slot.fetch_offset):
            self._next_partition_records = None
            yield self._drop_part(slot)
        for tp, part in list(self._paused_partition_records.items()):
            if self._is_stale(tp, part.fetch_offset):
                del self._paused_partition_records[tp]
                self._unpark(tp)
                yield self._drop_part(part)

    def _purged_completions(self) -> "Iterator[_Purged]":
        for tp, completion in list(self._paused_completed_fetches.items()):
            if self._is_stale(tp, completion.fetched_offset):
                del self._paused_completed_fetches[tp]
                self._unpark(tp)
                yield self._discard(completion)
        for _ in range(len(self._completed_fetches)):  # the IO thread may add more
            completion = self._completed_fetches.popleft()
            if self._is_stale(completion.topic_partition, completion.fetched_offset):
                yield self._discard(completion)
            else:
                self._completed_fetches.append(completion)

    def _drop_part(self, part: Any) -> "_Purged":  # noqa: ANN401 - either class
        size, total = self._sizes_of(part)
        left = records_left(part, total)
        part.drain()
        return part.topic_partition, left, size

    def _discard(self, completion: CompletedFetch) -> "_Purged":
        tp, data = completion.topic_partition, completion.partition_data.records
        if completion.metric_aggregator:
            completion.metric_aggregator.record(tp, 0, 0)
        return tp, count_records(data), len(data or b"")

    def _sizes_of(self, part: Any) -> tuple[int, int | None]:  # noqa: ANN401 - either
        return self._sizes.get(part.topic_partition, (0, None))

    def _tell_purged(self, purged: "Sequence[_Purged]") -> None:
        if not purged:
            return
        counts = [records for _, records, _ in purged]
        known = [count for count in counts if count is not None]
        self._emit(
            events.FetchesPurged,
            partitions=events.sorted_partitions({tp for tp, _, _ in purged}),
            fetches=len(purged),
            records=sum(known) if len(known) == len(counts) else None,
            bytes=sum(size for _, _, size in purged),
        )

    def _emit(self, kind: type[events.Event], **fields: object) -> None:
        if self._ours is not None:
            self._ours.ledger.emit(kind, **fields)
