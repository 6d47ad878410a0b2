"""Polls with bounded memory and without stopping, and holds back what is too much."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from kafka.structs import TopicPartition

from safeconsumer.errors.base import JournalError
from safeconsumer.errors.faces import CorruptBatchError
from safeconsumer.holds.hold import WORKER
from safeconsumer.holds.view import covers
from safeconsumer.worker import events as worker_events
from safeconsumer.worker import watermarks
from safeconsumer.worker.client import ConsumerClient, Polled
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.kept import Dropped, Kept
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

BACKPRESSURE = f"{WORKER}backpressure"
RETRY = f"{WORKER}retry"
DRAIN = f"{WORKER}drain"
FLOOR = f"{WORKER}floor"
OWNERS = (BACKPRESSURE, RETRY, DRAIN, FLOOR)

Holding = tuple[str, TopicPartition | None]


# Seconds for which a partition that gave records back fetches none.
_GAVE_SECONDS = 5.0


class Brakes:
    """
    Derives a pump's holds each turn from the records it holds. Polling thread only.

    It does not remember which holds it placed: it asks the consumer's ledger.

    Attributes:
        work: the object that works on the records.
        pause_seconds: for each owner, for how many seconds it has held something.
        refetched: records that were given back, and come again.
    """

    work: Decisions

    def __init__(
        self,
        client: ConsumerClient,
        kept: Kept,
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
        self._gave: dict[Epoch, float] = {}
        self._is_throttled = False
        self._average = 1.0
        self._wanted: frozenset[Holding] = frozenset()
        self._kept_out: frozenset[TopicPartition | None] = frozenset()
        self._placed_in: Mapping[TopicPartition, object] = {}  # what was owned
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
        Place and lift holds so that they are as they must be now.

        Args:
            is_draining: whether no record at all may come.
            floorless: partitions of which no record may be handed out yet.
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
        """Lift all of the worker's holds; none is placed afterwards."""
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
        # A poll for the last few records of room costs more than it brings.
        much = min(self._most(), self._credit(self._marks.low))
        return self._credit(load) < max(1, much // 4)

    def _is_starving(self) -> bool:
        # True if a partition flows but for our holds, and has no record to work on.
        view = self._group.ledger.peek()
        return any(
            tp not in self._throttled
            and not covers(view, tp)
            and self.work.is_starving(self._kept.epochs.get(tp))
            for tp in self._group.owned()
        )

    def _over_share(self) -> Iterator[tuple[TopicPartition, str]]:
        owned = self._group.owned()
        share = watermarks.share(self._limits, len(owned), self._sharing())
        self._share = share
        if share is None:
            self._throttled.clear()
            return
        # One that gave records back fetches none for a while, unless it can work on what
        # it kept: a record larger than its room would come and go at every turn.
        self._gave = {
            one: until
            for one, until in self._gave.items()
            if self._clock() < until and one.records and self.work.is_starving(one)
        }
        is_little = not share.is_throttled(self._kept.load, was=False)
        if not self._throttled and not self._gave and is_little:
            return  # as long as all hold less than one share
        throttled = set()
        for tp, epoch in self._kept.epochs.items():
            load = watermarks.Load(epoch.records, epoch.bytes)
            is_over = share.is_throttled(load, was=tp in self._throttled)
            if tp in owned and (is_over or epoch in self._gave):
                throttled.add(tp)
                yield tp, RETRY if self.work.has_waiting(epoch) else BACKPRESSURE
        self._throttled = throttled

    def make_room(self) -> None:
        """
        Forget what waits beyond its partition's share while another one has no record.

        If there is no room. What is forgotten was not begun, and is fetched again.
        """
        share = self._share
        if not self._is_throttled or share is None or not self._is_starving():
            return
        for tp, ownership in self._group.owned().items():
            epoch = self._kept.epochs.get(tp)
            if epoch is None or epoch.ownership is not ownership or not epoch.records:
                continue
            if epoch.has_lost_floor:  # what it holds is not there any more
                continue
            if epoch.is_held or self.work.is_starving(epoch):
                before = epoch.records
                offset = self._kept.give_back(
                    epoch, share.high, self.work.retried_at_once
                )
                if offset is not None:
                    self.refetched += before - epoch.records
                    self._gave[epoch] = self._clock() + _GAVE_SECONDS
                    self._client.go_back(tp, offset)

    def _sharing(self) -> int:
        # How many partitions have records, as far as is known; held ones get no share.
        epochs, view = self._kept.epochs, self._group.ledger.peek()
        here = {tp for tp, epoch in tuple(epochs.items()) if epoch.records}
        there = {tp for tp in self._group.lagging() if not covers(view, tp)}
        return len(here | there)

    def _when_low(self) -> None:
        # Called by the thread that finished a record: it wakes the poll that waits
        # meanwhile. If the journal cannot be written, the next turn lifts the hold, or
        # raises the error where it is noticed: here it would end a thread that handlers
        # need.
        self._lifted_at = self._clock()
        with suppress(JournalError):
            self._client.lift_all(BACKPRESSURE)

    # ------------------------------------------------------------ room

    def room(self) -> int:
        """
        Return how many records the next poll may take.

        While everything is held, this is the room that there will be when the low mark
        is reached and the hold is lifted, in the middle of the poll.
        """
        load = self._marks.low if self._is_throttled else self._kept.load
        return max(1, min(self._credit(load), self._most()))

    def _most(self) -> int:
        # All that a poll returns may be of one partition: it gets no more than a share,
        # or than a 64th of the room, where there are so many that polls would be tiny.
        if self._share is None:
            return self._client.most
        least = self._limits.records // 64
        return min(self._client.most, max(self._share.high.records, least))

    def fitting(self, records: list[AnyRecord]) -> list[AnyRecord]:
        """Return those of the records that may be kept now: the first ones."""
        free = max(0, self._limits.records - self._kept.records)
        return records if len(records) <= free else records[:free]

    def learn(self, sizes: Sequence[int]) -> None:
        """Note the sizes, in bytes, of records that came."""
        mean = sum(sizes) / len(sizes)
        self._average += 0.2 * (mean - self._average)
        self._average = max(self._average, mean)

    def _credit(self, load: watermarks.Load) -> int:
        return watermarks.credit(self._limits, load, self._average, self._client.most)

    # ------------------------------------------------------------ questions

    @property
    def is_on(self) -> bool:
        """Whether anything is held because of the limits."""
        return self._is_throttled or bool(self._throttled)

    def may_come(self, tp: TopicPartition) -> bool:
        """Tell whether the last turn let more of a partition come; any thread."""
        kept_out = self._kept_out
        return None not in kept_out and tp not in kept_out

    def stands_since(self) -> float | None:
        """
        Return since when no record was completed though all room is taken; any thread.

        None if there is room, or others hold all that is here.
        """
        epochs = tuple(self._kept.epochs.values()) if self._is_throttled else ()
        moved = [one.moved_at for one in epochs if one.records and not one.is_held]
        return max(moved, default=None)

    def is_held(self, owner: str) -> bool:
        """Tell whether the last turn held something under this owner's name."""
        return any(holding[0] == owner for holding in self._wanted)

    def holds_back(self, tp: TopicPartition, ownership: object) -> bool:
        """
        Tell whether a hold covers the partition that nobody has lifted since.

        One of the partition alone ends with the ownership that it was placed in, which
        may have been lost, and another begun, in the poll.
        """
        if (BACKPRESSURE, None) in self._wanted and self._kept.low is not None:
            return True
        return self._placed_in.get(tp) is ownership and any(
            (owner, tp) in self._wanted for owner in (BACKPRESSURE, RETRY)
        )


# Seconds; how long the loop waits for an ownership's floor before it goes on without.
_FLOOR_SECONDS = 0.5
# Seconds of one poll: short while something must be looked after.
BUSY_POLL = 0.05
CALM_POLL = 0.25


class Engine:
    """
    Polls for a worker or a pump; the thread that calls :meth:`turn` owns the consumer.

    Attributes:
        kept: the records that are kept.
        brakes: places and lifts the holds of the limits.
        commits: commits what is complete.
        departures: waits for running work and drops what leaves.
        unreadable: decides about batches that cannot be read.
        due_in: seconds until the work wants the next turn.
        leaked: records that came for a partition that a hold of ours covered.
        gap: the longest time between two polls, in seconds, without drains.
        why_nothing: why no record can come; None if nothing is known to prevent it.
        left: what it still kept of each partition at its end.
    """

    def __init__(  # noqa: PLR0913 - one part each
        self,
        client: ConsumerClient,
        *,
        limits: Limits,
        drain: Drain,
        commit: Commit,
        emit: Callable[..., None],
        clock: Callable[[], float] | None = None,
    ) -> None:
        clock = clock or time.monotonic
        self._client = client
        self._group = client.membership
        self._clock = clock
        self._emit = emit
        self.kept = Kept(clock)
        self.brakes = Brakes(client, self.kept, limits, clock)
        self.commits = Commits(client, self.kept, commit, emit, clock)
        self.departures = Departures(
            self._group, self.kept, self.commits, drain, emit, clock
        )
        self.unreadable = Unreadable(client, self.kept, emit, clock)
        self._work: Decisions
        self._begun: Mapping[TopicPartition, object] | None = None
        self._unadmitted: Polled | None = {}
        self.due_in = math.inf
        self.polled_at = clock()
        self.poll_timeout = CALM_POLL
        self.gap = 0.0
        self.leaked = 0
        self._gone_before = 0
        self.why_nothing: str | None = None
        self.left: Sequence[Dropped] = ()

    # ------------------------------------------------------------ its life

    def begin(self, work: Decisions) -> None:
        """Take over the consumer."""
        self._work = self.brakes.work = self.departures.work = work
        work.queue.may_come = self.brakes.may_come
        self.unreadable.work = work
        self._group.ask_before_join(self._before_join)
        self._group.pass_over_nothing()
        self._gone_before = self._group.gone
        self.polled_at = self._clock()

    @property
    def gone(self) -> int:
        """The number of offsets whose records were deleted before it read them."""
        return self._group.gone - self._gone_before

    def last_poll_at(self) -> float:
        """Return when it last turned, in seconds since the epoch; any thread."""
        ago = self._clock() - self.polled_at  # first: it is never before that turn
        return time.time() - ago

    def turn(self) -> None:
        """
        Poll once and do everything else; takes about one poll's timeout at most.

        If it raises, the next turn goes on with the records that this one has not
        admitted.
        """
        self._mend()
        self.brakes.place(
            is_draining=self.departures.is_draining,
            floorless=self._floorless(),
        )
        self._unadmitted = None  # unknown until room was made and the poll has returned
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
        self._look_for_topics()

    def _look_for_topics(self) -> None:
        before = self.why_nothing
        self.why_nothing = None if self.kept.epochs else self._group.why_nothing()
        if self.why_nothing not in (None, before):
            self._emit(worker_events.NothingConsumed, reason=self.why_nothing)

    def rest(self) -> None:
        """Wait a moment for running work, for when a poll is not possible."""
        self._wait_idle(BUSY_POLL)

    def conclude(self, seconds: float = math.inf) -> bool:
        """
        Drop what is not complete, commit the rest, and lift every hold of the worker.

        The order matters: a record that ends during the commit comes again and is not
        done.

        Args:
            seconds: the limit of the commit, if that is less than ``Commit.timeout``.

        Returns:
            Whether everything complete is committed.
        """
        self.departures.tell()
        try:
            with suppress(Exception):  # then its owner must look after it
                self._mend()
            epochs = tuple(self.kept.epochs.values())
            self.left = dropped = self.departures.drop(epochs, STOPPED)
            if self._group.is_lost():  # or was never one: then nothing is missing
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
            self._wait_idle(BUSY_POLL)
            return {}
        except CorruptBatchError as error:
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
            is_needed = self.departures.running() or self.commits.is_backing_off
        if is_needed:
            self.kept.idle.wait(seconds)

    # ------------------------------------------------------------ ownerships begin

    def _before_join(self) -> None:
        self._begin({})  # what this very poll has learned of
        self.departures.before_join()

    def _begin(self, polled: Polled) -> bool:
        # An ownership begins once its first position is known, with or without records.
        owned = self._group.owned()
        if owned is self._begun or self._group.is_lost():
            return False
        is_whole, is_new = True, False
        for tp, ownership in owned.items():
            epoch = self.kept.epochs.get(tp)
            if epoch is not None and epoch.ownership is ownership:
                continue
            records = polled.get(tp)
            start = records[0].offset if records else self._group.position(tp)
            if start is None:
                is_whole = False
            else:
                self.commits.tell_begin(self._open(tp, ownership, start))
                is_new = True
        if is_whole:
            self._begun = owned
        return is_new

    def _open(self, tp: TopicPartition, ownership: object, start: int) -> Epoch:
        before = self.kept.epochs.get(tp)
        if before is not None:
            has_moved = before.ownership is ownership
            if has_moved and self._work.journal is not None:
                self._work.journal.drops(tp, start)
            self.departures.drop([before], MOVED if has_moved else REVOKED)
        epoch = self.kept.open(
            tp, ownership, self._group.losses, start, self._group.leader_epoch(tp)
        )
        epoch.reset = self._group.reset_number(tp)
        self.commits.begin(epoch)
        return epoch

    def _floorless(self) -> Iterable[TopicPartition]:
        return [
            tp
            for tp, epoch in self.kept.epochs.items()
            if not self.commits.has_floor(epoch)
        ]

    def _follow_resets(self, polled: Polled) -> None:
        # The position was out of range, as after retention: the committed offset is no
        # floor any more. It goes on from the new position once all earlier records are
        # done.
        owned = self._group.owned()
        for tp, epoch in tuple(self.kept.epochs.items()):
            number = self._group.reset_number(tp)
            if owned.get(tp) is not epoch.ownership or number == epoch.reset:
                continue
            epoch.has_lost_floor = True
            records = polled.get(tp)
            start = records[0].offset if records else self._group.position(tp)
            with self.kept.lock:
                done = epoch.progress.watermark().offset
            if start is not None and start < epoch.progress.next_offset:
                if done < start:  # the log was cut back; what waits may be there still
                    self._client.go_back(tp, done)
                    self.brakes.refetched += len(polled.pop(tp, ()))
                first = min(done, start)
                self.commits.tell_begin(self._open(tp, epoch.ownership, first))
            elif start is not None and not epoch.records:
                epoch.reset = number
                with self.kept.lock:
                    epoch.progress.reach(start, self._group.leader_epoch(tp))
                self.commits.begin_again(epoch)
                self.commits.tell_begin(epoch)

    # ------------------------------------------------------------ records

    def _admit(self, polled: Polled) -> None:
        if self._begin(polled) and self._floorless():
            # If it is refused, it is tried again without waiting, and they are held
            # meanwhile.
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
            epoch = self._epoch(tp, owned[tp], records[0])
            epoch.unreadable = None
            if not self.commits.has_floor(epoch):
                self._client.go_back(tp, records[0].offset)
                self.brakes.refetched += len(records)
                continue
            fits = self.brakes.fitting(records)
            if len(fits) < len(records):
                # A hold of ours was lifted in the poll by somebody else, or by a thread
                # that has seen the low mark long ago.
                self._client.go_back(tp, records[len(fits)].offset)
                self.brakes.refetched += len(records) - len(fits)
            if not fits:
                continue
            self.brakes.learn(self.kept.admit(epoch, fits))
            self._work.queue.admit(epoch)

    def _drop_unowned(self, records: Sequence[AnyRecord]) -> None:
        reason = LOST if self._group.is_lost() else REVOKED
        self.departures.dropped[reason] += len(records)

    def _mend(self) -> None:
        # Something was raised, for example by a Ctrl-C, while a poll's records were in
        # hand: the position is past them, so they are fetched again.
        if not self._unadmitted and self._unadmitted is not None:
            return  # nearly always
        unadmitted, owned = self._unadmitted or {}, self._group.owned()
        for tp in unadmitted.keys() - owned.keys():
            self._drop_unowned(unadmitted[tp])
        for tp, ownership in owned.items():
            epoch, records = self.kept.epochs.get(tp), unadmitted.get(tp, ())
            if epoch is not None and epoch.ownership is ownership:
                start = epoch.progress.next_offset
            elif records:
                start = records[0].offset
            else:
                continue
            position = self._group.position(tp)
            if position is not None and position > start:
                self._client.go_back(tp, start)
                self.brakes.refetched += sum(one.offset >= start for one in records)
        self._unadmitted = {}

    def _pass_gaps(self) -> None:
        # Behind the last record there may be offsets without one, such as a
        # transaction's marker: the position is past them. All records that any poll
        # returned are admitted by now, so the position has passed no others.
        owned = self._group.owned()
        for tp, epoch in self.kept.epochs.items():
            if not epoch.records and owned.get(tp) is epoch.ownership:
                position = self._group.position(tp)
                if position is not None and position > epoch.progress.next_offset:
                    with self.kept.lock:
                        epoch.progress.reach(position, self._group.leader_epoch(tp))

    def _epoch(self, tp: TopicPartition, ownership: object, first: AnyRecord) -> Epoch:
        epoch = self.kept.epochs.get(tp)
        after = math.inf if epoch is None else epoch.progress.next_offset
        if epoch is None or epoch.ownership is not ownership or first.offset < after:
            return self._open(tp, ownership, first.offset)
        return epoch
