"""Writes delivered records as entries of a journal."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from safeconsumer.journal.format import tp_text
from safeconsumer.journal.writer import JournalWriter

Began = Mapping[str, float]
"""
When a poll or step began: ``after`` and ``asked``, as the entries have it.
"""

# org.apache.kafka.common.record.TimestampType
_LOG_APPEND_TIME = 1


class Deliveries:
    """
    Writes runs of records, each beginning where the previous one ended.

    Thread rules: :meth:`write` on the thread that polls, the others on any.

    Attributes:
        next: the offset after the last record, by partition as journals name it.
    """

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self.next: dict[str, int] = {}

    def begins_at(self, tp: tuple[str, int], offset: int) -> None:
        """Note the position from which reading begins or continues."""
        self.next[tp_text(tp)] = offset

    def forget(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget the positions of partitions whose ownership begins or ends."""
        for tp in partitions:
            self.next.pop(tp_text(tp), None)

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
        Write the records of one poll or step: a run, or several if offsets go back.

        Args:
            tp: the partition.
            records: the records in order, at least one.
            began: when the poll or step began.
            end: the position after them, if it is known: it may lie beyond the last
                record, after transaction markers and compacted records.
            is_peek: whether the position stays where it is, so that they come again.

        Raises:
            JournalError: it could not be written.
        """
        name, time = tp_text(tp), _time_of(records[0])
        position = None if is_peek else self.next.get(name)
        for offsets in (runs := _rising([one.offset for one in records])):
            after = offsets[-1] + 1
            if not is_peek:
                if offsets is runs[-1]:
                    after = max(after, end or 0)
                self.next[name] = after  # first: a signal handler may raise below
            start = offsets[0] if position is None else position
            run = {"tp": name, "from": start, "next": after, **_run_of(offsets)}
            how = {"peek": True} if is_peek else {}
            self._journal.write("deliver", {**run, **how, **began, **time})
            position = None


def _time_of(record: Any) -> dict[str, float]:  # noqa: ANN401 - any client's
    # Only the broker's time is when a record was appended; a producer chooses its own.
    at = record.timestamp
    if at is None or at < 0:
        return {}
    is_brokers = getattr(record, "timestamp_type", None) == _LOG_APPEND_TIME
    return {"written" if is_brokers else "created": at / 1000}


def _rising(offsets: list[int]) -> list[list[int]]:
    if _is_whole(offsets):
        return [offsets]
    turns = (at for at in range(1, len(offsets)) if offsets[at] <= offsets[at - 1])
    return [offsets[a:b] for a, b in pairwise((0, *turns, len(offsets)))]


def _run_of(offsets: list[int]) -> dict[str, object]:
    run: dict[str, object] = {
        "first": offsets[0],
        "last": offsets[-1],
        "count": len(offsets),
    }
    if _is_whole(offsets):
        return run
    gaps = [[a + 1, b] for a, b in pairwise(offsets) if b > a + 1]
    return {**run, "gaps": gaps}


def _is_whole(offsets: list[int]) -> bool:
    # This is nearly always so, and then records need not be compared one by one.
    first, last = offsets[0], offsets[-1]
    is_wide = last - first >= len(offsets)
    return not is_wide and offsets == list(range(first, last + 1))
