"""
Skips offsets of a stream, for example an unreadable record or deleted records.

A skip names one partition and the offset at which reading continues. In the next batch
the partition starts and ends at that offset, so the batch reads no records from it.
Spark's offset log stores the end of the batch, but not the skip. So the skip is stored
in the checkpoint, in a file with the batch's number: a batch that runs again after a
restart leaves out the same offsets.
"""

import json
import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from attrs import asdict, evolve, frozen

from safeconsumer.errors.base import (
    HoldSettingError,
    SparkSetupError,
    TargetTypeError,
)
from safeconsumer.holds.hold import checked_owner, checked_reason
from safeconsumer.holds.scope import Partition, Scope, TopicPartition, partition_text
from safeconsumer.spark import offsets
from safeconsumer.spark.activity import Batch, Partitions
from safeconsumer.spark.offsets import Offsets

log = logging.getLogger("safeconsumer.spark")


@frozen(kw_only=True)
class Skip:
    """
    A request to continue a partition at an offset.

    Attributes:
        topic: the topic.
        partition: the number of the partition.
        to: the offset at which reading continues.
        owner: the owner of the skip.
        reason: a text that people read.
        at: the offset that would have been read next; -1 until a batch applies the
            skip.
        query: the name or id of the query that skips; empty if any query may apply the
            skip.
    """

    topic: str
    partition: int
    to: int
    owner: str
    reason: str
    at: int = -1
    query: str = ""

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return self.topic, self.partition

    @property
    def where(self) -> str:
        """The partition in human-readable form."""
        return partition_text(self.topic, self.partition)

    def __str__(self) -> str:
        gone = f"offsets {self.at} to {self.to - 1} are skipped"
        if self.to <= self.at:
            gone = f"reading begins at {self.to} of a topic that was recreated"
        return f"{self.where}: {gone}, by {self.owner}: {self.reason}"


def checked_skip(
    scopes: Sequence[Scope],
    to: object,
    reason: object,
    owner: object,
    query: object,
) -> Skip:
    """
    Return a skip from a caller's arguments, after checking them.

    Raises:
        HoldSettingError: the offset is not a number, the reason is missing, or the
            owner or the query is not valid.
        TargetTypeError: the scopes are not exactly one partition.
    """
    if len(scopes) != 1 or not isinstance(scopes[0], Partition):
        named = " ".join(map(str, scopes))
        message = f"skip takes one partition, such as orders:3, not {named:.60}"
        raise TargetTypeError(message)
    if isinstance(to, bool) or not isinstance(to, int) or to < 0:
        message = f"to must be an offset, 0 or more, not {to!r:.60}"
        raise HoldSettingError(message)
    why = checked_reason(reason)
    if not why:
        message = "skip needs a reason: skipped records are lost to this stream"
        raise HoldSettingError(message)
    topic, partition = scopes[0].topic, scopes[0].partition
    if query is not None and not (isinstance(query, str) and query):
        message = f"query must be the name or id of a query, not {query!r:.60}"
        raise HoldSettingError(message)
    return Skip(
        topic=topic,
        partition=partition,
        to=to,
        owner=checked_owner(owner),
        reason=why,
        query=query or "",
    )


Skips = Mapping[TopicPartition, Skip]


def refusal(skip: Skip, start: Offsets, latest: Offsets) -> str:
    """
    Return why a skip is impossible; empty if it is possible.

    Args:
        skip: the skip.
        start: the offsets at which the batch starts.
        latest: the current end offsets of the partitions.
    """
    at, end = start.get(skip.tp, 0), latest.get(skip.tp)
    why = ""
    if end is None:
        why = "it does not exist now"
    elif skip.to > end:
        why = f"it ends at {end}, and can be skipped up to there"
    elif skip.at == at:
        why = ""  # an earlier plan of this batch already accepted this skip
    elif skip.to == at:
        why = "it is read next anyway"
    elif skip.to < at <= end:
        why = f"{at} is read next, and records would come twice"
    return why and f"{skip.where} cannot continue at {skip.to}: {why}"


@frozen(kw_only=True)
class _Reader:
    # A query that has planned a batch, with the partitions of its last plan.
    id: str
    name: str
    partitions: Partitions

    def __str__(self) -> str:
        return self.name or self.id

    @property
    def named(self) -> str:
        """The partitions in human-readable form."""
        return offsets.named(self.partitions)


