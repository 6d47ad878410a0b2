"""
Reduces control records to the existing holds: for each key, the last record decides.

Members, commands and the console all use :class:`Fold`. Offsets define the order of
records; timestamps are used only for display and expiry.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from attrs import frozen

from safeconsumer.group import patterns, wire
from safeconsumer.group.facts import HoldRecord

# The time of a record without a timestamp. Old clients write such records, and any
# producer can do so.
NO_TIME_MS = -1


@frozen
class RawRecord:
    """
    The parts of a control record that this package uses, not decoded yet.

    Most records are never decoded, because later records with the same key replace
    them. ``at_ms`` may be NO_TIME_MS.
    """

    key: bytes | None
    value: bytes | None
    offset: int
    at_ms: int

    @cached_property
    def control_key(self) -> wire.ControlKey | None:
        """The key with group, owner and scope; None if it cannot be read."""
        return wire.decode_key(self.key)

    @cached_property
    def hold(self) -> HoldRecord | None:
        """The decoded record; None if the record cannot be read."""
        return read_record(self)


def raw_record(record: Any) -> RawRecord:  # noqa: ANN401 - kafka-python's or aiokafka's
    """Return the parts of a client library's record that this package uses."""
    at_ms = NO_TIME_MS if record.timestamp is None else record.timestamp
    return RawRecord(record.key, record.value, record.offset, at_ms)


class Fold:
    """
    The last record of each hold on one group, or on all groups, in the topic's order.

    A tombstone removes the hold that it lifts, and is not kept. When the topic is
    recreated, a new incarnation starts: offsets start over, and count as later than all
    offsets in earlier incarnations.

    Thread rules: not thread-safe; a caller that shares a fold between threads must
    lock.

    Args:
        group: apply only this group's holds; None for all groups.

    Attributes:
        incarnation: how many times the topic was recreated.
    """

    def __init__(self, group: str | None = None) -> None:
        self._group = group
        # The mapping's keys are record keys as bytes; each key has only one encoding.
        self._last: dict[bytes, HoldRecord] = {}
        self._with_reset: set[bytes] = set()
        self.incarnation = 0

    def take(self, records: Iterable[RawRecord]) -> tuple[list[HoldRecord], int]:
        """
        Apply records; return the last one for each key, and how many were unreadable.

        If the fold covers all groups, only the last readable record with each key is
        decoded, because the topic holds a month's records, and most of them are
        superseded. In that case unreadable records are counted only if they follow the
        last readable record.
        """
        by_key: dict[bytes | None, list[RawRecord]] = {}
        for record in records:
            by_key.setdefault(record.key, []).append(record)
        fresh: list[HoldRecord] = []
        skipped = 0
        for data, several in by_key.items():
            key = wire.decode_key(data)
            if key is not None and self._group not in {None, key.group}:
                continue
            one, unreadable = self._latest(several)
            skipped += unreadable
            written = data or b""
            if one is None:
                continue
            fresh.append(one)
            # A hold that is placed again keeps its position in the order.
            if one.hold is None:
                self._last.pop(written, None)
            else:
                self._last[written] = one
            if one.hold is not None and one.hold.reset is not None:
                self._with_reset.add(written)
            else:
                self._with_reset.discard(written)
        return fresh, skipped

    def forget_expired(self, before: float) -> None:
        """Forget holds that had expired by this time, in seconds since the epoch."""
        expired = [key for key, one in self._last.items() if one.is_over(before)]
        for written in expired:
            del self._last[written]
            self._with_reset.discard(written)

    def _latest(self, records: Sequence[RawRecord]) -> tuple[HoldRecord | None, int]:
        """Return the last readable record, and the number of unreadable records."""
        latest, skipped = None, 0
        for record in reversed(records):
            one = read_record(record, self.incarnation)
            skipped += one is None
            latest = latest or one
            if latest is not None and self._group is None:
                break
        return latest, skipped

    def resets(self) -> tuple[HoldRecord, ...]:
        """Return the holds that have not been lifted and that reset their group's offsets."""
        return tuple(self._last[written] for written in self._with_reset)

    def topic_recreated(self) -> None:
        """Record that the topic was recreated; its offsets start over, and its holds stay."""
        self.incarnation += 1

    def is_from_earlier_topic(self, one: HoldRecord) -> bool:
        """Return whether a record was written before the topic was recreated."""
        return one.incarnation < self.incarnation

    def holds(self, group: str | None = None) -> tuple[HoldRecord, ...]:
        """
        Return every hold on one group, or on all groups, that has not been lifted.

        The holds are in the order in which they were first placed.
        """
        return tuple(
            one for one in self._last.values() if group in {None, one.key.group}
        )


def read_record(record: RawRecord, incarnation: int = 0) -> HoldRecord | None:
    """
    Decode a record; return None if it cannot be read.

    Args:
        record: the record.
        incarnation: how many times the topic had been recreated before the record was
            written.
    """
    key, hold = record.control_key, wire.decode_hold(record.value)
    is_held = record.value is not None
    if key is None or (is_held and hold is None):
        return None
    # A tombstone for an invalid scope is accepted, because it has no effect: no
    # hold can have such a scope.
    is_known = not is_held or key.version > wire.VERSION
    if not is_known and patterns.read(key.scope) is None:
        return None
    return HoldRecord(
        key=key,
        hold=hold,
        at=None if record.at_ms == NO_TIME_MS else record.at_ms / 1000,
        offset=record.offset,
        incarnation=incarnation,
    )
