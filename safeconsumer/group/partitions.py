"""Converts partitions to and from ranges and text, and finds those that scopes cover."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

from kafka import TopicPartition

from safeconsumer.group import report_wire
from safeconsumer.group.facts import HoldRecord
from safeconsumer.holds.scope import Partition, Scope, partition_text

_MANY = 20


class Covering(Protocol):
    """A scope, or a hold on the holds topic."""

    def covers(self, tp: TopicPartition, /) -> bool:
        """Return whether the scope covers a partition."""


C = TypeVar("C", bound=Covering)


class Coverage(Generic[C]):
    """
    An index of scopes, or holds, by the partitions that they cover.

    Holds on single partitions are looked up by partition, so that a thousand of them
    are not compared one by one. Any other scope covers all partitions of a topic or
    none, so it is compared only once for each topic.
    """

    def __init__(self, several: Iterable[C]) -> None:
        self._single: dict[tuple[str, int], list[tuple[int, C]]] = {}
        self._wide: list[tuple[int, C]] = []
        self._by_topic: dict[str, list[tuple[int, C]]] = {}
        for place, one in enumerate(several):
            scope = getattr(one, "scope", one)
            if isinstance(scope, Partition):
                key = scope.topic, scope.partition
                self._single.setdefault(key, []).append((place, one))
            else:
                self._wide.append((place, one))

    def covering(self, tp: TopicPartition) -> tuple[C, ...]:
        """Return the scopes that cover a partition, in the order in which they were given."""
        single, wide = self._single.get((tp[0], tp[1]), []), self._of_topic(tp)
        found = (
            sorted([*single, *wide], key=_PLACE) if single and wide else single or wide
        )
        return tuple(one for _, one in found)

    def _of_topic(self, tp: TopicPartition) -> list[tuple[int, C]]:
        found = self._by_topic.get(tp[0])
        if found is None:
            found = [item for item in self._wide if item[1].covers(tp)]
            self._by_topic[tp[0]] = found
        return found


_PLACE = itemgetter(0)


def covered(
    scopes: Iterable[Covering], partitions: Iterable[TopicPartition]
) -> tuple[TopicPartition, ...]:
    """Return those of the given partitions that any scope covers."""
    coverage = Coverage(scopes)
    return tuple(tp for tp in partitions if coverage.covering(tp))


def meeting(
    several: Iterable[C], partitions: Iterable[TopicPartition]
) -> tuple[C, ...]:
    """Return the scopes, or holds, that cover at least one of the partitions."""
    every = frozenset((tp[0], tp[1]) for tp in partitions)
    # A scope other than a single partition covers all partitions of a topic or none.
    one_each = {topic: TopicPartition(topic, number) for topic, number in every}
    return tuple(
        one
        for one in several
        if (
            (scope.topic, scope.partition) in every
            if isinstance(scope := getattr(one, "scope", one), Partition)
            else any(map(one.covers, one_each.values()))
        )
    )


def partitions_of(
    ranges: Mapping[str, tuple[tuple[int, int], ...]],
) -> Iterator[TopicPartition]:
    """Yield each partition whose number is in a range of its topic."""
    for topic, several in ranges.items():
        for first, last in several:
            for number in range(first, last + 1):
                yield TopicPartition(topic, number)


def numbers_text(several: Iterable[tuple[int, int]]) -> str:
    """Return ranges of partitions as ``0-3,7``."""
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in several)


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as ``orders:0-3,7 audit:0``, truncated after twenty topics."""
    parts = [
        partition_text(topic, numbers_text(several))
        for topic, several in report_wire.ranges(partitions).items()
    ]
    if len(parts) > _MANY:
        parts = [*parts[:_MANY], f"and {len(parts) - _MANY} more topics"]
    return " ".join(parts)


def name_of(tp: TopicPartition) -> str:
    """Return the name of a partition, such as ``orders:3``."""
    return partition_text(tp.topic, tp.partition)


def names(partitions: Iterable[TopicPartition]) -> list[str]:
    """Return the name of each partition."""
    return list(map(name_of, partitions))


def scopes_text(several: Sequence[Scope]) -> str:
    """Return scopes as text; if there are many, single partitions are merged into ranges."""
    if len(several) <= _MANY:
        return ", ".join(map(str, several))
    wide = [str(one) for one in several if not isinstance(one, Partition)]
    single = (
        TopicPartition(one.topic, one.partition)
        for one in several
        if isinstance(one, Partition)
    )
    return ", ".join(filter(None, [*wide, partitions_text(single)]))


def folded(
    rows: Iterable[tuple[str, ...]], scopes: Sequence[Scope]
) -> list[tuple[str, ...]]:
    """
    Return rows about holds; if there are many, merge those that differ only by partition.

    Args:
        rows: the cells of each hold, its scope first.
        scopes: the scope of each row.
    """
    rows = list(rows)
    if len(rows) <= _MANY:
        return rows
    single: dict[tuple[str, ...], list[TopicPartition]] = {}
    found: list[tuple[str, ...]] = []
    for (text, *rest), scope in zip(rows, scopes, strict=True):
        if isinstance(scope, Partition):
            tp = TopicPartition(scope.topic, scope.partition)
            single.setdefault(tuple(rest), []).append(tp)
        else:
            found.append((text, *rest))
    return [*found, *((partitions_text(tps), *rest) for rest, tps in single.items())]


def folded_cells(several: Sequence[HoldRecord]) -> list[tuple[str, ...]]:
    """Return the table cells of holds, merged as in :func:`folded`."""
    return folded(map(HoldRecord.cells, several), [one.scope for one in several])
