"""Finds out what a held partition has lost before its hold is lifted."""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from safeconsumer.holds.scope import TopicPartition
from safeconsumer.spark.clients import Cluster
from safeconsumer.spark.offsets import Offsets

# Seconds between two questions for the same partitions, and for one answer.
_EVERY = 10.0
_PATIENCE = 1.0


class Retention:
    """
    Watches held partitions: what is deleted of them, and whether they are still the same.

    Spark's Kafka source looks at what a batch reads, so it would notice neither before
    the hold is lifted; and of a topic that was made again with as many records, never.

    Thread rules: one thread.

    Args:
        cluster: is asked where partitions begin, and for topic ids.
        clock: returns seconds that only grow.
    """

    def __init__(
        self, cluster: Cluster, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._asked_at = -_EVERY
        self._watched: frozenset[TopicPartition] = frozenset()
        self._firsts: Offsets = {}
        # The ids of the topics of held partitions, as of when each hold began.
        self._ids: dict[TopicPartition, str] = {}
        self._made_again: frozenset[TopicPartition] = frozenset()
        self._settled: frozenset[TopicPartition] = frozenset()  # by a skip

    def refresh(
        self,
        held: Collection[TopicPartition],
        skipped: Collection[TopicPartition] = (),
    ) -> None:
        """
        Ask again, if it is time or other partitions are held than before.

        Those that were held before are asked for as well: a hold that ends is the last
        moment at which a loss can be reported before it is met.

        Args:
            held: the held partitions.
            skipped: those that skip now, and go on in the topic of now: a loss of theirs
                is reported once more.
        """
        wanted = frozenset(held)
        every = wanted | self._watched
        self._made_again = (self._made_again - self._settled) & every
        self._settled = wanted.intersection(skipped)
        is_due = self._clock() - self._asked_at >= _EVERY or bool(self._settled)
        if not every or (wanted == self._watched and not is_due):
            return
        until = time.monotonic() + _PATIENCE
        with suppress(*self._cluster.errors):  # else what is known stays known
            self._firsts = self._cluster.firsts(every, until)
            ids = self._cluster.topic_ids({topic for topic, _ in every}, until)
            first = {tp: self._ids.get(tp, ids[tp[0]]) for tp in every}
            self._made_again = frozenset(
                tp for tp, id_ in first.items() if ids[tp[0]] != id_
            )
            self._ids = {**first, **{tp: ids[tp[0]] for tp in self._settled}}
        # Forgotten also without an answer: a later hold begins with the id of then.
        self._ids = {tp: id_ for tp, id_ in self._ids.items() if tp in wanted}
        self._asked_at, self._watched = self._clock(), wanted

    def deleted(self, starts: Offsets) -> Mapping[TopicPartition, int]:
        """Return how many of the offsets from ``starts`` on are deleted, if any."""
        gone = {tp: self._firsts.get(tp, 0) - at for tp, at in starts.items()}
        return {tp: count for tp, count in gone.items() if count > 0}

    def made_again(self) -> Collection[TopicPartition]:
        """Return those whose topic has another id than when their hold began."""
        return self._made_again
