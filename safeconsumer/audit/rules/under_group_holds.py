"""Reports actions of members under holds of their group, for G2 and W10."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import product

from safeconsumer.audit.case import Case, Epoch, Part
from safeconsumer.audit.clocks import BrokerTime
from safeconsumer.audit.control import Control
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.group_holds import Bounds
from safeconsumer.audit.moments import Moments
from safeconsumer.audit.rules.rule import Unjudged


def under_group_holds(case: Case, check: str) -> Iterator[Finding | Unjudged]:
    """
    Yield deliveries (G2), or starts of handlers (W10), under the group's holds.

    If a member's clock is unknown, the rule yields the check that cannot be judged and
    the reason: the member's actions may have been before, during or after the hold.

    An ownership that began after some member had read the hold must obey the hold from
    its first record on. The time at which the broker appended the hold's record is not
    decisive, because members can read the record only a little later. All other
    ownerships may continue until their member has read the hold, but no longer than
    ``--patience`` after the hold's start.
    """
    for bounds, (name, part) in product(case.bounds, case.parts.items()):
        moments = part.delivered if check == "G2" else part.begun
        if name in case.with_wrong_clocks:
            if moments:
                when = "before records that it had, or before an earlier measure"
                yield check, f"{name} measured a time of the broker's clock {when}"
            continue
        found = _found(part, bounds, case.clocks[name], check)
        if found is None:
            if why := _hidden(name, moments, bounds, case.clocks[name]):
                yield check, why
        elif case.covers(bounds.span.scope):
            yield found
        else:
            scope = bounds.span.scope
            yield check, f"it is unknown what {scope} covers: {found.evidence}"


def _found(part: Part, bounds: Bounds, clock: BrokerTime, check: str) -> Finding | None:
    # Return the first action that was certainly under the hold.
    verb, moments, first = "began", part.begun, None
    if check == "G2":
        verb, moments = "delivered", part.delivered
        first = _bound(part.epochs, bounds, clock)
    text = f"{verb} though {bounds.span.scope} was held for the group before"
    within = moments.between(*clock.window(bounds.late, bounds.end))
    late = next(
        (one for one in within if clock.is_within(one[0], bounds.late, bounds.end)),
        None,
    )
    if late is not None and (first is None or late < first):
        first, seconds = late, clock.latest(late[0]) - bounds.span.start
        after = f"{seconds:.1f} s after {bounds.span.scope} was held for the group"
        text = f"{verb} {late[1]} {after}"
    if first is None:
        return None
    return Finding(
        check=check,
        member=part.member,
        offset=first[1],
        evidence=text,
        basis=Basis.CLOCKS,
        at=first[0],
    )


def _hidden(member: str, moments: Moments, bounds: Bounds, clock: BrokerTime) -> str:
    # Return why it is unknown whether the member acted during a hold, although none of
    # its actions was certainly during the hold; "" if it is known that none was.
    if not clock.is_measured:
        text = "has no entries of the broker's clock, as of a member without control="
        how = "--clock-skew makes the judge trust the member's clock"
        return f"the journal of {member} {text}: {how}" if moments else ""
    for at, offset in moments.between(*clock.window(bounds.late, bounds.end)):
        start, end = clock.earliest(at), clock.latest(at)
        if end > bounds.late and start < bounds.end and not clock.is_known(at):
            return (
                f"{member} had {offset} when the broker's clock showed something between "
                f"{start:.3f} and {end:.3f}: it was set, or the machine was suspended"
            )
    return ""


def _bound(
    epochs: Sequence[Epoch], bounds: Bounds, clock: BrokerTime
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


def unknown_holds(case: Case) -> str:
    """Return why it is unknown when the group was held; "" if that is known."""
    if case.hidden_group:
        return case.hidden_group
    if case.control is not None:
        control = case.control
        return (
            control.trouble
            or _others_holds(case, control)
            or _not_covered(case, control)
        )
    given = case.settings.control
    for scope, holder in case.group.readings:
        if not case.covers(scope):
            continue
        how = "only the control topics show when (--control, or --history FILE)"
        if given is not None:
            how = f"the given history is of the group {given.group} only"
        return f"members read that {holder} held {scope}: {how}"
    return ""


def _not_covered(case: Case, control: Control) -> str:
    # Return why the control topics do not cover the journals completely; "" if they do.
    skew = case.settings.clock_skew
    clocks = case.clocks
    began = min(
        (clocks[epoch.member].about(epoch.owned.at) for epoch in case.epochs),
        default=math.inf,
    )
    if began < control.since + skew:
        return (
            f"the control topics are complete since {_utc(control.since)}, "
            "and the partition may have had an owner before"
        )
    last = max(
        (clocks[name].about(one.last_at) for name, one in case.parts.items()),
        default=-math.inf,
    )
    return _too_early(control) if control.may_lack(last, skew) else ""


def _too_early(control: Control) -> str:
    until = _utc(control.until)
    return f"the history ends at {until}: write it after the journals"


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"


def _others_holds(case: Case, control: Control) -> str:
    # Return why the holds topics cannot be those that the members read; "" if they may
    # be.
    for epoch in case.epochs:
        cluster = epoch.owned.cluster
        if control.cluster and cluster not in {None, control.cluster}:
            return (
                f"the holds topics are of the cluster {control.cluster}, and "
                f"{epoch.member} was on {cluster}"
            )
    for one in case.group.lacking:
        scope, holder = one.key
        if case.covers(scope) is False:
            continue
        if control.may_lack(one.written, case.settings.clock_skew):
            text = f"{holder} held {scope} later, as {one.entry} proves"
            return f"{_too_early(control)}: {text}"
        return (
            f"the holds topics lack the hold of {scope} by {holder} that {one.entry} "
            "proves: they are of another cluster, or were recreated since"
        )
    return ""
