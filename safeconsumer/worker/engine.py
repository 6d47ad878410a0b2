"""
The poll loop: bounded, never stopping, drained before its partitions go.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from kafka.structs import TopicPartition

from safeconsumer._core import watermarks, worker_events
from safeconsumer._core.holds import WORKER
from safeconsumer._core.progress import Chunk, Record
from safeconsumer.errors import SafeConsumerError
from safeconsumer.worker.client import Client, Polled, sorted_tps
from safeconsumer.worker.commits import Commits
from safeconsumer.worker.held import Epoch, Held
from safeconsumer.worker.settings import Commit, Drain, Limits

BACKPRESSURE = f"{WORKER}backpressure"
RETRY = f"{WORKER}retry"
DRAIN = f"{WORKER}drain"
OWNERS = (BACKPRESSURE, RETRY, DRAIN)

# Seconds of one poll: short while something of ours must be looked after.
BUSY_POLL = 0.05
CALM_POLL = 0.25
# A cooperative revocation waits no longer for running handlers.
COOPERATIVE_DRAIN = 1.0

# What running work is waited for.
REBALANCE, REVOKED, STOP = "rebalance", "revoked", "stop"

Holding = tuple[str, TopicPartition | None]


class JoinDeferred(SafeConsumerError):  # noqa: N818 - a signal, not an error
    """
    Ends a ``poll`` that would begin a join before what runs is drained.
    """


class Work(Protocol):
    """
    Who works on what is pumped.
    """

    def admit(self, epoch: Epoch, chunk: Chunk) -> None:
        """
        Take what a poll returned.
        """

    def drop_queued(self, epochs: Sequence[Epoch]) -> None:
        """
        Begin nothing more of these.
        """

    def halt(self) -> None:
        """
        Begin nothing more until told to go on.
        """

    def go_on(self) -> None:
        """
        Begin again.
        """

    def running(self, epochs: Sequence[Epoch] | None = None) -> int:
        """
        Return how many records are being worked on.
        """

    def has_waiting(self, epoch: Epoch) -> bool:
        """
        Tell whether something failed keeps the epoch waiting.
        """

    def is_starving(self, epoch: Epoch | None) -> bool:
        """
        Tell whether nothing of the epoch is, or could be, worked on now.
        """


class _Waiting:
    """
    A wait for running work: since when, until when, and for what.
    """

    def __init__(self, now: float, seconds: float, reason: str) -> None:
        self.began = now
        self.deadline = now + seconds
        self.reason = reason


class Engine:
    """
    Polls for a worker or a pump; the thread that calls :meth:`turn` owns the consumer.

    Attributes:
        held: what is held.
        commits: what commits it.
        leaked: records that came for a partition of ours that was held.
        gap: the longest time between two polls, in seconds, drains left out.
    """

    def __init__(  # noqa: PLR0913 - one part each
        self,
        client: Client,
        *,
        limits: Limits,
        drain: Drain,
        commit: Commit,
        emit: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._group = client.membership
        self._limits = limits
        self._drain = drain
        self._emit = emit
        self._clock = clock
        self._marks = watermarks.marks(limits)
        self._waiting: _Waiting | None = None
        self._may_join = False
        self._was_joining = False
        self._is_stopping = False
        self._throttled: set[TopicPartition] = set()
        self._is_throttled = False
        self._average = 1.0
        self._departing: list[Epoch] = []
        self._epochs: Mapping[TopicPartition, int] | None = None
        self.held = Held(clock)
        self.held.when_low = self._when_low
        self.commits = Commits(client, self.held, commit, emit, clock)
        self.work: Work
        self.soon = float("inf")
        self.polled_at = clock()
        self.poll_timeout = CALM_POLL
        self.gap = 0.0
        self.leaked = 0
        self.dropped = 0
        self.drain_seconds = 0.0
        self._wanted: frozenset[Holding] = frozenset()

    # ------------------------------------------------------------ one turn

    def begin(self, work: Work) -> None:
        """
        Take over the consumer.
        """
        self.work = work
        self._group.ask_before_join(self._before_join)
        self.polled_at = self._clock()

    def turn(self) -> None:
        """
        Poll once and look after everything; takes about one poll's timeout at most.
        """
        self._place_holds()
        polled = self._poll()
        self._settle_ownership()
        self._admit(polled)
        self._turn_wait()
        self.commits.turn()

    def stop(self, seconds: float) -> None:
        """
        Begin to drain for good: everything is held, and nothing more is begun.
        """
        self._is_stopping = True
        self.work.halt()
        self._waiting = _Waiting(self._clock(), seconds, STOP)

    def is_drained(self) -> bool:
        """
        Tell whether, while stopping, nothing runs or the wait is over.
        """
        waiting = self._waiting
        return (
            waiting is None
            or not self.work.running()
            or self._clock() >= waiting.deadline
        )

    def rest(self) -> None:
        """
        Wait a moment for running work, where a poll could not.
        """
        self._wait_idle(BUSY_POLL)

    def conclude(self, seconds: float = math.inf) -> bool:
        """
        Commit what is complete, drop the rest, lift every hold of ours.

        Args:
            seconds: for the commit, if that is less than ``Commit.timeout``.

        Returns:
            Whether all that is complete is committed.
        """
        if self._waiting is not None:
            self._tell_drained(self._waiting)
        try:
            if self._group.is_lost():  # or never was: then nothing is missing
                return not self.held.done
            return self.commits.now(seconds=seconds)
        finally:
            self._drop(tuple(self.held.epochs.values()), "stopped")
            self._group.ask_before_join(None)
            self.held.low = None
            self._client.hold(OWNERS, {})

    @property
    def deadline(self) -> float | None:
        """
        When running work is no longer waited for; None while nobody waits.
        """
        waiting = self._waiting
        return None if waiting is None else waiting.deadline

    # ------------------------------------------------------------ polling

    def _poll(self) -> Polled:
        now = self._clock()
        if self._waiting is None:
            self.gap = max(self.gap, now - self.polled_at)
        self.polled_at = now
        self.poll_timeout = self._timeout()
        try:
            return self._client.poll(self.poll_timeout, self._room())
        except JoinDeferred:
            self._wait_idle(BUSY_POLL)
            return {}
        finally:
            self.polled_at = self._clock()

    def _timeout(self) -> float:
        busy = (
            self._waiting is not None
            or self._is_throttled
            or self._throttled
            or self.held.records > self.held.running
            or self._group.is_joining()
        )
        return max(0.001, min(BUSY_POLL if busy else CALM_POLL, self.soon))

    def _room(self) -> int:
        # While all is held, room is what will be there when the low mark is reached
        # and the hold is lifted, in the middle of the poll.
        return max(
            1, self._credit(self._marks.low if self._is_throttled else self.held.load)
        )

    def _credit(self, load: watermarks.Load) -> int:
        return watermarks.credit(self._limits, load, self._average, self._client.most)

    def _wait_idle(self, seconds: float) -> None:
        with self.held.lock:
            if self._running_awaited():
                self.held.idle.wait(seconds)

    # ------------------------------------------------------------ holds

    def _place_holds(self) -> None:
        load = self.held.load
        self._is_throttled = self._is_full(load)
        wanted: dict[Holding, str] = {}
        if self._is_throttled:
            wanted[BACKPRESSURE, None] = "too much is held"
        for tp, owner in self._over_share():
            wanted[owner, tp] = "more than its share is held"
        if self._is_draining():
            wanted[DRAIN, None] = "running work is waited for"
        self._client.hold(OWNERS, wanted)
        self._wanted = frozenset(wanted)
        self.held.low = self._marks.low if self._is_throttled else None

    def _is_full(self, load: watermarks.Load) -> bool:
        was = self._is_throttled
        starving = was and self._is_starving()
        if self._marks.is_throttled(load, was=was, is_starving=starving):
            return True
        # Polls for the last few records of room would cost more than they bring.
        room = self._credit(load)
        return 4 * room < min(self._client.most, self._credit(self._marks.low))

    def _is_starving(self) -> bool:
        # A partition that would flow but for us, and has nothing to be worked on.
        return any(
            tp not in self._throttled
            and self.work.is_starving(self.held.epochs.get(tp))
            for tp in self._client.epochs()
        )

    def _is_draining(self) -> bool:
        waits_for_all = self._waiting is not None and self._waiting.reason != REVOKED
        return self._is_stopping or waits_for_all or self._may_join or self._was_joining

    def _over_share(self) -> Iterator[tuple[TopicPartition, str]]:
        owned = self._client.epochs()
        marks = watermarks.marks_of_one(self._limits, len(owned), self._client.most)
        if marks is None:
            self._throttled.clear()
            return
        throttled = set()
        for tp, epoch in self.held.epochs.items():
            load = watermarks.Load(epoch.records, epoch.bytes)
            if tp in owned and marks.is_throttled(load, was=tp in self._throttled):
                throttled.add(tp)
                yield tp, RETRY if self.work.has_waiting(epoch) else BACKPRESSURE
        self._throttled = throttled

    def _when_low(self) -> None:
        # By the thread that finished: it wakes the poll that waits meanwhile.
        self._client.lift_all(BACKPRESSURE)

    def is_held(self, owner: str) -> bool:
        """
        Tell whether the last turn held something in this owner's name.
        """
        return any(holding[0] == owner for holding in self._wanted)

    def _leaks(self, tp: TopicPartition) -> bool:
        # A hold that nobody has lifted since covers it.
        if (BACKPRESSURE, None) in self._wanted and self.held.low is not None:
            return True
        return any((owner, tp) in self._wanted for owner in (BACKPRESSURE, RETRY))

    # ------------------------------------------------------------ ownership

    def _before_join(self) -> None:
        # On the polling thread, inside poll(), where a join would begin.
        if self._group.is_lost():
            self._lose_all()
        self._note_departed()
        if self._departing or not self._may_begin():
            raise JoinDeferred

    def _lose_all(self) -> None:
        self._drop(tuple(self.held.epochs.values()), "lost")
        self._departing = []
        if not self._is_stopping:  # there is nothing left to wait for
            self._waiting = None
            self._may_join = True

    def _may_begin(self) -> bool:
        if self._is_stopping:
            return False
        if self._may_join:
            self._was_joining = True
            return True
        going = self._group.revokes_on_join()
        if not any(tp in self.held.epochs for tp in going):
            return True
        if self._waiting is None:
            self.work.halt()
            self._waiting = _Waiting(self._clock(), self._drain.revoke, REBALANCE)
        return False

    def _note_departed(self) -> None:
        # A new mapping each time ownership changed.
        epochs = self._client.epochs()
        if epochs is self._epochs:
            return
        self._epochs = epochs
        gone = [
            epoch
            for tp, epoch in self.held.epochs.items()
            if epochs.get(tp) != epoch.number and epoch not in self._departing
        ]
        if not gone:
            return
        losses, keeps = self._group.losses, self._group.is_cooperative
        lost = [epoch for epoch in gone if epoch.losses != losses]
        self._drop(lost, "lost")
        revoked = [epoch for epoch in gone if epoch.losses == losses]
        if not keeps:  # drained and committed before the join; others own them by now
            self._drop(revoked, REVOKED)
        elif revoked:
            self.work.drop_queued(revoked)
            self._departing += revoked
            if self._waiting is None:
                wait = min(COOPERATIVE_DRAIN, self._drain.revoke)
                self._waiting = _Waiting(self._clock(), wait, REVOKED)

    def _settle_ownership(self) -> None:
        self._note_departed()
        # Joined; or what asked for the join was over before it could begin.
        is_over = not self._group.is_joining()
        if is_over and (self._was_joining or self._may_join):
            self._was_joining = self._may_join = False
            if not self._is_stopping:
                self.work.go_on()

    def _running_awaited(self) -> int:
        waiting = self._waiting
        is_partial = waiting is not None and waiting.reason == REVOKED
        return self.work.running(self._departing if is_partial else None)

    def _turn_wait(self) -> None:
        waiting = self._waiting
        if waiting is None or self._is_stopping:
            return
        if self._running_awaited() and self._clock() < waiting.deadline:
            return
        self._tell_drained(waiting)
        self._waiting = None
        if self._group.is_lost():  # the next join drops everything
            return
        self.commits.now()
        departing, self._departing = self._departing, []
        self._drop(departing, REVOKED)
        self._may_join = waiting.reason == REBALANCE

    def _tell_drained(self, waiting: _Waiting) -> None:
        seconds = self._clock() - waiting.began
        self.drain_seconds += seconds
        self._emit(
            worker_events.WorkDrained,
            seconds=seconds,
            running=self._running_awaited(),
            reason=waiting.reason,
        )

    def _drop(self, epochs: Sequence[Epoch], reason: str) -> None:
        dropped = [self.held.close(epoch) for epoch in epochs]
        records = sum(one.records for one in dropped)
        if records:
            self.dropped += records
            self._emit(
                worker_events.WorkDropped,
                partitions=sorted_tps(one.tp for one in dropped if one.records),
                records=records,
                running=sum(one.running for one in dropped),
                reason=reason,
            )

    # ------------------------------------------------------------ records

    def _admit(self, polled: Polled) -> None:
        owned = self._client.epochs()
        for tp, records in polled.items():
            if not records or tp not in owned:
                continue
            if self._leaks(tp):
                self.leaked += len(records)
            epoch = self._epoch(tp, owned[tp], records[0])
            chunk = self.held.admit(epoch, records)
            mean = sum(chunk.sizes) / len(records)
            self._average += 0.2 * (mean - self._average)
            self._average = max(self._average, mean)
            self.work.admit(epoch, chunk)

    def _epoch(self, tp: TopicPartition, number: int, first: Record) -> Epoch:
        epoch = self.held.epochs.get(tp)
        if epoch is not None:
            after = epoch.progress.next_offset
            if epoch.number == number and (after is None or first.offset >= after):
                return epoch
            self._drop([epoch], "moved" if epoch.number == number else REVOKED)
        return self.held.open(tp, number, self._group.losses)
