"""Causes rebalances by a ghost member that joins a group and leaves it again."""

from collections.abc import Iterable, Sequence
from typing import Any

from safeconsumer.testing.polling import poll_until


class Ghost:
    """
    An additional member of a group, which gets partitions and commits nothing.

    Args:
        consumer: the ghost's consumer, which is not subscribed yet.
        topics: the topics of the group, to which the ghost subscribes.
        others: the members to wait for; :meth:`join` and :meth:`leave` poll these.
        timeout: the maximum seconds for joining, and for leaving.
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
        Join the group; return once the ghost has partitions and the others settled.

        Returns the records that the other members received in the meantime.

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
        Leave the group; return once the others have settled in a later generation.

        Returns the records that the other members received in the meantime.

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
    """Return whether a consumer is a member of a group and knows of no rebalance."""
    return str(consumer.group_metadata().state) == "<stable>"


def strategies(consumers: Iterable[Any]) -> dict[str, Any]:
    """Return the assignor settings of the group's members, which a ghost must share."""
    for consumer in consumers:
        key = "partition_assignment_strategy"
        return {key: consumer.config[key]}
    return {}
