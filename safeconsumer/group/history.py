"""Turns the records of the holds topic into a history of changes to holds."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from attrs import evolve, frozen
from kafka import TopicPartition

from safeconsumer.group import patterns
from safeconsumer.group.documents import hold_document
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.fold import RawRecord
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
    A change to a hold, made by one record.

    Attributes:
        what: the kind of change: ``held``, ``held again`` (the owner already held the
            scope), ``reset`` (the hold resets the group's offsets), ``extended`` or
            ``lifted``. An :class:`EntryStream` also makes ``expired`` and ``may have
            ended`` entries, for holds that ended without a record.
        record: the record.
        verb: the text before the hold's expiry time: ``expired`` if that time passed
            before a record extended or lifted the hold; ``may have ended`` if it has
            passed by this machine's clock but no record proves that, as for
            ``View.maybe_ended``; otherwise ``until``.
        is_changeable: whether the hold expired so recently that members still obey it
            because of the allowed skew; a record written in that time still extends or
            lifts the hold.
        moves: the partitions that this record resets and that the previous one did not
            reset to the same offset, with their targets; "" if there are none.
    """

    what: str
    record: HoldRecord
    verb: str = UNTIL
    is_changeable: bool = False
    moves: str = ""

    @property
    def at(self) -> float | None:
        """The time of the change, in seconds since the epoch; None if the time is unknown."""
        is_end = self.what in {EXPIRED, MAY_HAVE_ENDED}
        return self.record.expires_at if is_end else self.record.at

    def happened_since(self, moment: float) -> bool:
        """Return whether the change happened at or after ``moment``; True if unknown."""
        return self.at is None or self.at >= moment

    @property
    def ending(self) -> str:
        """The partitions that the record resets, and the hold's expiry; "" for a lift."""
        hold, end = self.record.hold, self.record.expires_at
        if hold is None:
            return ""
        if end is None:
            until = "until resumed" if hold.ttl_ms is None else "end unknown"
            return f"{self.moves}, {until}" if self.moves else until
        return f"{self.verb} {utc(end)}"

    def document(self) -> dict[str, Any]:
        """Return the change as plain JSON values; ``covers`` is the scope members obey."""
        hold = hold_document(self.record)
        covers = str(patterns.read_key(self.record.key).scope)
        what = {
            "what": self.what,
            "has_expired": self.verb == EXPIRED,
            "may_have_expired": self.verb == MAY_HAVE_ENDED,
        }
        key = self.record.key
        later = {"version": key.version, "extra": list(key.extra)}
        return {**what, **hold, "covers": covers, "at": self.at, **later}


class EntryStream:
    """
    Makes history entries from records that arrive in batches.

    Each record becomes one entry. A hold that ends without a record gets entries, too:
    ``may have ended`` as soon as its expiry time has passed by this machine's clock,
    and ``expired`` once members have lifted the hold and no record can extend or lift
    it any more. Each call examines the new records and the holds that have not expired.

    Args:
        skew: returns, for a group's name, the seconds after expiry at which its members
            lift a hold.
        since: entries before this time, in seconds since the epoch, are left out; None
            keeps all.
    """

    def __init__(
        self, skew: Callable[[str], float], since: float | None = None
    ) -> None:
        self._skew = skew
        self._since = since
        self._seen: set[tuple[int, float | None]] = set()
        # The holds that have not expired, each with the ``verb`` of its last entry.
        self._open: dict[HoldRecord, str] = {}

    def of(
        self,
        records: Iterable[HoldRecord],
        now: float | None = None,
        here: float | None = None,
    ) -> Iterator[Entry]:
        """
        Yield entries for the next records, and for holds that have ended in between.

        Args:
            records: the records since the last call; if the topic is read again from
                its start, records may be repeated.
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


def history_document(  # noqa: PLR0913 - the fields of the document
    group: str | None,
    topic: Facts,
    found: Iterable[Entry],
    since: float,
    *,
    until: float,
    cluster: str | None = None,
) -> dict[str, Any]:
    """
    Return a history as plain JSON values, from which an audit reads the holds.

    Args:
        group: the group that the history is limited to; None for all groups.
        topic: the holds topic.
        found: the entries.
        since: the time from which the history is complete, in seconds since the epoch.
        until: the time up to which the topic was read, in seconds since the epoch.
        cluster: the id of the cluster; None if unknown.
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


def history_of(
    several: Iterable[RawRecord], group: str | None
) -> tuple[HoldRecord, ...]:
    """Return the records about one group or all groups, in the topic's order."""
    found = (
        one.hold
        for one in several
        if one.control_key and group in {None, one.control_key.group}
    )
    return tuple(one for one in found if one is not None)


def entries(
    records: Iterable[HoldRecord],
    skew: Callable[[str], float],
    now: float | None = None,
    here: float | None = None,
    limit: int | None = None,
) -> tuple[Entry, ...]:
    """
    Return the history entries for records, in the order of the records.

    A tombstone has no entry if the topic has no earlier hold with its key, or if that
    hold had already expired. The topic keeps superseded records until compaction
    removes them.

    Args:
        records: all records of a group, or of all groups, as they are on the topic.
        skew: returns, for a group's name, the seconds after expiry at which its members
            lift a hold; a record written in that time still extends or lifts the hold.
        now: the latest broker time that a record proves; None if unknown.
        here: the time by this machine's clock, which may be wrong; None to ignore it.
        limit: the number of latest entries to return; None for all.
    """
    # A record's entry depends on the previous and the next record with the same key.
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
    skews = {group: skew(group) for group in {key.group for key in last}}

    def entry(
        one: HoldRecord, earlier: HoldRecord | None, later: HoldRecord | None
    ) -> Entry | None:
        late = skews[one.key.group]
        what = _what(one, earlier, late)
        if what is None:
            return None
        return Entry(
            what, one, *_end(one, later, late, now, here), _moves(one, earlier)
        )

    backwards = reversed(several), reversed(before), reversed(after)
    found = (one for one in map(entry, *backwards) if one is not None)
    return tuple(islice(found, limit))[::-1]


def _end(
    one: HoldRecord,
    later: HoldRecord | None,
    skew: float,
    now: float | None,
    here: float | None,
) -> tuple[str, bool]:
    """Return the word before a hold's expiry time, and whether the hold is changeable."""
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
    # A record repeats the targets from earlier records with the same key.
    reset = one.hold.reset if one.hold else None
    before = earlier.hold.reset if earlier and earlier.hold else None
    if reset is None or reset == before:
        return ""
    known = frozenset(before.to if before else ())
    fresh = [move for move in reset.to if move not in known] or reset.to
    tps = partitions_text(TopicPartition(topic, number) for topic, number, _ in fresh)
    typed = reset.typed()
    texts = {typed.get((topic, number), "") for topic, number, _ in fresh}
    return f"{tps} to {', '.join(sorted(texts))}"
