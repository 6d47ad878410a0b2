"""
Finds what members did under holds of their group, for G2 and W10.

When something was held is known from the control topics, by the broker's clock; what
members did is in their journals, by their own clocks, and with what these were measured
to differ from the broker's. Converted times may differ by the
allowance: a moment is before another one only if the difference is larger. What a
member's clock makes doubtful is not judged.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from safeconsumer.audit.clocks import BrokerTime
from safeconsumer.audit.control import Control, Span
from safeconsumer.audit.entries import Hold
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.moments import Moments

if TYPE_CHECKING:
    from safeconsumer.audit.case import Case, Epoch, Part

Key = tuple[str, str]
"""
A hold's scope and its owner.
"""

# Seconds by which two texts of one time of a broker may differ.
_ROUNDING = 0.001


@frozen(kw_only=True)
class Bounds:
    """
    From when to when members certainly had to obey a hold, by the broker's clock.

    Attributes:
        span: when it was in force, by the broker's clock.
        known: an ownership that began later is bound by it from its first record on.
        late: every member has read it by then.
        end: it is in force until then.
    """

    span: Span
    known: float
    late: float
    end: float

    def binds(self, epoch: "Epoch", clock: BrokerTime) -> bool:
        """Return whether it binds an ownership from its first record on."""
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
    A hold that a member read and that the holds topics do not have.

    Attributes:
        key: its scope and its holder.
        entry: where the journal has it: the entry and the member.
        written: when the broker appended its record.
    """

    key: Key
    entry: str
    written: float


class Readings:
    """
    When members read holds of their group: from then on everybody can read them.

    Args:
        members: what each member read.
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
        Yield each hold that a member read and that the holds topics do not have.

        What was written before they are complete may have been compacted away.
        """
        spans: dict[Key, list[Span]] = {}
        for span in control.spans:
            if span.group == group:
                spans.setdefault((span.scope, span.holder), []).append(span)
        for key, readings in self._by_key.items():
            for _, member, reading in readings:
                if reading.written is None or reading.written < control.since:
                    continue
                if not any(_has(span, reading.written) for span in spans.get(key, ())):
                    entry = f"entry {reading.n} of {member}"
                    yield Lacking(key=key, entry=entry, written=reading.written)
                    break

    def first(self, span: Span, skew: float) -> float:
        """Return when a hold was first read by a measured clock, or ``inf``."""
        read = self._by_key.get((span.scope, span.holder), [])
        begin = bisect_left(read, span.start - skew, key=lambda one: one[0])
        for number in range(begin, len(read)):
            at, member, _ = read[number]
            if at >= span.end:
                break
            if self._clocks[member].is_measured:
                return at
        return math.inf


def _has(span: Span, written: float) -> bool:
    return span.start - _ROUNDING <= written <= span.end + _ROUNDING


def under_hold(
    case: "Case", check: str, bounds: Bounds
) -> Iterator[Finding | tuple[str, str]]:
    """
    Yield what was delivered (G2), or what handlers began (W10), under a group's hold.

    Or, of a member whose clock is not known, the check that is not judged, and why: what
    it did may have been before the hold, or after it, or under it though it seems not.

    An ownership that began after somebody had read the hold is bound by it from its
    first record on: the broker's time of the record is a little before it can be read.
    All others may go on until they have read it, as long as patience allows.
    """
    for member, part in case.parts.items():
        if member in case.with_wrong_clocks:
            continue
        clock = case.clocks[member]
        found = _found(part, bounds, clock, check)
        moments = part.delivered if check == "G2" else part.begun
        if found is not None:
            yield found
        elif why := _hidden(member, moments, bounds, clock):
            yield check, why


def _found(
    part: "Part", bounds: Bounds, clock: BrokerTime, check: str
) -> Finding | None:
    # The first of what it certainly did under the hold.
    verb, moments, first = "began", part.begun, None
    if check == "G2":
        verb, moments = "delivered", part.delivered
        first = _bound(part.epochs, bounds, clock)
    said = f"{verb} though {bounds.span.scope} was held for the group before"
    within = moments.between(*clock.window(bounds.late, bounds.end))
    late = next(
        (one for one in within if clock.is_within(one[0], bounds.late, bounds.end)),
        None,
    )
    if late is not None and (first is None or late < first):
        first, seconds = late, clock.latest(late[0]) - bounds.span.start
        after = f"{seconds:.1f} s after {bounds.span.scope} was held for the group"
        said = f"{verb} {late[1]} {after}"
    if first is None:
        return None
    return Finding(
        check=check,
        member=part.member,
        offset=first[1],
        evidence=said,
        basis=Basis.CLOCKS,
        at=first[0],
    )


def _hidden(member: str, moments: Moments, bounds: Bounds, clock: BrokerTime) -> str:
    # Why what is not known to have been under a hold may have been.
    if not clock.is_measured:
        said = "has no entries of the broker's clock, as of a member without control="
        how = "--clock-skew takes its own clock at its word"
        return f"the journal of {member} {said}: {how}" if moments else ""
    for at, offset in moments.between(*clock.window(bounds.late, bounds.end)):
        start, end = clock.earliest(at), clock.latest(at)
        if end > bounds.late and start < bounds.end and not clock.is_known(at):
            return (
                f"{member} had {offset} when the broker's clock showed something between "
                f"{start:.3f} and {end:.3f}: it was set, or the machine was suspended"
            )
    return ""


def _bound(
    epochs: Sequence["Epoch"], bounds: Bounds, clock: BrokerTime
) -> tuple[float, int] | None:
    start, end = clock.window(bounds.known, bounds.end)
    begin = bisect_right(epochs, start, key=lambda one: one.owned_since)
    for number in range(begin, len(epochs)):
        epoch = epochs[number]
        if epoch.owned.at >= end:
            break
        first = epoch.first
        if first is None or clock.latest(first[0]) >= bounds.end:
            continue
        if bounds.binds(epoch, clock):
            return first
    return None
