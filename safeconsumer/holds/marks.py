"""Remembers partitions that were quiet after their position was last confirmed (P16)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from safeconsumer.holds.scope import TopicPartition

# The number of partitions to remember besides the owned ones; they take about 1 MB.
# Without a limit, endless new topic names would fill the memory under a hold of
# everything.
MOST_AWAY = 10_000


class QuietMarks:
    """
    The partitions that were quiet after a broker last confirmed their position.

    ``moves`` is how many times partitions became quiet, or ceased to be quiet. Once a
    broker has confirmed a partition's position at some value of ``moves``, the
    partition's marks up to that value are removed.

    Thread rules: the marks change under the ledger's lock; any thread may read them.
    """

    def __init__(self) -> None:
        # Maps each partition to the value of ``moves`` when it was last quiet.
        self._quiet_until: dict[TopicPartition, int] = {}

    def __contains__(self, tp: object) -> bool:
        return tp in self._quiet_until

    def before(self, moves: int) -> list[TopicPartition]:
        """Return the partitions that were last quiet up to this value of ``moves``."""
        marks = self._quiet_until
        return [tp for tp, at in tuple(marks.items()) if at <= moves] if marks else []

    def note(
        self,
        partitions: Iterable[TopicPartition],
        moves: int,
        owned: Collection[TopicPartition],
    ) -> None:
        """Mark partitions as quiet up to this value of ``moves``; may be repeated safely."""
        marks = self._quiet_until
        for tp in partitions:
            marks[tp] = moves
        if len(marks) > len(owned) + MOST_AWAY:
            away = sorted((at, tp) for tp, at in marks.items() if tp not in owned)
            for _, tp in away[: -(MOST_AWAY // 2)]:
                marks.pop(tp, None)

    def confirm(self, partitions: Iterable[TopicPartition], moves: int) -> None:
        """Remove marks of partitions that were last quiet up to this value of ``moves``."""
        marks = self._quiet_until
        for tp in partitions:
            if tp in marks and marks[tp] <= moves:
                del marks[tp]
