"""
Draining buffered records: parked ones come back, quiet ones are parked.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from kafka.consumer.fetcher import CompletedFetch, ConsumerRecord, ExceptionMetadata
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import events
from safeconsumer._kafka.pausing.owned import OwnedFetcher
from safeconsumer._kafka.pausing.returned import ReturnedRecords
from safeconsumer._kafka.pausing.stamps import StampedOffset, count_records

# A little over one full answer of upstream's default fetch_max_bytes (50 MiB).
DEFAULT_PARKED_MAX_BYTES = 64 * 1024 * 1024

Drained = dict[TopicPartition, list[ConsumerRecord]]


class DrainingFetcher(OwnedFetcher):
    """
    Keeps fetched records of quiet partitions, up to a cap, for their resume.

    Thread rules: everything on the polling thread, but ``_fetchable_partitions`` on
    the IO thread.
    """

    def prepare(self, parked_max_bytes: int = DEFAULT_PARKED_MAX_BYTES) -> None:
        """
        Make what this class needs beyond upstream's attributes.
        """
        super().prepare()
        self.parked_max_bytes = parked_max_bytes
        self._taken: dict[TopicPartition, tuple[OffsetAndMetadata, int]] = {}
        self._undelivered: set[TopicPartition] = set()

    def fetched_records(
        self,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> tuple[Drained, bool]:
        """
        Return buffered records of partitions that may flow, and advance positions.

        As upstream's method of this name; see the class for what differs.
        """
        if max_records is None:
            max_records = self.config["max_poll_records"]
        if max_records <= 0:
            message = "max_records must be > 0"
            raise ValueError(message)
        self._purge()
        self._taken.clear()
        if self._ours is not None:
            self._ours.pin()
        try:
            self._raise_pending()
            drained = self._drain(max_records, update_offsets)
        finally:
            if self._ours is not None:
                self._ours.unpin()
        if not update_offsets:
            self.hold_back(drained)  # before the next fetches are sent
        self._bound_parked()
        return drained, bool(self._completed_fetches)

    def _raise_pending(self) -> None:
        pending, self._next_in_line_exception_metadata = (
            self._next_in_line_exception_metadata,
            None,
        )
        if pending is None or not self._subscriptions.is_fetchable(pending.partition):
            return  # a quiet one fails again when it is fetched again
        position = self._subscriptions.position(pending.partition)
        if position.offset == pending.fetched_offset:
            raise pending.exception

    def _drain(self, max_records: int, update_offsets: bool) -> Drained:  # noqa: FBT001
        drained: Drained = defaultdict(list)
        source: tuple[TopicPartition | None, int] = None, -1
        self._unpark_raw()
        try:
            while max_records > 0:
                part = self._next_part()
                if part is not None:
                    source = part.topic_partition, part.next_fetch_offset
                    max_records -= self._append(
                        drained, part, max_records, update_offsets
                    )
                elif (completion := self._next_completion()) is not None:
                    source = completion.topic_partition, completion.fetched_offset
                    self._next_partition_records = self._parse_fetched_data(completion)
                else:
                    break
        except Exception as error:
            if not drained:
                raise
            # to be raised by the next call, as upstream does
            self._next_in_line_exception_metadata = ExceptionMetadata(*source, error)
        return dict(drained)

    def _next_part(self) -> Any:  # noqa: ANN401 - upstream's or ours, same shape
        # Upstream leaves a fully read batch in its slot, falsy but not None, and
        # waits for None before it gives parked batches back: they starve (3.0.0 to
        # 3.0.12). Here an exhausted slot is a free slot.
        while True:
            part = self._next_partition_records or self._unparked()
            self._next_partition_records = part
            if part is None or not self._subscriptions.is_paused(part.topic_partition):
                return part
            self._park(part.topic_partition, self._sizes_of(part)[0])
            self._paused_partition_records[part.topic_partition] = part
            self._next_partition_records = None

    def _unparked(self) -> Any:  # noqa: ANN401 - upstream's or ours, same shape
        for tp in list(self._paused_partition_records):
            if not self._subscriptions.is_paused(tp):
                self._unpark(tp)
                part = self._paused_partition_records.pop(tp)
                if part:
                    return part
        return None

    def _unpark_raw(self) -> None:
        for tp in list(self._paused_completed_fetches):
            if not self._subscriptions.is_paused(tp):
                self._unpark(tp)
                completion = self._paused_completed_fetches.pop(tp)
                self._completed_fetches.append(completion)

    def _next_completion(self) -> CompletedFetch | None:
        while self._completed_fetches:
            completion = self._completed_fetches.popleft()
            tp = completion.topic_partition
            if self._is_stale(tp, completion.fetched_offset):
                self._tell_purged([self._discard(completion)])
            elif self._subscriptions.is_paused(tp):
                self._park(tp, len(completion.partition_data.records or b""))
                self._paused_completed_fetches[tp] = completion
            else:
                return completion
        return None

    def _parse_fetched_data(self, completed_fetch: CompletedFetch) -> Any:  # noqa: ANN401 - upstream's class
        data = completed_fetch.partition_data.records
        tp = completed_fetch.topic_partition
        self._sizes[tp] = len(data or b""), count_records(data)
        return super()._parse_fetched_data(completed_fetch)

    def _append(
        self,
        drained: Drained,
        part: Any,  # noqa: ANN401 - upstream's or ours, same shape
        max_records: int,
        update_offsets: bool,  # noqa: FBT001 - upstream's signature
    ) -> int:
        tp = part.topic_partition
        state = self._subscriptions.assignment.get(tp)
        before = None if state is None else state.position
        try:
            count: int = super()._append(drained, part, max_records, update_offsets)
        except Exception:
            # A generator that has raised is exhausted, and upstream would ask it
            # again for ever. Without the batch the position is fetched again.
            part.drain()
            raise
        if count and tp not in self._taken:
            self._taken[tp] = before, part.fetch_offset
        return count

    # ------------------------------------------------------------ giving back

    def return_quiet(self, records: Drained) -> Drained:
        """
        Make the final check of a ``poll``: put back what a hold covers by now.

        A pause that returned after the drain's snapshot was taken is obeyed here.
        The position moves back with the records.
        """
        if self._ours is None:
            return records
        quiet = self._ours.quiet()
        for tp, (position, fetch_offset) in self._taken.items():
            if tp not in records:
                continue
            if self._is_stale(tp, fetch_offset):  # the IO thread took it away
                del records[tp]
            elif tp in quiet:
                self.give_back(tp, records.pop(tp), position, fetch_offset)
        return records

    def give_back(
        self,
        tp: TopicPartition,
        records: Sequence[ConsumerRecord],
        position: OffsetAndMetadata,
        fetch_offset: int | None = None,
    ) -> None:
        """
        Put records back in front of what is buffered for their partition.

        Args:
            tp: the partition; nothing happens if it is no longer assigned.
            records: in order, at least one.
            position: where the partition stands again.
            fetch_offset: the stamped offset they were fetched with; the current
                ownership's if not given.
        """
        state = self._subscriptions.assignment.get(tp)
        if state is None or not state.has_valid_position:
            return
        if fetch_offset is None:
            fetch_offset = StampedOffset.of(position.offset, self._epochs().get(tp, -1))
        rest = self._paused_partition_records.pop(tp, None)
        slot = self._next_partition_records
        if slot and slot.topic_partition == tp:
            rest, self._next_partition_records = slot, None
        state.position = position
        if isinstance(rest, ReturnedRecords):  # one list, however often it goes back
            records, rest = (*records, *rest.unread()), rest.rest
        self._paused_partition_records[tp] = ReturnedRecords(
            tp, records, position, fetch_offset, rest or None
        )
        self._park_returned(tp, records, has_rest=bool(rest))

    def delivered(self) -> None:
        """
        Note that what the drain of this poll took is the application's now.
        """
        self._taken.clear()

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """
        Send no fetch for partitions whose taken records iteration has yet to yield.

        Their position lags behind; what a fetch would bring now is thrown away.
        """
        self._undelivered = set(partitions)

    # ------------------------------------------------------------ parked data

    def _park(self, tp: TopicPartition, size: int) -> None:
        self._parked[tp] = self._parked.pop(tp, 0) + size

    def _park_returned(
        self, tp: TopicPartition, records: Sequence[ConsumerRecord], *, has_rest: bool
    ) -> None:
        # Anew: what was counted before is among it, whether it came from the slot,
        # where nothing is counted, or had been parked.
        raw = self._paused_completed_fetches.get(tp)
        self._unpark(tp)
        self._park(
            tp,
            sum(map(_size, records))
            + (self._sizes.get(tp, (0, None))[0] if has_rest else 0)
            + (0 if raw is None else len(raw.partition_data.records or b"")),
        )

    def _unpark(self, tp: TopicPartition) -> None:
        self._parked.pop(tp, None)

    def parked_bytes(self) -> int:
        """
        Return how many bytes of fetched data are parked, as they came in.
        """
        return sum(self._parked.values())

    def _bound_parked(self) -> None:
        if not self._parked or self.parked_bytes() <= self.parked_max_bytes:
            return
        dropped = {}
        while self._parked and self.parked_bytes() > self.parked_max_bytes:
            oldest = next(iter(self._parked))
            dropped[oldest] = self._parked.pop(oldest)
            self._forget(oldest)
        self._emit(
            events.ParkedDataDropped,
            partitions=tuple(dropped),
            bytes=sum(dropped.values()),
        )

    def _forget(self, tp: TopicPartition) -> None:
        part = self._paused_partition_records.pop(tp, None)
        if part is not None:
            part.drain()
        completion = self._paused_completed_fetches.pop(tp, None)
        if completion is not None:
            self._discard(completion)

    def _fetchable_partitions(self) -> list[TopicPartition]:
        fetchable: list[TopicPartition] = super()._fetchable_partitions()
        waiting = self._undelivered
        return [tp for tp in fetchable if tp not in waiting] if waiting else fetchable

    def close(self) -> None:
        """
        Throw all buffered data away.
        """
        super().close()
        self._completed_fetches.clear()
        self._next_partition_records = None
        self._parked.clear()
        self._sizes.clear()
        self._undelivered = set()


def _size(record: ConsumerRecord) -> int:
    key, value = record.serialized_key_size, record.serialized_value_size
    return int(max(key, 0) + max(value, 0))