class SkipRequests:
    """
    Stores the requested skips that no query has applied yet.

    A query that was stopped still counts as a reader of its partitions, because it may
    be started again, and no other query may apply a skip that is meant for it.

    Thread rules: any thread may use this.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._skips: tuple[Skip, ...] = ()
        self._readers: dict[str, _Reader] = {}  # by the query's id

    def request(self, skip: Skip) -> None:
        """
        Add a skip; if it names no query, it is for the only reader of its partition.

        Raises:
            SparkSetupError: the skip names no query and several queries of the session
                have read the partition, or no query to which the skip could apply has
                read it.
        """
        with self._lock:
            readers = tuple(self._readers.values())
        meant = [one for one in readers if skip.query in {"", one.id, one.name}]
        reading = {one.id: one for one in meant if skip.tp in one.partitions}
        if meant and not reading:
            reads = "; ".join(sorted(f"{one} reads {one.named}" for one in meant))
            named = f"query {skip.query} does not read"
            message = (
                f"{named if skip.query else 'no query of this session reads'} "
                f"{skip.where}: by their last plans {reads}; for a query that has not "
                "planned a batch yet, give its name or id as query="
            )
            raise SparkSetupError(message)
        if not skip.query and len(reading) > 1:
            named = ", ".join(sorted(map(str, reading.values())))
            message = (
                f"{len(reading)} queries of this session read {skip.where}, or did "
                f"({named}), and only one would skip: give its name or id as query="
            )
            raise SparkSetupError(message)
        query = skip.query or next(iter(reading), "")
        added = evolve(skip, query=query)
        self.put_back(added)
        if not reading:
            log.warning("a skip waits: %s", _waiting(added))

    def waiting(self) -> tuple[str, ...]:
        """Return a line for each skip that no query has applied yet."""
        with self._lock:
            return tuple(map(_waiting, self._skips))

    def put_back(self, *skips: Skip) -> None:
        """Add skips; each replaces an earlier skip of the same partition and query."""
        new = {(one.tp, one.query) for one in skips}
        with self._lock:
            kept = (one for one in self._skips if (one.tp, one.query) not in new)
            self._skips = (*kept, *skips)

    def take(
        self, batch: Batch, partitions: Collection[TopicPartition]
    ) -> tuple[Skip, ...]:
        """Remove and return the skips of these partitions for the query of this batch."""
        names = {"", batch.query, batch.name}
        with self._lock:
            read = frozenset(partitions)
            self._readers[batch.query] = _Reader(
                id=batch.query, name=batch.name, partitions=read
            )
            taken = tuple(
                one for one in self._skips if one.tp in read and one.query in names
            )
            self._skips = tuple(one for one in self._skips if one not in taken)
        return taken


def _waiting(skip: Skip) -> str:
    which = f"query {skip.query}" if skip.query else "the first query that reads it"
    return f"{skip.where} to {skip.to}, for {which}"


class SkipFiles(Protocol):
    """
    Stores the skips of batches in a checkpoint.

    Thread rules: only one thread may use this.
    """

    def load(self, batch: int) -> str:
        """Return the text that is stored for a batch; empty if there is none."""

    def store(self, batch: int, text: str) -> None:
        """Store the text for a batch, and replace any earlier text."""


class Skipping:
    """
    Decides which offsets each batch of one stream skips.

    Thread rules: only one thread may use this.

    Args:
        requests: the requested skips.
        files: stores the skips of each batch.

    Attributes:
        refused: the reasons why skips could not be applied at the last plan.
    """

    def __init__(self, requests: SkipRequests, files: SkipFiles) -> None:
        self._requests = requests
        self._files = files
        # the skips of the last plan; None until the first batch is planned
        self._skips: Skips | None = None
        self.refused: tuple[str, ...] = ()

    def planned(self, batch: Batch, start: Offsets, latest: Offsets) -> Skips:
        """Return the skips of a batch that is being planned, after storing new ones."""
        known = self._of(batch.number).items()
        asked = self._requests.take(batch, {*start, *latest})
        kept = [one for tp, one in known if one.at == start.get(tp, 0)]
        why = {one: refusal(one, start, latest) for one in (*kept, *asked)}
        self.refused = tuple(filter(None, why.values()))
        possible = [one for one in asked if not why[one]]
        new = {one.tp: evolve(one, at=start.get(one.tp, 0)) for one in possible}
        still = {one.tp: one for one in kept if not why[one]}
        return self._keep(batch.number, still, new, possible)

    def again(self, batch: Batch, start: Offsets, end: Offsets) -> Skips:
        """
        Return the skips of a batch that was planned before a restart and runs again.

        If a skip was requested after the batch was planned, the batch skips only up to
        its own end. The rest of the skip waits for the next plan, which checks it.
        """
        known = self._of(batch.number).items()
        asked = self._requests.take(batch, end)
        cut = [
            evolve(one, at=start.get(one.tp, 0), to=min(one.to, end[one.tp]))
            for one in asked
        ]
        new = {one.tp: one for one in cut if one.at < one.to}
        left = (one for one in asked if one.to > end[one.tp] or one.tp not in new)
        self._requests.put_back(*left)
        kept = {
            tp: one
            for tp, one in known
            if one.at == start.get(tp, 0) and one.to <= end.get(tp, -1)
        }
        return self._keep(batch.number, kept, new, asked)

    def waiting(self) -> tuple[str, ...]:
        """Return a line for each requested skip that no query has applied yet."""
        return self._requests.waiting()

    def _of(self, batch: int) -> Skips:
        # A skip of an earlier batch does not apply, because its ``at`` is not the start
        # of this batch.
        if self._skips is None:  # after a restart this batch may be an interrupted one
            self._skips = _parsed(self._files.load(batch))
        return self._skips

    def _keep(
        self, batch: int, kept: Skips, new: Skips, asked: Collection[Skip]
    ) -> Skips:
        skips = {**kept, **new}
        if new:
            try:
                entries = [asdict(one) for one in skips.values()]
                self._files.store(batch, json.dumps(entries))
            except BaseException:
                self._requests.put_back(*asked)  # for the next plan
                raise
        self._skips = skips
        return skips


def _parsed(text: str) -> Skips:
    # If a file is truncated, Spark did not log the batch, so its skips do not count.
    with suppress(ValueError, TypeError):
        skips = [Skip(**entry) for entry in json.loads(text or "[]")]
        return {one.tp: one for one in skips}
    return {}
