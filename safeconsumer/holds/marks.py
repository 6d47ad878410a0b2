"""Remembers partitions that were quiet since a broker last confirmed their position (P16)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from safeconsumer.holds.scope import TopicPartition

# The number of partitions to remember besides the owned ones, which take about 1 MB.
# Under a hold of everything, endless new topic names would fill the memory.
MOST_AWAY = 10_000


class QuietMarks:
    """
    The partitions that were quiet since their last valid position.

    *Moves* is the number of times that partitions became quiet or started to flow. Once
    a broker has confirmed a partition's position after some number of moves, the
    partition's earlier marks are void.

    Thread rules: the marks change under the ledger's lock; any thread may read them.
    """

    def __init__(self) -> None:
        # The number of moves when each partition was last quiet.
        self._quiet_until: dict[TopicPartition, int] = {}

    def __contains__(self, tp: object) -> bool:
        return tp in self._quiet_until

    def before(self, moves: int) -> list[TopicPartition]:
        """Return the partitions whose marks are no newer than the given number of moves."""
        marks = self._quiet_until
        return [tp for tp, at in tuple(marks.items()) if at <= moves] if marks else []

    def note(
        self,
        partitions: Iterable[TopicPartition],
        moves: int,
        owned: Collection[TopicPartition],
    ) -> None:
        """Mark partitions as quiet until this many moves; a repeated call is harmless."""
        marks = self._quiet_until
        for tp in partitions:
            marks[tp] = moves
        if len(marks) > len(owned) + MOST_AWAY:
            away = sorted((at, tp) for tp, at in marks.items() if tp not in owned)
            for _, tp in away[: -(MOST_AWAY // 2)]:
                marks.pop(tp, None)

    def confirm(self, partitions: Iterable[TopicPartition], moves: int) -> None:
        """Remove the marks of partitions that were not quiet after this number of moves."""
        marks = self._quiet_until
        for tp in partitions:
            if tp in marks and marks[tp] <= moves:
                del marks[tp]
