"""
Defines partitions that refer to an ``assignment()`` call, and types for type checkers.

kafka-python does not provide types for its values.
"""

from typing import TYPE_CHECKING

from safeconsumer.holds.scope import Partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, NamedTuple

    class TopicPartition(NamedTuple):
        """The same as ``kafka.TopicPartition``."""

        topic: str
        partition: int

    class ConsumerRecord(NamedTuple):
        """The same as kafka-python's class, with the types of its keys and values."""

        topic: str
        partition: int
        leader_epoch: int | None
        offset: int
        timestamp: int
        timestamp_type: int
        key: Any
        value: Any
        headers: Sequence[tuple[str, bytes | None]]
        checksum: int | None
        serialized_key_size: int
        serialized_value_size: int
        serialized_header_size: int

else:
    from kafka.consumer.fetcher import ConsumerRecord
    from kafka.structs import TopicPartition


class AssignedPartition(TopicPartition):
    """
    A ``TopicPartition`` from ``assignment()``, with a reference to the others.

    The object equals a plain ``TopicPartition``, with the same hash and ``repr``. A
    pickled copy, or an object created from its values, is a plain ``TopicPartition``.
    """

    snapshot: "Mapping[str, frozenset[tuple[str, int]]] | None" = None
    scope: Partition | None = None

    def __reduce__(self) -> "tuple[type[TopicPartition], tuple[str, int]]":
        return TopicPartition, (self.topic, self.partition)

    def __repr__(self) -> str:
        return repr(TopicPartition(self.topic, self.partition))


class AssignedPartitions:
    """
    The partitions that ``assignment()`` returns, until the assignment changes.

    Attributes:
        assigned: the assignment; it is compared by identity.
        partitions: the partitions; each one refers to all of them.
    """

    def __init__(self, assigned: "Mapping[str, Iterable[tuple[str, int]]]") -> None:
        self.assigned = assigned
        everything = {topic: frozenset(tps) for topic, tps in assigned.items()}
        self.partitions: dict[tuple[str, int], TopicPartition] = {}
        for tps in everything.values():
            for tp in tps:
                one = AssignedPartition(*tp)
                one.snapshot, one.scope = everything, Partition(*tp)
                self.partitions[tp] = one


__all__ = [
    "AssignedPartition",
    "AssignedPartitions",
    "ConsumerRecord",
    "TopicPartition",
]
