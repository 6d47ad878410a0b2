"""Extends upstream's fetcher: keeps quiet partitions' data, purges ended ownerships' data."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

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
from safeconsumer._interrupts import is_from_handler
from safeconsumer._kafka.network import await_for, new_future
from safeconsumer._kafka.pausing.buffer import Buffer, Buffers, Purged, drop_answer
from safeconsumer._kafka.pausing.stamps import (
    Stamped,
    StampedOffsets,
    StampedPositions,
    belongs_to,
)
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer._kafka.pausing.undelivered import Fetch, OwnedPartitionState
from safeconsumer._kafka.pausing.waking import FetchWait, Wakeup
from safeconsumer.errors.kafka_python import CorruptBatchError
from safeconsumer.holds.ownership import Owned

# In bytes; a little more than a full response with the default fetch_max_bytes (50
# MiB).
DEFAULT_PARKED_MAX_BYTES = 64 * 1024 * 1024

_UNKNOWN_TOPIC = kafka_errors.UnknownTopicOrPartitionError.errno
# A fetch waits at most this long while other partitions wait for the ids of their
# topics, because a broker gets only one fetch at a time.
_SHORT_WAIT_MS = 100

Drained = dict[TopicPartition, list[ConsumerRecord]]


class PauseSafeFetcher(Fetcher):
    """
    Keeps fetched records of quiet partitions, and purges records of ended ownerships.

    Differences from upstream 3.0.12, each with a regression test:

    - A resumed partition continues in its half-read batch, even if other partitions
      were read in between; upstream waits until its current batch is dropped, which
      never happens.
    - Each fetch is stamped with its ownership; responses and buffers of any other
      ownership are dropped, even if the fetch is still in flight when the ownership
      ends.
    - Each drain uses one snapshot of the quiet partitions.
    - The total size of parked data is limited.
    - A lifted hold wakes a waiting ``poll``.
    - If a fetch could not be sent to a broker, the next poll sends another one.

    Create an object as with upstream's class; or set the ``__class__`` of an object of
    upstream's to this class, and call :meth:`prepare`. The object's subscription must
    be a :class:`LedgerSubscription`.

    Thread rules: the polling thread calls the methods, except :meth:`wake`, which any
    thread may call, and ``_create_fetch_requests`` and ``_fetchable_partitions``, which
    run on the IO thread.
    """

    _subscriptions: LedgerSubscription  # upstream's name

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
        Set the attributes that this class needs in addition to upstream's.

        Args:
            parked_max_bytes: how many bytes of quiet partitions' data to keep.
            reports_delivery: whether the polling code calls :meth:`delivered` at the
                end of a poll. If not, the records of a drain count as delivered
                immediately.
        """
        self._purged_for: Owned | None = None
        self._is_closed = False
        # The last fetch that was sent to each broker.
        self._last_fetches: dict[Any, StampedOffsets] = {}
        self._subscriptions.ids.in_flight = self._in_flight
        # Whether the last fetches left out partitions that wait for topic ids.
        self._is_waiting = False
        self._next_in_line_exception_metadata: Any  # upstream's
        self.buffers = Buffers(parked_max_bytes)
        # The partition and offset that a drain is reading, and whether the broker
        # returned an error for them.
        self._source: tuple[TopicPartition, int, bool]
        self._reports_delivery = reports_delivery
        # The partitions of the current offset requests that have no known leader.
        self._leaderless: set[TopicPartition] = set()
        self._reset_under_way: Future | None = None  # done when the reset has ended
        # The metadata version for which positions were last compared with leaders'
        # epochs.
        self._validated_version: int | None = None
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
        Drain, send the next fetches, and wait for a response or a lifted hold.

        Unlike in upstream's method, the wait ends when a hold is lifted or expires,
        even if no fetch is in flight.
        """
        self.wait.begin()
        if self.wakeup.is_asked:  # the wake-up may have come before this wait
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
            # Upstream sleeps for one backoff and checks again; a resume does not end
            # that sleep.
            timeout_ms = _shorter(timeout_ms, self.config["retry_backoff_ms"])
            if not timeout_ms:
                return records, True
        self.wait.for_any(waited_on, timeout_ms)
        records, _ = self.fetched_records(max_records, update_offsets)
        return records, False

    def wake(self) -> None:
        """
        End the current wait of :meth:`fetch_records`, if there is one.

        Thread rules: any thread and a signal handler may call this method; it takes no
        lock.
        """
        self.wait.end()

    def _until_expiry(self, timeout_ms: float | None) -> float | None:
        left = self._subscriptions.ledger.seconds_to_next_expiry()
        if self._is_waiting:
            left = min(left, self._subscriptions.ids.seconds_to_wait())
        if left == math.inf:
            return timeout_ms
        left_ms = max(0.0, left * 1000 + 1)  # 1 ms more, so as not to end early
        return _shorter(timeout_ms, left_ms)

    # ------------------------------------------------------------ draining

    def fetched_records(
        self,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> tuple[Drained, bool]:
        """
        Return buffered records of partitions that are not quiet; advance the positions.

        The class docstring lists the differences from upstream's method.
        """
        if max_records is None:
            max_records = self.config["max_poll_records"]
        if max_records <= 0:
            message = "max_records must be > 0"
            raise ValueError(message)
        self.put_back_unreturned()
        self._buffer_answers()
        try:
            self._subscriptions.pin()
            self._raise_pending()
            drained = self._drain(max_records, update_offsets)
        finally:
            self._subscriptions.unpin()
        if not self._reports_delivery:
            self.delivered()
        if self.buffers.parked:
            self._limit_parked()
        is_partial = bool(self._completed_fetches)
        for buffer in tuple(self.buffers.waiting.values()):
            is_partial = is_partial or bool(buffer.answers)
        return drained, is_partial

    def delivered(self) -> None:
        """
        Record that the application now receives the records of the last drain.

        This is the last call in a ``poll``. Until then a commit uses the positions
        before the drain. If the ``poll`` raises earlier, the next drain starts at those
        positions again.

        The buffers drop these records, so that only the application keeps them in
        memory. If a signal handler raises before the last line of this method, the
        records are fetched again.
        """
        undelivered = self._subscriptions.undelivered
        if not undelivered.is_step:
            for state in tuple(undelivered.taken.values()):
                state.forget()
        undelivered.are_returned = True

    def put_back_unreturned(self) -> None:
        """
        Put back the records that the last ``poll`` has taken but not returned.

        If the last ``poll`` raised, its records are delivered again, from the buffer.
        Each ``poll`` calls this method first, even if no drain follows.
        """
        subscription = self._subscriptions
        if not subscription.undelivered.taken:
            subscription.undelivered.are_returned = False
            return
        if subscription.undelivered.is_delivered():
            with subscription._lock:
                subscription.undelivered.clear()
            return
        journal = subscription.journal
        comes_again = None if journal is None else journal.comes_again
        with subscription._lock:
            states = subscription.undelivered.put_back(comes_again)
            again = {
                tp: state.buffer
                for tp, state in states.items()
                if state.buffer.taken
                and tp not in self.buffers
                and subscription.assignment.get(tp) is state
            }
            if again:
                self.buffers.put_back(again)

    def _raise_pending(self) -> None:
        pending, self._next_in_line_exception_metadata = (
            self._next_in_line_exception_metadata,
            None,
        )
        if pending is None:
            return
        with self._subscriptions._lock:
            if not self._subscriptions.is_fetchable(pending.partition):
                return  # once it is no longer quiet, its next fetch fails again
            position = self._subscriptions.position(pending.partition)
        if position.offset == pending.fetched_offset:
            raise pending.exception

    def _drain(self, max_records: int, update_offsets: bool) -> Drained:  # noqa: FBT001
        drained: Drained = defaultdict(list)
        quiet = self._subscriptions.quiet()
        self.buffers.resume(quiet)
        try:
            for tp, buffer in tuple(self.buffers.waiting.items()):
                if tp in quiet:
                    self.buffers.park(tp, buffer)
                elif max_records > 0:
                    max_records -= self._drain_one(
                        drained, tp, buffer, max_records, update_offsets
                    )
                else:
                    break
        except Exception as error:
            if is_from_handler(error):
                raise
            tp, offset, is_refused = self._source
            raised = error
            if isinstance(error, kafka_errors.CorruptRecordError):
                raised = CorruptBatchError.of(
                    error, tp, offset, is_of_broker=is_refused
                )
            if not drained:
                raise raised  # noqa: B904 - the error has its cause
            # As in upstream, the next call raises the error.
            self._next_in_line_exception_metadata = ExceptionMetadata(
                tp, offset, raised
            )
        return dict(drained)

    def _drain_one(
        self,
        drained: Drained,
        tp: TopicPartition,
        buffer: Buffer,
        most: int,
        update_offsets: bool,  # noqa: FBT001 - upstream's signature
    ) -> int:
        count = 0
        while count < most:
            if tp in drained and not update_offsets:
                # The position still precedes the taken records, so no fetch response
                # continues from there.
                break
            if buffer.is_open:
                count += self._take(drained, tp, buffer, most - count, update_offsets)
            elif not buffer.answers:
                break
            elif tp in drained and _is_out_of_range(buffer.answers[0]):
                break  # a reset would drop the position, so no record could be put back
            else:
                self._open(tp, buffer)
        # The buffer stays listed while an iteration has records to yield, because the
        # position still precedes these records. A fetch from the position would be
        # discarded.
        if buffer.is_empty and (update_offsets or tp not in drained):
            self.buffers.remove(tp, buffer)
        return count

    def _open(self, tp: TopicPartition, buffer: Buffer) -> None:
        answer = buffer.answers.popleft()
        data = answer.partition_data
        self._source = tp, answer.fetched_offset, bool(data.error_code)
        # Upstream reads the assignment and the position twice. If another thread
        # removed the partition in between, poll() would raise a KeyError. Records are
        # not decoded under this lock.
        with self._subscriptions._lock:
            batch = self._parse_fetched_data(answer)
            if batch is not None:
                moves = self._subscriptions.assignment[tp].moves
                buffer.open(batch, data.records or b"", moves)

    def _take(
        self,
        drained: Drained,
        tp: TopicPartition,
        buffer: Buffer,
        most: int,
        update_offsets: bool,  # noqa: FBT001 - upstream's signature
    ) -> int:
        state, position, moves = self._next_in_line(tp, buffer)
        if state is None or position is None:
            return 0
        self._source = tp, position.offset, False
        batch = buffer.batch
        try:
            records = buffer.take(most)  # user code runs without a lock held
            self._report_transactional(tp, batch)
        except BaseException:
            # A generator that has raised is exhausted, and upstream would call it again
            # forever. After the batch is closed, its records are fetched again.
            buffer.close_batch()
            raise
        end = buffer.reached(position)
        with self._subscriptions._lock:
            # Unlike upstream, this checks under the lock that no other thread has
            # called seek().
            assigned = self._subscriptions.assignment.get(tp)
            if assigned is not state or state.position is not position:
                buffer.close_open()
                return 0
            if records:
                self._subscriptions.undelivered.note(tp, state)
                drained[tp].extend(records)
                state.note_read(end.offset)
            if update_offsets or not records:
                # If update_offsets is False, the iteration moves the position record by
                # record.
                if state.moves == moves:
                    state.position = end
                if state.moves != moves:  # a signal handler called seek()
                    state.restore_move()
        self._record_lag(state, end)
        return len(records)

    def _next_in_line(
        self, tp: TopicPartition, buffer: Buffer
    ) -> tuple[OwnedPartitionState | None, OffsetAndMetadata | None, int]:
        # Sets the cursor to the position. Returns None if the partition must not be
        # read.
        with self._subscriptions._lock:
            state = self._subscriptions.assignment.get(tp)
            is_its = getattr(state, "buffer", None) is buffer
            if (
                not is_its
                or self._is_closed
                or not self._subscriptions.is_fetchable(tp)
            ):
                buffer.close_open()
                return None, None, 0
            # Read in this order: if a signal handler calls seek() in between, _take()
            # finds that the position has changed.
            position = state.position
            moves = state.moves
            buffer.move_cursor(position.offset, moves)
            return state, position, moves

    def _report_transactional(self, tp: TopicPartition, batch: Any) -> None:  # noqa: ANN401 - upstream's or ours, same shape
        journal = self._subscriptions.journal
        if journal is not None and getattr(batch, "is_transactional", False):
            journal.transactional(tp)

    def _record_lag(self, state: OwnedPartitionState, end: OffsetAndMetadata) -> None:
        if self._sensors and state.highwater is not None:
            self._sensors.records_fetch_lag.record(state.highwater - end.offset)

    # ------------------------------------------------------------ putting back

    def put_back_quiet(self, records: Drained) -> Drained:
        """
        Do a ``poll``'s final check: put back records of partitions that are now held.

        With this check, the poll obeys a pause that was placed after the drain's
        snapshot. If a seek has moved the position since, the records are dropped
        instead.
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
                del records[tp]  # the IO thread has revoked the partition
            elif tp in quiet:
                del records[tp]
                self._put_back(tp, state)
            else:
                continue
            with subscription._lock:  # the program does not get any of these records
                if not subscription.undelivered.is_step:
                    subscription.undelivered.taken.pop(tp, None)
        return records

    def _put_back(self, tp: TopicPartition, state: OwnedPartitionState) -> None:
        with self._subscriptions._lock:
            is_same = self._subscriptions.assignment.get(tp) is state
            if is_same and state.put_back():
                self.buffers.park(tp, state.buffer)

    # ------------------------------------------------------------ parked data

    def _limit_parked(self) -> None:
        dropped = self.buffers.drop_excess()
        if dropped:
            self._subscriptions.ledger.emit(
                events.ParkedDataDropped,
                partitions=tuple(dropped),
                bytes=sum(dropped.values()),
            )

    def _fetchable_partitions(self) -> list[TopicPartition]:
        fetchable: list[TopicPartition] = super()._fetchable_partitions()
        fetchable = [tp for tp in fetchable if tp not in self.buffers]
        states = self._subscriptions.assignment
        flowing = ((tp, states[tp]) for tp in fetchable)
        waiting = self._subscriptions.ids.leave_out(flowing)
        self._is_waiting = bool(waiting)
        if not waiting:
            return fetchable
        self._manager.cluster.request_update()
        return [tp for tp in fetchable if tp not in waiting]

    def drop_decoded(self) -> None:
        """Discard deserialized records, to fetch them again. Not called during a poll."""
        with self._subscriptions._lock:
            taken = list(self._subscriptions.undelivered.taken.values())
        for buffer in (
            *(state.buffer for state in taken),
            *(one for _, one in self.buffers.items()),
        ):
            buffer.close_open()

    def close(self, *, is_in_poll: bool = False) -> None:
        """
        Discard all buffered data, and report it.

        Args:
            is_in_poll: whether a ``poll`` is still about to return the records that it
                took.
        """
        if not is_in_poll:
            self.put_back_unreturned()
        with self._subscriptions._lock:
            for state in self._subscriptions.undelivered.taken.values():
                state.move_cursor()
        self._is_closed = True
        self._buffer_answers()
        super().close()

    # ------------------------------------------------------------ offset requests

    def maybe_validate_positions(self) -> None:
        """
        Compare positions with their leaders' epochs, if a position or leader is new.

        Upstream compares all positions in each poll, which takes most of the poll's
        time with a thousand partitions.
        """
        # A program's own client has a cluster of upstream's class, which has no
        # versions.
        version = getattr(self._manager.cluster, "version", None)
        unvalidated = self._subscriptions.unvalidated
        if (
            version is not None
            and version == self._validated_version
            and not unvalidated
        ):
            return
        # Positions that are set during the comparison are compared again later. If a
        # signal handler raises, all positions are compared again.
        self._validated_version = None
        unvalidated.clear()
        super().maybe_validate_positions()
        self._validated_version = version

    def reset_offsets_if_needed(self, timeout_ms: float | None = None) -> Future | None:
        """
        Request partitions' first or last offsets; return a future for the response.

        Upstream stores its task only after the task has started. If a signal handler
        raised in between, the task would not be stored, and ``position`` would return
        None immediately.
        """
        task: Future | None = super().reset_offsets_if_needed(timeout_ms)
        if task is None:
            self._reset_task = task = self._reset_under_way
        return task

    async def _reset_offsets_async(self, timeout_ms: float | None = None) -> None:
        # Tasks run one after another. A second task would find no partition to request,
        # and would sleep for as long as the first response may take.
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
        # 1. The consumer requests a partition's first offset from a broker.
        # 2. The partition is lost, is read and committed by other members, and is
        #    assigned again. Its first offset is needed again.
        # 3. The response to the first request arrives. Upstream would use that
        #    response, and records that were committed since would be delivered again.
        assignment, stamped = self._subscriptions.assignment, {}
        with self._subscriptions._lock:
            for tp, (strategy, epoch) in timestamps_and_epochs.items():
                state = assignment.get(tp)
                if state is not None and state.reset_strategy != strategy:
                    # The program has called a seek method after upstream chose the
                    # request. Without this line the new reset would wait until the old
                    # request's timeout.
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
        # Upstream drops the leader epoch in the response. If the log were truncated
        # before the first record arrives, that would go unnoticed.
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
        # Upstream ignores partitions without a known leader. If a broker refuses a
        # request, upstream repeats the request in a busy loop.
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
        # Upstream calls this method before its first await.
        groups: dict[int, dict[TopicPartition, Any]]
        groups = super()._group_list_offset_requests(timestamps)
        self._leaderless.update(timestamps.keys() - set().union(*groups.values()))
        return groups

    def _reset_offset_if_needed(
        self, partition: TopicPartition, timestamp: int, offset: int
    ) -> None:
        with self._subscriptions._lock:  # atomic with respect to seeks
            state = self._subscriptions.assignment.get(partition)
            if state is None or not belongs_to(timestamp, state):
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
        # A broker that does not support this request cannot report that a log was
        # truncated. Upstream would repeat the request forever and fetch no records;
        # Java's client continues to read.
        asked = StampedPositions(
            partitions_to_positions, self._subscriptions.assignment, self._leader_epoch
        )
        try:
            truncations: dict[TopicPartition, Any]
            truncations = await super()._send_offset_for_leader_epoch_request(
                node_id, asked
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
        # 1. The consumer asks a partition's leader whether its log has the position.
        # 2. Before the response arrives, an unclean election truncates the log below
        #    the position, and metadata shows the new leader epoch.
        # 3. Upstream would take the response for that of the new leader, and would skip
        #    the records from the end of the truncated log to the position.
        subscription = self._subscriptions
        truncations: dict[TopicPartition, Any]
        with subscription._lock:  # atomic with respect to seeks
            if isinstance(requested_positions, StampedPositions):
                requested_positions = requested_positions.current(
                    subscription.assignment, self._leader_epoch
                )
            before = {
                tp: subscription.assignment[tp].position
                for tp in requested_positions
                if tp in subscription.assignment
            }
            truncations = super()._handle_offset_for_leader_epoch_response(
                response, requested_positions
            )
            subscription.report_truncated(before)
        return truncations

    def _leader_epoch(self, tp: TopicPartition) -> int | None:
        epoch: int | None = self._manager.cluster.leader_epoch_for_partition(tp)
        return epoch

    # ------------------------------------------------------------ ownership

    def _is_stale(self, state: OwnedPartitionState | None, offset: int) -> bool:
        return self._is_closed or state is None or not belongs_to(offset, state)

    async def _send_fetches_async(self) -> Any:  # noqa: ANN401 - a list of futures
        # Upstream marks a broker as pending, and then sends the fetch. If sending
        # raises, no response ever removes the mark, and no further fetch is sent to the
        # broker (3.0.12). This method removes every mark that the failed call has made,
        # so a broker whose fetch was already sent gets a second fetch. Of two responses
        # for the same offset, the second one is dropped.
        marked = frozenset(self._nodes_with_pending_fetch_requests)
        try:
            return await super()._send_fetches_async()
        except BaseException:
            self._nodes_with_pending_fetch_requests &= marked
            raise

    def _create_fetch_requests(self) -> dict[int, tuple[object, dict[Any, int]]]:
        # The number of moves is read first, so that a pause that is placed later counts
        # as placed after the request.
        moves = self._subscriptions.ledger.moves
        requests: dict[int, tuple[Any, dict[Any, int]]]
        with self._subscriptions._lock:  # upstream reads positions one by one
            requests = super()._create_fetch_requests()
            states = self._subscriptions.assignment
            doubtful = self._subscriptions.ids.doubtful
            # These fetches are short, so that the next ones, with the waiting
            # partitions, follow soon.
            if self._is_waiting:
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
            now = self._subscriptions.ledger.now()[0]
            for node, one in asked.items():
                one.fetch.until = now + requests[node][0].max_wait_ms / 1000
            self._last_fetches.update(asked)
            return {node: (requests[node][0], one) for node, one in asked.items()}

    def _in_flight(self) -> list[Fetch]:
        # Upstream removes a broker's mark only after it has processed the response.
        marked = tuple(self._nodes_with_pending_fetch_requests)
        return [
            self._last_fetches[node].fetch
            for node in marked
            if node in self._last_fetches
        ]

    def _handle_fetch_response(
        self,
        node_id: int,
        fetch_offsets: Mapping[Any, int],
        send_time: float,
        response: Any,  # noqa: ANN401 - upstream's
    ) -> None:
        super()._handle_fetch_response(node_id, fetch_offsets, send_time, response)
        if isinstance(fetch_offsets, StampedOffsets):
            self._note_answer_times(fetch_offsets, response)
            self._confirm(fetch_offsets, response)

    def _note_answer_times(self, asked: StampedOffsets, response: Any) -> None:  # noqa: ANN401 - upstream's
        if response.error_code:
            return
        now = self._subscriptions.ledger.now()[0]
        asked.fetch.answered_at = min(now, asked.fetch.until)
        journal = self._subscriptions.journal
        for topic in response.responses:
            for one in topic.partitions:
                if one.error_code == _UNKNOWN_TOPIC:
                    tp = TopicPartition(topic.topic, one.partition_index)
                    self._subscriptions.ids.note_unknown_topic(asked.state(tp))
                elif journal is not None and _has_read_log(one):
                    tp = TopicPartition(topic.topic, one.partition_index)
                    if tp in asked:
                        journal.log_starts_at(tp, one.log_start_offset, asked[tp])

    def _confirm(self, asked: StampedOffsets, response: Any) -> None:  # noqa: ANN401 - upstream's
        ledger = self._subscriptions.ledger
        waiting = ledger.unconfirmed(asked.moves)
        # A throttled response lists no partitions.
        if waiting and not response.error_code and not response.throttle_time_ms:
            # A partition that the response does not list has a valid position, but no
            # new records.
            unread = {
                (topic.topic, one.partition_index)
                for topic in response.responses
                for one in topic.partitions
                if not _has_read_log(one)
            }
            valid = {tp for tp in waiting if tp in asked and tp not in unread}
            self._note_doubtful(asked, valid.intersection(asked.doubtful))
            ledger.confirm(valid.difference(asked.doubtful), asked.moves)

    def _note_doubtful(
        self, asked: StampedOffsets, partitions: Collection[TopicPartition]
    ) -> None:
        # The first response is kept, unless the partition was held after it. Later ones
        # might always be newer than the metadata request that is in flight.
        ledger = self._subscriptions.ledger
        unconfirmed: dict[int, Collection[TopicPartition]] = {}
        for tp in partitions:
            state = asked.state(tp)
            read = state.read_in_doubt
            if read is not None and read[1] not in unconfirmed:
                unconfirmed[read[1]] = frozenset(ledger.unconfirmed(read[1]))
            if read is None or tp not in unconfirmed[read[1]]:
                state.read_in_doubt = (ledger.now()[0], asked.moves)

    def _buffer_answers(self) -> None:
        """
        Put the responses that have arrived into their ownerships' buffers.

        Buffers and responses of ended ownerships are discarded and reported. A response
        refers to the states of its partitions (:class:`StampedOffsets`).
        """
        subscription, purged = self._subscriptions, list[Purged]()
        owned = subscription.ledger.owned()
        if owned is not self._purged_for or self._is_closed:
            for tp, buffer in self.buffers.items():
                state = subscription.assignment.get(tp)
                if self._is_closed or getattr(state, "buffer", None) is not buffer:
                    self.buffers.remove(tp, buffer)
                    purged += buffer.purged(tp)
        while self._completed_fetches:
            answer = self._completed_fetches.popleft()
            tp = answer.topic_partition
            state = subscription.assignment.get(tp)
            if self._is_stale(state, answer.fetched_offset):
                purged.append(drop_answer(answer))
            else:
                self.buffers.add_answer(tp, state.buffer, answer)
        if purged:
            self._report_purged(purged)
        self._purged_for = owned  # done last, because a signal handler may raise above

    def _report_purged(self, purged: Sequence[Purged]) -> None:
        counts = [records for _, records, _ in purged]
        known = [count for count in counts if count is not None]
        self._subscriptions.ledger.emit(
            events.FetchesPurged,
            partitions=events.sorted_partitions({tp for tp, _, _ in purged}),
            fetches=len(purged),
            records=sum(known) if len(known) == len(counts) else None,
            bytes=sum(size for _, _, size in purged),
        )


def _shorter(timeout_ms: float | None, limit_ms: float) -> float:
    return limit_ms if timeout_ms is None else min(timeout_ms, limit_ms)


def _is_out_of_range(answer: CompletedFetch) -> bool:
    code = answer.partition_data.error_code
    return bool(code == kafka_errors.OffsetOutOfRangeError.errno)


def _has_read_log(answer: Any) -> bool:  # noqa: ANN401 - upstream's
    # A leader that refers to another replica, or reports a diverging log, has not
    # checked whether the offset is within its log.
    replica, other_log = answer.preferred_read_replica, answer.diverging_epoch
    is_elsewhere = replica is not None and replica >= 0
    is_another = other_log is not None and other_log.end_offset >= 0
    return not (answer.error_code or is_elsewhere or is_another)
