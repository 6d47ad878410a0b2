"""Tracks the partitions that a stream's batch may still be reading."""

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
    The activity of a stream at one time.

    Attributes:
        query: the name of the stream's query; empty without a name.
        partitions: the partitions that the stream reads, as of its last plan.
        reading: the partitions that the last planned batch reads, until that has ended.
        is_planned: whether the stream has planned a batch yet; until then a batch from
            before a restart may run again.
        is_deciding: whether a plan is being made, so that the partitions of the next
            batch are not known yet.
    """

    query: str = ""
    partitions: Partitions = frozenset()
    reading: Partitions = frozenset()
    is_planned: bool = False
    is_deciding: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it is known which partitions a batch reads."""
        return self.is_planned and not self.is_deciding

    def may_read(self, tp: TopicPartition) -> bool:
        """Return whether a known batch of this stream may read a partition now."""
        return not self.is_known or tp in self.reading


@frozen(kw_only=True)
class Batch:
    """
    A batch of a query.

    Attributes:
        query: the id of the query, which a checkpoint keeps.
        name: the name of the query; empty without a name.
        number: the number of the batch.
    """

    query: str
    name: str
    number: int


class ActivityTracker:
    """
    Keeps the activity of one stream.

    Spark runs one batch of a stream at a time, and requests metrics after each batch:
    that request, or the next plan, proves that the batch has ended.

    Thread rules: any thread; no other code is called under the lock.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._now = Activity()

    def now(self, timeout: float = 0.0) -> Activity:
        """
        Return the activity.

        If a plan is being made, wait for it, for a limited number of seconds.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._now.is_deciding, timeout)
            return self._now

    def begin(self, query: str, partitions: Iterable[TopicPartition]) -> None:
        """
        Note that a batch is being planned, so that the previous batch has ended.

        Call this before holds are read, so that a caller who places a hold in the
        meantime does not regard this stream as quiet.
        """
        with self._changed:
            self._now = evolve(
                self._now,
                query=query,
                partitions=self._now.partitions | frozenset(partitions),
                is_deciding=True,
            )

    def planned(self, start: Offsets, end: Offsets) -> None:
        """Note the partitions that the batch reads, whose ends are after their starts."""
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
        """Note that the last planned batch has run."""
        with self._changed:
            self._now = evolve(self._now, reading=frozenset())


def query_name(description: str) -> str:
    """
    Return the name of a query, from Spark's description of a batch, or an empty text.

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
