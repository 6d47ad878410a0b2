"""Tracks which partitions a stream's batch may still be reading."""

import re
import threading
from collections.abc import Iterable

from attrs import evolve, frozen

from safeconsumer.holds.scope import TopicPartition
from safeconsumer.spark.offsets import Offsets

Partitions = frozenset[TopicPartition]

_ID = re.compile(r"^id = (.*)", re.MULTILINE)
_NUMBER = re.compile(r"^batch = (\d+)", re.MULTILINE)


@frozen(kw_only=True)
class Activity:
    """
    The state of a stream at one time.

    Attributes:
        query: the name of the stream's query; empty if it has no name.
        partitions: the partitions that the stream reads, as of its last plan.
        reading: the partitions that the last planned batch reads; empty after the batch
            has ended.
        is_planned: whether the stream has planned a batch yet; until then a batch from
            before a restart may run again.
        is_deciding: whether a batch is being planned, so that its partitions are not
            known yet.
    """

    query: str = ""
    partitions: Partitions = frozenset()
    reading: Partitions = frozenset()
    is_planned: bool = False
    is_deciding: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it is known which partitions the current batch reads."""
        return self.is_planned and not self.is_deciding

    def may_read(self, tp: TopicPartition) -> bool:
        """Return whether a batch of this stream may be reading a partition now."""
        return not self.is_known or tp in self.reading


@frozen(kw_only=True)
class Batch:
    """
    A batch of a query.

    Attributes:
        query: the id of the query, which a checkpoint keeps.
        name: the name of the query; empty if it has no name.
        number: the number of the batch.
    """

    query: str
    name: str
    number: int


class ActivityTracker:
    """
    Stores the activity of one stream.

    Spark runs one batch of a stream at a time, and requests metrics after each batch:
    that request, or the next plan, proves that the batch has ended.

    Thread rules: any thread may use this; no other code is called under the lock.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._now = Activity()

    def now(self, timeout: float = 0.0) -> Activity:
        """
        Return the activity.

        If a batch is being planned, wait for the plan for at most ``timeout`` seconds.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._now.is_deciding, timeout)
            return self._now

    def begin(self, query: str, partitions: Iterable[TopicPartition]) -> None:
        """
        Record that a batch is being planned, so the previous batch must have ended.

        Call this method before reading holds, so that a caller who places a hold during
        the planning does not regard this stream as quiet.
        """
        with self._changed:
            self._now = evolve(
                self._now,
                query=query,
                partitions=self._now.partitions | frozenset(partitions),
                is_deciding=True,
            )

    def planned(self, start: Offsets, end: Offsets) -> None:
        """Record which partitions the batch reads: those that end after their start."""
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
        """Record that the last planned batch has ended."""
        with self._changed:
            self._now = evolve(self._now, reading=frozenset())


def query_name(description: str) -> str:
    """
    Return the name of a query from Spark's description of a batch; empty without one.

    The description has four lines: the name, ``id = ...``, ``runId = ...``, ``batch =
    ...``.
    """
    return description.rpartition("id = ")[0].removesuffix("\n")


def batch_of(description: str) -> Batch | None:
    """Return the batch that Spark describes; None if the description has no number."""
    number, ids = _NUMBER.search(description), _ID.findall(description)
    if number is None:
        return None
    query = ids[-1] if ids else ""
    return Batch(query=query, name=query_name(description), number=int(number[1]))
