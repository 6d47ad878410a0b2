"""Causes a rebalance on demand: a ghost member joins a group and leaves it again."""

from collections.abc import Iterable, Sequence
from typing import Any

from safeconsumer.testing.polling import poll_until


def haunt(
    ghost: Any,  # noqa: ANN401  kafka-python is untyped
    topics: Sequence[str],
    others: Sequence[Any],
    timeout: float,
) -> list[Any]:
    """
    Let a ghost join and leave; return what the others delivered meanwhile.

    It has had a partition then, and the others have settled without it.

    Args:
        ghost: a consumer, not subscribed yet.
        topics: what it subscribes to: the group's own topics.
        others: the members to wait for; they are polled here meanwhile.
        timeout: seconds for joining and for leaving, each.

    Raises:
        PollTimeoutError: it did not happen in time.
    """

    def generation() -> int:
        return int(ghost.group_metadata().generation_id)

    ghost.subscribe(list(topics))
    records = poll_until(
        others,
        lambda: ghost.assignment() and _have_settled(others, generation()),
        silently=[ghost],
        awaited="the ghost member to get a partition",
        timeout=timeout,
    )
    last = generation()
    ghost.close(autocommit=False)
    return records + poll_until(
        others,
        lambda: _have_settled(others, last + 1),
        awaited="the members to settle without the ghost",
        timeout=timeout,
    )


def _have_settled(consumers: Iterable[Any], generation: int) -> bool:
    # As members that know of no rebalance under way, in this generation or a later one.
    told = [one.group_metadata() for one in consumers]
    return all(
        str(one.state) == "<stable>" and one.generation_id >= generation for one in told
    )


def strategies(consumers: Iterable[Any]) -> dict[str, Any]:
    """Return the assignors of the group's members, which a ghost must share."""
    for consumer in consumers:
        key = "partition_assignment_strategy"
        return {key: consumer.config[key]}
    return {}
