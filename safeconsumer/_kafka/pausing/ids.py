"""Decides when the ids of topics must be asked for before a fetch or a commit."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from kafka.structs import TopicPartition

from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState, Watch
from safeconsumer.holds.ledger import PauseLedger

# Seconds between two questions; what rests more often is fetched and stays doubtful.
_EVERY = 1.0
PATIENCE = 0.5
"""
For how many seconds a fetch, or a commit, waits for ids: fetch_max_wait_ms by default.
"""


class TopicIds:
    """
    Decides which partitions' topics may have been made again since they were last seen.

    A topic is seen by an answer about metadata that names it, and by a fetch for as long
    as that is out: a broker answers it with an error if the topic is deleted meanwhile. A
    partition that rested (was quiet for a tenth of a second or longer) since it was seen
    is doubtful: a fetch by name would be answered from the new log.

    A doubtful partition waits for an answer, once and not for long; then it is fetched,
    and stays doubtful until an answer comes.

    Thread rules: the IO thread.

    Attributes:
        is_out: tells whether a fetch is out, and not answered yet.
        unknown: the states whose topic a broker did not know when it was fetched, until
            an answer about metadata names it.
    """

    def __init__(self, ledger: PauseLedger) -> None:
        self.is_out: Callable[[Watch], bool] = lambda _: False
        self.unknown: set[OwnedPartitionState] = set()
        self._ledger = ledger
        self._last_asked_at = -math.inf
        # Since when somebody waits for an answer; None: one came since.
        self._asked_at: float | None = None

    def answered(self, owned: Collection[OwnedPartitionState]) -> None:
        """
        Note an answer about metadata, and wake the polls that wait for one.

        ``owned`` are the states whose topics it does not name.
        """
        if self.unknown:
            self.unknown.intersection_update(owned)
        if self._asked_at is not None:
            self._asked_at = None
            self._ledger.wake()

    def is_doubtful(self, tp: TopicPartition, state: OwnedPartitionState) -> bool:
        """Tell whether it may be of another topic by now than its position."""
        if state.topic_id is None:
            return False
        if state in self.unknown:
            return True
        watch, seen_at = state.watch, state.named_at
        if watch is not None:
            seen_at = max(seen_at, watch.answered_at)
        is_rested = self._ledger.has_rested(tp, seen_at)
        return is_rested and not self._is_watched(state)

    def asks(self, doubtful: Collection[OwnedPartitionState]) -> bool:
        """
        Tell whether an answer is to be waited for now, for these doubtful ones.

        The caller has the metadata updated then.
        """
        if not doubtful:
            return False
        now = self._now()
        if self._asked_at is None:
            is_due = now - self._last_asked_at >= _EVERY
            if not is_due and self.unknown.isdisjoint(doubtful):
                return False
            self._asked_at = self._last_asked_at = now
        return now - self._asked_at < PATIENCE

    def doubtful(
        self,
        flowing: Iterable[TopicPartition],
        states: Mapping[TopicPartition, OwnedPartitionState],
    ) -> frozenset[TopicPartition]:
        """Return the doubtful ones of partitions that flow."""
        rests, unknown = self._ledger.rests, self.unknown
        if not rests and not unknown:  # as at most times: it is asked in each poll
            return frozenset()
        found, seen = set(), {}
        for tp in flowing:
            rest, state = rests.get(tp), states[tp]
            if rest is None and state not in unknown:
                continue
            if self.is_doubtful(tp, state):
                found.add(tp)
            elif rest is not None and not self._is_watched(state):
                seen[tp] = rest
        if seen:
            self._ledger.forget_rests(seen)
        return frozenset(found)

    def _is_watched(self, state: OwnedPartitionState) -> bool:
        return state.watch is not None and self.is_out(state.watch)

    def left_out(
        self,
        flowing: Iterable[TopicPartition],
        states: Mapping[TopicPartition, OwnedPartitionState],
    ) -> frozenset[TopicPartition]:
        """
        Return the partitions that are to be left out of a fetch, to wait for ids.

        One that had to wait before, and was not fetched since, does not wait again: it
        could wait for ever if it is quiet whenever the broker is free.
        """
        doubtful = self.doubtful(flowing, states)
        if not self.asks([states[tp] for tp in doubtful]):
            return frozenset()
        left = set()
        for tp in doubtful:
            state = states[tp]
            if state.waited_since in {None, self._asked_at}:
                state.waited_since = self._asked_at
                left.add(tp)
        return frozenset(left)

    def seconds_to_wait(self) -> float:
        """Return for how many seconds a fetch still waits; infinite if none does."""
        asked_at = self._asked_at
        left = math.inf if asked_at is None else asked_at + PATIENCE - self._now()
        return left if left > 0 else math.inf

    def _now(self) -> float:
        return self._ledger.now()[0]
