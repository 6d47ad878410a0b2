"""A rebalance listener made of functions."""

from collections.abc import Callable, Collection

from kafka import ConsumerRebalanceListener, TopicPartition


class Listener(ConsumerRebalanceListener):
    """Calls functions, each with the set of partitions."""

    def __init__(
        self,
        assigned: Callable[[set[TopicPartition]], object] = len,
        revoked: Callable[[set[TopicPartition]], object] = len,
        lost: Callable[[set[TopicPartition]], object] | None = None,
    ) -> None:
        self._assigned, self._revoked = assigned, revoked
        self._lost = lost or revoked

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Call the function."""
        self._assigned(set(assigned))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Call the function."""
        self._revoked(set(revoked))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Call the function."""
        self._lost(set(lost))
