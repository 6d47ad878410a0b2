"""Decides when the ids of topics must be requested before a fetch or a commit."""

import math
from collections.abc import Callable, Collection, Iterable

from kafka.structs import TopicPartition

from safeconsumer._kafka.pausing.undelivered import Fetch, OwnedPartitionState
from safeconsumer.holds.ledger import PauseLedger

# Seconds between two requests for topic ids. In between, a partition in doubt is
# fetched, but stays in doubt.
_EVERY = 1.0
# A partition is in doubt if there was no proof for this many seconds that its topic
# exists. The shorter time is for partitions that were held, and is longer than a poll
# takes. The other one is for all other partitions, and is as long as a slow handler may
# take.
UNSEEN_HELD, UNSEEN = 0.1, 5.0
PATIENCE = 0.5
"""
Seconds that a fetch or a commit waits for ids, the default of fetch_max_wait_ms.
"""


class TopicIds:
    """
    Decides which topics may have been recreated since they were last known to exist.

    A metadata response proves that a topic existed at the time of the request. A fetch
    in flight proves that it exists, because a broker responds with an error if the topic
    is deleted during the fetch. Such a fetch, answered or not, proves it for no later
    time than the broker may wait before it answers.

    A partition is *in doubt* if there was no such proof for a while: a fetch names only
    the topic, so it might read the log of a new topic with that name. If a broker does
    not know a fetch's topic, the partition is in doubt, too. After that, only the
    response to a later metadata request is a proof.

    The fetch of a partition that is in doubt waits only once, and briefly, for the
    response to a metadata request that is sent after the wait began. After that the
    partition is fetched, but stays in doubt until such a response arrives. If a response
    takes longer than the time after which a held partition is in doubt, that fetch does
    not confirm the position; metadata that is requested after the fetch does.

    Thread rules: only the IO thread uses this object.

    Attributes:
        in_flight: a function that returns the fetches that are in flight.
    """

    def __init__(self, ledger: PauseLedger) -> None:
        self.in_flight: Callable[[], Collection[Fetch]] = tuple
        self._ledger = ledger
        self._last_asked_at = -math.inf
        # When the pending request was sent; None if no request is pending.
        self._asked_at: float | None = None

    def answered(self, asked_at: float, *, is_proof: bool) -> bool:
        """
        Record that a metadata response has arrived, and wake a poll that waits for it.

        Args:
            asked_at: the time of the request, in monotonic seconds.
            is_proof: whether the response shows which topics exist now. If it does not,
                the wait goes on for the next response.

        Returns:
            Whether a wait goes on because the request was sent before the wait began.
        """
        since = self._asked_at
        if since is None:
            return False
        is_older = asked_at < since
        if (is_proof and not is_older) or self._now() - since >= PATIENCE:
            self._asked_at = None
        self._ledger.wake()
        return is_older and self._asked_at is not None

    def note_unknown_topic(self, state: OwnedPartitionState) -> None:
        """Record that a broker did not know a fetch's topic, so that ids get requested."""
        state.named_at = self._last_asked_at = -math.inf
        state.last_fetch, state.unknown_at = None, self._now()

    def doubtful(
        self, states: Iterable[tuple[TopicPartition, OwnedPartitionState]]
    ) -> dict[TopicPartition, OwnedPartitionState]:
        """Return the partitions whose topic may have been recreated."""
        since, found = self._now() - UNSEEN_HELD, {}
        fetches: Collection[Fetch] | None = None
        for tp, state in states:  # there may be a thousand per poll
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
                    if fetch.until > since:
                        continue
                    seen_at = max(seen_at, fetch.until)
            if self._now() - seen_at >= UNSEEN or self._ledger.was_held(tp):
                found[tp] = state
        return found

    def begin_to_ask(self, doubtful: Collection[TopicPartition]) -> bool:
        """
        Start a wait for metadata if any partition is in doubt; return whether to wait.

        If the result is True, the caller must request metadata.
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
        Return the partitions that wait for ids, and must be left out of a fetch.

        A partition that has waited does not wait again before its next fetch. Otherwise
        a partition that happens to be quiet whenever the broker is free could wait
        forever.
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
        """Return for how many seconds fetches still wait; infinity if none waits."""
        asked_at = self._asked_at
        left = math.inf if asked_at is None else asked_at + PATIENCE - self._now()
        return left if left > 0 else math.inf

    def _now(self) -> float:
        return self._ledger.now()[0]
