"""Writes delivered records as entries of a journal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from safeconsumer.journal.format import tp_text
from safeconsumer.journal.writer import JournalWriter

Began = Mapping[str, float]
"""
The fields ``after`` and ``asked`` of an entry, which show when the poll or step began.
"""

# org.apache.kafka.common.record.TimestampType
_LOG_APPEND_TIME = 1


class Deliveries:
    """
    Writes runs of records; a run starts at the position where the previous run ended.

    Thread rules: :meth:`write` must run on the polling thread, the other methods on
    any.

    Attributes:
        next: for each partition, by its name in journals, the offset after the last
            record.
    """

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self.next: dict[str, int] = {}
        self._sought: set[str] = set()  # after the latest poll began

    def begins_at(self, tp: tuple[str, int], offset: int) -> None:
        """Record the position from which reading starts or continues."""
        self.next[tp_text(tp)] = offset

    def forget(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget the positions of partitions whose ownership begins or ends."""
        for name in map(tp_text, partitions):
            self.next.pop(name, None)
            self._sought.discard(name)

    def began(self) -> None:
        """Record the start of a poll or step, which applies all seeks that have returned."""
        self._sought.clear()

    def is_sought(self, tp: tuple[str, int]) -> bool:
        """Return whether a seek was called after the latest poll began."""
        return tp_text(tp) in self._sought

    @contextmanager
    def seeking(self, offsets: Mapping[str, int | None]) -> Iterator[None]:
        """Record a seek around the block; an offset of None makes the position unknown."""
        before = {name: self.next.pop(name, None) for name in offsets}
        self._sought.update(offsets)
        then: Mapping[str, int | None] = before
        try:
            yield
            then = offsets
        finally:
            self._sought.update(offsets)  # a poll may have begun during the block
            known = ((name, at) for name, at in then.items() if at is not None)
            self.next.update(known)

    def write(
        self,
        tp: tuple[str, int],
        records: Sequence[Any],
        began: Began,
        *,
        end: int | None = None,
        is_peek: bool = False,
    ) -> None:
        """
        Write the records of a poll or step; start a new run where offsets decrease.

        Args:
            tp: the partition.
            records: the records in order, at least one.
            began: the fields that state when the poll or step began.
            end: the position after the records, if it is known; it is beyond the last
                record if transaction markers or compacted records follow.
            is_peek: whether the poll leaves the position unchanged, so that the records
                are delivered again.

        Raises:
            JournalError: a run could not be written.
        """
        name, time = tp_text(tp), _time_of(records[0])
        is_sought = name in self._sought
        position = None if is_peek or is_sought else self.next.get(name)
        for offsets in (runs := _rising_runs([one.offset for one in records])):
            after = offsets[-1] + 1
            if not is_peek:
                if offsets is runs[-1] and not is_sought:
                    after = max(after, end or 0)
                self.next[name] = after  # set first: a signal handler may raise below
                if name in self._sought:
                    self.next.pop(name, None)
            start = offsets[0] if position is None else position
            run = {"tp": name, "from": start, "next": after, **_run_of(offsets)}
            how = {"peek": True} if is_peek else {}
            self._journal.write("deliver", {**run, **how, **began, **time})
            position = None


def _time_of(record: Any) -> dict[str, float]:  # noqa: ANN401 - any client's
    # Only a time that the broker set is the time of the append; a producer may set any
    # time.
    at = record.timestamp
    if at is None or at < 0:
        return {}
    is_brokers = getattr(record, "timestamp_type", None) == _LOG_APPEND_TIME
    return {"written" if is_brokers else "created": at / 1000}


def _rising_runs(offsets: list[int]) -> list[list[int]]:
    if _has_no_gap(offsets):
        return [offsets]
    turns = (at for at in range(1, len(offsets)) if offsets[at] <= offsets[at - 1])
    return [offsets[a:b] for a, b in pairwise((0, *turns, len(offsets)))]


def _run_of(offsets: list[int]) -> dict[str, object]:
    run: dict[str, object] = {
        "first": offsets[0],
        "last": offsets[-1],
        "count": len(offsets),
    }
    if _has_no_gap(offsets):
        return run
    gaps = [[a + 1, b] for a, b in pairwise(offsets) if b > a + 1]
    return {**run, "gaps": gaps}


def _has_no_gap(offsets: list[int]) -> bool:
    # Nearly all lists of offsets have no gap, which this check finds without comparing
    # pairs.
    first, last = offsets[0], offsets[-1]
    is_wide = last - first >= len(offsets)
    return not is_wide and offsets == list(range(first, last + 1))
