"""Turns partitions into ranges and text, and back; finds those that scopes cover."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from kafka import TopicPartition

from safeconsumer.group import report_wire

_MANY = 20


class Covering(Protocol):
    """A scope, or a hold that is on a topic."""

    def covers(self, tp: TopicPartition, /) -> bool:
        """Tell whether it covers a partition."""


def covered(
    scopes: Iterable[Covering], partitions: Iterable[TopicPartition]
) -> tuple[TopicPartition, ...]:
    """Return the given partitions that a scope covers."""
    scopes = tuple(scopes)
    return tuple(tp for tp in partitions if any(one.covers(tp) for one in scopes))


def ranges(
    partitions: Iterable[TopicPartition],
) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """Return partitions as ranges of numbers by topic."""
    numbers: dict[str, list[int]] = {}
    for tp in partitions:
        numbers.setdefault(tp[0], []).append(tp[1])
    return {
        topic: report_wire.ranges_of(found) for topic, found in sorted(numbers.items())
    }


def partitions_of(
    ranges: Mapping[str, tuple[tuple[int, int], ...]],
) -> Iterator[TopicPartition]:
    """Return the partitions that such ranges name."""
    for topic, several in ranges.items():
        for first, last in several:
            for number in range(first, last + 1):
                yield TopicPartition(topic, number)


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as ``orders:0-3,7 audit:0``, cut if it is too long."""
    parts = [
        topic + ":" + ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in several)
        for topic, several in ranges(partitions).items()
    ]
    if len(parts) > _MANY:
        parts = [*parts[:_MANY], f"and {len(parts) - _MANY} more topics"]
    return " ".join(parts)


def names(partitions: Iterable[TopicPartition]) -> list[str]:
    """Return the name of each partition, as ``orders:3``."""
    return [f"{tp.topic}:{tp.partition}" for tp in partitions]
