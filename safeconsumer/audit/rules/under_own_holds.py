"""Reports actions of a member under holds that its own journal shows, for A1 and W10."""

from collections.abc import Iterator

from safeconsumer.audit.case import Case
from safeconsumer.audit.facts import UnderHold
from safeconsumer.audit.findings import Finding
from safeconsumer.audit.rules.rule import Unjudged


def under_own_holds(case: Case, check: str) -> Iterator[Finding | Unjudged]:
    """Yield the actions under holds in force, and those under holds that may have ended."""
    for name, part in case.parts.items():
        for fact in part.under:
            if fact.check != check:
                continue
            found = _finding(name, fact)
            if fact.doubt:
                yield check, f"{found.evidence}; {fact.doubt}"
            else:
                yield found


def _finding(member: str, fact: UnderHold) -> Finding:
    evidence = f"{fact.what} while {fact.scope} was held by {fact.owner}"
    found = Finding.of_entry(fact.check, member, fact, fact.offset, evidence)
    for at, number in fact.again:
        found.more.add(at, number)
    return found
