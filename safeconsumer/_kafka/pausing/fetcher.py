"""Extends upstream's fetcher: keeps quiet partitions' data, purges ended ownerships'."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import kafka.errors as kafka_errors
from kafka.consumer.fetcher import (
    CompletedFetch,
    ConsumerRecord,
    ExceptionMetadata,
    Fetcher,
)
from kafka.future import Future
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import events
from safeconsumer._interrupts import is_of_handler
from safeconsumer._kafka.errors import CorruptBatchError
from safeconsumer._kafka.network import await_for, new_future
from safeconsumer._kafka.pausing.buffers import (
    ParkedData,
    Purged,
    ReturnedRecords,
    Stamped,
    StampedOffsets,
    drop_answer,
    is_of,
    records_left,
    size_of,
)
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer._kafka.pausing.undelivered import Fetch, OwnedPartitionState
from safeconsumer._kafka.pausing.waking import FetchWait, Wakeup
from safeconsumer.holds.ownership import Ownership

# Bytes; a little more than one full answer of the default fetch_max_bytes (50 MiB).
DEFAULT_PARKED_MAX_BYTES = 64 * 1024 * 1024

_UNKNOWN_TOPIC = kafka_errors.UnknownTopicOrPartitionError.errno
# For what is fetched while other partitions wait for the ids of their topics: upstream
# has one fetch per broker.
_SHORT_WAIT_MS = 100

Drained = dict[TopicPartition, list[ConsumerRecord]]


class DrainedFrom(NamedTuple):
    """
    What the drains of one step of an iteration found of a partition.

    Attributes:
        state: its state.
        moves: how often its position had been moved by a seek.
        position: the position at which the first of them took records.
    """

    state: OwnedPartitionState
    moves: int
    position: OffsetAndMetadata


class PauseSafeFetcher(Fetcher):
    """
    Keeps fetched records of quiet partitions, and purges those of ended ownerships.

    Differences from upstream 3.0.12, each with a regression test:

    - Half-read data of a resumed partition is read on whatever was read meanwhile;
    upstream waits for a slot that never becomes free.
    - Each fetch is stamped with the ownership it was made in; answers and buffers of
    another one are dropped, those in flight too.
    - A whole drain uses one snapshot of the quiet partitions.
    - Parked data is bounded in bytes.
    - A lifted hold wakes a waiting ``poll``.
    - A broker that could not be asked is asked again.

    It may be constructed as upstream's class is, or adopted by ``__class__`` (then call
    :meth:`prepare`), beside a :class:`LedgerSubscription`.

    Thread rules: the polling thread; :meth:`wake` on any, and
    ``_create_fetch_requests`` and ``_fetchable_partitions`` on the IO thread.
    """

    _subscriptions: LedgerSubscription  # upstream's name of it

    def __init__(
        self, client: object, subscriptions: object, **configs: object
    ) -> None:
        super().__init__(client, subscriptions, **configs)
        self.prepare()

    def prepare(
        self,
        parked_max_bytes: int = DEFAULT_PARKED_MAX_BYTES,
        *,
        reports_delivery: bool = False,
    ) -> None:
        """
        Make the attributes that this class needs beyond upstream's.

        Args:
            parked_max_bytes: how many bytes of quiet partitions' data are kept.
            reports_delivery: whether the polling code calls :meth:`delivered` at the
                end; otherwise what a drain returns counts as delivered.
        """
        self._purged_for: Ownership | None = None
        self._is_closed = False
        self._asked: dict[Any, StampedOffsets] = {}  # the last fetch of each broker
        self._subscriptions.ids.in_flight = self._in_flight
        self._is_waiting = False  # whether a partition is left out of fetches, for ids
        self._next_partition_records: Any  # upstream's, and its class or ours
        self._next_in_line_exception_metadata: Any  # upstream's
        self.parked = ParkedData(
            self._paused_partition_records,
            self._paused_completed_fetches,
            parked_max_bytes,
        )
        self._reports_delivery = reports_delivery
        # Where the drains of a step began to take records; a poll by itself clears it.
        self.drained_from: dict[TopicPartition, DrainedFrom] = {}
        self._held_back: frozenset[TopicPartition] = frozenset()
        # of the question for offsets that begins: what no leader is known of
        self._leaderless: set[TopicPartition] = set()
        self._reset_under_way: Future | None = None  # done when it has ended
        # of the cluster, when positions were last compared with its leaders' epochs
        self._validated: int | None = None
        self.wait = FetchWait(self._net)
        self.wakeup = Wakeup(self._net)

    # ------------------------------------------------------------ polling

    def fetch_records(
        self,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
        timeout_ms: float | None = None,
    ) -> tuple[Drained, bool]:
        """
        Drain, send the next fetches, and wait for an answer or a lifted hold.

        It is like upstream's method of this name, but a hold that is lifted or expires
        ends the wait, also if no answer is awaited.
        """
        self.wait.begin()
        if self.wakeup.is_asked:  # it may have ended the wait before this one
            self.wait.end()
        records, partial = self.fetched_records(max_records, update_offsets)
        if not partial:
            self.send_fetches()
        if records:
            return records, False
        waited_on = list(self._fetch_futures)
        if self._reset_task is not None and not self._reset_task.is_done:
            waited_on.append(self._reset_task)
        timeout_ms = self._until_expiry(timeout_ms)
        if not waited_on:
            # Upstream sleeps one backoff and checks again, and notices no resume.
            timeout_ms = _least(timeout_ms, self.config["retry_backoff_ms"])
            if not timeout_ms:
                return records, True
        self.wait.for_any(waited_on, timeout_ms)
        records, _ = self.fetched_records(max_records, update_offsets)
        return records, False

    def wake(self) -> None:
        """
        End the wait of :meth:`fetch_records`, if one is under way.

        Thread rules: any thread, and a signal handler; takes no lock.
        """
        self.wait.end()

    def _until_expiry(self, timeout_ms: float | None) -> float | None:
        left = self._subscriptions.ledger.seconds_to_next_expiry()
        if self._is_waiting:
            left = min(left, self._subscriptions.ids.seconds_to_wait())
        if left == math.inf:
            return timeout_ms
        left_ms = max(0.0, left * 1000 + 1)  # 1 ms more, so that it is never early
        return _least(timeout_ms, left_ms)

    # ------------------------------------------------------------ draining

    def fetched_records(
        self,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> tuple[Drained, bool]:
        """
        Return buffered records of partitions that may flow, and advance positions.

        It is like upstream's method of this name; the class lists the differences.
        """
        if max_records is None:
            max_records = self.config["max_poll_records"]
        if max_records <= 0:
            message = "max_records must be > 0"
            raise ValueError(message)
        self._purge()
        self.recover_undelivered()
        try:
            self._subscriptions.pin()
            self._raise_pending()
            drained = self._drain(max_records, update_offsets)
        finally:
            self._subscriptions.unpin()
        if not self._reports_delivery:
            self.delivered()
        # This is before the next fetches are sent. A poll ends what an iteration held
        # back, also if that was interrupted and could not.
        self.hold_back(() if update_offsets else drained)
        self._bound_parked()
        return drained, bool(self._completed_fetches)

    def delivered(self) -> None:
        """
        Note that the records of the last drain reach the application now.

        Call it at the very end of a ``poll``, and nothing after it. Until then a commit
        uses the positions from before the drain; if it is not called, because the
        ``poll`` raised, the next drain starts at those positions again.
        """
        self._subscriptions.undelivered.are_returned = True

    def recover_undelivered(self) -> None:
        """
        Move positions back, if the last ``poll`` raised after its drain.

        Its records are gone; the data buffered behind them no longer fits the position
        and is dropped, so all of it is fetched again. Call it before anything else in a
        ``poll``: one that does not come to drain returns, too.
        """
        with self._subscriptions._lock:
            if self._subscriptions.journal is not None:
                again = self._subscriptions.undelivered.unreturned()
                for tp, offset in again.items():
                    self._subscriptions.journal.comes_again(tp, offset)
            self._subscriptions.undelivered.recover()

    def _raise_pending(self) -> None:
        pending, self._next_in_line_exception_metadata = (
            self._next_in_line_exception_metadata,
            None,
        )
        if pending is None:
            return
        with self._subscriptions._lock:
            if not self._subscriptions.is_fetchable(pending.partition):
                return  # a quiet one fails again when it is fetched again
            position = self._subscriptions.position(pending.partition)
        if position.offset == pending.fetched_offset:
            raise pending.exception

    def _drain(self, max_records: int, update_offsets: bool) -> Drained:  # noqa: FBT001
        drained: Drained = defaultdict(list)
        later: list[CompletedFetch] = []
        source: tuple[TopicPartition, int]
        is_refused = False
        self._unpark_answers()
        try:
            while max_records > 0:
                part = self._next_part()
                if part is not None:
                    source = part.topic_partition, part.next_fetch_offset
                    is_refused = False
                    max_records -= self._append(
                        drained, part, max_records, update_offsets
                    )
                elif (completion := self._next_completion()) is None:
                    break
                elif _resets(completion) and completion.topic_partition in drained:
                    later.append(completion)  # without a position nothing could go back
                else:
                    source = completion.topic_partition, completion.fetched_offset
                    is_refused = bool(completion.partition_data.error_code)
                    self._next_partition_records = self._parse_fetched_data(completion)
        except Exception as error:
            if is_of_handler(error):
                raise
            told = error
            if isinstance(error, kafka_errors.CorruptRecordError):
                told = CorruptBatchError.of(error, *source, is_of_broker=is_refused)
            if not drained:
                raise told  # noqa: B904 - it has its cause
            # to be raised by the next call, as upstream does
            self._next_in_line_exception_metadata = ExceptionMetadata(*source, told)
        self._completed_fetches.extendleft(reversed(later))
        return dict(drained)

    def _next_part(self) -> Any:  # noqa: ANN401 - upstream's or ours, same shape
        # Upstream leaves a fully read batch in its slot, falsy but not None, and waits
        # for None before it gives parked batches back: they starve (3.0.0 to 3.0.12).
        # Here an exhausted slot counts as free.
        while True:
            part = self._next_partition_records or self._unparked()
            self._next_partition_records = part
            if part is None or not self._subscriptions.is_paused(part.topic_partition):
                return part
            self.parked.keep_part(part)
            self._next_partition_records = None

    def _unparked(self) -> Any:  # noqa: ANN401 - upstream's or ours, same shape
        for tp in self.parked.parts():
            if not self._subscriptions.is_paused(tp):
                part = self.parked.pop_part(tp)
                if part:
                    return part
        return None

    def _unpark_answers(self) -> None:
        for tp in self.parked.answers():
            if not self._subscriptions.is_paused(tp):
                answer = self.parked.pop_answer(tp)
                if answer is not None:
                    self._completed_fetches.append(answer)

    def _next_completion(self) -> CompletedFetch | None:
        while self._completed_fetches:
            completion = self._completed_fetches.popleft()
            tp = completion.topic_partition
            if self._is_stale(tp, completion.fetched_offset):
                self._report_purged([drop_answer(completion)])
            elif self._subscriptions.is_paused(tp):
                self.parked.keep_answer(completion)
            else:
                return completion
        return None

    def _parse_fetched_data(self, completed_fetch: CompletedFetch) -> Any:  # noqa: ANN401 - upstream's class
        # Upstream looks twice at the assignment and the position. In between another
        # thread could remove them: a KeyError out of poll. Nothing is decoded here.
        with self._subscriptions._lock:
            part = super()._parse_fetched_data(completed_fetch)
        if part is not None:
            part.data = completed_fetch.partition_data.records or b""
        return part

    def _append(
        self,
        drained: Drained,
        part: Any,  # noqa: ANN401 - upstream's or ours, same shape
        max_records: int,
        update_offsets: bool,  # noqa: FBT001 - upstream's signature
    ) -> int:
        tp = part.topic_partition
        state, position = self._next_in_line(part)
        if state is None or position is None:
            part.drain()
            return 0
        try:
            records = _taken(part, max_records)  # user code: under no lock
            self._tell_transactional(part)
        except BaseException:
            # A generator that has raised is exhausted, and upstream would call it again
            # forever. Without the batch the position is fetched again.
            self._next_partition_records = None
            part.drain()
            raise
        # What was taken counts. Where an error came behind it, a decoder may have
        # counted a record that it did not give, or not counted one that it gave.
        at = part.next_fetch_offset
        if part._next_inline_exception is not None:
            at = records[-1].offset + 1
        # An answer without records has no epoch: that of the last record read stays.
        epoch = part.leader_epoch if part.leader_epoch >= 0 else position.leader_epoch
        end = OffsetAndMetadata(at, "", epoch)
        with self._subscriptions._lock:
            # One step with respect to a seek on another thread, which upstream would
            # undo.
            assigned, moves = self._subscriptions.assignment.get(tp), state.moves
            if assigned is not state or state.position is not position:
                part.drain()
                return 0
            if records:
                before = self.drained_from.get(tp)
                begin = position
                if before is not None and before.state is state:
                    begin = before.position
                self.drained_from[tp] = DrainedFrom(state, moves, begin)
                self._subscriptions.undelivered.note(tp, state)
                drained[tp].extend(records)
                state.note_read(at)
            if update_offsets or not records:
                # Otherwise the iteration moves it, record by record.
                if state.moves == moves:
                    state.position = end
                if state.moves != moves:  # a signal handler has sought on this thread
                    state.settle()
        self._record_lag(state, end)
        return len(records)

    def _tell_transactional(self, part: Any) -> None:  # noqa: ANN401 - upstream's or ours, same shape
        journal = self._subscriptions.journal
        if journal is not None and getattr(part, "is_transactional", False):
            journal.transactional(part.topic_partition)

    def _next_in_line(
        self,
        part: Any,  # noqa: ANN401 - upstream's or ours, same shape
    ) -> tuple[OwnedPartitionState | None, OffsetAndMetadata | None]:
        # None if the partition may not be read or its position differs by now.
        tp = part.topic_partition
        with self._subscriptions._lock:
            if not self._subscriptions.is_fetchable(tp):
                return None, None
            state = self._subscriptions.assignment[tp]
            position = state.position
        is_next = position.offset == part.next_fetch_offset
        if not is_next or self._is_stale(tp, part.fetch_offset):
            return None, None
        return state, position

    def _record_lag(self, state: OwnedPartitionState, end: OffsetAndMetadata) -> None:
        if self._sensors and state.highwater is not None:
            self._sensors.records_fetch_lag.record(state.highwater - end.offset)

    # ------------------------------------------------------------ giving back

    def put_back_quiet(self, records: Drained) -> Drained:
        """
        Make the final check of a ``poll``: put back what a hold covers by now.

        This obeys a pause that returned after the drain's snapshot was taken. The
        position moves back with the records. If a seek has moved it meanwhile, they are
        dropped.
        """
        if not records:
            return records
        subscription = self._subscriptions
        quiet = subscription.quiet()
        with subscription._lock:
            taken = dict(subscription.undelivered.taken)
        for tp, state in taken.items():
            if tp not in records:
                continue
            if subscription.assignment.get(tp) is not state:
                del records[tp]  # the IO thread took it away
            elif tp in quiet:
                self._take_back(tp, records.pop(tp), state)
            else:
                continue
            with subscription._lock:  # the program has none of them in hand
                subscription.undelivered.taken.pop(tp, None)
        return records

    def _take_back(
        self,
        tp: TopicPartition,
        records: Sequence[ConsumerRecord],
        state: OwnedPartitionState,
    ) -> None:
        with self._subscriptions._lock:
            if self._subscriptions.assignment.get(tp) is not state:
                return
            position = state.move_back()
            if position is not None:
                # After a seek between two batches, only the records after it belong to
                # the new position.
                ahead = [one for one in records if one.offset >= position.offset]
                self._put_in_front(tp, ahead, position)

    def give_back(
        self,
        tp: TopicPartition,
        records: Sequence[ConsumerRecord],
        position: OffsetAndMetadata,
    ) -> None:
        """
        Put records back in front of what is buffered for their partition.

        Args:
            tp: the partition.
            records: in order, at least one.
            position: the very object that is the partition's position. If it is another
                one by now, after a seek or in a new ownership, nothing happens: the
                records are dropped.
        """
        with self._subscriptions._lock:
            state = self._subscriptions.assignment.get(tp)
            if state is not None and state.position is position:
                self._put_in_front(tp, records, position)

    def _put_in_front(
        self,
        tp: TopicPartition,
        records: Sequence[ConsumerRecord],
        position: OffsetAndMetadata,
    ) -> None:
        state = self._subscriptions.assignment[tp]
        fetch_offset = Stamped.of(position.offset, state)
        rest = self.parked.pop_part(tp)
        slot = self._next_partition_records
        if slot and slot.topic_partition == tp:
            rest, self._next_partition_records = slot, None
        if isinstance(rest, ReturnedRecords):  # one list, however often it goes back
            records, rest = (*records, *rest.unread()), rest.rest
        self.parked.keep_part(
            ReturnedRecords(tp, records, position, fetch_offset, rest or None)
        )

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """
        Send no fetch for partitions whose taken records iteration has yet to yield.

        Their position is lower than that of the buffer; a fetch from it would be thrown
        away.
        """
        self._held_back = frozenset(partitions)

    # ------------------------------------------------------------ parked data

    def parked_bytes(self) -> int:
        return self.parked.bytes_kept()

    def _bound_parked(self) -> None:
        dropped = self.parked.drop_excess()
        if dropped:
            self._emit(
                events.ParkedDataDropped,
                partitions=tuple(dropped),
                bytes=sum(dropped.values()),
            )

    def _fetchable_partitions(self) -> list[TopicPartition]:
        fetchable: list[TopicPartition] = super()._fetchable_partitions()
        held = self._held_back
        if held:
            fetchable = [tp for tp in fetchable if tp not in held]
        states = self._subscriptions.assignment
        flowing = ((tp, states[tp]) for tp in fetchable)
        waiting = self._subscriptions.ids.leave_out(flowing)
        self._is_waiting = bool(waiting)
        if not waiting:
            return fetchable
        self._manager.cluster.request_update()
        return [tp for tp in fetchable if tp not in waiting]

    def drop_decoded(self) -> None:
        """Throw away deserialized records; they are fetched again. No poll may be running."""
        slot, self._next_partition_records = self._next_partition_records, None
        for part in (slot, *map(self.parked.pop_part, self.parked.parts())):
            if part is not None:
                part.drain()

    def close(self) -> None:
        """Throw all buffered data away, and report what it was."""
        self._is_closed = True
        self._report_purged([*self._purged_parts(), *self._purged_completions()])
        super().close()
        self._completed_fetches.clear()
        self._next_partition_records = None
        self.parked.clear()
        self._held_back = frozenset()

    # ------------------------------------------------------------ asked positions

    def maybe_validate_positions(self) -> None:
        """
        Compare positions with their leaders' epochs, if one of either is new.

        Upstream compares all in each poll, which takes most of its time where a thousand
        partitions are assigned.
        """
        # A cluster of upstream's, as of a program's own client, counts no versions.
        version = getattr(self._manager.cluster, "version", None)
        unvalidated = self._subscriptions.unvalidated
        if version is not None and version == self._validated and not unvalidated:
            return
        # What is set meanwhile, or what a signal handler cuts short, is compared again.
        self._validated = None
        unvalidated.clear()
        super().maybe_validate_positions()
        self._validated = version

    def reset_offsets_if_needed(self, timeout_ms: float | None = None) -> Future | None:
        """
        Begin to ask where partitions begin; return what is done when that has ended.

        Upstream notes its task after it has begun. If a signal handler raises in
        between, nobody knows the task, and ``position`` would return None at once.
        """
        task: Future | None = super().reset_offsets_if_needed(timeout_ms)
        if task is None:
            self._reset_task = task = self._reset_under_way
        return task

    async def _reset_offsets_async(self, timeout_ms: float | None = None) -> None:
        # One after the other: a second task has nothing to ask, and would sleep for as
        # long as the answer to the first may take.
        while (earlier := self._reset_under_way) is not None:
            await earlier
        self._reset_under_way = ended = new_future(self._net)
        try:
            await super()._reset_offsets_async(timeout_ms)
        finally:
            self._reset_under_way = None
            ended.success(None)

    async def _reset_offsets_for_node(
        self,
        node_id: int,
        timestamps_and_epochs: Mapping[TopicPartition, tuple[int, int]],
        partitions: Collection[TopicPartition],  # noqa: ARG002 - upstream's
    ) -> None:
        # 1. A broker is asked where a partition begins. 2. The partition is lost, read
        # and committed by others, regained, and waits for the same answer again. 3. The
        # first answer comes. Upstream would use it, and committed records would come
        # again.
        assignment, stamped = self._subscriptions.assignment, {}
        with self._subscriptions._lock:
            for tp, (strategy, epoch) in timestamps_and_epochs.items():
                state = assignment.get(tp)
                if state is not None and state.reset_strategy != strategy:
                    # A seek came since upstream looked: it asks for the new one, which
                    # else would wait as long as an answer to this question may take.
                    state.next_allowed_retry_time = None
                else:
                    stamped[tp] = Stamped.of(strategy, state), epoch
        if stamped:
            await super()._reset_offsets_for_node(node_id, stamped, stamped.keys())

    async def _send_list_offsets_request(
        self,
        node_id: int,
        timestamps_and_epochs: Mapping[TopicPartition, tuple[int, int]],
    ) -> tuple[dict[TopicPartition, Any], set[TopicPartition]]:
        # Upstream sets a position to the answer without its epoch. A log that is cut
        # before the first record has come would not be found out.
        found: dict[TopicPartition, Any]
        found, again = await super()._send_list_offsets_request(
            node_id, timestamps_and_epochs
        )
        for tp, one in found.items():
            asked, _ = timestamps_and_epochs[tp]
            if isinstance(asked, Stamped):
                asked.leader_epoch = one.leader_epoch
        return found, again

    async def _send_list_offsets_requests(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, Any], set[TopicPartition]]:
        # Upstream leaves out what it knows no leader of, and what a broker refused it
        # asks again at once, for as long as that lasts.
        leaderless: set[TopicPartition] = set()
        self._leaderless = leaderless
        offsets, refused = await super()._send_list_offsets_requests(timestamps)
        again = leaderless | refused
        if again:
            update = self._manager.cluster.request_update()
            await await_for(self._manager, update, None)
        return offsets, again

    def _group_list_offset_requests(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[int, dict[TopicPartition, Any]]:
        # Upstream calls it first, before it waits for anything.
        groups: dict[int, dict[TopicPartition, Any]]
        groups = super()._group_list_offset_requests(timestamps)
        self._leaderless.update(timestamps.keys() - set().union(*groups.values()))
        return groups

    def _reset_offset_if_needed(
        self, partition: TopicPartition, timestamp: int, offset: int
    ) -> None:
        with self._subscriptions._lock:  # one step with respect to a seek
            state = self._subscriptions.assignment.get(partition)
            if state is None or not is_of(timestamp, state):
                return
            if getattr(timestamp, "reset", state.reset_number) != state.reset_number:
                return
            begin = OffsetAndMetadata(
                offset, "", getattr(timestamp, "leader_epoch", -1)
            )
            if state.out_of_range is None:
                super()._reset_offset_if_needed(partition, timestamp, begin)
            else:
                self._subscriptions.answer_out_of_range(partition, begin)

    async def _send_offset_for_leader_epoch_request(
        self, node_id: int, partitions_to_positions: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, Any]:
        # A broker that lacks the request cannot say that a log was cut. Upstream would
        # ask for ever, and fetch nothing meanwhile; Java's client reads on.
        try:
            truncations: dict[TopicPartition, Any]
            truncations = await super()._send_offset_for_leader_epoch_request(
                node_id, partitions_to_positions
            )
        except kafka_errors.IncompatibleBrokerVersion:
            with self._subscriptions._lock:
                for tp, position in partitions_to_positions.items():
                    state = self._subscriptions.assignment.get(tp)
                    if state is not None and state.position == position:
                        state.complete_validation()
            return {}
        return truncations

    def _handle_offset_for_leader_epoch_response(
        self, response: object, requested_positions: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, Any]:
        subscription = self._subscriptions
        truncations: dict[TopicPartition, Any]
        with subscription._lock:  # one step with respect to a seek
            before = {
                tp: subscription.assignment[tp].position
                for tp in requested_positions
                if tp in subscription.assignment
            }
            truncations = super()._handle_offset_for_leader_epoch_response(
                response, requested_positions
            )
            subscription.tell_truncated(before)
        return truncations

    # ------------------------------------------------------------ ownership

    def _is_stale(self, tp: TopicPartition, offset: int) -> bool:
        state = self._subscriptions.assignment.get(tp)
        return self._is_closed or not is_of(offset, state)

    async def _send_fetches_async(self) -> Any:  # noqa: ANN401 - a list of futures
        # Upstream marks a broker as asked, and then asks it. What raises there has no
        # answer that would take the mark away: it was never asked again (3.0.12). A
        # broker that was asked before that is asked twice; of two answers for one
        # offset, the second one is dropped.
        marked = frozenset(self._nodes_with_pending_fetch_requests)
        try:
            return await super()._send_fetches_async()
        except BaseException:
            self._nodes_with_pending_fetch_requests &= marked
            raise

    def _create_fetch_requests(self) -> dict[int, tuple[object, dict[Any, int]]]:
        # The number of moves first: what is paused meanwhile counts as held after it.
        moves = self._subscriptions.ledger.moves
        requests: dict[int, tuple[Any, dict[Any, int]]]
        with self._subscriptions._lock:  # upstream reads positions one by one
            requests = super()._create_fetch_requests()
            states = self._subscriptions.assignment
            doubtful = self._subscriptions.ids.doubtful
            if self._is_waiting:  # for ids: the next fetch, with them, comes soon
                for request, _ in requests.values():
                    request.max_wait_ms = min(request.max_wait_ms, _SHORT_WAIT_MS)
            asked = {
                node: StampedOffsets(
                    offsets,
                    states,
                    moves,
                    doubtful([(tp, states[tp]) for tp in offsets]),
                )
                for node, (_, offsets) in requests.items()
            }
            self._asked.update(asked)
            return {node: (requests[node][0], one) for node, one in asked.items()}

    def _in_flight(self) -> list[Fetch]:
        # The marks are upstream's, which are taken away behind the use of the answer.
        marked = tuple(self._nodes_with_pending_fetch_requests)
        return [self._asked[node].fetch for node in marked if node in self._asked]

    def _handle_fetch_response(
        self,
        node_id: int,
        fetch_offsets: Mapping[Any, int],
        send_time: float,
        response: Any,  # noqa: ANN401 - upstream's
    ) -> None:
        super()._handle_fetch_response(node_id, fetch_offsets, send_time, response)
        if isinstance(fetch_offsets, StampedOffsets):
            self._watch(fetch_offsets, response)
            self._confirm(fetch_offsets, response)

    def _watch(self, asked: StampedOffsets, response: Any) -> None:  # noqa: ANN401 - upstream's
        if response.error_code:
            return
        asked.fetch.answered_at = self._subscriptions.ledger.now()[0]
        for topic in response.responses:
            for one in topic.partitions:
                if one.error_code == _UNKNOWN_TOPIC:
                    tp = TopicPartition(topic.topic, one.partition_index)
                    self._subscriptions.ids.note_unknown(asked.state(tp))

    def _confirm(self, asked: StampedOffsets, response: Any) -> None:  # noqa: ANN401 - upstream's
        ledger = self._subscriptions.ledger
        waiting = ledger.unconfirmed(asked.moves)
        # One that is throttled leaves everything out, whatever the broker has of it.
        if waiting and not response.error_code and not response.throttle_time_ms:
            # What an answer leaves out is valid: the broker has nothing new of it.
            unread = {
                (topic.topic, one.partition_index)
                for topic in response.responses
                for one in topic.partitions
                if not _is_read(one)
            }
            unread.update(asked.doubtful)
            valid = {tp for tp in waiting if tp in asked and tp not in unread}
            ledger.confirm(valid, asked.moves)

    def _purge(self) -> None:
        """
        Throw away the buffered data of ownerships that have ended.

        What is in flight is thrown away when it comes: a request carries the states of
        its partitions (:class:`StampedOffsets`), and :meth:`_next_completion` drops an
        answer for another state than the present one.
        """
        ownership = self._subscriptions.ledger.ownership()
        if ownership is self._purged_for:
            return
        self._report_purged([*self._purged_parts(), *self._purged_completions()])
        self._purged_for = ownership  # when it is done: it may be interrupted

    def _purged_parts(self) -> Iterator[Purged]:
        slot = self._next_partition_records
        if slot and self._is_stale(slot.topic_partition, slot.fetch_offset):
            self._next_partition_records = None
            yield self._drop_part(slot)
        for tp, part in list(self._paused_partition_records.items()):
            if self._is_stale(tp, part.fetch_offset):
                yield self._drop_part(self.parked.pop_part(tp))

    def _purged_completions(self) -> Iterator[Purged]:
        for tp, completion in list(self._paused_completed_fetches.items()):
            if self._is_stale(tp, completion.fetched_offset):
                self.parked.pop_answer(tp)
                yield drop_answer(completion)
        for _ in range(len(self._completed_fetches)):  # the IO thread may add more
            completion = self._completed_fetches.popleft()
            if self._is_stale(completion.topic_partition, completion.fetched_offset):
                yield drop_answer(completion)
            else:
                self._completed_fetches.append(completion)

    def _drop_part(self, part: Any) -> Purged:  # noqa: ANN401 - either class
        purged = part.topic_partition, records_left(part), size_of(part)
        part.drain()
        return purged

    def _report_purged(self, purged: Sequence[Purged]) -> None:
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
        self._subscriptions.ledger.emit(kind, **fields)


def _least(timeout_ms: float | None, limit_ms: float) -> float:
    return limit_ms if timeout_ms is None else min(timeout_ms, limit_ms)


def _taken(part: Any, most: int) -> list[ConsumerRecord]:  # noqa: ANN401 - upstream's or ours, same shape
    records: list[ConsumerRecord] = part.take(most)
    error = part._next_inline_exception
    if error is not None and is_of_handler(error):
        raise error  # now, and not by the next call
    return records


def _resets(answer: CompletedFetch) -> bool:
    code = answer.partition_data.error_code
    return bool(code == kafka_errors.OffsetOutOfRangeError.errno)


def _is_read(answer: Any) -> bool:  # noqa: ANN401 - upstream's
    # A leader that names a replica to read from, or that has had another log, has not
    # looked whether the offset is in its range.
    replica, other_log = answer.preferred_read_replica, answer.diverging_epoch
    is_elsewhere = replica is not None and replica >= 0
    is_another = other_log is not None and other_log.end_offset >= 0
    return not (answer.error_code or is_elsewhere or is_another)
