"""Polls continuously, with bounded memory; opens and closes an epoch per ownership."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from kafka.structs import TopicPartition

from safeconsumer._kafka.membership import Place
from safeconsumer.errors.kafka_python import CorruptBatchError
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.brakes import Brakes
from safeconsumer.worker.client import ConsumerClient, Polled
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.kept import DroppedWork, KeptRecords
from safeconsumer.worker.leaving import (
    LOST,
    MOVED,
    REVOKED,
    STOPPED,
    Commits,
    Departures,
    JoinDeferred,
)
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.records import AnyRecord
from safeconsumer.worker.settings import Commit, Drain, Limits
from safeconsumer.worker.unreadable import Unreadable

# Seconds to wait for the commit of an ownership's floor before the loop continues
# without it.
_FLOOR_SECONDS = 0.5
# Timeouts of a poll in seconds. The short one is used while records are queued, and
# during a join or a drain.
BUSY_POLL = 0.05
CALM_POLL = 0.25
_NO_PLACE: Place = None, 0, 0, None


class Engine:
    """
    Polls for a worker or pump; the thread that calls :meth:`turn` owns the consumer.

    Attributes:
        kept: the records in memory.
        brakes: places and lifts the holds that enforce the limits.
        commits: commits complete records.
        departures: waits for running work, and drops the records of partitions that
            leave.
        unreadable: decides what to do about batches that cannot be read.
        due_in: seconds until the next turn is due.
        leaked: the number of records that polls returned in spite of the worker's own
            holds.
        gap: the longest time between two polls, in seconds, drains excluded.
        idle_reason: why no records can arrive; None if no such reason is known.
        dropped_at_end: the unfinished records of each partition when the loop ended.
    """

    def __init__(  # noqa: PLR0913 - one part each
        self,
        client: ConsumerClient,
        *,
        limits: Limits,
        drain: Drain,
        commit: Commit,
        emit: Callable[..., None],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._group = client.membership
        self._clock = clock
        self._emit = emit
        self.kept = KeptRecords(clock)
        self.brakes = Brakes(client, self.kept, limits, clock)
        self.commits = Commits(client, self.kept, commit, emit, clock)
        self.departures = Departures(
            self._group, self.kept, self.commits, drain, emit, clock
        )
        self.unreadable = Unreadable(client, self.kept, emit, clock)
        self._work: Decisions
        self._begun: Mapping[TopicPartition, object] | None = None
        self._unadmitted: Polled | None = {}
        self._before_poll: Mapping[TopicPartition, Place] = {}
        self.due_in = math.inf
        self.polled_at = clock()
        self.poll_timeout = CALM_POLL
        self.gap = 0.0
        self.leaked = 0
        self._gone_before = 0
        self.idle_reason: str | None = None
        self.dropped_at_end: Sequence[DroppedWork] = ()

    # ------------------------------------------------------------ lifecycle

    def begin(self, work: Decisions) -> None:
        """Take over the consumer, before the first turn."""
        self._work = self.brakes.work = self.departures.work = work
        work.queue.may_come = self.brakes.may_come
        self.unreadable.work = work
        self._group.ask_before_join(self._before_join)
        self._group.skip_no_record()
        self._gone_before = self._group.gone
        self.polled_at = self._clock()

    @property
    def gone(self) -> int:
        """The number of offsets whose records were deleted before the worker read them."""
        return self._group.gone - self._gone_before

    def last_poll_at(self) -> float:
        """Return the time of the last poll, in seconds since 1970; on any thread."""
        # self._clock is read first, so that the result is not too early
        ago = self._clock() - self.polled_at
        return time.time() - ago

    def turn(self) -> None:
        """
        Poll once, and do the other work of a turn, within about one poll's timeout.

        If a turn raises, the next turn first fetches again the records that the failed
        turn had polled but not admitted.
        """
        self._refetch_unadmitted()
        self.brakes.place(
            is_draining=self.departures.is_draining,
            floorless=self._floorless(),
        )
        self._before_poll = self._group.places()
        self._unadmitted = None  # None means: not known until the poll has returned
        if not self.departures.is_draining:
            self.brakes.make_room()
        self._unadmitted = polled = self._poll()
        self.departures.settle()
        self._follow_resets(polled)
        self._admit(polled)
        self._unadmitted = {}
        if not polled or self.commits.is_due():
            self._pass_gaps()
        self.departures.turn()
        self.commits.turn()
        self._check_topics()

    def _check_topics(self) -> None:
        before = self.idle_reason
        self.idle_reason = (
            None if self.kept.epochs else self._group.reason_for_no_records()
        )
        if self.idle_reason not in (None, before):
            self._emit(worker_events.NothingConsumed, reason=self.idle_reason)

    def rest(self) -> None:
        """Wait briefly for running work; called when it is not possible to poll."""
        self._wait_idle(BUSY_POLL)

    def conclude(self, seconds: float = math.inf) -> bool:
        """
        Drop incomplete records, commit the others, and lift the holds placed by brakes.

        Records are dropped before the commit, because a record that finishes during the
        commit is delivered again and must not count as done.

        Args:
            seconds: the time limit of the commit.

        Returns:
            Whether all complete records are committed.
        """
        self.departures.report_wait()
        try:
            with suppress(Exception):  # after an error the caller must seek
                self._refetch_unadmitted()
            epochs = tuple(self.kept.epochs.values())
            self.dropped_at_end = dropped = self.departures.drop(epochs, STOPPED)
            # is_lost() is also true if the member never joined; then no commit is
            # missing
            if self._group.is_lost():
                return not self.commits.is_behind
            return self.commits.last(dropped, seconds)
        finally:
            self._group.ask_before_join(None)
            self.brakes.release()

    # ------------------------------------------------------------ polling

    def _poll(self) -> Polled:
        now = self._clock()
        if self.departures.deadline is None:
            self.gap = max(self.gap, now - self.polled_at)
        self.polled_at = now
        self.poll_timeout = self._timeout()
        try:
            return self._client.poll(self.poll_timeout, self.brakes.room())
        except JoinDeferred:
            self._refetch_polled()
            self._wait_idle(BUSY_POLL)
            return {}
        except CorruptBatchError as error:
            self._refetch_polled()
            self.unreadable.note(error)
            return {}
        finally:
            self.polled_at = self._clock()

    def _timeout(self) -> float:
        busy = (
            self.departures.deadline is not None
            or self.brakes.is_on
            or self.kept.records > self.kept.running
            or self._group.is_joining()
        )
        return max(0.001, min(BUSY_POLL if busy else CALM_POLL, self.due_in))

    def _wait_idle(self, seconds: float) -> None:
        self.kept.idle.clear()
        with self.kept.lock:
            is_needed = self.departures.is_busy or self.commits.is_backing_off
        if is_needed:
            self.kept.idle.wait(seconds)

    # ------------------------------------------------------------ start of ownerships

    def _before_join(self) -> None:
        self._begin({})  # opens epochs for ownerships that began during this poll
        self.departures.before_join()

    def _begin(self, polled: Polled) -> bool:
        # An epoch is opened as soon as the ownership's first position is known, even
        # without records.
        owned = self._group.owned()
        if owned is self._begun or self._group.is_lost():
            return False
        is_whole, starts = True, {}
        for tp, ownership in owned.items():
            epoch = self.kept.epochs.get(tp)
            if epoch is not None and epoch.ownership is ownership:
                continue
            records = polled.get(tp)
            if records:
                start: int | None = records[0].offset
            elif self._unadmitted is None:
                # A subclass's poll may take records, and poll again in the same call.
                start = self._start_of_poll(tp, ownership)
            else:
                start = self._group.position(tp)
            if start is None:
                is_whole = False
            else:
                starts[tp] = start
        self._group.ask_for_commits(starts, _FLOOR_SECONDS)
        for tp, start in starts.items():
            self.commits.report_start(self._open(tp, owned[tp], start))
        if is_whole:
            self._begun = owned
        return bool(starts)

    def _open(self, tp: TopicPartition, ownership: object, start: int) -> Epoch:
        before = self.kept.epochs.get(tp)
        if before is not None:
            goes_on = before.ownership is ownership
            if goes_on and self._work.journal is not None:
                self._work.journal.drops(tp, start)
            is_moved = goes_on or self._group.was_moved(tp, before.ownership)
            self.departures.drop([before], MOVED if is_moved else REVOKED)
        epoch = self.kept.open(
            tp, ownership, self._group.losses, start, self._group.leader_epoch(tp)
        )
        epoch.reset = self._group.reset_number(tp)
        self.commits.begin(epoch, self._start_of_poll(tp, ownership))
        return epoch

    def _floorless(self) -> Iterable[TopicPartition]:
        return [
            tp
            for tp, epoch in self.kept.epochs.items()
            if not self.commits.has_floor(epoch)
        ]

    def _follow_resets(self, polled: Polled) -> None:
        # The position was out of range, for example because retention deleted records,
        # so the committed offset is no longer a floor. The epoch continues from the new
        # position once all earlier records are done.
        owned = self._group.owned()
        for tp, epoch in tuple(self.kept.epochs.items()):
            number = self._group.reset_number(tp)
            if owned.get(tp) is not epoch.ownership or number == epoch.reset:
                continue
            records, start = polled.get(tp), self._group.position(tp)
            if records and start is None:
                # Since these records were polled, a hook or another thread has moved
                # the position to the beginning or end. The epoch admits these records
                # first.
                continue
            epoch.has_lost_floor = True
            if records and start is not None and start < records[0].offset:
                # The program has moved the position back since the poll, so the polled
                # records are out of date.
                self.brakes.refetched += len(polled.pop(tp))
            elif records:
                start = records[0].offset
            with self.kept.lock:
                done = epoch.watermark().offset
            if start is not None and start < epoch.progress.next_offset:
                # The log was truncated, but the queued records may still exist.
                if done < start:
                    self._client.go_back(tp, done)
                    self.brakes.refetched += len(polled.pop(tp, ()))
                first = min(done, start)
                self.commits.report_start(self._open(tp, epoch.ownership, first))
            elif start is not None and not epoch.records:
                epoch.reset = number
                with self.kept.lock:
                    epoch.progress.reach(start, self._group.leader_epoch(tp))
                self.commits.restart(epoch)
                self.commits.report_start(epoch)

    # ------------------------------------------------------------ records

    def _admit(self, polled: Polled) -> None:
        if self._begin(polled) and self._floorless():
            # If this commit is refused, later attempts do not wait for the answer, and
            # a hold keeps the partitions from being fetched until one succeeds.
            self.commits.now(seconds=_FLOOR_SECONDS)
        owned = self._group.owned()
        for tp, records in [*polled.items()]:
            if tp not in owned:
                self._drop_unowned(polled.pop(tp))
                continue
            if not records:
                continue
            if self.brakes.holds_back(tp, owned[tp]):
                self.leaked += len(records)
            if self._goes_back_further(tp, owned[tp], records):
                continue
            epoch = self._epoch(tp, owned[tp], records[0])
            epoch.unreadable = None
            if not self.commits.has_floor(epoch):
                self._give_back(tp, records)
                continue
            fits = self._fitting(tp, records)
            if not fits:
                continue
            self.brakes.note_sizes(self.kept.admit(epoch, fits))
            self._work.queue.admit(epoch)

    def _fitting(self, tp: TopicPartition, records: list[AnyRecord]) -> list[AnyRecord]:
        fits = self.brakes.fitting(records)
        if len(fits) == len(records):
            return fits
        if self._is_passed(tp, records):
            return records  # this exceeds the limit, by one poll at most
        # The poll returned too many records, because someone, such as a thread at the
        # low mark, lifted a worker's hold during the poll.
        self._give_back(tp, records[len(fits) :])
        return fits

    def _give_back(self, tp: TopicPartition, records: Sequence[AnyRecord]) -> None:
        # A hook or another thread may have called seek() since the records were polled.
        end = records[-1].offset + 1
        if self._is_among(tp, records) or self._client.reads_on(tp, end):
            self._client.go_back(tp, records[0].offset)
        elif self._is_passed(tp, records):
            self.departures.dropped[MOVED] += len(records)
            return
        self.brakes.refetched += len(records)

    def _is_passed(self, tp: TopicPartition, records: Sequence[AnyRecord]) -> bool:
        # Returns whether a hook or another thread has moved the position past these
        # records since they were polled, so that no later poll returns them. During a
        # reset this is not known yet, and the result is True.
        end, position = records[-1].offset + 1, self._group.position(tp)
        is_behind = position is not None and position <= end
        return not is_behind and not self._client.reads_on(tp, end)

    def _is_among(self, tp: TopicPartition, records: Sequence[AnyRecord]) -> bool:
        # Returns whether the position is among these records: after the first one, but
        # not past the end. After a seek to one of these records, reading on would skip
        # the earlier ones.
        position = self._group.position(tp)
        first, last = records[0].offset, records[-1].offset
        return position is not None and first < position <= last + 1

    def _drop_unowned(self, records: Sequence[AnyRecord]) -> None:
        reason = LOST if self._group.is_lost() else REVOKED
        self.departures.dropped[reason] += len(records)

    def _refetch_unadmitted(self) -> None:
        # If the last turn raised before it had admitted the polled records, for example
        # because of a Ctrl-C, the position is past these records. They must be fetched
        # again.
        if not self._unadmitted and self._unadmitted is not None:
            return  # the usual case
        unadmitted, owned = self._unadmitted or {}, self._group.owned()
        for tp in unadmitted.keys() - owned.keys():
            self._drop_unowned(unadmitted[tp])
        for tp, ownership in owned.items():
            records = unadmitted.get(tp, ())
            start = self._first_unadmitted(tp, ownership, records)
            if start is None:
                continue
            position = self._group.position(tp)
            # if they are equal, no record was read since a seek
            is_sought = position == self._group.moved_to(tp)
            is_sought &= not (records and self._is_among(tp, records))
            if position is not None and position > start and not is_sought:
                self._client.go_back(tp, start)
                self.brakes.refetched += sum(one.offset >= start for one in records)
        self._unadmitted = {}

    def _refetch_polled(self) -> None:
        # A subclass's poll may take records, and poll again in the same call. If the
        # second poll raises, nobody has the records of the first one. A position that
        # has only passed offsets without records is not moved back, because an
        # unreadable batch may follow them.
        for tp, ownership in self._group.owned().items():
            before, _, takes, _ = self._before_poll.get(tp, _NO_PLACE)
            start, position = (
                self._start_of_poll(tp, ownership),
                self._group.position(tp),
            )
            if self._group.takes(tp) == (takes if before is ownership else 0):
                continue
            if start is not None and position is not None and position > start:
                self._client.go_back(tp, start)

    def _first_unadmitted(
        self, tp: TopicPartition, ownership: object, records: Sequence[AnyRecord]
    ) -> int | None:
        # Returns the offset from which records must be read again, or None if no record
        # is missing.
        epoch = self.kept.epochs.get(tp)
        start: int | None = None
        if epoch is not None and epoch.ownership is ownership:
            start = epoch.progress.next_offset
        if records:
            first, end = records[0].offset, records[-1].offset + 1
            is_next = start is not None and first < start <= end
            return start if is_next else first  # else the program has called seek()
        if self._unadmitted is not None:
            return None
        begun, moved = self._start_of_poll(tp, ownership), self._group.moved_to(tp)
        if begun is None or start is None or (moved is not None and moved > start):
            return begun
        # An interrupted make_room() may have dropped records that lie before `begun`.
        return min(start, begun)

    def _start_of_poll(self, tp: TopicPartition, ownership: object) -> int | None:
        # Returns the offset from which the last poll read. This is the position before
        # the poll, or the target of a later move.
        before, moves, _, position = self._before_poll.get(tp, _NO_PLACE)
        if (
            before is not ownership
            or moves != self._group.moves(tp)
            or position is None
        ):
            return self._group.moved_to(tp)
        return int(position.offset)

    def _pass_gaps(self) -> None:
        # Offsets after the last record may have no records, for example because they
        # are transaction markers, and the position may be past them. All polled records
        # have been admitted by now, so the position has not skipped any record.
        # All positions are read at once, because idle turns spend most of their time here.
        owned, places = self._group.owned(), self._group.places()
        for tp, epoch in self.kept.epochs.items():
            if epoch.records or owned.get(tp) is not epoch.ownership:
                continue
            ownership, _, _, position = places.get(tp, _NO_PLACE)
            if ownership is not epoch.ownership or position is None:
                continue
            if position.offset > epoch.progress.next_offset:
                with self.kept.lock:
                    epoch.progress.reach(position.offset, position.leader_epoch)

    def _goes_back_further(
        self, tp: TopicPartition, ownership: object, records: Sequence[AnyRecord]
    ) -> bool:
        # Handles a seek back whose target lies after the first record that is not done.
        # The epoch is dropped together with that record. If the next epoch started at
        # the target of the seek, its commits would skip the record, so it starts at the
        # record.
        epoch = self.kept.epochs.get(tp)
        if epoch is None or epoch.ownership is not ownership:
            return False
        first = records[0].offset
        if first >= epoch.progress.next_offset:
            return False
        with self.kept.lock:
            done = epoch.progress.watermark(epoch.tasks).offset
        if done >= first:
            return False
        self.brakes.refetched += len(records)
        # If reads_on() is False, the program has called seek() again, so these records
        # are out of date. The epoch continues as if only the second seek had been made.
        if self._client.reads_on(tp, records[-1].offset + 1):
            self._client.go_back(tp, done)
            self._open(tp, ownership, done)
        return True

    def _epoch(self, tp: TopicPartition, ownership: object, first: AnyRecord) -> Epoch:
        epoch = self.kept.epochs.get(tp)
        after = math.inf if epoch is None else epoch.progress.next_offset
        if epoch is None or epoch.ownership is not ownership or first.offset < after:
            return self._open(tp, ownership, first.offset)
        return epoch
