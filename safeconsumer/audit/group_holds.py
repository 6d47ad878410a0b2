"""
Judges what members did under holds of their group: G2 and W10.

When something was held is known from the control topics, by the broker's clock; what
members did is in their journals, by their own clocks. Two clocks may differ by the
allowance: a moment is before another one only if the difference is larger.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

from attrs import frozen

from safeconsumer.audit.control import Span
from safeconsumer.audit.findings import Address, Basis, Finding
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.tracks import Track

Members = Mapping[str, Track]


@frozen(kw_only=True)
class Bounds:
    """
    From when to when members certainly had to obey a hold, by any member's clock.

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

    def binds(self, epoch: Epoch) -> bool:
        """Return whether it binds an ownership from its first record on."""
        return epoch.owned_since > self.known

    def begins(self, epoch: Epoch) -> float:
        """Return from when on nothing may be delivered in an ownership."""
        return epoch.at if self.binds(epoch) else max(epoch.at, self.late)


class Readings:
    """When members read holds of their group: from then on everybody can read them."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, str], list[float]] = {}

    def add(self, scope: str, holder: str, at: float) -> None:
        """Note that a member read a hold."""
        self._at.setdefault((scope, holder), []).append(at)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the scope and the holder of each hold that was read."""
        return iter(self._at)

    def bounds(self, span: Span, patience: float, skew: float) -> Bounds:
        """
        Return when a hold had to be obeyed.

        Args:
            span: when it was in force.
            patience: seconds within which members read a hold.
            skew: seconds by which two clocks may differ.
        """
        late = span.start + patience + skew
        times = self._at.get((span.scope, span.holder), ())
        own = [at for at in times if span.start - skew <= at < span.end]
        read = max(span.start, min(own, default=math.inf))
        return Bounds(
            span=span, known=min(read + skew, late), late=late, end=span.end - skew
        )


def under_hold(case: Address, members: Members, bounds: Bounds) -> Iterator[Finding]:
    """
    Yield what was delivered (G2) and what handlers began (W10) under a group's hold.

    An ownership that began after somebody had read the hold is bound by it from its
    first record on: the broker's time of the record is a little before it can be read.
    All others may go on until they have read it, as long as patience allows.
    """
    scope, start = bounds.span.scope, bounds.span.start
    for member, part in members.items():
        first = _bound(part.epochs, bounds)
        if first is not None:
            said = f"delivered though {scope} was held for the group before"
            yield _finding("G2", case, member, first, said)
        for check, verb, moments in (
            ("G2", "delivered", part.delivered),
            ("W10", "began", part.handled.begun),
        ):
            late = next(moments.between(bounds.late, bounds.end), None)
            if late is not None and (check != "G2" or first is None):
                after = f"{late[0] - start:.1f} s after {scope} was held for the group"
                yield _finding(check, case, member, late, f"{verb} {late[1]} {after}")


def _bound(epochs: Iterable[Epoch], bounds: Bounds) -> tuple[float, int] | None:
    for epoch in epochs:
        first = epoch.first
        if first is not None and bounds.binds(epoch) and first[0] < bounds.end:
            return first
    return None


def _finding(
    check: str, case: Address, member: str, first: tuple[float, int], evidence: str
) -> Finding:
    at, offset = first
    return Finding(
        check=check,
        case=case,
        member=member,
        offset=offset,
        evidence=evidence,
        basis=Basis.CLOCKS,
        at=at,
    )
