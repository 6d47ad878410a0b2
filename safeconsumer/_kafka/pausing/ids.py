"""Decides when a fetch or a commit must request the ids of topics first."""

import math
from collections.abc import Callable, Collection, Iterable

from kafka.structs import TopicPartition

from safeconsumer._kafka.pausing.undelivered import Fetch, OwnedPartitionState
from safeconsumer.holds.ledger import PauseLedger

# Seconds between two requests for ids. Between the two, a doubtful partition is fetched
# and stays doubtful.
_EVERY = 1.0
# A partition is doubtful after this many seconds without proof that its topic exists.
# For a partition that was held since, this is longer than a poll takes. For a partition
# that flows, it is as long as a slow handler may take.
UNSEEN_HELD, UNSEEN = 0.1, 5.0
PATIENCE = 0.5
"""
Seconds that a fetch or a commit waits for ids, the default of fetch_max_wait_ms.
"""


class TopicIds:
    """
    Decides which topics may have been recreated since they were last known to exist.

    A metadata response proves that a topic exists, and so does a fetch in flight,
    because a broker responds with an error if the topic is deleted during the fetch. A
    partition is doubtful if its topic had no such proof for a while, because a fetch by
    name would then read the log of a new topic.

    A doubtful partition waits for a metadata response once, and not for long. After
    that it is fetched, and stays doubtful until a response arrives.

    Thread rules: only the IO thread uses this object.

    Attributes:
        in_flight: a function that returns the fetches that are in flight.
    """

    def __init__(self, ledger: PauseLedger) -> None:
        self.in_flight: Callable[[], Collection[Fetch]] = tuple
        self._ledger = ledger
        self._last_asked_at = -math.inf
        # The time of the pending request; None if no request is pending.
        self._asked_at: float | None = None

    def answered(self) -> None:
        """Record a metadata response, and wake the polls that wait for one."""
        if self._asked_at is not None:
            self._asked_at = None
            self._ledger.wake()

    def note_unknown_topic(self, state: OwnedPartitionState) -> None:
        """Record that a broker did not know a fetch's topic, so the next one requests ids."""
        state.named_at = self._last_asked_at = -math.inf
        state.last_fetch = None

    def doubtful(
        self, states: Iterable[tuple[TopicPartition, OwnedPartitionState]]
    ) -> dict[TopicPartition, OwnedPartitionState]:
        """Return the doubtful partitions among these."""
        since, found = self._now() - UNSEEN_HELD, {}
        fetches: Collection[Fetch] | None = None
        for tp, state in states:  # perhaps a thousand per poll
            fetch = state.last_fetch
            if state.named_at > since or state.topic_id is None:
                continue
            seen_at = state.named_at
            if fetch is not None:
                if fetch.answered_at > since:
                    continue
                seen_at = max(seen_at, fetch.answered_at)
                fetches = self.in_flight() if fetches is None else fetches
                if any(one is fetch for one in fetches):
                    continue
            if self._now() - seen_at >= UNSEEN or self._ledger.was_held(tp):
                found[tp] = state
        return found

    def begin_to_ask(self, doubtful: Collection[TopicPartition]) -> bool:
        """
        Start to wait for metadata about doubtful partitions; return whether to wait.

        If the result is True, the caller requests metadata.
        """
        if not doubtful:
            return False
        now = self._now()
        if self._asked_at is None:
            if now - self._last_asked_at < _EVERY:
                return False
            self._asked_at = self._last_asked_at = now
        return now - self._asked_at < PATIENCE

    def leave_out(
        self, flowing: Iterable[tuple[TopicPartition, OwnedPartitionState]]
    ) -> frozenset[TopicPartition]:
        """
        Return the partitions to leave out of a fetch because they wait for ids.

        After its wait a partition does not wait again before its next fetch. Otherwise
        a partition that is quiet whenever the broker is free could wait forever.
        """
        recent = self._now() - UNSEEN
        waiting = {
            tp: state
            for tp, state in self.doubtful(flowing).items()
            if state.waited_since is None
            or state.waited_since == self._asked_at
            or state.waited_since < recent
        }
        if not self.begin_to_ask(waiting):
            return frozenset()
        for state in waiting.values():
            state.waited_since = self._asked_at
        return frozenset(waiting)

    def seconds_to_wait(self) -> float:
        """Return how many seconds fetches still wait; infinite if no fetch waits."""
        asked_at = self._asked_at
        left = math.inf if asked_at is None else asked_at + PATIENCE - self._now()
        return left if left > 0 else math.inf

    def _now(self) -> float:
        return self._ledger.now()[0]
