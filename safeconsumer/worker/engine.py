"""
The poll loop: bounded, never stopping, drained before its partitions go.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping

from kafka.structs import TopicPartition

from safeconsumer.worker.brakes import Brakes
from safeconsumer.worker.client import Client, Polled
from safeconsumer.worker.commits import Commits
from safeconsumer.worker.departures import REVOKED, Departures, JoinDeferred
from safeconsumer.worker.held import Epoch, Held
from safeconsumer.worker.progress import Record
from safeconsumer.worker.settings import Commit, Drain, Limits
from safeconsumer.worker.work import Work

# How long a poll loop waits for an ownership's floor before it goes on without.
_FLOOR_SECONDS = 0.5
# Seconds of one poll: short while something of ours must be looked after.
BUSY_POLL = 0.05
CALM_POLL = 0.25


class Engine:
    """
    Polls for a worker or a pump; the thread that calls :meth:`turn` owns the consumer.

    Attributes:
        held: what is held.
        brakes: what is held back.
        commits: what commits it.
        departures: what is waited for, and dropped.
        soon: seconds until the work wants the next turn.
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
        self._clock = clock
        self.held = Held(clock)
        self.brakes = Brakes(client, self.held, limits, clock)
        self.commits = Commits(client, self.held, commit, emit, clock)
        self.departures = Departures(
            client, self.held, self.commits, drain=drain, emit=emit, clock=clock
        )
        self._work: Work
        self._begun: Mapping[TopicPartition, int] | None = None
        self.soon = math.inf
        self.polled_at = clock()
        self.poll_timeout = CALM_POLL
        self.gap = 0.0
        self.leaked = 0

    # ------------------------------------------------------------ its life

    def begin(self, work: Work) -> None:
        """
        Take over the consumer.
        """
        self._work = self.brakes.work = self.departures.work = work
        self._group.ask_before_join(self._before_join)
        self.polled_at = self._clock()

    def turn(self) -> None:
        """
        Poll once and look after everything; takes about one poll's timeout at most.
        """
        self.brakes.place(
            is_draining=self.departures.is_draining, floorless=self._floorless()
        )
        polled = self._poll()
        self.departures.settle()
        self._admit(polled)
        self.departures.turn()
        self.commits.turn()

    def rest(self) -> None:
        """
        Wait a moment for running work, where a poll could not.
        """
        self._wait_idle(BUSY_POLL)

    def stop(self, seconds: float) -> None:
        """
        Begin to drain for good: everything is held, and nothing more is begun.
        """
        self.departures.stop(seconds)

    def is_drained(self) -> bool:
        """
        Tell whether, while stopping, nothing runs or the wait is over.
        """
        return self.departures.is_drained

    def conclude(self, seconds: float = math.inf) -> bool:
        """
        Commit what is complete, drop the rest, lift every hold of ours.

        Args:
            seconds: for the commit, if that is less than ``Commit.timeout``.

        Returns:
            Whether all that is complete is committed.
        """
        self.departures.tell()
        try:
            if self._group.is_lost():  # or never was: then nothing is missing
                return not self.held.done
            return self.commits.now(seconds=seconds)
        finally:
            self.departures.drop(tuple(self.held.epochs.values()), "stopped")
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
        finally:
            self.polled_at = self._clock()

    def _timeout(self) -> float:
        busy = (
            self.departures.deadline is not None
            or self.brakes.is_on
            or self.held.records > self.held.running
            or self._group.is_joining()
        )
        return max(0.001, min(BUSY_POLL if busy else CALM_POLL, self.soon))

    def _wait_idle(self, seconds: float) -> None:
        with self.held.lock:
            if self.departures.running():
                self.held.idle.wait(seconds)

    # ------------------------------------------------------------ ownerships begin

    def _before_join(self) -> None:
        self._begin({})  # what this very poll has learned of
        self.departures.before_join()

    def _begin(self, polled: Polled) -> bool:
        # An ownership begins once its first position is known, records or not.
        owned = self._client.epochs()
        if owned is self._begun or self._group.is_lost():
            return False
        is_whole, is_new = True, False
        for tp, number in owned.items():
            epoch = self.held.epochs.get(tp)
            if epoch is not None and epoch.number == number:
                continue
            records = polled.get(tp)
            start = records[0].offset if records else self._client.position(tp)
            if start is None:
                is_whole = False
            else:
                self._open(tp, number, start)
                is_new = True
        if is_whole:
            self._begun = owned
        return is_new

    def _open(self, tp: TopicPartition, number: int, start: int) -> Epoch:
        before = self.held.epochs.get(tp)
        if before is not None:
            self.departures.drop(
                [before], "moved" if before.number == number else REVOKED
            )
        epoch = self.held.open(tp, number, self._group.losses, start)
        self.commits.begin(epoch)
        return epoch

    def _floorless(self) -> Iterable[TopicPartition]:
        return [
            tp
            for tp, epoch in self.held.epochs.items()
            if not self.commits.has_floor(epoch)
        ]

    # ------------------------------------------------------------ records

    def _admit(self, polled: Polled) -> None:
        if self._begin(polled) and self._floorless():
            # Refused, it is tried again without waiting, and they are held meanwhile.
            self.commits.now(seconds=_FLOOR_SECONDS)
        owned = self._client.epochs()
        for tp, records in polled.items():
            if not records or tp not in owned:
                continue
            if self.brakes.leaks(tp):
                self.leaked += len(records)
            epoch = self._epoch(tp, owned[tp], records[0])
            if not self.commits.has_floor(epoch):
                self._client.go_back(tp, records[0].offset)
                continue
            chunk = self.held.admit(epoch, records)
            self.brakes.learn(chunk.sizes)
            self._work.admit(epoch, chunk)

    def _epoch(self, tp: TopicPartition, number: int, first: Record) -> Epoch:
        epoch = self.held.epochs.get(tp)
        after = math.inf if epoch is None else epoch.progress.next_offset
        if epoch is not None and epoch.number == number and first.offset >= after:
            return epoch
        return self._open(tp, number, first.offset)
