"""Reports what members did under holds of their group, for G2 and W10."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime

from safeconsumer.audit.case import Case
from safeconsumer.audit.control import Control
from safeconsumer.audit.findings import Finding
from safeconsumer.audit.group_bounds import under_hold
from safeconsumer.audit.rules.rule import Unjudged


def under_group_holds(case: Case, check: str) -> Iterator[Finding | Unjudged]:
    """Yield what was done under them, and what may have been."""
    wrong = case.with_wrong_clocks if case.bounds else ()
    for name in wrong:
        if case.parts[name].delivered if check == "G2" else case.parts[name].begun:
            why = f"{name} measured a broker's clock that is behind records it had"
            yield check, why
    for bounds in case.bounds:
        scope = bounds.span.scope
        for found in under_hold(case, check, bounds):
            if isinstance(found, Finding) and not case.covers(scope):
                why = f"it is unknown what {scope} covers: {found.evidence}"
                yield found.check, why
            else:
                yield found


def unknown_holds(case: Case) -> str:
    """Return why it is not known when the group was held; "" if it is."""
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
        how = "only the control topics say when (--control, or --history FILE)"
        if given is not None:
            how = f"the history that was given is of the group {given.group} only"
        return f"members read that {holder} held {scope}: {how}"
    return ""


def _not_covered(case: Case, control: Control) -> str:
    # Why what was read of holds topics begins too late or ends too early; "" if not.
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
    until = _utc(control.until or 0.0)
    return f"the history ends at {until}, take it after the journals"


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"


def _others_holds(case: Case, control: Control) -> str:
    # Why what was read of holds topics is not of the members' own; "" if it may be.
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
            said = f"{holder} held {scope} later, as {one.entry} proves"
            return f"{_too_early(control)}: {said}"
        older = ", or the history was written before" if control.until is None else ""
        return (
            f"the holds topics lack the hold of {scope} by {holder} that {one.entry} "
            f"proves: they are of another cluster, or were made again since{older}"
        )
    return ""
