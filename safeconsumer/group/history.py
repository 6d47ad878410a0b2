"""Tells from the records of the holds topic what was held, extended, moved and lifted."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from attrs import evolve, frozen
from kafka import TopicPartition

from safeconsumer.group import patterns
from safeconsumer.group.documents import hold_document
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.fold import Written
from safeconsumer.group.partitions import partitions_text
from safeconsumer.group.topics import Facts
from safeconsumer.group.wire import ControlKey
from safeconsumer.holds.explain import utc

HELD = "held"
AGAIN = "held again"
EXTENDED = "extended"
RESET = "reset"
LIFTED = "lifted"
EXPIRED = "expired"
MAY_HAVE_ENDED = "may have ended"
UNTIL = "until"


@frozen
class Entry:
    """
    What one record did.

    Attributes:
        what: ``held``, ``extended``, ``reset`` if offsets are to be moved under it,
            ``held again`` if its owner held the scope already, or ``lifted``; of
            :class:`News` also ``expired`` or ``may have ended``, for the end of a hold
            that no record reports.
        record: the record.
        verb: the word before its end: ``expired`` if it ended by itself, and nothing
            extended or lifted it before; ``may have ended`` if it did by this machine's
            clock, and no record proves it, as ``View.maybe_over`` tells; else ``until``.
        is_changeable: whether it has expired so lately that members obey it still, by
            the allowed skew: a record of that time still extends or lifts it.
        moves: the partitions that it is the first to move, and where to; "" if none.
    """

    what: str
    record: HoldRecord
    verb: str = UNTIL
    is_changeable: bool = False
    moves: str = ""

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
        """What it moves, and when it ends, or that it expired; "" for what lifts."""
        hold, end = self.record.hold, self.record.expires_at
        if hold is None:
            return ""
        if end is None:
            said = "until resumed" if hold.ttl_ms is None else "end unknown"
            return f"{self.moves}, {said}" if self.moves else said
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
    Finds what is new in a history of which records come step by step.

    Each record is an entry once. The end of a hold that no record reports is another
    one, when it is known: that it may have ended, by this machine's clock, and that it
    has expired, once members have lifted it and no record can extend or lift it any more.
    A step judges the new records, and the holds that have not expired.

    Args:
        skew: seconds by which members lift expired holds later.
        since: entries before this moment are left out, in seconds since the epoch; None
            for none.
    """

    def __init__(self, skew: float, since: float | None = None) -> None:
        self._skew = skew
        self._since = since
        self._seen: set[tuple[int, float | None]] = set()
        # Holds that have not expired, each with what was last told of its end.
        self._open: dict[HoldRecord, str] = {}

    def of(
        self,
        records: Iterable[HoldRecord],
        now: float | None = None,
        here: float | None = None,
    ) -> Iterator[Entry]:
        """
        Yield what the next records did, and which holds have ended meanwhile.

        Args:
            records: those since the last step. A topic that is read from its beginning
                again has some of them twice.
            now: as for :func:`entries`.
            here: as for :func:`entries`.
        """
        before, self._open = self._open, {}
        several = [*before, *(one for one in records if self._is_fresh(one))]
        last = {one.key: one for one in several}
        for one in entries(several, self._skew, now, here):
            record, was = one.record, before.get(one.record)
            verb = UNTIL if one.is_changeable else one.verb
            if last[record.key] is record and record.hold and verb != EXPIRED:
                self._open[record] = verb
            if was is None:
                yield from self._since_then(evolve(one, verb=verb))
            if verb not in {was, UNTIL}:
                yield from self._since_then(evolve(one, what=verb))

    def _is_fresh(self, one: HoldRecord) -> bool:
        place = one.offset, one.at
        is_fresh = place not in self._seen
        self._seen.add(place)
        return is_fresh

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


def history_of(several: Iterable[Written], group: str | None) -> tuple[HoldRecord, ...]:
    """Return the records about one group or all, in the topic's order."""
    found = (one.hold for one in several if one.of and group in {None, one.of.group})
    return tuple(one for one in found if one is not None)


def entries(
    records: Iterable[HoldRecord],
    skew: float,
    now: float | None = None,
    here: float | None = None,
    most: int | None = None,
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
        most: return the latest ones, no more than so many; None for all.
    """
    # What a record did shows by those of its key right before and after it.
    several = tuple(records)
    before: list[HoldRecord | None] = []
    after: list[HoldRecord | None] = [None] * len(several)
    last: dict[ControlKey, int] = {}
    for place, one in enumerate(several):
        previous = last.get(one.key)
        before.append(None if previous is None else several[previous])
        if previous is not None:
            after[previous] = one
        last[one.key] = place
    found = (
        Entry(what, one, *_end(one, later, skew, now, here), _moves(one, earlier))
        for one, earlier, later in zip(
            reversed(several), reversed(before), reversed(after), strict=True
        )
        if (what := _what(one, earlier, skew))
    )
    return tuple(islice(found, most))[::-1]


def _end(
    one: HoldRecord,
    later: HoldRecord | None,
    skew: float,
    now: float | None,
    here: float | None,
) -> tuple[str, bool]:
    """Return the verb for the end of a hold, and whether it is changeable."""
    if later is not None:
        return (UNTIL if _stands(one, later.at, skew) else EXPIRED), False
    if now is not None and one.is_over(now):
        return EXPIRED, one.in_force(now, skew)
    is_over = here is not None and one.is_over(here)
    return (MAY_HAVE_ENDED if is_over else UNTIL), False


def _stands(one: HoldRecord, at: float | None, skew: float) -> bool:
    return one.hold is not None and (at is None or one.in_force(at, skew))


def _what(one: HoldRecord, earlier: HoldRecord | None, skew: float) -> str | None:
    stood = earlier is not None and _stands(earlier, one.at, skew)
    if one.hold is None:
        return LIFTED if stood else None
    if earlier is None or not stood:
        return HELD
    if earlier.hold is None or one.hold.hold_id != earlier.hold.hold_id:
        return AGAIN
    return RESET if _moves(one, earlier) else EXTENDED


def _moves(one: HoldRecord, earlier: HoldRecord | None) -> str:
    # A record has the targets of those before it, too.
    reset = one.hold.reset if one.hold else None
    before = earlier.hold.reset if earlier and earlier.hold else None
    if reset is None or reset == before:
        return ""
    known = frozenset(before.to if before else ())
    fresh = [move for move in reset.to if move not in known] or reset.to
    tps = partitions_text(TopicPartition(topic, number) for topic, number, _ in fresh)
    return f"{tps} to {reset.asked}"
