"""
Folds control records into the holds that exist: the last record of each key counts.

Members, commands and the console all fold with this class. The order of offsets
decides, not times: these are carried along, for people and for expiry.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from attrs import frozen

from safeconsumer.group import patterns, wire
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.wire import ControlKey

# The time of a record without one: old clients write such, and producers may.
NO_TIME_MS = -1


# The topic and the bytes of the key: there is only one way to write a key.
_SourceKey = tuple[str, bytes]


@frozen
class Written:
    """The parts of a control record that are used; its time may be NO_TIME_MS."""

    key: bytes | None
    value: bytes | None
    offset: int
    at_ms: int


@frozen(kw_only=True)
class Taken:
    """
    The result of taking over some records.

    Attributes:
        fresh: what is new, one record for each key.
        skipped: how many records could not be read; of all groups' those are not
            counted that a later one of their key has replaced.
    """

    fresh: tuple[HoldRecord, ...]
    skipped: int


class Fold:
    """
    The last records of one group's holds, or of all groups', fed in any order.

    Of several records of one key the last in the topic's order counts, in whatever
    order they arrive here. A topic that was created again begins a new incarnation: its
    offsets start over, and count as later than all before.

    A tombstone is kept until everything up to it has been read, which a long-running
    reader reports with :meth:`read_through`; this needs no clock.

    Thread rules: none; a caller that shares one between threads must lock.

    Args:
        sources: the control topics, each with the kind of holds that it has.
        group: take over only this group's holds; None for all groups.
    """

    def __init__(self, sources: Mapping[str, str], group: str | None = None) -> None:
        self._sources = sources
        self._group = group
        self._last: dict[_SourceKey, HoldRecord] = {}
        self._incarnations = dict.fromkeys(sources, 0)
        self._through = dict.fromkeys(sources, (0, 0))
        self._lifted: dict[str, set[bytes]] = {name: set() for name in sources}

    def take(self, topic: str, records: Iterable[Written]) -> Taken:
        """
        Take over records of one topic.

        Records that were taken over before change nothing. Of all groups' with one key
        only the last that can be read is decoded: a topic has the records of a month,
        and most were followed by others.
        """
        by_key: dict[bytes | None, list[Written]] = {}
        for record in records:
            by_key.setdefault(record.key, []).append(record)
        fresh: list[HoldRecord] = []
        skipped = 0
        for data, several in by_key.items():
            key = wire.decode_key(data)
            if key is not None and self._group not in {None, key.group}:
                continue
            one, unreadable = self._latest(topic, several)
            skipped += unreadable
            written = topic, data or b""
            if one is not None and self._is_news(written, one):
                self._last[written] = one
                fresh.append(one)
                if one.hold is None:
                    self._lifted[topic].add(written[1])
                else:
                    self._lifted[topic].discard(written[1])
        return Taken(fresh=tuple(fresh), skipped=skipped)

    def _latest(
        self, topic: str, records: Sequence[Written]
    ) -> tuple[HoldRecord | None, int]:
        """Return the last record of a key that can be read, and how many cannot."""
        incarnation = self._incarnations[topic]
        latest, skipped = None, 0
        for record in sorted(records, key=attrgetter("offset"), reverse=True):
            one = read_record(self._sources[topic], topic, record, incarnation)
            skipped += one is None
            latest = latest or one
            if latest is not None and self._group is None:
                break
        return latest, skipped

    def _is_news(self, written: _SourceKey, one: HoldRecord) -> bool:
        known = self._last.get(written)
        if known is None:
            # It was known when it was read, and has been forgotten since.
            return one.place >= self._through[written[0]]
        return known.order < one.order

    def begin_again(self, topic: str) -> None:
        """Note that the topic was created again: its offsets start over, its holds stay."""
        self._incarnations[topic] += 1

    def read_through(self, topic: str, offset: int) -> None:
        """
        Forget lifted holds, once everything below an offset has been read.

        A record of an unknown key that arrives later, with an offset below it, is old:
        a writer gets its own records from acknowledgements, out of order with what is
        read.
        """
        through = (self._incarnations[topic], offset)
        if through <= self._through[topic]:
            return
        self._through[topic] = through
        lifted = self._lifted[topic]
        over = [key for key in lifted if self._last[topic, key].place < through]
        lifted.difference_update(over)
        for key in over:
            del self._last[topic, key]

    def last(self, topic: str, key: ControlKey) -> HoldRecord:
        """Return the last record of one hold; one that holds nothing if there was none."""
        never = HoldRecord(
            source=self._sources[topic],
            key=key,
            hold=None,
            at=None,
            offset=-1,
            topic=topic,
            incarnation=-1,
        )
        return self._last.get((topic, wire.encode_key(key)), never)

    def is_outlived(self, one: HoldRecord) -> bool:
        """Tell whether the topic was created again since, so that it may lack a record."""
        return one.incarnation < self._incarnations[one.topic]

    def holds(self, group: str | None = None) -> tuple[HoldRecord, ...]:
        """
        Return every hold that is not lifted, of one group or of all.

        They are in the order in which each first arrived.
        """
        return tuple(
            one
            for one in self._last.values()
            if one.hold is not None and group in {None, one.key.group}
        )


def read_record(
    source: str, topic: str, record: Written, incarnation: int = 0
) -> HoldRecord | None:
    """
    Return what a record says; None if it cannot be read.

    Args:
        source: the kind of holds that the topic has.
        topic: its topic.
        record: the record.
        incarnation: how often the topic was created again before it was written.
    """
    key, hold = wire.decode_key(record.key), wire.decode_hold(record.value)
    is_held = record.value is not None
    if key is None or (is_held and hold is None):
        return None
    # What lifts a scope that is none lifts nothing, as nobody can hold that.
    is_known = not is_held or key.version > wire.VERSION
    if not is_known and patterns.read(key.scope) is None:
        return None
    return HoldRecord(
        source=source,
        key=key,
        hold=hold,
        at=None if record.at_ms == NO_TIME_MS else record.at_ms / 1000,
        offset=record.offset,
        topic=topic,
        incarnation=incarnation,
    )


def side_by_side(records: Iterable[HoldRecord]) -> tuple[HoldRecord, ...]:
    """
    Merge both topics' records by their times, oldest first.

    Args:
        records: each topic's in its own order, which is kept: a broker's clock may have
            gone back.
    """
    by_source: dict[str, list[HoldRecord]] = {}
    for one in records:
        by_source.setdefault(one.source, []).append(one)
    return tuple(heapq.merge(*by_source.values(), key=lambda one: one.at or 0.0))
