"""Writes delivered records as entries of a journal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
        # Where a poll that is under way may still read from, though a seek has left it.
        self._left: dict[str, list[int | None]] = {}
        self._sought: set[str] = set()  # whose seeks have returned
        self._targets: dict[str, int | None] = {}

    def begins_at(self, tp: tuple[str, int], offset: int) -> None:
        """Note the position from which reading begins or continues."""
        self.next[tp_text(tp)] = offset

    def forget(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget the positions of partitions whose ownership begins or ends."""
        for name in map(tp_text, partitions):
            self.next.pop(name, None)
            self._left.pop(name, None)
            self._targets.pop(name, None)

    def began(self) -> None:
        """Note that a poll or step begins: seeks that have returned bind it."""
        while self._sought:
            self._left.pop(self._sought.pop(), None)

    def is_sought(self, tp: tuple[str, int]) -> bool:
        """Return whether a seek came since the latest poll began."""
        return tp_text(tp) in self._left

    @contextmanager
    def seeking(self, offsets: Mapping[str, int | None]) -> Iterator[None]:
        """Note a seek; a poll under way on another thread may come before or after it."""
        for name, offset in offsets.items():
            self._sought.discard(name)
            self._targets[name] = offset
            self._left.setdefault(name, []).append(self.next.get(name))
            if offset is not None:
                self.next[name] = offset
        known = {name for name, offset in offsets.items() if offset is not None}
        try:
            yield
            for name in known:
                if offsets[name] is None:  # another one has come meanwhile
                    self.next.pop(name, None)
        except BaseException:
            for name in offsets:
                before = self._left.get(name, [None])[-1]
                self.next.pop(name, None)
                if before is not None:
                    self.next[name] = before
            raise
        finally:
            self._sought.update(offsets)

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
        seeks = len(self._left.get(name, ()))
        position, is_left = None if is_peek else self.next.get(name), False
        if not is_peek and name in self._left:
            position, is_left = self._begun_at(name, records, end)
        for offsets in (runs := _rising([one.offset for one in records])):
            after = offsets[-1] + 1
            if is_left:
                self._left[name].append(after)
                seeks += 1
            elif not is_peek:
                if offsets is runs[-1]:
                    after = max(after, end or 0)
                self.next[name] = after  # first: a signal handler may raise below
                self._keep_sought(name, seeks)
            start = offsets[0] if position is None else position
            run = {"tp": name, "from": start, "next": after, **_run_of(offsets)}
            how = {"peek": True} if is_peek else {}
            self._journal.write("deliver", {**run, **how, **began, **time})
            position = None

    def _keep_sought(self, name: str, seeks: int) -> None:
        # A seek on another thread, or in a signal handler, may just have come.
        target = self._targets.get(name)
        if len(self._left.get(name, ())) > seeks and target is not None:
            self.next[name] = target

    def _begun_at(
        self, name: str, records: Sequence[Any], end: int | None
    ) -> tuple[int | None, bool]:
        # Returns where the records were read from, and whether a seek has left that.
        first, last = records[0].offset, records[-1].offset
        now, left = self.next.get(name), self._left[name]
        known = [one for one in left if one is not None and one <= first]
        has_moved_on = end is None or end > last
        if now is not None and max(known, default=now) <= now <= first and has_moved_on:
            return now, False
        if not known and None not in left:
            return now, False
        return max(known, default=None), True


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
