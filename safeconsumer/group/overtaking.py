"""
What others wrote between a look and the record that it led to; and putting that back.

Kafka has no compare-and-set. But an acknowledgement tells the record's offset, so that
whoever wrote what depends on what was read can see afterwards whether it replaced what
it did not know.
"""

import math
from collections.abc import Collection, Sequence

from attrs import evolve, frozen

from safeconsumer.group.facts import Standing
from safeconsumer.group.operator import Operator
from safeconsumer.group.publisher import Acknowledged, Change

# A record comes to the broker a little later than it was made.
_SOON = 1.0


@frozen(kw_only=True)
class Overtaken:
    """
    A record of ours, and what it replaced.

    Attributes:
        ours: that record.
        before: the last one about the same hold before it, or a tombstone.
    """

    ours: Acknowledged
    before: Standing

    @property
    def at(self) -> float | None:
        """
        When ours was written, by the broker's clock, seconds since the epoch.
        """
        return time_of(self.ours)

    @property
    def back(self) -> Change:
        """
        What puts back what was there, with the end that it had.
        """
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
    """
    Return the broker's time of a record, seconds since the epoch; None without one.
    """
    return None if one.at_ms is None or one.at_ms < 0 else one.at_ms / 1000


def overtaken(
    operator: Operator,
    source: str,
    done: Sequence[Acknowledged],
    since: int,
    ours: Collection[Acknowledged] = (),
) -> tuple[Overtaken, ...]:
    """
    Return which records of ours replaced what was written since a look.

    Args:
        operator: the connection.
        source: on which control topic.
        done: our records.
        since: where that topic ended when it was looked at.
        ours: records of ours that are no news.
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
    """
    Write again what our records replaced; tell whether nobody wrote between.
    """
    ours = {one.ours.change.key: one.ours.offset for one in several}
    done = operator.write(source, [one.back for one in several])
    found = overtaken(operator, source, done, min(ours.values()) + 1)
    return all(one.before.offset <= ours[one.before.key] for one in found)


def timed(
    operator: Operator,
    source: str,
    done: Sequence[Acknowledged],
    until: float | None,
) -> tuple[Acknowledged, ...]:
    """
    Write again what ends at another moment than was meant; return what stands then.

    How long a hold lasts counts from the broker's time of its record, which is known
    only by its acknowledgement where nobody reports.

    Args:
        operator: the connection.
        source: on which control topic.
        done: our records.
        until: when they are to end, seconds since the epoch; None for any time.
    """
    if until is None:
        return tuple(done)
    late = [change for one in done if (change := _moved(one, until)) is not None]
    again = {one.change.key: one for one in operator.write(source, late)}
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
