"""Causes rebalances with a ghost member that joins a group and leaves it again."""

from collections.abc import Iterable, Sequence
from typing import Any

from safeconsumer.testing.polling import poll_until


class Ghost:
    """
    An extra group member that gets partitions but never commits.

    Args:
        consumer: the ghost's consumer, not subscribed yet.
        topics: the group's topics, which the ghost subscribes to.
        others: the other members, which :meth:`join` and :meth:`leave` poll and wait
            for.
        timeout: the maximum seconds for joining and for leaving, each.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401  kafka-python is untyped
        topics: Sequence[str],
        others: Sequence[Any],
        timeout: float,
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._others = others
        self._timeout = timeout

    def join(self) -> list[Any]:
        """
        Join the group; return when the ghost has partitions and the others are stable.

        Returns the records that the other members received during the call.

        Raises:
            PollTimeoutError: the members did not settle within the timeout.
        """
        self._consumer.subscribe(list(self._topics))
        return poll_until(
            self._others,
            self._has_joined,
            silently=[self._consumer],
            awaited="the ghost member to get a partition",
            timeout=self._timeout,
        )

    def leave(self) -> list[Any]:
        """
        Leave the group; return when the others are stable in a later generation.

        Returns the records that the other members received during the call.

        Raises:
            PollTimeoutError: the members did not settle within the timeout.
        """
        generation = self._consumer.group_metadata().generation_id
        self._consumer.close(autocommit=False)
        return poll_until(
            self._others,
            lambda: self._has_settled_after(generation),
            awaited="the members to settle without the ghost",
            timeout=self._timeout,
        )

    def _has_joined(self) -> bool:
        if not self._consumer.assignment():
            return False
        own = self._consumer.group_metadata().generation_id
        return self._has_settled_after(own - 1)

    def _has_settled_after(self, generation: int) -> bool:
        return all(
            is_settled(other) and other.group_metadata().generation_id > generation
            for other in self._others
        )


def is_settled(consumer: Any) -> bool:  # noqa: ANN401  kafka-python is untyped
    """Return whether a consumer is a group member and is not aware of any rebalance."""
    return str(consumer.group_metadata().state) == "<stable>"


def strategies(consumers: Iterable[Any]) -> dict[str, Any]:
    """Return the members' assignor settings, which a ghost must share."""
    for consumer in consumers:
        key = "partition_assignment_strategy"
        return {key: consumer.config[key]}
    return {}
