"""Counts the records that are delivered while paused, while not paused, or never."""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from attrs import frozen
from kafka import TopicPartition


class Failure(StrEnum):
    """The way in which a promise of ``pause()``, ``resume()`` or a commit was broken."""

    LEAKED = "leaked"
    LOST = "lost"
    TWICE = "twice"


@frozen(kw_only=True)
class Counts:
    """
    Counts of records, with ``produced = while_paused + when_wanted + lost``.

    Attributes:
        produced: records that the broker acknowledged.
        while_paused: records first delivered while the program wanted everything
            paused.
        when_wanted: records first delivered while the program wanted records.
        lost: records that were never delivered.
        twice: repeated deliveries of committed records.
    """

    produced: int
    while_paused: int
    when_wanted: int
    lost: int
    twice: int


class Tally:
    """
    Judges deliveries by the program's calls, not by what the client reports.

    Thread rules: every method may be called on any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._produced: set[tuple[TopicPartition, int]] = set()
        self._first: dict[tuple[TopicPartition, int], bool] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._twice = 0
        self._is_paused = False
        self._delivered_at = 0.0

    def produced(self, tp: TopicPartition, offset: int) -> None:
        """Record that the broker has acknowledged a record."""
        with self._lock:
            self._produced.add((tp, offset))

    def paused(self) -> None:
        """Record that the program does not want any records from now on."""
        with self._lock:
            self._is_paused = True

    def resumed(self) -> None:
        """Record that the program wants all records again."""
        with self._lock:
            self._is_paused = False

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record committed offsets; records below them must not be delivered again."""
        with self._lock:
            self._committed.update(offsets)

    def delivered(self, tp: TopicPartition, offset: int) -> None:
        """Judge the delivery of a record."""
        with self._lock:
            self._delivered_at = time.monotonic()
            if (tp, offset) not in self._first:
                self._first[tp, offset] = self._is_paused
            elif offset < self._committed.get(tp, 0):
                self._twice += 1

    @property
    def handed_out(self) -> int:
        """The number of delivered records."""
        with self._lock:
            return len(self._first)

    @property
    def begun(self) -> set[TopicPartition]:
        """The partitions that have delivered at least one record."""
        with self._lock:
            return {tp for tp, _ in self._first}

    @property
    def missing(self) -> int:
        """The number of produced records that have not been delivered yet."""
        with self._lock:
            return len(self._produced - self._first.keys())

    def silence(self, since: float) -> float:
        """Return the seconds since the last delivery, or since ``since`` if that is later."""
        with self._lock:
            return time.monotonic() - max(since, self._delivered_at)

    def counts(self) -> Counts:
        """Return the counts of all records so far."""
        with self._lock:
            found = Counter(self._first.get(one) for one in self._produced)
            return Counts(
                produced=len(self._produced),
                while_paused=found[True],
                when_wanted=found[False],
                lost=found[None],
                twice=self._twice,
            )
