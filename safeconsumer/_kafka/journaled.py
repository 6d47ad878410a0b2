"""
Connects the parts of a consumer with a journal of what it does without being asked.

Without a journal nothing of it is loaded.
"""

from collections.abc import Callable
from typing import Any, Protocol

from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.pausing.coordinator import CommitJournal
from safeconsumer._kafka.pausing.fetcher import FetchJournal
from safeconsumer.holds.ownership import Reassignment


class Journal(CommitJournal, FetchJournal, Protocol):
    """
    What the parts tell; any thread.
    """

    def begins_at(self, tp: TopicPartition, offset: int) -> None:
        """
        Take note of a position that was set.
        """

    def reassigned(self, change: Reassignment) -> None:
        """
        Take note of a change of the assignment, under upstream's lock; raises nothing.
        """


class JournaledParts:
    """
    A view of one adopted consumer's parts, which tell a journal from now on.
    """

    def __init__(self, consumer: KafkaConsumer, journal: Journal) -> None:
        self._subscription = consumer._subscription
        self._coordinator = consumer._coordinator
        consumer._fetcher.journal = journal
        self._coordinator.journal = journal
        self._subscription.ledger.on_reassigned = journal.reassigned
        self._subscription.on_seek = _both(self._subscription.on_seek, journal)

    def generation(self) -> int:
        """
        Return the generation of the group; -1 for none.
        """
        return int(self._coordinator._generation.generation_id)

    def has_lost(self) -> bool:
        """
        Tell whether the membership is lost at this moment.
        """
        return bool(self._coordinator._generation.is_lost())

    def position(self, tp: TopicPartition) -> int | None:
        """
        Return where the next record of a partition is looked for; None: not known.
        """
        state = self._subscription.assignment.get(tp)
        position = None if state is None else state.position
        return None if position is None else int(position.offset)


def _both(
    other: Callable[[TopicPartition, Any], object] | None, journal: Journal
) -> Callable[[TopicPartition, int | OffsetAndMetadata], None]:
    def tell(tp: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        if other is not None:
            other(tp, offset)
        journal.begins_at(tp, offset if isinstance(offset, int) else offset.offset)

    return tell
