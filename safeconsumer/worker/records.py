"""
Types of records and handlers, for type checkers.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from safeconsumer.worker.handlers import Context

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


class Record(Protocol[K_co, V_co]):
    """
    A record as handlers get it, kafka-python's ``ConsumerRecord``, with types.

    ``def handle(record: Record[str | None, Order], context: Context) -> None``: what
    the consumer's deserializers make of keys and of values; ``bytes | None`` without.
    """

    @property
    def topic(self) -> str:
        """
        The topic's name.
        """

    @property
    def partition(self) -> int:
        """
        The partition's number.
        """

    @property
    def offset(self) -> int:
        """
        Where it stands in its partition.
        """

    @property
    def key(self) -> K_co:
        """
        Its key.
        """

    @property
    def value(self) -> V_co:
        """
        Its value.
        """

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """
        Names with values, in order; a name may come again.
        """

    @property
    def timestamp(self) -> int:
        """
        Milliseconds since 1970.
        """

    @property
    def timestamp_type(self) -> int:
        """
        0: the producer's time; 1: the broker's.
        """

    @property
    def leader_epoch(self) -> int | None:
        """
        Of the leader that wrote it, as the broker says.
        """

    @property
    def serialized_key_size(self) -> int:
        """
        Bytes; -1 without a key.
        """

    @property
    def serialized_value_size(self) -> int:
        """
        Bytes; -1 without a value.
        """

    @property
    def serialized_header_size(self) -> int:
        """
        Bytes; -1 without headers.
        """


Handle: TypeAlias = Callable[[Record[Any, Any], Context], object]
"""
Takes a record.
"""

HandleBatch: TypeAlias = Callable[[list[Record[Any, Any]], Context], object]
"""
Takes the records of a batch.
"""
