"""
Iteration that checks every record and keeps what it could not deliver.
"""

import time
from collections.abc import Iterator, Sequence
from typing import cast

from kafka.consumer.fetcher import ConsumerRecord
from kafka.consumer.subscription_state import TopicPartitionState
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.util import Timer

from safeconsumer._kafka.draining import Drained
from safeconsumer._kafka.errors import ConcurrentPollError
from safeconsumer._kafka.listeners import ListenerGuard

# While everything assigned is quiet a poll of an iteration ends after this long, so
# that partitions gained during it are gated for no longer than that.
_ALL_QUIET_POLL_MS = 500

_new = tuple.__new__  # what a named tuple's own __new__ calls, without the frame


class PauseSafeIteration(ListenerGuard):
    """
    ``for record in consumer`` and ``poll`` with a final check of every record.

    Differences from upstream 3.0.12: a pause in the middle of a batch parks the rest
    of it instead of having it fetched again, and no fetch is sent for records that
    are here already.
    """

    _iterator: Iterator[ConsumerRecord] | None  # upstream's

    def _poll_once(
        self,
        timer: Timer,
        max_records: int,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> Drained:
        records = super()._poll_once(timer, max_records, update_offsets)
        if records:  # the last wait of the call is over: what is quiet now goes back
            records = self._fetcher.return_quiet(records)
        return cast("Drained", records)

    def __next__(self) -> ConsumerRecord:
        """
        Return the next record, waiting up to ``consumer_timeout_ms`` for it.

        Raises:
            StopIteration: after that time, or when the consumer is closed.
            ConcurrentPollError: if another thread is in the middle of this call.
        """
        try:
            # A running iterator never waits: what it yields needs no new deadline.
            iterator = self._iterator
            if iterator is not None and not self._closed:
                for record in iterator:
                    return record
                if self._iterator is iterator:
                    self._iterator = None
            return super().__next__()
        except ValueError as error:
            if "already executing" not in str(error):
                raise
            message = "two threads iterate one consumer at the same time; use one"
            raise ConcurrentPollError(message) from error

    def _message_generator_v2(self) -> Iterator[ConsumerRecord]:
        batches = self._poll_for_iteration()
        assignment = self._subscription.assignment
        quiet = self._subscription.ledger.quiet
        waiting = [
            (tp, records, state, state.position)
            for tp, records in batches.items()
            if (state := assignment.get(tp)) is not None
        ]
        waiting.reverse()
        at, position = 0, None
        try:
            while waiting:
                tp, records, state, position = waiting[-1]
                at, checked = 0, None
                for record in records:
                    # Asked each time; one and the same set is looked into once.
                    if (snapshot := quiet()) is not checked:
                        if tp in snapshot:
                            break
                        checked = snapshot
                    if (
                        assignment.get(tp) is not state
                        or state._position is not position
                        or not state.is_fetchable()
                    ):
                        break
                    at += 1
                    position = _new(
                        OffsetAndMetadata, (record.offset + 1, "", record.leader_epoch)
                    )
                    state._position = position  # is_fetchable: it has a valid one
                    yield record
                self._put_back(tp, records[at:], state, position)
                waiting.pop()
        finally:
            # Something waits here only if the generator is closed: by a seek, a new
            # subscription or another iterator.
            self._fetcher.hold_back(())
            if waiting:
                tp, records, state, _ = waiting.pop()
                self._put_back(tp, records[at:], state, position)
            for unread in waiting:
                self._put_back(*unread)

    def _poll_for_iteration(self) -> Drained:
        try:
            records = self.poll(
                timeout_ms=self._iteration_timeout_ms(), update_offsets=False
            )
            return cast("Drained", records)
        except BaseException:
            self._fetcher.hold_back(())
            raise

    def _iteration_timeout_ms(self) -> float:
        left = float(self._consumer_timeout) - time.monotonic()
        timeout_ms = 1000 * max(0.0, left)
        if self._subscription.ledger.view().is_quiet_throughout():
            return min(timeout_ms, _ALL_QUIET_POLL_MS)
        return timeout_ms

    def _put_back(
        self,
        tp: TopicPartition,
        records: Sequence[ConsumerRecord],
        state: TopicPartitionState,
        position: OffsetAndMetadata,
    ) -> None:
        # Only into the same ownership, and only if nobody moved the position.
        same = self._subscription.assignment.get(tp) is state
        if records and same and state.position is position:
            self._fetcher.give_back(tp, records, position)
