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
        self._ids: dict[str, str] = {}
        self._made_again: frozenset[str] = frozenset()

    def look(self, held: Collection[TopicPartition]) -> None:
        """
        Ask again, if it is time or other partitions are held than before.

        Those that were held before are asked for as well: a hold that ends is the last
        moment at which a loss can be reported before it is met.
        """
        wanted = frozenset(held)
        is_due = self._clock() - self._asked_at >= _EVERY
        if not (wanted | self._watched) or (wanted == self._watched and not is_due):
            return
        until = time.monotonic() + _PATIENCE
        with suppress(*self._cluster.errors):  # else what is known stays known
            every = wanted | self._watched
            self._firsts = self._cluster.firsts(every, until)
            ids = self._cluster.topic_ids({topic for topic, _ in every}, until)
            self._made_again = frozenset(
                name for name, id_ in ids.items() if self._ids.get(name, id_) != id_
            )
            self._ids = {**self._ids, **ids}
        self._asked_at, self._watched = self._clock(), wanted

    def deleted(self, starts: Offsets) -> Mapping[TopicPartition, int]:
        """Return how many of the offsets from ``starts`` on are deleted, if any."""
        gone = {tp: self._firsts.get(tp, 0) - at for tp, at in starts.items()}
        return {tp: count for tp, count in gone.items() if count > 0}

    def made_again(self) -> Collection[str]:
        """Return the topics that the last question found to have another id than before."""
        return self._made_again
