"""
Records that came, as entries of a journal.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from safeconsumer._core.scopes import TopicPartition
from safeconsumer.audit.journal import tp_text
from safeconsumer.audit.writer import JournalWriter


class Deliveries:
    """
    Writes runs of records, each from where the one before it ended.

    Thread rules: :meth:`came` on the thread that polls, the others on any.

    Attributes:
        next: by partition, as journals name it, the offset after what came last.
    """

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self.next: dict[str, int] = {}

    def begins_at(self, tp: TopicPartition, offset: int) -> None:
        """
        Take note of where reading begins or goes on.
        """
        self.next[tp_text(tp)] = offset

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """
        Forget where partitions stand, whose ownership begins or ends.
        """
        for tp in partitions:
            self.next.pop(tp_text(tp), None)

    def came(
        self,
        tp: TopicPartition,
        records: Sequence[Any],
        end: int | None = None,
        **more: object,
    ) -> None:
        """
        Write one run.

        Args:
            tp: its partition.
            records: in order, at least one.
            end: the position after it, where it is known: it may lie beyond the last
                record, behind markers of transactions and what was compacted away.
            more: which call it belongs to.

        Raises:
            JournalError: it could not be written.
        """
        name, first, last = tp_text(tp), records[0].offset, records[-1].offset
        end = last + 1 if end is None else max(end, last + 1)
        run = {"from": self.next.get(name, first), "next": end}
        run |= {"first": first, "last": last, "count": len(records)}
        written = records[0].timestamp
        when = {} if written is None or written < 0 else {"written": written / 1000}
        self._journal.write("deliver", {"tp": name, **run, **more, **when})
        self.next[name] = end
