"""
Iteration that checks every record and keeps what it could not deliver.
"""

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, cast

from kafka.consumer.fetcher import ConsumerRecord
from kafka.consumer.subscription_state import TopicPartitionState
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.util import Timer

from safeconsumer._kafka.errors import ConcurrentPollError
from safeconsumer._kafka.pausing.draining import Drained
from safeconsumer._kafka.pausing.listeners import ListenerGuard

# A poll of an iteration that gates what it gains ends after this long: nobody could
# pause it meanwhile, and the gates open when it ends.
GATING_STEP_MS = 500

_new = tuple.__new__  # what a named tuple's own __new__ calls, without the frame


class PauseSafeIteration(ListenerGuard):
    """
    ``for record in consumer`` and ``poll`` with a final check of every record.

    Differences from upstream 3.0.12: a pause in the middle of a batch parks the rest
    of it instead of having it fetched again, no fetch is sent for records that are
    here already, and a ``poll`` after a step of an iteration gets the rest of what
    the iteration had taken; upstream's fetches it anew, and the iteration goes on to
    yield it a second time.

    Thread rules: whatever polls is guarded by one lock, which is tried and never waited
    for. A step that only yields takes none: each poll begins by closing the generator
    of the iteration, which Python refuses while it runs.
    """

    _iterator: Generator[ConsumerRecord, None, None] | None  # upstream's
    _poll_guard: threading.Lock
    _stepping: int | None = None
    """
    The thread whose step of an iteration polls now, and so has the guard already.
    """

    @contextmanager
    def _one_poll(self) -> Iterator[None]:
        """
        Let one thread poll at a time, and end the iteration that it breaks into.
        """
        if self._stepping == threading.get_ident():
            self._stepping = None  # what a hook begins in it is not the step
            yield
            return
        self._refuse_in_listener("poll")
        with self._alone():
            yield

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # What an iteration had taken goes back to its places first, so that this poll
        # finds it. A step needs no lock against that: its generator cannot be closed
        # while it runs, and once closed it yields no more.
        if not self._poll_guard.acquire(blocking=False):
            self._refuse_second_poll()
        try:
            self._end_iteration()
            yield
        finally:
            self._poll_guard.release()

    def _end_iteration(self) -> None:
        iterator = self._iterator
        if iterator is None:
            return
        try:
            iterator.close()
        except ValueError as error:
            self._refuse_if_executing(error)
            raise
        self._iterator = None

    def _refuse_if_executing(self, error: ValueError) -> None:
        if "already executing" in str(error):
            self._refuse_second_poll()

    def _refuse_second_poll(self) -> NoReturn:
        self._refuse_in_listener("poll")
        message = (
            "a poll or a step of an iteration is under way: two threads poll one "
            "consumer at the same time, or a hook or signal handler does in the middle "
            "of a poll; use one thread, and poll after the call has returned"
        )
        raise ConcurrentPollError(message)

    def _poll_once(
        self,
        timer: Timer,
        max_records: int,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> Drained:
        records = super()._poll_once(timer, max_records, update_offsets)
        return self._without_quiet(cast("Drained", records))

    def _without_quiet(self, records: Drained) -> Drained:
        """
        Put back what is quiet at this moment.
        """
        return self._fetcher.return_quiet(records) if records else records

    def __next__(self) -> ConsumerRecord:
        """
        Return the next record, waiting up to ``consumer_timeout_ms`` for it.

        Raises:
            StopIteration: after that time, or when the consumer is closed.
            ConcurrentPollError: if another thread is in the middle of this call or of
                ``poll``.
        """
        try:
            # A running iterator never waits: what it yields needs no new deadline.
            iterator = self._iterator
            if iterator is not None and not self._closed:
                for record in iterator:
                    return record
                if self._iterator is iterator:
                    self._iterator = None
        except ValueError as error:
            self._refuse_if_executing(error)
            raise
        with self._alone():
            return super().__next__()

    def _message_generator_v2(self) -> Generator[ConsumerRecord, None, None]:
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
        self._stepping = threading.get_ident()
        try:
            records = self.poll(
                timeout_ms=self._iteration_timeout_ms(), update_offsets=False
            )
            return cast("Drained", records)
        except BaseException:
            self._fetcher.hold_back(())
            raise
        finally:
            self._stepping = None

    def _iteration_timeout_ms(self) -> float:
        left = float(self._consumer_timeout) - time.monotonic()
        return 1000 * max(0.0, left)

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
