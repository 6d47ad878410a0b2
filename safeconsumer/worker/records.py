"""Defines the type of records, for type checkers."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


class Record(Protocol[K_co, V_co]):
    """
    The type of a record that a handler gets: kafka-python's ``ConsumerRecord``.

    Annotate a handler as ``def handle(record: Record[str | None, Order], context:
    Context) -> None``, with the types that the consumer's deserializers return for keys
    and values. Without deserializers both types are ``bytes | None``.
    """

    @property
    def topic(self) -> str:
        """The name of the record's topic."""

    @property
    def partition(self) -> int:
        """The number of the record's partition."""

    @property
    def offset(self) -> int:
        """The offset of the record in its partition."""

    @property
    def key(self) -> K_co:
        """The key of the record."""

    @property
    def value(self) -> V_co:
        """The value of the record."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The headers, as pairs of name and value, in order; names may occur repeatedly."""

    @property
    def timestamp(self) -> int:
        """The timestamp of the record, in milliseconds since 1970."""

    @property
    def timestamp_type(self) -> int:
        """0 if the producer has set the timestamp, 1 if the broker has."""

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the leader that wrote the record, as reported by the broker."""

    @property
    def serialized_key_size(self) -> int:
        """The size of the key in bytes; -1 if there is no key."""

    @property
    def serialized_value_size(self) -> int:
        """The size of the value in bytes; -1 if there is no value."""

    @property
    def serialized_header_size(self) -> int:
        """The size of the headers in bytes; -1 if there are no headers."""


AnyRecord: TypeAlias = Record[Any, Any]
