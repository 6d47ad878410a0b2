"""Finds out which brokers coordinate groups."""

from collections.abc import Iterable, Sequence
from typing import Any

from kafka.protocol.metadata import CoordinatorType


def coordinators(
    admin: Any,  # noqa: ANN401 - kafka-python is untyped
    groups: Sequence[str],
) -> dict[str, int]:
    """
    Return which broker coordinates each group, as the client learned it.

    Raises:
        KafkaError: no broker answers, or one of the groups has none.
    """
    found: dict[str, int] = admin._manager._net.run(admin._find_coordinator_ids, groups)
    return found


def forget(admin: Any, groups: Iterable[str]) -> None:  # noqa: ANN401 - as above
    """
    Let the client look again which brokers coordinate groups.

    kafka-python 3.0.12 remembers the first answer: a broker that coordinates no
    more would be asked until the client is closed.
    """
    known = admin._manager.cluster._coordinators
    for group in groups:
        known.pop((CoordinatorType.GROUP, group), None)
