"""Gives kafka-python's values types for type checkers: it ships none itself."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NamedTuple

    class TopicPartition(NamedTuple):
        """The same as ``kafka.TopicPartition``."""

        topic: str
        partition: int

    class ConsumerRecord(NamedTuple):
        """The same as kafka-python's; keys and values are the deserializers' results."""

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

__all__ = ["ConsumerRecord", "TopicPartition"]
