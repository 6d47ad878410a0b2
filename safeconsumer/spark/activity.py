"""
What a stream reads now: of which partitions a batch may still be under way.
"""

import threading
from collections.abc import Iterable

from attrs import evolve, frozen

from safeconsumer.holds.scope import TopicPartition
from safeconsumer.spark.offsets import Offsets

Partitions = frozenset[TopicPartition]


@frozen(kw_only=True)
class Activity:
    """
    One moment of a stream.

    Attributes:
        query: the name of its query; empty if it has none.
        partitions: what it reads, as far as its last plan knew.
        reading: of these, what the batch that was planned last reads, until it ended.
        is_planned: whether it has planned a batch yet; one from before a restart may
            be run again until then.
        is_deciding: whether a plan is being made: what it will read is not known.
    """

    query: str = ""
    partitions: Partitions = frozenset()
    reading: Partitions = frozenset()
    is_planned: bool = False
    is_deciding: bool = False

    @property
    def is_known(self) -> bool:
        """
        Whether it is known which partitions a batch reads.
        """
        return self.is_planned and not self.is_deciding

    def may_read(self, tp: TopicPartition) -> bool:
        """
        Tell whether a batch of which this stream knows may read a partition now.
        """
        return not self.is_known or tp in self.reading


class Watched:
    """
    Keeps the activity of one stream.

    Spark runs one batch of a stream at a time, and asks for its metrics when it has
    been run: that, or the next plan, proves that it has ended.

    Thread rules: any thread; nothing is called under its lock.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._now = Activity()

    def now(self, timeout: float = 0.0) -> Activity:
        """
        Return it; a plan that is being made is waited for, so many seconds at most.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._now.is_deciding, timeout)
            return self._now

    def begin(self, query: str, partitions: Iterable[TopicPartition]) -> None:
        """
        Note that a batch is being planned: the one before has ended.

        Before holds are looked at, so that whoever places one meanwhile does not take
        this stream for quiet.
        """
        with self._changed:
            self._now = evolve(
                self._now,
                query=query,
                partitions=self._now.partitions | frozenset(partitions),
                is_deciding=True,
            )

    def planned(self, start: Offsets, end: Offsets) -> None:
        """
        Note what the batch reads; nothing, where it ends where it starts.
        """
        reads = frozenset(tp for tp, at in end.items() if at > start.get(tp, 0))
        with self._changed:
            self._now = Activity(
                query=self._now.query,
                partitions=frozenset((*start, *end)),
                reading=reads,
                is_planned=True,
            )
            self._changed.notify_all()

    def ended(self) -> None:
        """
        Note that the batch that was planned last has been run.
        """
        with self._changed:
            self._now = evolve(self._now, reading=frozenset())


def query_name(description: str) -> str:
    """
    Return the name of a query from what Spark says of its batch; empty if it has none.

    That is four lines: the name, ``id = ...``, ``runId = ...``, ``batch = ...``.
    """
    return description.rpartition("id = ")[0].removesuffix("\n")
