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

from safeconsumer.errors.base import HoldSettingError, TargetTypeError
from safeconsumer.holds.hold import checked_owner, checked_reason
from safeconsumer.holds.scope import Partition, Scope, TopicPartition
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
    """

    topic: str
    partition: int
    to: int
    owner: str
    reason: str
    at: int = -1

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
    scopes: Sequence[Scope], to: object, reason: object, owner: object
) -> Skip:
    """
    Return a skip of what a caller named.

    Raises:
        HoldSettingError: the offset is no number, the reason is missing, or the owner
            cannot be one.
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
    name = checked_owner(owner)
    return Skip(topic=topic, partition=partition, to=to, owner=name, reason=why)


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
    elif skip.to == at:
        why = "it is read next anyway"
    elif skip.to < at <= end:
        why = f"{at} is read next, and records would come twice"
    return why and f"{skip.topic}:{skip.partition} cannot go on at {skip.to}: {why}"


class Wanted:
    """
    Keeps the skips that no stream has taken yet.

    Thread rules: any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._skips: tuple[Skip, ...] = ()

    def add(self, *skips: Skip) -> None:
        """Add skips; a later one of a partition takes the place of an earlier one."""
        new = {one.tp for one in skips}
        with self._lock:
            kept = (one for one in self._skips if one.tp not in new)
            self._skips = (*kept, *skips)

    def take(self, partitions: Collection[TopicPartition]) -> tuple[Skip, ...]:
        """Return, and forget, those of these partitions."""
        with self._lock:
            taken = tuple(one for one in self._skips if one.tp in partitions)
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

    def planned(self, batch: int, start: Offsets, latest: Offsets) -> Skips:
        """Return the skips of a batch that is being planned; they are in its file."""
        known = self._of(batch).items()
        asked = self._wanted.take({*start, *latest})
        why = {one: refusal(one, start, latest) for one in asked}
        self.refused = tuple(filter(None, why.values()))
        new = {
            one.tp: evolve(one, at=start.get(one.tp, 0))
            for one in asked
            if not why[one]
        }
        kept = {tp: one for tp, one in known if one.at == start.get(tp, 0)}
        return self._keep(batch, kept, new)

    def again(self, batch: int, start: Offsets, end: Offsets) -> Skips:
        """
        Return the skips of a batch that was planned before a restart and runs again.

        One that was asked for since counts, as far as the batch reads; the rest of it
        waits for the next.
        """
        known = self._of(batch).items()
        asked = self._wanted.take([*end])
        new = {
            one.tp: evolve(one, at=at, to=min(one.to, end[one.tp]))
            for one in asked
            if one.to > (at := start.get(one.tp, 0))
        }
        self._wanted.add(*(one for one in asked if one.to > end[one.tp]))
        kept = {
            tp: one
            for tp, one in known
            if one.at == start.get(tp, 0) and one.to <= end.get(tp, -1)
        }
        return self._keep(batch, kept, new)

    def _of(self, batch: int) -> Skips:
        if self._batch is None:  # the one that was cut off, maybe
            self._skips = _parsed(self._files.load(batch))
        elif self._batch != batch:
            self._skips = {}
        self._batch = batch
        return self._skips

    def _keep(self, batch: int, kept: Skips, new: Skips) -> Skips:
        skips = {**kept, **new}
        if new:
            try:
                entries = [asdict(one) for one in skips.values()]
                self._files.store(batch, json.dumps(entries))
            except BaseException:
                self._wanted.add(*new.values())  # the next plan tries again
                raise
        self._skips = skips
        return skips


def _parsed(text: str) -> Skips:
    # A file that was cut off is of a batch that Spark has not planned.
    with suppress(ValueError, TypeError):
        skips = [Skip(**entry) for entry in json.loads(text or "[]")]
        return {one.tp: one for one in skips}
    return {}
