"""Tells from the records of the holds topic what was held, extended and lifted."""

from collections.abc import Iterable, Iterator
from typing import Any

from attrs import evolve, frozen

from safeconsumer.group import patterns
from safeconsumer.group.documents import hold_document
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.topics import Facts
from safeconsumer.group.wire import ControlHold, ControlKey
from safeconsumer.holds.explain import utc

HELD = "held"
AGAIN = "held again"
EXTENDED = "extended"
LIFTED = "lifted"
EXPIRED = "expired"
MAY_HAVE_ENDED = "may have ended"
UNTIL = "until"


@frozen
class Entry:
    """
    What one record did.

    Attributes:
        what: ``held``, ``extended``, ``held again`` if its owner held the scope
            already, or ``lifted``; of :class:`News` also ``expired`` or ``may have
            ended``, for the end of a hold that no record reports.
        record: the record.
        verb: the word before its end: ``expired`` if it ended by itself, and nothing
            extended or lifted it before; ``may have ended`` if it did by this machine's
            clock, and no record proves it, as ``View.maybe_over`` tells; else ``until``.
        is_changeable: whether it has expired so lately that members obey it still, by
            the allowed skew: a record of that time still extends or lifts it.
    """

    what: str
    record: HoldRecord
    verb: str = UNTIL
    is_changeable: bool = False

    @property
    def at(self) -> float | None:
        """When it happened, in seconds since the epoch; None if it is not known."""
        is_end = self.what in {EXPIRED, MAY_HAVE_ENDED}
        return self.record.expires_at if is_end else self.record.at

    def happened_since(self, moment: float) -> bool:
        """Tell whether it happened then or later, as far as that is known."""
        return self.at is None or self.at >= moment

    @property
    def ending(self) -> str:
        """When it ends, or that it expired; "" for what lifts."""
        hold, end = self.record.hold, self.record.expires_at
        if hold is None:
            return ""
        if end is None:
            return "until resumed" if hold.ttl_ms is None else "end unknown"
        return f"{self.verb} {utc(end)}"

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON values; ``covers`` is what members obey."""
        said = hold_document(self.record)
        covers = str(patterns.read_key(self.record.key).scope)
        what = {
            "what": self.what,
            "has_expired": self.verb == EXPIRED,
            "may_have_expired": self.verb == MAY_HAVE_ENDED,
        }
        key = self.record.key
        later = {"version": key.version, "extra": list(key.extra)}
        return {**what, **said, "covers": covers, "at": self.at, **later}


class News:
    """
    Finds the entries that are new since the last look at a history.

    Each record is an entry once. The end of a hold that no record reports is another
    one, when it is known: that it may have ended, by this machine's clock, and that it
    has expired, once members have lifted it and no record can extend or lift it any more.

    Args:
        since: entries before this moment are left out, in seconds since the epoch; None
            for none.
    """

    def __init__(self, since: float | None = None) -> None:
        self._since = since
        # The last word about the end of each record that was looked at.
        self._verbs: dict[tuple[int, float | None], str] = {}

    def of(self, found: Iterable[Entry]) -> Iterator[Entry]:
        """Yield what is new in the whole history, in its order."""
        for one in found:
            record = one.record
            key = record.offset, record.at
            before = self._verbs.get(key)
            verb = UNTIL if one.is_changeable else one.verb
            self._verbs[key] = verb
            if before is None:
                yield from self._since_then(evolve(one, verb=verb))
            if verb not in {before, UNTIL}:
                yield from self._since_then(evolve(one, what=verb))

    def _since_then(self, one: Entry) -> Iterator[Entry]:
        if self._since is None or one.happened_since(self._since):
            yield one


def history_document(  # noqa: PLR0913 - what the document has
    group: str | None,
    topic: Facts,
    found: Iterable[Entry],
    since: float,
    *,
    until: float,
    cluster: str | None = None,
) -> dict[str, Any]:
    """
    Return a history as plain JSON values, from which an audit can tell what was held.

    Args:
        group: the only group that it is about; None for all groups.
        topic: the holds topic.
        found: what the records did.
        since: since when it is complete, seconds since the epoch.
        until: the time up to which it was read, seconds since the epoch.
        cluster: the id of the cluster; None if it is not known.
    """
    settings = topic.settings or {}
    return {
        "group": group,
        "cluster": cluster,
        "until": until,
        "topics": [
            {
                "topic": topic.name,
                "timestamp_type": settings.get("message.timestamp.type"),
                "complete_since": since,
            }
        ],
        "records": [one.document() for one in found],
    }


def entries(
    records: Iterable[HoldRecord],
    skew: float,
    now: float | None = None,
    here: float | None = None,
) -> tuple[Entry, ...]:
    """
    Return what records did, in their order.

    A tombstone lifts nothing if there is no hold before it on the topic, or if that
    had expired: it is left out. The topic keeps what is before a record for as long as
    the record is not compacted.

    Args:
        records: all records of a group, or of all groups, as they are on the topic.
        skew: seconds by which members lift expired holds later: a record that comes in
            that time still extends or lifts.
        now: by the broker's clock, as far as a record proves it; None if unknown.
        here: by this machine's clock, which may be wrong; None if that does not count.
    """
    last: dict[ControlKey, int] = {}
    found: list[Entry] = []
    for one in records:
        place = last.pop(one.key, None)
        if place is not None and not _stands(found[place].record, one.at, skew):
            found[place] = evolve(found[place], verb=EXPIRED)
            place = None
        if what := _what(one, None if place is None else found[place].record.hold):
            if one.hold is not None:
                last[one.key] = len(found)
            found.append(Entry(what, one))
    for place in last.values():
        record = found[place].record
        if now is not None and record.is_over(now):
            is_obeyed = record.in_force(now, skew)
            found[place] = evolve(found[place], verb=EXPIRED, is_changeable=is_obeyed)
        elif here is not None and record.is_over(here):
            found[place] = evolve(found[place], verb=MAY_HAVE_ENDED)
    return tuple(found)


def _stands(one: HoldRecord, at: float | None, skew: float) -> bool:
    return at is None or one.in_force(at, skew)


def _what(one: HoldRecord, stood: ControlHold | None) -> str | None:
    if one.hold is None:
        return None if stood is None else LIFTED
    if stood is None:
        return HELD
    return EXTENDED if one.hold.hold_id == stood.hold_id else AGAIN
