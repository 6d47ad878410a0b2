"""
Reports actions of a member under holds in its own journal, for A1 and W10.

If a process was killed before it wrote the end of a group's hold, its journal lacks
that end. If the holds topic contains the end, the rule uses that end, by the broker's
clock.
"""

import math
from collections.abc import Iterator
from enum import Enum

from msgspec.structs import replace

from safeconsumer.audit.case import Case
from safeconsumer.audit.facts import UnderHold
from safeconsumer.audit.findings import Finding
from safeconsumer.audit.group_holds import Key, has_record
from safeconsumer.audit.moments import Moments
from safeconsumer.audit.rules.rule import Unjudged

_PERHAPS = (
    "by the holds topic the hold ended at about that time, and the member's clock does "
    "not show which came first"
)
_UNMEASURED = (
    "by the holds topic the hold ended before, and the journal has no entries of the "
    "broker's clock: --clock-skew makes the judge trust the member's clock"
)


class _Was(Enum):
    # Whether the partition was held at the time of an action.
    HELD, UNKNOWN, OVER = range(3)


def under_own_holds(case: Case, check: str) -> Iterator[Finding | Unjudged]:
    """Yield actions during holds, and checks that cannot be judged."""
    for name, part in case.parts.items():
        for fact in part.under:
            if fact.check != check:
                continue
            if fact.group_holds:
                yield from _by_topic(case, name, fact)
            elif fact.doubt:
                yield check, f"{_evidence(fact)}; {fact.doubt}"
            else:
                yield _finding(name, fact)


def _by_topic(case: Case, member: str, fact: UnderHold) -> Iterator[Finding | Unjudged]:
    # Of several holds, only the one that ends last is compared.
    keys = [(scope, owner) for scope, owner in fact.group_holds]
    end, (scope, owner) = max((_end(case, member, fact, key), key) for key in keys)
    found = {each: Moments() for each in _Was}
    for at, number in ((fact.at, fact.n), *fact.again):
        found[_was(case, member, at, end)].add(at, number)
    fact = replace(fact, scope=scope, owner=owner)
    if held := found[_Was.HELD]:
        yield _finding(member, _only(fact, held))
    if unknown := found[_Was.UNKNOWN]:
        is_measured = case.clocks[member].is_measured
        why = _PERHAPS if is_measured else _UNMEASURED
        yield fact.check, f"{_evidence(_only(fact, unknown))}; {why}"
    if fact.doubt and (over := found[_Was.OVER]):
        yield fact.check, f"{_evidence(_only(fact, over))}; {fact.doubt}"


def _end(case: Case, member: str, fact: UnderHold, key: Key) -> float:
    # Return the end, by the broker's clock, of the newest hold with this key that the
    # member had read before the fact; ``inf`` if it is unknown.
    read = case.group.readers[member].read.get(key, ())
    written = [one.written for one in read if one.n <= fact.n and one.written]
    if not written or case.control is None or case.control.trouble:
        return math.inf
    spans = case.group.spans_at(case.address.tp)
    ends = (
        span.end
        for span in spans
        if (span.scope, span.holder) == key and has_record(span, written[-1])
    )
    return max(ends, default=math.inf)


def _was(case: Case, member: str, at: float, end: float) -> _Was:
    if end == math.inf:
        return _Was.HELD
    if member in case.with_wrong_clocks:
        return _Was.UNKNOWN
    clock, skew = case.clocks[member], case.settings.clock_skew
    if clock.latest(at) < end - skew:
        return _Was.HELD
    return _Was.OVER if clock.earliest(at) > end + skew else _Was.UNKNOWN


def _only(fact: UnderHold, moments: Moments) -> UnderHold:
    # Return the fact without its actions at other moments.
    (at, number), *again = moments
    if number == fact.n:
        return replace(fact, again=again)
    what, *_ = fact.what.split()
    return replace(fact, n=number, at=at, what=what, offset=None, again=again)


def _evidence(fact: UnderHold) -> str:
    return _finding("", fact).evidence


def _finding(member: str, fact: UnderHold) -> Finding:
    evidence = f"{fact.what} while {fact.scope} was held by {fact.owner}"
    found = Finding.of_entry(fact.check, member, fact, fact.offset, evidence)
    for at, number in fact.again:
        found.more.add(at, number)
    return found
