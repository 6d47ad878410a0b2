"""Defines the parts that all events share: frozen values, severity, advice, a log line."""

from collections.abc import Iterable
from typing import ClassVar, Self, dataclass_transform, get_origin

from attrs.exceptions import FrozenInstanceError

from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import TopicPartition, partition_text

Partitions = tuple[TopicPartition, ...]

# The maximum number of list items in a log line. Without this limit, ten pauses per
# second of two hundred partitions each would write 680 KB per second.
_MOST_NAMED = 5

_set = object.__setattr__


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Event:
    """
    The base class of all events.

    A subclass defines ``name``, ``level`` and annotated fields, and overrides
    ``severity`` and ``advice`` if these depend on the fields.

    Attributes:
        at: seconds since the epoch.
        client_id: Kafka's ``client_id`` of the consumer, or None.
        group_id: the group of the consumer, or None.
        name: the name of the event, as in log lines.
        level: the level of log lines about the event: debug, info, warning, error.
    """

    # attrs could create such classes, but it compiles code for each of them. For a
    # consumer's events that would add 3 % to 4 % to the import time of kafka-python
    # (design/benchmarks.md).

    __match_args__ = ("name",)
    name: ClassVar[str] = "event"
    level: ClassVar[str] = "info"
    _fields: ClassVar[tuple[str, ...]] = ("at", "client_id", "group_id")
    _known: ClassVar[frozenset[str]] = frozenset(_fields)
    _required: ClassVar[frozenset[str]] = frozenset()

    at: float = 0.0
    client_id: str | None = None
    group_id: str | None = None

    def __init_subclass__(cls) -> None:
        own = tuple(
            name for name, kind in cls.__annotations__.items() if not _is_of_class(kind)
        )
        cls._fields += own
        cls._known |= set(own)
        cls._required |= {name for name in own if not hasattr(cls, name)}

    def __init__(self, **values: object) -> None:
        if not self._required <= values.keys() <= self._known:
            takes, given = ", ".join(self._fields), ", ".join(values) or "nothing"
            message = f"{type(self).__name__} takes {takes}; it was given {given}"
            raise TypeError(message)
        _set(self, "__dict__", values)  # no caller keeps a reference to this dict

    @classmethod
    def of(cls, values: dict[str, object]) -> Self:
        """Create an event that keeps this dict of values, without checking the values."""
        made = cls.__new__(cls)
        _set(made, "__dict__", values)
        return made

    @property
    def severity(self) -> str:
        """The level of the log line, ``level`` unless the fields require another one."""
        return self.level

    @property
    def advice(self) -> str | None:
        """The action that the log line recommends; None if there is none."""
        return None

    def as_dict(self, most: int | None = None) -> dict[str, object]:
        """
        Return every field as plain JSON values, with partitions such as ``orders:3``.

        Args:
            most: the maximum number of items of a list, or None for no limit. A longer
                list is cut, and ends with the number of items that were left out.
        """
        return {name: _plain(one, most) for name, one in self._values()}

    def as_log_line(self) -> tuple[str, dict[str, object]]:
        """Return the name and the keys of the log line; long lists are shortened."""
        values = {**self.as_dict(_MOST_NAMED), "advice": self.advice}
        del values["at"]  # the log line has its own timestamp
        shown = {name: one for name, one in values.items() if one is not None}
        return f"safeconsumer.{self.name}", shown

    def _values(self) -> tuple[tuple[str, object], ...]:
        return tuple((name, getattr(self, name)) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={one!r}" for name, one in self._values())
        return f"{type(self).__qualname__}({values})"

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError


def sorted_partitions(partitions: Iterable[TopicPartition]) -> Partitions:
    """Return partitions sorted by topic and number."""
    return tuple(sorted(partitions))


def _is_of_class(kind: object) -> bool:
    # In a module with ``from __future__ import annotations``, an annotation is a
    # string.
    if isinstance(kind, str):
        return kind.partition("[")[0].rpartition(".")[2].strip() == "ClassVar"
    return ClassVar in {kind, get_origin(kind)}


def _plain(value: object, most: int | None) -> object:
    match value:
        case Hold():
            return value.as_dict()
        case tuple((str(topic), int(number))):
            return partition_text(topic, number)
        case tuple():
            named = [_plain(one, most) for one in value[:most]]
            more = len(value) - len(named)
            return [*named, f"... {more} more"] if more else named
        case _:
            return value
