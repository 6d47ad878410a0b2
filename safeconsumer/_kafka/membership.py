"""
What a worker may ask of an adopted consumer's membership, without private names.
"""

from collections.abc import Callable, Mapping

from kafka import KafkaConsumer
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.structs import TopicPartition


class Membership:
    """
    Who owns what, and a say before a join begins.

    Thread rules: the polling thread; ``losses`` and ``epochs`` from any.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._coordinator = consumer._coordinator
        self._ledger = consumer._subscription.ledger
        self._subscription = consumer._subscription

    def epochs(self) -> Mapping[TopicPartition, int]:
        """
        Return the owned partitions with their epochs; a new object when it changes.
        """
        epochs: Mapping[TopicPartition, int] = self._ledger.ownership().epochs
        return epochs

    @property
    def losses(self) -> int:
        """
        How often this member lost its generation.
        """
        return int(self._coordinator.losses)

    def is_lost(self) -> bool:
        """
        Tell whether the membership is lost, or never was.

        Partitions assigned by hand need none.
        """
        needs_one = self._subscription.partitions_auto_assigned()
        return bool(needs_one and self._coordinator._generation.is_lost())

    def is_joining(self) -> bool:
        """
        Tell whether a join is under way and not applied yet.
        """
        return bool(self._coordinator.rejoining)

    def revokes_on_join(self) -> frozenset[TopicPartition]:
        """
        Return the owned partitions that are given up as soon as a join begins.
        """
        owned = frozenset(self._subscription.assigned_partitions())
        if self._coordinator._rebalance_protocol == RebalanceProtocol.EAGER:
            return owned
        topics = self._subscription.subscription or ()
        return frozenset(tp for tp in owned if tp.topic not in topics)

    @property
    def is_cooperative(self) -> bool:
        """
        Whether partitions are revoked by one join and given away by the next.
        """
        protocol = self._coordinator._rebalance_protocol
        return bool(protocol == RebalanceProtocol.COOPERATIVE)

    def lag(self) -> int:
        """
        Return how many offsets are known to be there and not returned by a poll yet.

        Counts what the last fetches said; a partition never fetched counts nothing.
        """
        lag = 0
        for state in tuple(self._subscription.assignment.values()):
            position, end = state.position, state.highwater
            if position is not None and end is not None:
                lag += max(0, end - position.offset)
        return lag

    def ask_before_join(self, ask: Callable[[], None] | None) -> None:
        """
        Have ``ask`` called on the polling thread where a join would begin.

        What it raises ends that ``poll``; the next one asks again.
        """
        self._coordinator.before_join = ask
