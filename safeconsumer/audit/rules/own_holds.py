"""Reports what a member did under holds that its own journal shows, for A1 and W10."""

from collections.abc import Iterator

from safeconsumer.audit.case import Case
from safeconsumer.audit.facts import Under
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.moments import Moments
from safeconsumer.audit.rules.rule import Unjudged


def under_own_holds(case: Case, check: str) -> Iterator[Finding | Unjudged]:
    """Yield what was done under holds that stood, and under such as may have ended."""
    for name, part in case.parts.items():
        for fact in part.under:
            if fact.check != check:
                continue
            found = _finding(case, name, fact)
            if fact.doubt:
                yield check, f"{found.evidence}; {fact.doubt}"
            else:
                yield found


def _finding(case: Case, member: str, fact: Under) -> Finding:
    more = Moments()
    for at, number in fact.again:
        more.add(at, number)
    said = f"{fact.what} while {fact.scope} was held by {fact.owner}"
    return Finding(
        check=fact.check,
        case=case.address,
        member=member,
        offset=fact.offset,
        evidence=f"entry {fact.n}: {said}",
        basis=Basis.ORDER,
        at=fact.at,
        entry=fact.n,
        more=more,
    )
