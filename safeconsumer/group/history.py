"""Tells from the records of the control topics what was held, extended and lifted."""

from collections.abc import Iterable
from typing import Any

from attrs import frozen

from safeconsumer.group.documents import standing_document
from safeconsumer.group.facts import Standing
from safeconsumer.group.wire import ControlKey

HELD = "held"
AGAIN = "held again"
EXTENDED = "extended"
LIFTED = "lifted"


@frozen
class Entry:
    """
    What one record did.

    Attributes:
        what: ``held``, ``extended``, ``held again`` if its owner held the scope
            already, or ``lifted``.
        record: the record.
    """

    what: str
    record: Standing

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"what": self.what, **standing_document(self.record)}


def entries(records: Iterable[Standing], skew: float) -> tuple[Entry, ...]:
    """
    Return what records did, in their order.

    A tombstone lifts nothing if there is no hold before it on the topic, or if that
    had expired: it is left out. Topics keep what is before a record for as long as the
    record is not compacted.

    Args:
        records: all records of a group, or of all groups, as they are on the topics.
        skew: seconds by which members lift expired holds later.
    """
    last: dict[tuple[str, ControlKey], Standing] = {}
    found = []
    for one in records:
        before = last.get((one.source, one.key))
        last[one.source, one.key] = one
        if what := _what(one, before, skew):
            found.append(Entry(what, one))
    return tuple(found)


def _what(one: Standing, before: Standing | None, skew: float) -> str | None:
    is_over = before is None or (one.at is not None and before.is_over(one.at - skew))
    stood = None if before is None or is_over else before.hold
    if one.hold is None:
        return None if stood is None else LIFTED
    if stood is None:
        return HELD
    return EXTENDED if one.hold.hold_id == stood.hold_id else AGAIN
