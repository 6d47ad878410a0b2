"""
Finds what others wrote between reading a topic and writing to it, and restores it.

Kafka has no compare-and-set. But an acknowledgement has the record's offset, so that a
writer can see afterwards whether its record replaced one that it had not read.
"""

import math
from collections.abc import Collection, Sequence

from attrs import evolve, frozen

from safeconsumer.group.facts import Standing
from safeconsumer.group.operator import Operator
from safeconsumer.group.publisher import Acknowledged, Change

# Seconds; a record reaches the broker a little later than it was made.
_SOON = 1.0


@frozen(kw_only=True)
class Overtaken:
    """
    A record of ours, and the record that it replaced.

    Attributes:
        ours: our record.
        before: the last record about the same hold before it, or a tombstone.
    """

    ours: Acknowledged
    before: Standing

    @property
    def at(self) -> float | None:
        """When ours was written, by the broker's clock, in seconds since the epoch."""
        return time_of(self.ours)

    @property
    def back(self) -> Change:
        """The change that restores the replaced hold, with its old end."""
        key, hold, end = self.ours.change.key, self.before.hold, self.before.expires_at
        if hold is None:
            return Change(key, None)
        since = self.before.since
        since_ms = None if since is None else int(since * 1000)
        if end is None or self.at is None:
            return Change(key, evolve(hold, since_ms=since_ms))
        left = math.ceil((end - self.at) * 1000)
        if left <= 0:
            return Change(key, None)
        return Change(key, evolve(hold, ttl_ms=left, since_ms=since_ms))


def time_of(one: Acknowledged) -> float | None:
    """Return the broker's time of a record, in seconds since the epoch; None without one."""
    return None if one.at_ms is None or one.at_ms < 0 else one.at_ms / 1000


def overtaken(
    operator: Operator,
    source: str,
    done: Sequence[Acknowledged],
    since: int,
    ours: Collection[Acknowledged] = (),
) -> tuple[Overtaken, ...]:
    """
    Return which records of ours replaced records that were written since a look.

    Args:
        operator: the connection.
        source: ``operator`` or ``group``, for the control topic.
        done: our records.
        since: the end offset of that topic when it was read.
        ours: records of ours that may be replaced.
    """
    mine = {one.change.key: one for one in done}
    known = {one.offset for one in ours}
    last: dict[Acknowledged, Standing] = {}
    end = max((one.offset for one in done), default=since)
    for record in operator.records_between(source, since, end):
        one = mine.get(record.key)
        is_news = record.offset not in known
        if one is not None and is_news and record.offset < one.offset:
            last[one] = record
    return tuple(Overtaken(ours=one, before=record) for one, record in last.items())


def put_back(operator: Operator, source: str, several: Sequence[Overtaken]) -> bool:
    """Write again what our records replaced; return whether nobody wrote in between."""
    ours = {one.ours.change.key: one.ours.offset for one in several}
    done = operator.write(source, [one.back for one in several], is_owed=True)
    found = overtaken(operator, source, done, min(ours.values()) + 1)
    return all(one.before.offset <= ours[one.before.key] for one in found)


def timed(
    operator: Operator,
    source: str,
    done: Sequence[Acknowledged],
    until: float | None,
) -> tuple[Acknowledged, ...]:
    """
    Write records again whose end is not the wanted one; return those now on the topic.

    How long a hold lasts counts from the broker's time of its record, which is known
    only from its acknowledgement if no member reports.

    Args:
        operator: the connection.
        source: ``operator`` or ``group``, for the control topic.
        done: our records.
        until: when they shall end, in seconds since the epoch; None for any time.
    """
    if until is None:
        return tuple(done)
    late = [change for one in done if (change := _moved(one, until)) is not None]
    written = operator.write(source, late, is_owed=True)
    again = {one.change.key: one for one in written}
    return tuple(again.get(one.change.key, one) for one in done)


def _moved(one: Acknowledged, until: float) -> Change | None:
    hold, at = one.change.hold, time_of(one)
    if hold is None or hold.ttl_ms is None or at is None:
        return None
    if abs(at + hold.ttl_ms / 1000 - until) <= _SOON:
        return None
    left = max(1, math.ceil((until - at) * 1000))
    since_ms = one.at_ms if hold.since_ms is None else hold.since_ms
    return Change(one.change.key, evolve(hold, ttl_ms=left, since_ms=since_ms))
