"""
Folds control records into the holds that exist: the last record of each key counts.

Members, commands and the console all fold with this class. The order of offsets
decides, not times: these are carried along, for people and for expiry.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from attrs import frozen

from safeconsumer.group import patterns, wire
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.wire import ControlHold, ControlKey

# The time of a record without one: old clients write such, and producers may.
NO_TIME_MS = -1


@frozen(order=True)
class Register:
    """
    The latest record about one hold. The order of the fields decides which is later.

    Attributes:
        stamp: the topic's incarnation and the record's offset.
        is_held: of two with the same stamp, the one that is held wins.
        at_ms: the broker's time of the record, milliseconds since the epoch.
        body: the other fields, as they were written.
    """

    stamp: tuple[int, int]
    is_held: bool
    at_ms: int = 0
    body: bytes = b""


_NEVER_HEARD = Register((-1, -1), is_held=False)

# The topic and the bytes of the key: there is only one way to write a key.
_SourceKey = tuple[str, bytes]


@frozen
class Written:
    """The parts of a control record that are used; its time may be NO_TIME_MS."""

    key: bytes | None
    value: bytes | None
    offset: int
    at_ms: int


@frozen
class Entry:
    """
    What one record says about one hold.

    Attributes:
        topic: the control topic.
        key: the hold's key.
        register: the record's place in the topic's order, and its time.
        hold: the hold; None if the record lifts it.
    """

    topic: str
    key: ControlKey
    register: Register
    hold: ControlHold | None


@frozen(kw_only=True)
class Taken:
    """
    The result of taking over some records.

    Attributes:
        fresh: what is new, one entry for each key.
        skipped: how many records could not be read; of all groups' those are not
            counted that a later one of their key has replaced.
    """

    fresh: tuple[Entry, ...]
    skipped: int


class Fold:
    """
    Registers of one group's holds, or of all groups', fed with records in any order.

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
        self._registers: dict[_SourceKey, Register] = {}
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
        fresh: list[Entry] = []
        skipped = 0
        for data, several in by_key.items():
            key = wire.decode_key(data)
            if key is not None and self._group not in {None, key.group}:
                continue
            one, unreadable = self._latest(topic, several)
            skipped += unreadable
            written = topic, data or b""
            if one is not None and self._is_news(written, one):
                self._registers[written] = one.register
                fresh.append(one)
                if one.hold is None:
                    self._lifted[topic].add(written[1])
                else:
                    self._lifted[topic].discard(written[1])
        return Taken(fresh=tuple(fresh), skipped=skipped)

    def _latest(
        self, topic: str, records: Sequence[Written]
    ) -> tuple[Entry | None, int]:
        """Return the last record of a key that can be read, and how many cannot."""
        incarnation = self._incarnations[topic]
        latest, skipped = None, 0
        for record in sorted(records, key=attrgetter("offset"), reverse=True):
            one = entry_of(topic, record, incarnation)
            skipped += one is None
            latest = latest or one
            if latest is not None and self._group is None:
                break
        return latest, skipped

    def _is_news(self, written: _SourceKey, one: Entry) -> bool:
        known = self._registers.get(written)
        if known is None:
            # Its register existed when it was read, and has been forgotten since.
            return one.register.stamp >= self._through[written[0]]
        return known < one.register

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
        over = [key for key in lifted if self._registers[topic, key].stamp < through]
        lifted.difference_update(over)
        for key in over:
            del self._registers[topic, key]

    def heard(self, topic: str, key: ControlKey) -> Entry:
        """Return the last entry of one hold; an entry that is not held if there was none."""
        register = self._registers.get((topic, wire.encode_key(key)), _NEVER_HEARD)
        body = wire.decode_hold(register.body) if register.is_held else None
        return Entry(topic, key, register, body)

    def is_outlived(self, one: Entry) -> bool:
        """Tell whether the topic was created again since, so that it may lack an entry."""
        return one.register.stamp[0] < self._incarnations[one.topic]

    def held(self) -> Iterator[Entry]:
        """Return every hold that is not lifted, in the order in which each first arrived."""
        for (topic, written), register in self._registers.items():
            key = wire.decode_key(written)
            if register.is_held and key is not None:
                yield Entry(topic, key, register, wire.decode_hold(register.body))

    def holds(self, group: str | None = None) -> tuple[HoldRecord, ...]:
        """Return every hold that is not lifted, of one group or of all, for operators."""
        return tuple(
            as_hold_record(self._sources[one.topic], one)
            for one in self.held()
            if group is None or one.key.group == group
        )


def entry_of(topic: str, record: Written, incarnation: int = 0) -> Entry | None:
    """
    Return what a record says; None if it cannot be read.

    Args:
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
    register = Register(
        stamp=(incarnation, record.offset),
        is_held=is_held,
        at_ms=record.at_ms,
        body=record.value or b"",
    )
    return Entry(topic, key, register, hold)


def as_hold_record(source: str, one: Entry) -> HoldRecord:
    """Return an entry in the form for operators."""
    at_ms = one.register.at_ms
    return HoldRecord(
        source=source,
        key=one.key,
        hold=one.hold,
        at=None if at_ms < 0 else at_ms / 1000,
        offset=one.register.stamp[1],
        topic=one.topic,
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
