"""Detects that a held partition has lost records, before its hold is lifted."""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from safeconsumer.holds.scope import TopicPartition
from safeconsumer.spark.clients import Cluster
from safeconsumer.spark.offsets import Offsets

# Seconds between two queries for the same partitions, and seconds to wait for an
# answer.
_EVERY = 10.0
_PATIENCE = 1.0


class Retention:
    """
    Watches held partitions for deleted records and recreated topics.

    Spark's Kafka source checks only the offsets that a batch reads, so it notices
    neither of these before the hold is lifted. It never notices a recreated topic that
    has at least as many records as the old topic.

    Thread rules: only one thread may use this.

    Args:
        cluster: answers queries for first offsets and topic ids.
        clock: returns a monotonic time in seconds.
    """

    def __init__(
        self, cluster: Cluster, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._asked_at = -_EVERY
        self._watched: frozenset[TopicPartition] = frozenset()
        self._firsts: Offsets = {}
        # For each held partition, the id that its topic had when the hold began, or at
        # the last skip.
        self._ids: dict[TopicPartition, str] = {}
        self._made_again: frozenset[TopicPartition] = frozenset()
        # partitions that a skip has moved
        self._settled: frozenset[TopicPartition] = frozenset()

    def refresh(
        self,
        held: Collection[TopicPartition],
        skipped: Collection[TopicPartition] = (),
    ) -> None:
        """
        Query the cluster again if a query is due or the held partitions have changed.

        The query includes partitions whose hold has just ended, because this is the
        last chance to report a loss before a batch fails because of it.

        Args:
            held: the held partitions.
            skipped: the partitions with a skip in this batch. They continue in the new
                topic, so the loss of the old topic is reported only once more.
        """
        wanted = frozenset(held)
        every = wanted | self._watched
        self._made_again = (self._made_again - self._settled) & every
        self._settled = wanted.intersection(skipped)
        is_due = self._clock() - self._asked_at >= _EVERY or bool(self._settled)
        if not every or (wanted == self._watched and not is_due):
            return
        until = time.monotonic() + _PATIENCE
        # after one of these errors keep the last answers
        with suppress(*self._cluster.errors):
            self._firsts = self._cluster.firsts(every, until)
            ids = self._cluster.topic_ids({topic for topic, _ in every}, until)
            # A deleted topic has no id, and neither has a topic of a broker before 2.8.
            known = [tp for tp in every if tp[0] in ids]
            first = {tp: self._ids.get(tp, ids[tp[0]]) for tp in known}
            self._made_again = frozenset(
                tp for tp, id_ in first.items() if ids[tp[0]] != id_
            )
            settled = {tp: ids[tp[0]] for tp in self._settled.intersection(known)}
            self._ids = {**self._ids, **first, **settled}
        # Forget ids of partitions that are no longer held, even without an answer: a
        # later hold starts with the id that the topic has then.
        self._ids = {tp: id_ for tp, id_ in self._ids.items() if tp in wanted}
        self._asked_at, self._watched = self._clock(), wanted

    def deleted(self, starts: Offsets) -> Mapping[TopicPartition, int]:
        """Return, for partitions that lost offsets from ``starts`` on, how many they lost."""
        gone = {tp: self._firsts.get(tp, 0) - at for tp, at in starts.items()}
        return {tp: count for tp, count in gone.items() if count > 0}

    def made_again(self) -> Collection[TopicPartition]:
        """Return the partitions whose topic id has changed since their hold began."""
        return self._made_again
