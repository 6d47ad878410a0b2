"""
Parts that tell a journal what a consumer does without being asked to.

Adopted by ``__class__`` where a journal is kept; without one nothing of it is loaded.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.pausing.coordinator import CommitJournal
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer.holds.ownership import Reassignment

_ENDED = "its ownership ended"
_OVER_LIMIT = "parked_max_bytes"


class Journal(CommitJournal, Protocol):
    """
    What the parts tell; any thread.
    """

    def purged(self, tp: TopicPartition, count: int | None, why: str) -> None:
        """
        Take note of fetched records thrown away.
        """

    def parked(self, tp: TopicPartition, size: int, limit: int) -> None:
        """
        Take note of how much fetched data of a partition is kept.
        """

    def begins_at(self, tp: TopicPartition, offset: int) -> None:
        """
        Take note of a position that was set.
        """

    def reassigned(self, change: Reassignment) -> None:
        """
        Take note of a change of the assignment, under upstream's lock; raises nothing.
        """


class JournaledFetcher(PauseSafeFetcher):
    """
    Tells what it throws away and what it keeps for a resume.
    """

    journal: Journal

    def prepare_journal(self, journal: Journal) -> None:
        """
        Make what this class needs beyond its parent's attributes.
        """
        self.journal = journal
        self._told_parked: dict[TopicPartition, int] = {}

    def _tell_purged(
        self, purged: Sequence[tuple[TopicPartition, int | None, int]]
    ) -> None:
        super()._tell_purged(purged)
        for tp, count, _ in purged:
            self.journal.purged(tp, count, _ENDED)

    def _bound_parked(self) -> None:
        before = dict(self._parked)
        super()._bound_parked()
        for tp in before.keys() - self._parked.keys():
            self.journal.purged(tp, None, _OVER_LIMIT)
        if self._parked != self._told_parked:
            now = dict(self._parked)
            for tp in (*now, *(self._told_parked.keys() - now.keys())):
                if now.get(tp, 0) != self._told_parked.get(tp):
                    self.journal.parked(tp, now.get(tp, 0), self.parked_max_bytes)
            self._told_parked = now


class JournaledParts:
    """
    A view of one adopted consumer's parts, which tell a journal from now on.
    """

    def __init__(self, consumer: KafkaConsumer, journal: Journal) -> None:
        self._subscription = consumer._subscription
        self._coordinator = consumer._coordinator
        consumer._fetcher.__class__ = JournaledFetcher
        consumer._fetcher.prepare_journal(journal)
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
