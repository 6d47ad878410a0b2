"""Defines the type of records, for type checkers."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


class Record(Protocol[K_co, V_co]):
    """
    A record as handlers get it, kafka-python's ``ConsumerRecord``, with types.

    Use it as ``def handle(record: Record[str | None, Order], context: Context) ->
    None``, with the types that the consumer's deserializers return for keys and values;
    they are ``bytes | None`` without deserializers.
    """

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def partition(self) -> int:
        """The partition's number."""

    @property
    def offset(self) -> int:
        """Its offset in its partition."""

    @property
    def key(self) -> K_co:
        """Its key."""

    @property
    def value(self) -> V_co:
        """Its value."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Pairs of name and value, in order; a name may occur more than once."""

    @property
    def timestamp(self) -> int:
        """The timestamp in milliseconds since 1970."""

    @property
    def timestamp_type(self) -> int:
        """0 if the timestamp is the producer's, 1 if it is the broker's."""

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the leader that wrote it, as the broker reports it."""

    @property
    def serialized_key_size(self) -> int:
        """The key's bytes; -1 without a key."""

    @property
    def serialized_value_size(self) -> int:
        """The value's bytes; -1 without a value."""

    @property
    def serialized_header_size(self) -> int:
        """The headers' bytes; -1 without headers."""


AnyRecord: TypeAlias = Record[Any, Any]
