"""
Plans the batches of the Python source's streams, in a process beside the driver.

``spark.stream`` makes the decisions, as for every stream: after a plan has started, it
requests the end of the holds topic and reads up to that end. In the plan, each held
partition ends at the offset at which it starts. The planner does the work of the
official source: it finds the start and
end offsets of a stream, divides a limit among partitions, notices deleted records, and
divides a batch into tasks.
"""

import itertools
import math
from collections.abc import Iterable
from functools import partial

from safeconsumer.errors.base import SparkSettingError
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.spark import offsets
from safeconsumer.spark.controller import ledger
from safeconsumer.spark.offsets import Offsets
from safeconsumer.spark.opening import Opening
from safeconsumer.spark.python.clients import PythonClients
from safeconsumer.spark.python.reading import Range, lose
from safeconsumer.spark.python.settings import EARLIEST, LATEST, Settings
from safeconsumer.spark.python.topics import Topics
from safeconsumer.spark.stream import Stream

NAME = "safekafka"


class Planner:
    """
    Plans batches; each time a query starts, a new planner is created.

    Thread rules: only one thread may use this.

    Args:
        settings: the settings of the stream.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topics = Topics(settings)
        self._stream = self._opened()
        self._target: Offsets | None = None
        self.latest: Offsets | None = None

    def _opened(self) -> Stream:
        clients = partial(PythonClients, self._topics)
        # Spark does not give a Python source a folder in the checkpoint, so this source
        # cannot store skips.
        opening = Opening(ledger(), clients)
        return opening.stream(NAME, self._settings.holds)

    def initial(self) -> Offsets:
        """
        Return the offsets at which a stream without a checkpoint begins.

        Raises:
            SparkSettingError: ``startingOffsets`` does not name exactly the existing
                partitions.
        """
        firsts, ends = self._topics.bounds(self._topics.partitions())
        starting = self._settings.starting
        if isinstance(starting, str):
            return firsts if starting == "earliest" else ends
        if differ := sorted(set(starting) ^ set(ends)):
            message = (
                "startingOffsets must name the partitions that exist and no others; "
                f"these differ: {offsets.named(differ)}"
            )
            raise SparkSettingError(message)
        return {
            tp: {EARLIEST: firsts[tp], LATEST: ends[tp]}.get(at, at)
            for tp, at in starting.items()
        }

    def prepare(self) -> None:
        """Record the end offsets up to which a run with ``availableNow`` reads."""
        self._target = self._topics.bounds(self._topics.partitions())[1]

    def end(self, start: Offsets, most: int | None) -> Offsets:
        """
        Return the ends of a batch, in which held partitions end at their start.

        Args:
            start: the offsets at which the batch starts.
            most: the maximum number of offsets in the batch; None for no limit.

        Raises:
            DataLostError: records of the batch are deleted, and a loss fails the query.
            HoldsUnreadableError: the holds cannot be read, and the run stops on its
                own.
        """
        firsts, ends = self._bounds(start)
        self._topics.planned_firsts = firsts
        facts = {
            "ends": "no" if self._target is None else "yes",
            "start": offsets.render(start),
            "latest": offsets.render(ends),
            "limit": "none" if most is None else "maximum",
        }
        begins = {tp: start.get(tp, firsts.get(tp, 0)) for tp in ends}
        answer = self._stream.plan({**facts, "end": _limited(begins, ends, most)})
        if "from" in answer:
            begins = {**begins, **offsets.parse(answer["from"])}
            answer = self._stream.freeze({**facts, "end": _limited(begins, ends, most)})
        self.latest = ends
        return offsets.parse(answer["end"])

    def _bounds(self, start: Offsets) -> tuple[Offsets, Offsets]:
        partitions = self._topics.partitions()
        if self._topics.made_again:
            names = ", ".join(self._topics.made_again)
            self._lose(f"{names}: deleted and recreated since the last plan")
        firsts, ends = self._topics.bounds(partitions)
        if self._target is not None:
            ends = {tp: min(ends.get(tp, at), at) for tp, at in self._target.items()}
        if gone := sorted(set(start) - set(ends)):
            self._lose(f"{offsets.named(gone)}: gone")
        return firsts, ends

    def tasks(self, start: Offsets, end: Offsets) -> list[tuple[Range, ...]]:
        """
        Return the ranges of each task of a batch.

        Raises:
            DataLostError: records of the batch are deleted, and a loss fails the query.
        """
        ranges = self._cut(self._ranges(start, end))
        if not (least := self._settings.min_records):
            return [(one,) for one in ranges]
        tasks: list[tuple[Range, ...]] = []
        size: float = math.inf
        for one in ranges:
            if size >= least:
                tasks.append(())
                size = 0
            tasks[-1] += (one,)
            size += one.end - one.start
        return tasks

    def _ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        moved = [tp for tp in sorted(end) if end[tp] != start.get(tp)]
        firsts, _ = self._topics.bounds(moved)
        found = []
        for tp in moved:
            topic, number = tp
            first = self._first(tp, start.get(tp), end[tp], firsts[tp])
            if first < end[tp]:
                id_ = self._topics.ids.get(topic, "")
                found.append(Range(topic, number, first, end[tp], id_))
        return found

    def _first(
        self, tp: TopicPartition, start: int | None, end: int, first: int
    ) -> int:
        """Return the first offset to read from a partition, after reporting any loss."""
        name = offsets.named([tp])
        if start is None and first and end:
            self._lose(
                f"{name}: the partition is new, and begins at {first} instead of 0"
            )
        elif end < (start or 0):
            self._lose(
                f"{name}: it ends at {end}, before {start}, which was to be read"
            )
        elif start is not None and first > start:
            last = min(first, end) - 1
            self._lose(f"{name}: records {start} to {last} are deleted")
        return max(first, start or 0)

    def _cut(self, ranges: list[Range]) -> Iterable[Range]:
        whole = sum(one.end - one.start for one in ranges)
        least = self._settings.min_ranges
        for one in ranges:
            size = one.end - one.start
            parts = max(1, round(least * size / whole)) if least > len(ranges) else 1
            at = [one.start + size * n // parts for n in range(parts + 1)]
            for first, end in itertools.pairwise(at):
                if end > first:
                    yield Range(one.topic, one.partition, first, end, one.topic_id)

    def close(self) -> None:
        """Report that the stream has stopped, and close the connections."""
        self._stream.close()
        self._topics.close()

    def _lose(self, what: str) -> None:
        lose(self._settings, what)


def _limited(begins: Offsets, ends: Offsets, most: int | None) -> str:
    found = ends if most is None else limited(begins, ends, most)
    return offsets.render(found)


def limited(begins: Offsets, ends: Offsets, most: int) -> dict[TopicPartition, int]:
    """
    Return the ends of a batch of at most ``most`` offsets, as the official source does.

    A partition's share is proportional to its lag, and is never rounded down to zero.
    """
    sizes = {tp: max(0, end - begins[tp]) for tp, end in ends.items()}
    whole = sum(sizes.values())
    if whole <= most:
        return dict(ends)
    return {
        tp: min(ends[tp], begins[tp] + _part(most * size / whole)) if size else ends[tp]
        for tp, size in sizes.items()
    }


def _part(share: float) -> int:
    return math.ceil(share) if share < 1 else math.floor(share)
