"""
Skips offsets of a stream: past a record that no code can read, or what is gone.

A skip is one partition and the offset at which reading goes on. The next batch ends the
partition there, and reads nothing of it. Spark writes that end into its log, where the
skip itself has no place; so the checkpoint keeps it beside, in a file of the batch's
number: a batch that runs again after a restart leaves out the same offsets.
"""

import json
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
from safeconsumer.holds.scope import Partition, Scope, TopicPartition
from safeconsumer.spark.activity import Batch, Partitions
from safeconsumer.spark.offsets import Offsets


@frozen(kw_only=True)
class Skip:
    """
    A wish to go on at an offset.

    Attributes:
        topic: the topic.
        partition: its partition.
        to: the first offset that is read again.
        owner: who wants it.
        reason: text for people.
        at: the offset that would have been read next; -1 until a batch skips.
        query: the name or id of the query that skips; empty if any may.
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

    def __str__(self) -> str:
        where = f"{self.topic}:{self.partition}"
        gone = f"offsets {self.at} to {self.to - 1} are skipped"
        if self.to <= self.at:
            gone = f"reading begins at {self.to} of a topic that was made again"
        return f"{where}: {gone}, by {self.owner}: {self.reason}"


def checked_skip(
    scopes: Sequence[Scope],
    to: object,
    reason: object,
    owner: object,
    query: object = None,
) -> Skip:
    """
    Return a skip of what a caller named.

    Raises:
        HoldSettingError: the offset is no number, the reason is missing, or the owner
            or the query cannot be one.
        TargetTypeError: the scopes are not one partition.
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
        message = "skip needs a reason: what is skipped is lost to this stream"
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
    Return why a skip cannot be; empty if it can.

    Args:
        skip: the skip.
        start: where the batch starts.
        latest: where the partitions end now.
    """
    at, end = start.get(skip.tp, 0), latest.get(skip.tp)
    why = ""
    if end is None:
        why = "it does not exist now"
    elif skip.to > end:
        why = f"it ends at {end}, and can be skipped up to there"
    elif skip.at == at:
        why = ""  # it was judged when it was made
    elif skip.to == at:
        why = "it is read next anyway"
    elif skip.to < at <= end:
        why = f"{at} is read next, and records would come twice"
    return why and f"{skip.topic}:{skip.partition} cannot go on at {skip.to}: {why}"


@frozen(kw_only=True)
class _Reader:
    # A query, and the partitions of its last plan.
    name: str
    partitions: Partitions


class Wanted:
    """
    Keeps the skips that no query has taken yet.

    A query that was stopped still counts as a reader of its partitions: it may be
    started again, and a skip that is meant for it must not go to another.

    Thread rules: any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._skips: tuple[Skip, ...] = ()
        self._readers: dict[str, _Reader] = {}  # by the query's id

    def ask(self, skip: Skip) -> None:
        """
        Add a skip; one that names no query is for the only one that read its partition.

        Raises:
            SparkSetupError: several queries of the session did.
        """
        with self._lock:
            readers = {
                query: one.name or query
                for query, one in self._readers.items()
                if skip.tp in one.partitions
            }
        if not skip.query and len(readers) > 1:
            message = (
                f"{len(readers)} queries of this session read {skip.topic}:"
                f"{skip.partition}, or did ({', '.join(sorted(readers.values()))}), and "
                "only one would skip: give its name or id as query="
            )
            raise SparkSetupError(message)
        query = skip.query or next(iter(readers), "")
        self.add(evolve(skip, query=query))

    def add(self, *skips: Skip) -> None:
        """Add skips; a later one takes an earlier one's place."""
        new = {(one.tp, one.query) for one in skips}
        with self._lock:
            kept = (one for one in self._skips if (one.tp, one.query) not in new)
            self._skips = (*kept, *skips)

    def take(
        self, batch: Batch, partitions: Collection[TopicPartition]
    ) -> tuple[Skip, ...]:
        """Return, and forget, those of these partitions for the query of this batch."""
        names = {"", batch.query, batch.name}
        with self._lock:
            read = frozenset(partitions)
            self._readers[batch.query] = _Reader(name=batch.name, partitions=read)
            taken = tuple(
                one for one in self._skips if one.tp in read and one.query in names
            )
            self._skips = tuple(one for one in self._skips if one not in taken)
        return taken


class SkipFiles(Protocol):
    """Keeps the skips of batches beside a checkpoint. Thread rules: one thread."""

    def load(self, batch: int) -> str:
        """Return the text of a batch; empty if there is none."""

    def store(self, batch: int, text: str) -> None:
        """Keep the text of a batch, in place of what is there."""


class Skipping:
    """
    Decides which offsets each batch of one stream skips.

    Thread rules: one thread.

    Args:
        wanted: the skips that were asked for.
        files: keeps those of each batch.
    """

    def __init__(self, wanted: Wanted, files: SkipFiles) -> None:
        self._wanted = wanted
        self._files = files
        self._batch: int | None = None
        self._skips: Skips = {}
        self.refused: tuple[str, ...] = ()

    def planned(self, batch: Batch, start: Offsets, latest: Offsets) -> Skips:
        """Return the skips of a batch that is being planned; they are in its file."""
        known = self._of(batch.number).items()
        asked = self._wanted.take(batch, {*start, *latest})
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

        One that was asked for since counts, as far as the batch reads. What is left of
        it waits for the next plan, which judges it.
        """
        known = self._of(batch.number).items()
        asked = self._wanted.take(batch, end)
        cut = [
            evolve(one, at=start.get(one.tp, 0), to=min(one.to, end[one.tp]))
            for one in asked
        ]
        new = {one.tp: one for one in cut if one.at < one.to}
        left = (one for one in asked if one.to > end[one.tp] or one.tp not in new)
        self._wanted.add(*left)
        kept = {
            tp: one
            for tp, one in known
            if one.at == start.get(tp, 0) and one.to <= end.get(tp, -1)
        }
        return self._keep(batch.number, kept, new, asked)

    def _of(self, batch: int) -> Skips:
        if self._batch is None:  # the one that was cut off, maybe
            self._skips = _parsed(self._files.load(batch))
        elif self._batch != batch:
            self._skips = {}
        self._batch = batch
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
                self._wanted.add(*asked)  # the next plan tries again
                raise
        self._skips = skips
        return skips


def _parsed(text: str) -> Skips:
    # A file that was cut off is of a batch that Spark has not planned.
    with suppress(ValueError, TypeError):
        skips = [Skip(**entry) for entry in json.loads(text or "[]")]
        return {one.tp: one for one in skips}
    return {}
