"""Remembers which partitions left quiet, to report it when they come back."""

from collections.abc import Iterable

from safeconsumer.holds.hold import APP, Hold
from safeconsumer.holds.scope import Partition, TopicPartition
from safeconsumer.holds.state import LedgerState
from safeconsumer.holds.view import PauseView


class DepartedQuiet:
    """
    The partitions that departed quiet and that a hold still covers.

    A hold that bites when its partition returns surprises people; one that was placed
    before the first assignment, or while the partition was away, does not.

    Thread rules: under the ledger's lock.
    """

    def __init__(self) -> None:
        self._partitions: frozenset[TopicPartition] = frozenset()

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._partitions

    def topics(self) -> set[str]:
        """Return the topics that :meth:`settle` will look up."""
        return {topic for topic, _ in self._partitions}

    def leave(self, departed: Iterable[TopicPartition], before: PauseView) -> None:
        """Note those of the departed that were quiet."""
        self._partitions |= {tp for tp in departed if tp in before.quiet}

    def returned(
        self, gained: Iterable[TopicPartition], state: LedgerState
    ) -> dict[TopicPartition, tuple[Hold, ...]]:
        """Return gained partitions that had left quiet, with the holds on them now."""
        back = {tp: state.covering(tp) for tp in gained if tp in self._partitions}
        return {tp: holds for tp, holds in back.items() if holds}

    def settle(self, gained: Iterable[TopicPartition], state: LedgerState) -> None:
        """Forget partitions that are back, and those that no hold covers any more."""
        away = self._partitions.difference(gained)
        self._partitions = frozenset(tp for tp in away if state.covers(tp))


def staying_behind(
    departed: Iterable[TopicPartition], state: LedgerState
) -> dict[TopicPartition, Hold]:
    """Return the departed partitions that the application's own ``pause`` still holds."""
    return {
        tp: hold
        for tp in departed
        for hold in state.of(Partition(tp[0], tp[1]))
        if hold.owner == APP
    }
