"""
Determines when members had to obey holds of their group, for G2 and W10.

The control topics contain the times of holds, by the broker's clock. A member's journal
has the times of the member's actions by its own clock, and the difference between that
clock and the broker's. A converted time may be wrong by the allowed difference, so one
time is certainly before another only if they differ by more than that. If a member's
clock leaves the order in doubt, the judge does not decide.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from safeconsumer.audit.clocks import BrokerTime
from safeconsumer.audit.control import Control, Span
from safeconsumer.audit.entries import Hold

if TYPE_CHECKING:
    from safeconsumer.audit.case import Epoch

Key = tuple[str, str]
"""
A hold's scope and its owner.
"""

# Seconds by which two representations of the same broker time may differ.
_ROUNDING = 0.001


@frozen(kw_only=True)
class Bounds:
    """
    The period in which members certainly had to obey a hold, by the broker's clock.

    Attributes:
        span: when the hold was in force, by the broker's clock.
        known: the time from which a new ownership must obey the hold from its first
            record.
        late: the time from which every member must obey the hold.
        end: the time until which members certainly had to obey the hold.
    """

    span: Span
    known: float
    late: float
    end: float

    def binds(self, epoch: "Epoch", clock: BrokerTime) -> bool:
        """Return whether an ownership must obey the hold from its first record on."""
        by = None if epoch.first is None else epoch.first[0]
        return clock.earliest(epoch.owned_since, by) > self.known

    def during(self, epoch: "Epoch", clock: BrokerTime) -> tuple[float, float]:
        """Return the times of the member's clock at which nothing may be delivered."""
        start, end = clock.window(self.late, self.end)
        began = epoch.owned.at
        first = began if self.binds(epoch, clock) else max(began, start)
        return first, min(epoch.over, end)


@frozen(kw_only=True)
class Lacking:
    """
    A hold that a member read but that is missing from the holds topics.

    Attributes:
        key: the scope and the holder of the hold.
        entry: the journal's entry about the hold, as its number and the member.
        written: when the broker appended the hold's record.
    """

    key: Key
    entry: str
    written: float


class Readings:
    """
    The times at which members read holds; any member can read a hold from then on.

    Args:
        members: the holds that each member read.
        clocks: the clock of each member.
    """

    def __init__(
        self,
        members: Mapping[str, Mapping[Key, Sequence[Hold]]],
        clocks: Mapping[str, BrokerTime],
    ) -> None:
        self._clocks = clocks
        self._by_key: dict[Key, list[tuple[float, str, Hold]]] = {}
        for member, read in members.items():
            latest = clocks[member].latest
            for key, readings in read.items():
                own = self._by_key.setdefault(key, [])
                own.extend((latest(one.at), member, one) for one in readings)
        for own in self._by_key.values():
            own.sort(key=lambda one: one[:2])

    def __iter__(self) -> Iterator[Key]:
        """Yield the scope and the holder of each hold that was read."""
        return iter(self._by_key)

    def not_in(self, control: Control, group: str | None) -> Iterator[Lacking]:
        """
        Yield each hold that a member read but that is missing from the holds topics.

        Holds that are older than the time from which the topics are complete may have
        been compacted away.
        """
        spans: dict[Key, list[Span]] = {}
        for span in control.spans:
            if span.group == group:
                spans.setdefault((span.scope, span.holder), []).append(span)
        for key, readings in self._by_key.items():
            for _, member, reading in readings:
                if reading.written is None or reading.written < control.since:
                    continue
                if not any(
                    has_record(span, reading.written) for span in spans.get(key, ())
                ):
                    entry = f"entry {reading.n} of {member}"
                    yield Lacking(key=key, entry=entry, written=reading.written)
                    break

    def first(self, span: Span, skew: float) -> float:
        """Return when a member with a measured clock first read a hold, or ``inf``."""
        read = self._by_key.get((span.scope, span.holder), [])
        begin = bisect_left(read, span.start - skew, key=lambda one: one[0])
        for number in range(begin, len(read)):
            at, member, _ = read[number]
            if at >= span.end:
                break
            if self._clocks[member].is_measured:
                return at
        return math.inf


def has_record(span: Span, written: float) -> bool:
    """Return whether a record that was appended at ``written`` belongs to a span."""
    return span.start - _ROUNDING <= written <= span.end + _ROUNDING
